"""The course: are its puzzles unsolved as they are, do the solutions solve them, and is all of nano shown?

    python tools/run_course.py              the lessons in nbs/course
    python tools/run_course.py --self-test  planted mistakes are found
    python tools/run_course.py --wheel [W]  do the lessons run from the wheel W, or from one that is built now?

The puzzles of a lesson are below a heading "## Puzzle", and use only what is defined there and the lesson's imports. Each
runs twice with STRICT=1: unchanged it must raise `Wrong`, and with the function of nbs/course/solutions/LESSON.py it
must not. A lesson has a prediction, at most WORDS words, and each function and class of nano is shown in exactly one lesson.
Each of the TERMS, and of those in the glossary, is emphasized, as in a definition, where the course first uses it.

With --wheel a new environment has the wheel and lends all other packages from this one. There plain IPython runs the cells of
each lesson in an empty folder, outside of the repository, but for those flagged slow, gpu or net.
"""
from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from lint_notebooks import ROOT, is_import

COURSE = ROOT / 'nbs' / 'course'
LESSONS, WORDS = 12, 2500
CELLS_BEFORE, WORDS_BEFORE = 8, 400  # in lesson 1, before its first kill
AT_ONCE, LIMIT_S = 2, 300  # lessons that run beside each other, and seconds of one
TERMS = ('worker', 'supervisor', 'weights digest', 'generation', 'heartbeat', 'survivor', 'replacement', 'replica', 'micro-batch',
         'dropout', 'epoch', 'cursor', 'world size', 'rank', 'global batch', 'checkpoint', 'all-reduce', 'process group',
         'rendezvous', 'split brain', 'roll call', 'time-out', 'fence', 'false positive', 'shard', 'spare', 'worker-step')
ORDINARY = {'digest', 'exact', 'node', 'quorum', 'store', 'world'}  # of the glossary, with other meanings in the lessons
GLOSSARY = ROOT / 'nbs' / 'glossary.ipynb'
FLAGGED = re.compile(r'^#\| *(slow|gpu|net)\b', re.M)
PROBE = "import elastic_nb, sys; assert elastic_nb.__file__.startswith(sys.prefix), f'not the wheel: {elastic_nb.__file__}'"
CHECK = re.compile(r'^board\.check\((\w+)\)', re.M)
SHOWN = re.compile(r"\bNanoSource\(([^)]*)\)")


def cells(page: Path) -> list[tuple[str, str]]:
    "Kind and text of each cell"
    return [(c['cell_type'], ''.join(c['source'])) for c in json.loads(page.read_text(encoding='utf-8'))['cells']]


def puzzle_cells(lesson: list[tuple[str, str]]) -> list[str]:
    "The code of a lesson's imports and of its puzzles"
    code = [(i, text) for i, (kind, text) in enumerate(lesson) if kind == 'code' and not text.startswith('!')]
    start = next((i for i, (_, text) in enumerate(lesson) if re.search(r'^## Puzzle', text, re.M)), len(lesson))
    only_imports = [text for _, text in code if all(is_import(n) for n in ast.parse(text).body)]
    return [*only_imports, *(text for i, text in code if i > start and text not in only_imports)]


def solved(text: str, solutions: dict[str, str]) -> str:
    "A cell with its answer replaced by the solution"
    return CHECK.sub(lambda m: f'{solutions[m[1]]}\n{m[0]}', text)


def attempt(sources: list[str], solutions: dict[str, str] | None) -> list[str]:
    "Run the puzzles with STRICT=1: the names of those that raise `Wrong`"
    from elastic_nb.testing.puzzles import WrongAnswer
    scope: dict[str, Any] = {}
    wrong = []
    for text in sources:
        found = CHECK.findall(text)
        try: exec(solved(text, solutions) if solutions else text, scope)
        except WrongAnswer: wrong += found
    return wrong


def puzzles(page: Path) -> Iterator[str]:
    "Complaints about the puzzles of a lesson"
    sources, file = puzzle_cells(cells(page)), page.parent / 'solutions' / f'{page.stem}.py'
    names = [n for text in sources for n in CHECK.findall(text)]
    if not names: yield 'it has no puzzle'; return
    if not file.exists(): yield f'there is no {file.name} in solutions'; return
    text = file.read_text(encoding='utf-8')
    solutions = {n.name: ast.get_source_segment(text, n) or '' for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}
    if {*solutions} != {*names}: yield f'its puzzles are {sorted(names)}, its solutions {sorted(solutions)}'; return
    for name in {*names} - {*attempt(sources, None)}: yield f'{name} is solved as it stands'
    for name in attempt(sources, solutions): yield f'the solution does not solve {name}'


def before_kill(lesson: list[tuple[str, str]]) -> Iterator[str]:
    "Complaints about what comes before the first kill of a lesson"
    first = next((n for n, (kind, text) in enumerate(lesson) if kind == 'code' and 'os.kill(' in text), None)
    if first is None: yield 'nothing is killed in it'; return
    words = sum(len(text.split()) for kind, text in lesson[:first] if kind == 'markdown')
    if first > CELLS_BEFORE or words > WORDS_BEFORE:
        yield f'{first} cells and {words} words before its first kill, at most {CELLS_BEFORE} and {WORDS_BEFORE}'


def text_of(page: Path) -> Iterator[str]:
    "Complaints about the words of a lesson"
    lesson = cells(page)
    words = sum(len(text.split()) for kind, text in lesson if kind == 'markdown')
    if words > WORDS: yield f'{words} words, at most {WORDS}'
    if page.name.startswith('01_'): yield from before_kill(lesson)
    if not any('.predict(' in text for _, text in lesson): yield 'it asks for no prediction'
    if not any('## The product does more' in text for _, text in lesson): yield 'it has no part "The product does more"'


def nano_shown(pages: list[Path], whole: bool) -> Iterator[str]:
    "Complaints about what the lessons show of nano; `whole`: all lessons are there"
    from elastic_nb import nano
    tree = ast.parse(Path(nano.__file__).read_text(encoding='utf-8'))
    names = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    shown = Counter(name for page in pages for _, text in cells(page) for call in SHOWN.findall(text)
                    for name in {n.split('.')[0] for n in ast.literal_eval(f'[{call}]')})
    yield from (f'{name} of nano is shown in {n} lessons' for name, n in sorted(shown.items()) if n > 1)
    if whole: yield from (f'{name} of nano is shown in no lesson' for name in sorted(names - {*shown}))


def body(lesson: list[tuple[str, str]]) -> str:
    "The prose of a lesson between its first paragraph, which promises, and its last, which looks beyond it; no code, no links"
    prose = [text for kind, text in lesson if kind == 'markdown'][2:]
    text = '\n'.join(prose).partition('## The product does more')[0]
    return re.sub(r'`[^`]*`|\]\([^)]*\)|^#.*$', ' ', text, flags=re.M)


def in_glossary() -> Iterator[str]:
    "The terms of the glossary that are nothing else in the lessons, and are not among TERMS"
    for _, text in cells(GLOSSARY):
        yield from (t for t in re.findall(r'^\| \*\*([^*]+)\*\* \|', text, re.M) if t not in {*TERMS, *ORDINARY})


def terms_defined(lessons: dict[str, list[tuple[str, str]]], terms: tuple[str, ...] = TERMS) -> Iterator[str]:
    "Complaints about terms that are not emphasized, as a definition is, where the course first uses them"
    for term in terms:
        word = re.compile(rf"(\*?)\b{term}s?\b(\*?)", re.I)
        first = next(((name, m) for name, lesson in lessons.items() if (m := word.search(body(lesson)))), None)
        if first is None and term in TERMS: yield f'no lesson uses the term {term!r}'
        elif first is None: pass
        elif '' in first[1].groups() and not re.search(rf"\*{term}s?\*", lessons[first[0]][1][1], re.I): yield f'{first[0]}: {term!r} is used before it is defined (**{term}**)'


def complaints(course: Path) -> list[str]:
    "All complaints about the course"
    os.environ['STRICT'] = '1'
    pages = sorted(p for p in course.glob('*.ipynb') if not p.name.startswith('00_'))
    found = [f'{page.name}: {line}' for page in pages for line in (*text_of(page), *puzzles(page))]
    if len(pages) == LESSONS:
        known = [*in_glossary()]
        if not known: found.append(f'{GLOSSARY.name} has no terms')
        found += terms_defined({page.name: cells(page) for page in pages}, (*TERMS, *known))
    return [*found, *nano_shown(pages, len(pages) == LESSONS)]


def environment(box: Path, wheel: str | None) -> Path:
    "The Python of a new environment that has the wheel; all else is lent from the environment of this process"
    if not wheel:
        away = shutil.ignore_patterns('.git', 'build', '*.egg-info', '__pycache__', '_proc', '_docs')
        source = shutil.copytree(ROOT, box / 'source', ignore=away)
        build = ['pip', 'wheel', '-q', '--no-deps', '--no-build-isolation', '-w', str(box), str(source)]
        subprocess.run([sys.executable, '-m', *build], check=True)
        wheel = str(next(box.glob('*.whl')))
    subprocess.run([sys.executable, '-m', 'venv', str(box / 'env')], check=True)
    python, lib = box / 'env' / 'bin' / 'python', sysconfig.get_path('purelib')
    ask = [str(python), '-c', 'import sysconfig; print(sysconfig.get_path("purelib"))']
    own = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
    Path(own, 'lent.pth').write_text(f"import site; site.addsitedir({lib!r})\n")
    install = ['pip', 'install', '-q', '--no-deps', '--force-reinstall', wheel]
    subprocess.run([str(python), '-m', *install], check=True, capture_output=True)
    return python


def in_ipython(python: Path, page: Path) -> tuple[Path, float, str]:
    "Run the plain cells of a lesson: the page, its seconds, and why it has failed"
    begin, lesson = time.monotonic(), json.loads(page.read_text(encoding='utf-8'))
    lesson['cells'] = [c for c in lesson['cells'] if c['cell_type'] == 'code' and not FLAGGED.search(''.join(c['source']))]
    lesson['cells'].insert(0, dict(lesson['cells'][0], id='probe', source=[PROBE]))
    with tempfile.TemporaryDirectory() as box:
        (Path(box) / page.name).write_text(json.dumps(lesson))
        (folder := Path(box) / 'empty').mkdir()
        env = {k: v for k, v in os.environ.items() if k not in ('PYTHONPATH', 'STRICT')}
        env |= dict(MPLBACKEND='Agg', IPYTHONDIR=f'{box}/ipython', PATH=f'{python.parent}:{env["PATH"]}')
        command = [str(python), '-m', 'IPython', '--colors=NoColor', f'{box}/{page.name}']
        try: done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired: return page, LIMIT_S, f'longer than {LIMIT_S} s'
    why = '' if done.returncode == 0 else '\n'.join((done.stdout + done.stderr).splitlines()[-25:])
    return page, time.monotonic() - begin, why


def from_the_wheel(wheel: str | None, course: Path = COURSE) -> list[str]:
    "Complaints about lessons that do not run from a wheel"
    with tempfile.TemporaryDirectory() as box, ThreadPoolExecutor(AT_ONCE) as pool:
        python, wrong = environment(Path(box), wheel), []
        pages = sorted(p for p in course.glob('*.ipynb') if not p.name.startswith('00_'))
        for page, seconds, why in pool.map(partial(in_ipython, python), pages):
            print(f"{'FAILED' if why else 'ok':6} {seconds:5.1f} s  {page.name}", flush=True)
            if why: wrong.append(f'{page.name}: {why}')
    return wrong


def self_test() -> int:
    "Planted mistakes are found"
    head = [('markdown', '## Puzzle: p'), ('code', 'from elastic_nb.testing.puzzles import Puzzle'), (
        'code', 'from elastic_nb.course import LessonBoard\nboard = LessonBoard(Puzzle("p", lambda f: f(), 0, "things"))')]
    open_ = puzzle_cells([*head, ('code', 'def p(): return 1\nboard.check(p)')])
    os.environ['STRICT'] = '1'
    assert attempt(open_, None) == ['p'] and attempt(open_, {'p': 'def p(): return 2'}) == ['p']
    assert attempt(open_, {'p': 'def p(): return 0'}) == []
    assert attempt(puzzle_cells([*head, ('code', 'def p(): return 0\nboard.check(p)')]), None) == []
    kill = ('code', 'os.kill(pid, 9)')
    assert not [*before_kill([('markdown', 'a ' * 390), kill])]
    assert len([*before_kill([('markdown', 'a ' * 401), kill])]) == len([*before_kill([*head[:1] * 9, kill])]) == len([*before_kill(head)]) == 1
    def first_use(text: str) -> list[str]:
        return [*terms_defined({'a': [('markdown', '# A rank'), ('markdown', 'A rank.'), ('markdown', text)]}, ('rank',))]
    assert first_use('A **rank** is a number. A rank is') == first_use('`rank` and *ranks*') == []
    opened = {'a': [('markdown', '# A'), ('markdown', 'A *rank* is a number.'), ('markdown', 'The rank is 0.')]}
    assert [*terms_defined(opened, ('rank',))] == []
    assert len(first_use('A rank. A **rank** is a number.')) == len(first_use('nothing')) == 1
    print('the puzzles of a lesson are tried both ways, and terms that are used before they are defined are found')
    return 0


def main(args: list[str]) -> int:
    if args == ['--self-test']: return self_test()
    found = from_the_wheel(*args[1:] or [None]) if args[:1] == ['--wheel'] else complaints(COURSE)
    print(*found, f'the course: {len(found)} complaints', sep='\n')
    return bool(found)


if __name__ == '__main__': sys.exit(main(sys.argv[1:]))
