"""Run the commands of the docs with the installed wheel, outside the repository, and compare what they say.

    python tools/run_commands.py              with the Python of the environment of the wheel
    python tools/run_commands.py PAGE...      only these pages, or `help`
    python tools/run_commands.py --list       what would be run, what not, and why; runs nothing
    python tools/run_commands.py --self-test  does each rule notice what it forbids?

What is run, page by page, each in an empty folder of its own, with nothing but the wheel on the path:
- a block that begins with ```sh, as one script of bash. If a block of ```text follows, that is what it must say;
- in README.md also each block that begins with ```python, in order, in one process. One that begins with `# name.py`
  becomes that file. The indented block that follows is what its last line must show;
- the `Example:` lines of every `--help`, in the order of the commands, in one folder that holds what PREPARED makes.
  A new command needs no entry anywhere: its example is run as it is.
`elastic-nb ...` between backquotes, anywhere in a page or a lesson, must be understood by the real parser.

Outputs are compared as same_text.py says: times, hashes and the last digits of numbers may differ, and `...` stands for
anything. A command that cannot run here is in NOT_HERE, with the reason, and listed; one that is neither is an error.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from same_text import LIKE, like

ROOT = Path(__file__).resolve().parent.parent
PAGES = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'benchmarks/README.md']  # and all notebooks
LIMIT_S = 300  # for one block
READY_S = 60   # until a server says its first line
# What cannot run outside the repository or without a network: how it begins, and why.
NOT_HERE = {
    r"pip install -c constraints\.txt \.$": 'installs the package: the wheel under test is installed already',
    r"pip install -c constraints\.txt -e ": 'installs a working copy: .ci/run does that with this very line',
    r"pip install ('?elastic-nb|-q elastic-nb)": 'needs the network: there must be a release on PyPI',
    r'pip install -r constraints-nbdev2\.txt$': '.ci/run does it: the environment of nbdev 2',
    r'git (clone|tag|push) ': 'needs the network',
    r'nbdev[-_]': 'needs the repository: .ci/run does it there',
    r'python tools/': 'needs the repository: .ci/run does it there',
    r'\.ci/run': 'is what runs this',
    r'elastic-nb train .* HOST0:(PORT|29400)': 'needs three hosts: its lesson runs it on them',
    r'elastic-nb (train|simulate) .*--on ray': 'needs the extra ray: its lesson runs it on a cluster of Ray; here it is parsed',
    r'elastic-nb etcd ': 'starts servers that stay, and needs the extra dev: the lesson of the commands runs all three',
    r'elastic-nb chaos .*--link ': 'takes Linux and root: its lesson trains over a link under slow; here it is parsed',
    r'elastic-nb (submit|resume) ': 'needs a controller that runs: the lesson of the commands starts one',
    r'(helm|kubectl|sbatch|ray job) ': 'needs a cluster',
    r'docker ': 'needs docker: the lesson of the image looks at the file with hadolint',
    r'elastic-nb deploy (render|validate|explain) ': 'needs the extra deploy: the lesson of the commands runs all three',
    r'elastic-nb deploy rehearse ': 'takes a minute and an etcd: its lesson runs it under slow; here it is parsed',
    r'elastic-nb bench ': 'takes minutes: the rows of each benchmark run in its lesson; here it is parsed',
}
# Changes to the examples of --help, so that they run on one machine: what is written, and what runs.
HERE = {'--host 10.0.0.2': '--host 127.0.0.1', '--port 7070': '--port 0', '--port 8000': '--port 0',
        'training.steps=200': 'training.steps=20', '--step 500': '--step 20',
        'demo --steps 20': 'demo --out runs/demo --steps 20', 'n0:29400': '127.0.0.1:29400'}
SERVERS = {'controller', 'peer-memory', 'serve'}  # run until they are stopped: their first line counts, then they get SIGINT
SHELL = {'cd', 'ls', 'cat', 'kill', 'sleep', 'export', 'mkdir', 'rm', 'echo', 'head', 'wait', 'test', 'true', ':'}
# What the examples of --help find in their folder, name -> text; that of `train` makes runs/mine, for all after it.
PREPARED = {
    'queue.yaml': 'workers: [{name: a}, {name: b}]\njob: {num_tasks: 2, required_flops: 9, data_size: 0}\n',
    'grid.yaml': 'plan: queue.yaml\noverrides: {controller.scheduler: [priority, capability]}\n',
    'texts/one.txt': 'A text to be trained on. ' * 40, 'texts/two.txt': 'Another one. ' * 40,
    'pages/one.jsonl': '{"text": "' + 'A page with enough words to be kept. ' * 12 + '"}\n',
    'mine.py': 'def good(text):\n    return len(text) > 10\n',
}


# ---- what a page holds ---------------------------------------------------------------------------
@dataclass
class Block:
    "Something to run: its page, its language (sh or python), its text, and what it shows (None: nothing)"
    page: str
    kind: str
    text: str
    shown: str | None = None
    excused: list[str] = field(default_factory=list)


FENCE = re.compile(r'^```(sh|python)\n(.*?)^```\n(?:\n*```text\n(?P<text>.*?)^```$|\n+(?P<ind>(?: {4}[^\n]*\n|\n(?= {4}))+))?',
                   re.M | re.S)
INLINE = re.compile(r'`((?:[A-Z_]+=\S+ )*elastic-nb(?: [^`\n]+)?)`')


def words_of(path: Path) -> str:
    "The text of a page; of a notebook, that of its markdown cells"
    text = path.read_text(encoding='utf-8')
    if path.suffix != '.ipynb': return text
    return '\n\n'.join(''.join(c['source']) for c in json.loads(text)['cells'] if c['cell_type'] == 'markdown') + '\n'


def blocks(text: str, page: str) -> Iterator[Block]:
    "The blocks of a page that are to be run"
    for m in FENCE.finditer(text):
        shown = m['text'] if m['text'] is not None else re.sub(r'^ {4}', '', m['ind'], flags=re.M) if m['ind'] else None
        if m[1] == 'sh' or page == 'README.md': yield Block(page, m[1], m[2], shown)


def parts(line: str) -> list[str]:
    "The commands of a line, without variables in front and comments behind"
    line = re.sub(r'\s+#\s.*$', '', line)
    return [re.sub(r'^(\w+=\S+ +)+', '', part.strip()) for part in re.split(r'&&|;|\||&(?!\d)', line) if part.strip()]


def reason(command: str) -> str | None:
    "Why a command is not run here; None if it is"
    return next((why for start, why in NOT_HERE.items() if re.match(start, command)), None)


def runnable(block: Block) -> tuple[str, list[str]]:
    "The script without what cannot run here (notes go to `block.excused`), and complaints about unknown commands"
    script, unknown = block.text.replace('\\\n', ' '), []
    for command in [p for line in script.splitlines() if not line.lstrip().startswith('#') for p in parts(line)]:
        if why := reason(command):
            block.excused.append(f'{command}: {why}')
            script = script.replace(command, ':', 1)
        elif (first := command.split()[0]) not in SHELL | {'elastic-nb'}:
            unknown.append(f'{block.page}: {first} is neither run nor excused (NOT_HERE): {command}')
    return script, unknown


# ---- the real parser -----------------------------------------------------------------------------
def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    "All commands that do something"
    for name, sub in getattr(command, 'commands', {}).items(): yield from leaves(sub, (*path, name))
    if not hasattr(command, 'commands'): yield path, command


def refused(command: str, tree: dict[tuple[str, ...], Any]) -> str | None:
    "Why the parser refuses `elastic-nb ...`; None if it understands it, or if it is the beginning of commands"
    words = shlex.split(re.sub(r'^([A-Z_]+=\S+ )+| [|>] .*$', '', command))[1:]
    if '--help' in words: words = words[:words.index('--help')]
    for path, leaf in tree.items():
        if (*words[:len(path)],) != path: continue
        args = [{'...': 'x', 'N': '1', 'P': '1', 'PORT': '1'}.get(w, w) for w in words[len(path):]]
        try: leaf.make_context(' '.join(path), args) if args else None  # without any, it is the name of a command
        except Exception as e: return str(e) or type(e).__name__
        return None
    starts = {path[:n] for path in tree for n in range(len(path))}
    names = not words or words[0].startswith('--') or (*words,) in starts
    stands_for_all = len(words) > 1 and words[1] == 'NAME' and (words[0],) in starts
    return None if names or stands_for_all else 'there is no such command'


def commands() -> dict[tuple[str, ...], Any]:
    "Every command of the installed package"
    import typer.main
    from elastic_nb.cli import app
    return dict(leaves(typer.main.get_command(app)))


def examples(tree: dict[tuple[str, ...], Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    "(command, line) for each `Example:` of a help; (command, '') for a help without one"
    for path, leaf in tree.items():
        found = re.findall(r'^\s*Example: (.+)$', leaf.help or '', re.M)
        yield from ((path, line) for line in found or [''])


# ---- running -------------------------------------------------------------------------------------
PYTHON = '''
import ast, sys
sys.path.insert(0, '')
names = {'__name__': '__main__'}
for text in BLOCKS:
    body = ast.parse(text).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), 'page', 'exec'), names)
    shown = eval(compile(ast.Expression(last.value), 'page', 'eval'), names) if last else None
    if shown is not None: print(repr(shown))
    print('END OF BLOCK', flush=True)
'''


def environment(home: Path) -> dict[str, str]:
    "What a user has: the commands of this environment, and neither network nor colours"
    mine = {k: v for k, v in os.environ.items() if k not in ('PYTHONPATH', 'VIRTUAL_ENV', 'FAST', 'IN_TEST')}
    return mine | dict(PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}", HOME=str(home), NO_COLOR='1',
                       COLUMNS='80', HF_HUB_OFFLINE='1', TERM='dumb')


def execute(args: list[str], folder: Path, limit: float = LIMIT_S) -> tuple[int, str, str]:
    "Exit code, stdout and stderr of a program in `folder`; -1 and what it said if it takes longer than `limit` s"
    p = subprocess.Popen(args, cwd=folder, env=environment(folder), text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, start_new_session=True)
    try: return (*((said := p.communicate(timeout=limit)) and (p.returncode,)), *said)
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        return (-1, *p.communicate())


def serves(line: str, folder: Path) -> str | None:
    "Start a server, read its first line, stop it with SIGINT; what is wrong, or None"
    with open(folder/'server.log', 'w+') as log:
        p = subprocess.Popen(['bash', '-c', f'exec env {line}'], cwd=folder, env=environment(folder), text=True,
                             stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + READY_S
        while not (said := (folder/'server.log').read_text()) and p.poll() is None and time.monotonic() < end:
            time.sleep(.05)
        time.sleep(.5)  # it has said where it listens: is it still there?
        alive = p.poll() is None
        if alive: os.killpg(p.pid, signal.SIGINT)
        try: code = p.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            return f'does not end on SIGINT: {line}'
    if not alive or not said: return f'{line}: ends with code {code}: {(folder/"server.log").read_text()}'
    return None if code in (0, 130) else f'{line}: code {code} on SIGINT: {(folder/"server.log").read_text()}'


def run_page(page: str, found: list[Block], folder: Path) -> list[str]:
    "What is wrong with the blocks of one page, run in `folder`"
    wrong = []
    for block in found:
        if block.kind != 'sh': continue
        script, unknown = runnable(block)
        wrong += unknown
        if unknown or not re.search(r'\w', script.replace(':', '').replace('&&', '')): continue
        code, out, err = execute(['bash', '-e', '-o', 'pipefail', '-c', script], folder)
        if code: wrong.append(f'{page}: code {code} of\n{block.text}{out}{err}')
        elif block.shown is not None and not like(block.shown, out):
            wrong.append(f'{page}:\n{block.text}shows\n{block.shown}and says\n{out}')
    return wrong + run_python(page, [b for b in found if b.kind == 'python'], folder)


def run_python(page: str, found: list[Block], folder: Path) -> list[str]:
    "What is wrong with the Python of one page"
    code = []
    for block in found:
        if name := re.match(r'# (\w+\.py)\n', block.text): (folder/name[1]).write_text(block.text)
        else: code.append(block)
    if not code: return []
    (folder/'page_blocks.py').write_text(PYTHON.replace('BLOCKS', repr([b.text for b in code])))
    status, out, err = execute([sys.executable, 'page_blocks.py'], folder)
    said = out.split('END OF BLOCK\n')[:-1]
    if status or len(said) != len(code): return [f'{page}: code {status} of its Python: {out}{err}']
    return [f'{page}:\n{b.text}shows\n{b.shown}and says\n{got}' for b, got in zip(code, said)
            if b.shown is not None and not like(b.shown, got)]


def run_examples(tree: dict[tuple[str, ...], Any], folder: Path) -> tuple[int, list[str], list[str]]:
    "How many examples of --help ran, which did not and why, and what is wrong"
    for name, text in PREPARED.items():
        (folder/name).parent.mkdir(exist_ok=True)
        (folder/name).write_text(text)
    import torch  # of the wheel under test: what another trainer has left
    torch.save(torch.nn.Linear(2, 3).state_dict(), folder/'model.pt')
    ran, excused, wrong = 0, [], []
    for path, line in examples(tree):
        what, command = ' '.join(path), re.sub(r'^([A-Z_]+=\S+ )+', '', line)
        if not line: wrong.append(f'elastic-nb {what} --help shows no example')
        elif why := refused(line, tree): wrong.append(f'elastic-nb {what} --help: {line}: {why}')
        elif why := reason(command): excused.append(f'{command}: {why}')
        else:
            ran += 1
            for old, new in HERE.items(): line = line.replace(old, new)
            begin = time.monotonic()
            if path[0] in SERVERS: problem = serves(line, folder)
            else:
                code, out, err = execute(['bash', '-c', line], folder)
                problem = f'the example of its help ends with code {code}: {line}\n{out}{err}' if code else None
            print(f'  {time.monotonic() - begin:.0f} s  {line}', flush=True)
            if problem: wrong.append(f'elastic-nb {what}: {problem}')
    return ran, excused, wrong


# ---- everything ----------------------------------------------------------------------------------
def pages() -> dict[str, str]:
    "Name of each page -> its text"
    found = [ROOT/p for p in PAGES] + sorted((ROOT/'nbs').rglob('*.ipynb'))
    return {p.relative_to(ROOT).as_posix(): words_of(p) for p in found
            if p.exists() and '.ipynb_checkpoints' not in p.parts and p.name != 'index.ipynb'}  # that is README.md


def check(wanted: list[str], only_list: bool) -> list[str]:
    "All complaints. Pages and the examples of --help run beside each other, each in folders of their own"
    tree = commands()
    if only_list or wanted and 'help' not in wanted: return check_pages(tree, wanted, only_list)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as beside:
        examples_of_help = beside.submit(run_examples, tree, Path(folder))
        wrong = check_pages(tree, wanted, only_list)
        ran, excused, more = examples_of_help.result()
    print(f'help: {ran} examples ran')
    for line in excused: print(f'  not run: {line}')
    return wrong + more


def check_pages(tree: dict[tuple[str, ...], Any], wanted: list[str], only_list: bool) -> list[str]:
    "Complaints of pages: blocks that do not run or show something else, commands that the parser refuses"
    wrong, mentioned = [], 0
    for page, text in pages().items():
        if wanted and page not in wanted: continue
        for command in INLINE.findall(text):
            mentioned += 1
            why = refused(command, tree)  # a sentence may leave out what every reader adds
            if why and not why.startswith('Missing '): wrong.append(f'{page}: `{command}`: {why}')
        found, begin = [*blocks(text, page)], time.monotonic()
        if not found: continue
        with tempfile.TemporaryDirectory() as folder:
            if only_list: wrong += [u for b in found if b.kind == 'sh' for u in runnable(b)[1]]
            else: wrong += run_page(page, found, Path(folder))
        print(f'{page}: {len(found)} blocks, {time.monotonic() - begin:.0f} s', flush=True)
        for block in found: print(*(f'  not run: {line}\n' for line in block.excused), sep='', end='')
    print(f'{mentioned} commands in running text are understood or complained of')
    return wrong


def self_test() -> list[str]:
    "Rules that do not notice what they should"
    cases = [  # a page, and a part of the complaint ('': there is none)
        ('```sh\necho a 1.5 s\n```\n\n```text\na 2.5 s\n```\n', ''), ('```sh\necho a\n```\n\n```text\nb\n```\n', 'shows'),
        ('```sh\nfalse-command\n```\n', 'neither run nor excused'), ('```sh\nls /no/such\n```\n', 'code 2'),
        ('```sh\ngit clone x && echo b\n```\n```text\nb\n```\n', ''), ('```python\n1 + 1\n```\n\n    2\n', ''),
        ('```python\n1 + 1\n```\n\n    3\n', 'shows'), ('```python\n# f.py\nx = 1\n```\n\n```python\nimport f\n```\n', ''),
        ('```python\n1 / 0\n```\n', 'ZeroDivision'), ('```sh\nexport A=1\ncd .\necho $A # c\n```\n```text\n1\n```\n', ''),
    ]
    wrong = [f'like({a!r}, {b!r}) must say {want}' for a, b, want in LIKE if like(a, b) != want]
    for text, want in cases:
        with tempfile.TemporaryDirectory() as folder:
            said = '\n'.join(run_page('README.md', [*blocks(text, 'README.md')], Path(folder)))
        if bool(said) != bool(want) or want not in said: wrong.append(f'{text!r}: {said!r}, not {want!r}')
    return wrong


def main() -> int:
    "The command line"
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('pages', nargs='*')
    ap.add_argument('--list', action='store_true', help='run nothing')
    ap.add_argument('--self-test', action='store_true', help='see that every rule notices what it forbids')
    args = ap.parse_args()
    if not shutil.which('bash'): raise SystemExit('bash is needed')
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it; ours must not
    if args.self_test: wrong = self_test()
    else:
        import elastic_nb
        if not elastic_nb.__file__.startswith(sys.prefix): raise SystemExit(f'not the wheel: {elastic_nb.__file__}')
        wrong = check(args.pages, args.list)
    print('\n'.join(wrong) or 'as shown')
    return 1 if wrong else 0


if __name__ == '__main__': sys.exit(main())
