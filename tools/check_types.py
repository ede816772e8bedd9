"""Check the types of the package with mypy, and count what is left.

    python tools/check_types.py [PACKAGE...]   the check; with names, the messages of these packages
    python tools/check_types.py --lower        write fewer errors into tools/type_errors.json
    python tools/check_types.py --self-test    planted errors fail it

mypy reads text and knows nothing of `patch`, so it reads a copy in which each patched method is in its class. The
messages name the lines of the exported module.
"""
from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from write_stubs import moved, visits

ROOT = Path(__file__).resolve().parent.parent
COUNTS = ROOT / 'tools' / 'type_errors.json'
NEVER = {'attr-defined', 'call-arg', 'name-defined', 'return', 'syntax'}  # in no package
MESSAGE = re.compile(r'(elastic_nb/[^:]*):(\d+): error: (.*?)  \[([a-z-]+)\]')
Error = tuple[str, int, str, str]  # file, line, message, code


def signatures(methods: str) -> str:
    "The methods without their bodies"
    tree = ast.parse('class _:\n' + methods)
    for f in tree.body[0].body: f.body = ast.parse('raise NotImplementedError').body
    return ast.unparse(tree).partition('\n')[2]


def copied(package: Path, to: Path) -> dict[str, list[int]]:
    "Write the package with its patched methods in their classes; of each line of a file, the line where it came from"
    texts = {p: p.read_text(encoding='utf-8') for p in sorted(package.rglob('*.py')) if p.name != '_modidx.py'}
    guests = {home: (signatures(got[0]), got[1], name) for p, text in texts.items()
              for (home, name), got in visits(p, text).items()}
    origin = {}
    for path, text in texts.items():
        lines = moved(text, *guests.get(path, ())) or list(enumerate(text.splitlines(), 1))
        name = path.relative_to(package.parent)
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_text('\n'.join(line for _, line in lines) + '\n', encoding='utf-8')
        origin[name.as_posix()] = [0] + [n for n, _ in lines]
    return origin


def errors(package: Path = ROOT / 'elastic_nb') -> list[Error]:
    "What mypy reports for the package"
    with tempfile.TemporaryDirectory() as box:
        origin = copied(package, Path(box))
        said = subprocess.run([sys.executable, '-m', 'mypy', '--config-file', ROOT / 'pyproject.toml', '--cache-dir',
                               ROOT / '.mypy_cache', 'elastic_nb'], cwd=box, text=True, capture_output=True)
    if said.returncode not in (0, 1): raise SystemExit(said.stdout + said.stderr)
    found = [MESSAGE.match(line) for line in said.stdout.splitlines() if ': error: ' in line]
    return [(m[1], origin[m[1]][int(m[2])], m[3], m[4]) for m in found]


def shown(error: Error) -> str:
    return '{}:{}: {}  [{}]'.format(*error)


def home(error: Error) -> str:
    "The package of a file; a file at the top is one of its own"
    return Path(error[0]).parts[1].removesuffix('.py')


def counted(found: list[Error]) -> Counter[str]:
    "Errors of each package, and those of each kind that it must not have"
    return Counter(map(home, found)) + Counter(f'{home(e)}: {e[3]}' for e in found if e[3] in NEVER)


def refused(found: list[Error], most: dict[str, int]) -> list[str]:
    "What fails the check: more errors than a package had, the grave ones word for word"
    more = {name: n for name, n in sorted(counted(found).items()) if n > most.get(name, 0)}
    return [*(shown(e) for e in found if f'{home(e)}: {e[3]}' in more),
            *(f'{name}: {n} errors, {most.get(name, 0)} may be left; see check_types.py {name.partition(":")[0]}'
              for name, n in more.items())]


def lowered(found: list[Error], most: dict[str, int]) -> dict[str, int]:
    "The counts, where they have fallen; without those that are 0"
    count = counted(found)
    return {name: min(n, count[name]) for name, n in sorted(most.items()) if count[name]}


PLANTED = {  # file -> its text, which has one error in its last line
    'exact/planted.py': "def halved(n: int) -> int: return n // 2\n\n\nhalved('4')\n",
    'report/planted.py': 'import os\n\n\nos.nothing\n',
    'bench/planted.py': 'from ..basics import patch\nclass Box:\n    def volume(self) -> int: return self.side()\n@patch\n'
                        'def side(self: Box) -> int: return str(self)\n',
}


def self_test(most: dict[str, int]) -> int:
    "Planted errors fail the check, each for its own reason"
    with tempfile.TemporaryDirectory() as box:
        package = Path(shutil.copytree(ROOT / 'elastic_nb', Path(box) / 'elastic_nb'))
        for name, text in PLANTED.items(): (package / name).write_text(text)
        found = errors(package)
    new = {(*e[:2], e[3]) for e in found if 'planted' in e[0]}
    assert new == {('elastic_nb/exact/planted.py', 4, 'arg-type'), ('elastic_nb/report/planted.py', 4, 'attr-defined'),
                   ('elastic_nb/bench/planted.py', 5, 'return-value')}, new
    said = refused(found, most)
    assert len(said) >= 3 and any(line.startswith('exact: ') for line in said), said
    assert any(line.startswith('elastic_nb/report/planted.py:4: ') for line in said), said
    assert refused([('elastic_nb/x/y.py', 1, 'm', 'arg-type')] * 3, {'x': 3}) == []
    assert lowered([('elastic_nb/x/y.py', 1, 'm', 'arg-type')], {'x': 3, 'z': 1}) == {'x': 1}
    print(f'{len(PLANTED)} planted errors are found')
    return 0


def main(args: list[str]) -> int:
    most: dict[str, int] = json.loads(COUNTS.read_text())
    if args == ['--self-test']: return self_test(most)
    found = errors()
    if args == ['--lower']: COUNTS.write_text(json.dumps(lowered(found, most), indent=1) + '\n')
    elif args: print(*(shown(e) for e in found if home(e) in args), sep='\n')
    said = refused(found, most)
    print(*said, f'{len(found)} errors are left', sep='\n')
    return bool(said)


if __name__ == '__main__': sys.exit(main(sys.argv[1:]))
