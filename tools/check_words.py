"""Count phrases that an American or British engineer would not write, in each package; a count may only fall.

    python tools/check_words.py [PACKAGE...]   the check; with names, the places in these packages
    python tools/check_words.py --lower        write lower counts into tools/phrases.json
    python tools/check_words.py --self-test    planted phrases fail it

It reads the markdown of notebooks and pages, and the docstrings and comments of code cells and tools. Text between
backquotes is code and does not count. What to write instead is in `PHRASES`.
"""
from __future__ import annotations

import ast
import io
import json
import re
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COUNTS = ROOT / 'tools' / 'phrases.json'
PAGES = ['CONTRIBUTING.md', 'CHANGELOG.md', 'tools/benchmarks.md']  # README.md is rendered from nbs/index.ipynb
PHRASES = {  # what is counted: what an engineer writes
    r'\b(?:go|goes|went) on\b': 'continue, resume',
    r'\bst(?:and|ands|ood) in\b(?! for\b)': 'is in, is stored in',
    r'\bl(?:ie|ies|ay) (?:in|on)\b': 'is in, is on',
    r'\bwhoever\b': 'the supervisor, a survivor, you',
    r'\bnobody\b': 'no worker, no caller',
    r'\bsomebody\b': 'a worker, a user, you',
    r'\b(?:is|are|was|were) told\b': 'is notified, receives, is logged',
    r"\bbehind (?:its|their|your|one's) backs?\b": 'in the background',
    r'\bby hand\b': 'manually',
    r'\b(?:made|built|written|begins?|begun|began) anew\b': 'rebuilt, again',
}
FOUND = re.compile('|'.join(f'(?:{p})' for p in PHRASES), re.I)
CODE = re.compile(r'^ *(?P<f>```+|~~~+).*?^ *(?P=f)$|`[^`\n]*`', re.M | re.S)
Place = tuple[str, str, str]  # package, file with its cell or line, phrase


def remarks(code: str) -> Iterator[str]:
    "The docstrings and comments of a cell; of a cell in another language nothing"
    code = re.sub(r'^([ \t]*)[%!].*$', r'\1pass', code, flags=re.M) if not code.lstrip().startswith('%%') else ''
    try: tree, tokens = ast.parse(code), [*tokenize.generate_tokens(io.StringIO(code).readline)]
    except (SyntaxError, tokenize.TokenError): return   # the lint of notebooks complains of it
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    comments: list[tuple[int, str]] = [(t.start[0], t.string.lstrip('# ')) for t in tokens if t.type == tokenize.COMMENT]
    joined: list[str] = []
    for n, (line, text) in enumerate(comments):   # a phrase may run over the end of a line
        if n and comments[n - 1][0] == line - 1: joined[-1] += ' ' + text
        else: joined.append(text)
    yield from joined


def phrases(text: str) -> list[str]:
    "The counted phrases of a text"
    return [m[0].lower() for m in FOUND.finditer(' '.join(CODE.sub(' ', text).split()))]


def texts(root: Path) -> Iterator[tuple[str, str, str]]:
    "(package, place, text) of everything that is read"
    for path in sorted((root / 'nbs').rglob('*.ipynb')):
        name = path.relative_to(root / 'nbs')
        if '.ipynb_checkpoints' in name.parts: continue
        package = re.sub(r'^\d\d_', '', name.parts[0]).removesuffix('.ipynb')
        for n, cell in enumerate(json.loads(path.read_text(encoding='utf-8'))['cells']):
            source = ''.join(cell['source'])
            for text in [source] if cell['cell_type'] == 'markdown' else remarks(source):
                yield package, f'{name}: cell {n}', text
    for path in sorted((root / 'tools').glob('*.py')):
        if path.name == Path(__file__).name: continue   # it names all of them
        for text in remarks(path.read_text(encoding='utf-8')): yield 'tools', f'tools/{path.name}', text
    for page in PAGES:
        if (root / page).exists(): yield Path(page).stem, page, (root / page).read_text(encoding='utf-8')


def places(root: Path = ROOT) -> list[Place]:
    "Each phrase that is found, and where"
    return [(package, where, phrase) for package, where, text in texts(root) for phrase in phrases(text)]


def refused(found: list[Place], most: dict[str, int]) -> list[str]:
    "What fails the check: a package with more phrases than it had"
    return [f'{name}: {n} phrases, {most.get(name, 0)} may be left; see check_words.py {name}'
            for name, n in sorted(Counter(p[0] for p in found).items()) if n > most.get(name, 0)]


def lowered(found: list[Place], most: dict[str, int]) -> dict[str, int]:
    "The counts, where they have fallen; without those that are 0"
    count = Counter(p[0] for p in found)
    return {name: min(n, count[name]) for name, n in sorted(most.items()) if count[name]}


def self_test() -> int:
    "Planted phrases fail the check; code, backquotes and sound sentences do not"
    bad = ['The run goes on.', 'It stands in\nthe ledger.', 'The file lies on the disk.', 'Whoever asks.', 'Nobody waits.',
           'Somebody must.', 'Rank 0 is told.', 'A copy behind its back.', 'Killed by hand.', 'The group is made anew.']
    missed = [text for text in bad if len(phrases(text)) != 1]
    assert not missed and len(bad) == len(PHRASES), missed
    good = ['It continues.', 'A mock stands in for etcd.', 'He tells nothing.', 'See `goes on`.', '```sh\nby hand\n```']
    assert not any(map(phrases, good)), good
    code = '#| export\nx = "goes on"  # it goes\n# on\n!ls by hand\ndef f():\n    "Done by hand."\n    # nobody\n    return x\n'
    assert sorted(p for text in remarks(code) for p in phrases(text)) == ['by hand', 'goes on', 'nobody'], [*remarks(code)]
    with tempfile.TemporaryDirectory() as box:
        root = Path(box)
        for name in ('nbs/03_data', 'tools'): (root / name).mkdir(parents=True)
        cells = [dict(cell_type='markdown', source='It goes on by hand.'), dict(cell_type='code', source='# nobody')]
        (root / 'nbs/03_data/01_a.ipynb').write_text(json.dumps(dict(cells=cells)))
        (root / 'tools/a.py').write_text('"Nobody."\n')
        (root / 'CHANGELOG.md').write_text('Somebody.\n')
        found = places(root)
    assert Counter(p[0] for p in found) == dict(data=3, tools=1, CHANGELOG=1), found
    assert refused(found, dict(data=3, tools=1, CHANGELOG=1)) == [] and len(refused(found, dict(data=2, tools=1))) == 2
    assert lowered(found, dict(data=5, tools=1, old=2)) == dict(data=3, tools=1)
    print(f'{len(bad)} planted phrases are found')
    return 0


def main(args: list[str]) -> int:
    "The command line"
    if args == ['--self-test']: return self_test()
    most: dict[str, int] = json.loads(COUNTS.read_text())
    found = places()
    if args == ['--lower']: COUNTS.write_text(json.dumps(lowered(found, most), indent=1) + '\n')
    elif args: print(*(f'{where}: {phrase}' for package, where, phrase in found if package in args), sep='\n')
    said = refused(found, most)
    print(*said, f'{len(found)} phrases are left', sep='\n')
    return bool(said)


if __name__ == '__main__': sys.exit(main(sys.argv[1:]))
