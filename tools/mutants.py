"""Small faults, planted one at a time into exported functions: how many of them do the lessons notice?

    python tools/mutants.py --seed 1 -n 300 [--json F] [--workers 2] [--only TEXT]

A fault is a statement that is left out, a comparison turned round, or a whole number that is off by one. It is in a
copy of the repository, in the notebook and in the module, and the notebooks that make the module are tested there, without
the cells that `tst_flags` of settings.ini leaves out. It is *killed* if one of them fails (or passes the limit: three times
what it takes without a fault, and 30 s). The faults are chosen by a hash of what is changed, so the same seed chooses nearly
the same ones after other lines have changed: two commits can be compared. Where the notebook itself fails without any
fault, nothing can be said: such notebooks are named, and the exit code is 1. Nothing here imports the package, for the copy
is what must be imported.
"""
from __future__ import annotations

import argparse
import ast
import ctypes
import hashlib
import itertools
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path

from tqdm import tqdm

TURNED = {ast.Lt: '>=', ast.LtE: '>', ast.Gt: '<=', ast.GtE: '<', ast.Eq: '!=', ast.NotEq: '==',
          ast.In: 'not in', ast.NotIn: 'in', ast.Is: 'is not', ast.IsNot: 'is'}
SIGNS = {ast.Lt: '<', ast.LtE: '<=', ast.Gt: '>', ast.GtE: '>=', ast.Eq: '==', ast.NotEq: '!=',
         ast.In: 'in', ast.NotIn: r'not\s+in', ast.Is: 'is', ast.IsNot: r'is\s+not'}
CELL = re.compile(r'^# %% (?:\.\./)+nbs/(\S+\.ipynb) #(\w+)$')
STAMPS = itertools.count(10 ** 9)  # compiled modules are known by time and size: no two of ours share both
KEPT = ast.Import, ast.ImportFrom, ast.Pass, ast.Global, ast.Nonlocal  # to leave these out is no fault of logic


@dataclass(frozen=True)
class Mutant:
    "One fault: the original lines, and their replacement."
    module: str  # path of the module
    notebook: str  # path of the notebook, below nbs
    cell: str  # id of its cell
    function: str
    kind: str  # drop, compare, constant
    old: str
    new: str
    nth: int  # which of equal faults of this function

    def key(self, seed: int) -> str:
        "Its place in the order of this seed."
        what = [str(seed), self.module, self.function, self.kind, self.old.strip(), self.new.strip(), str(self.nth)]
        return hashlib.sha256('\0'.join(what).encode()).hexdigest()


def edits(node: ast.stmt, text: str) -> Iterator[tuple[str, int, int, str]]:
    "The faults of a statement: kind, where it begins and ends in `text`, and the replacement."
    starts = [0]
    for line in text.splitlines(keepends=True): starts.append(starts[-1] + len(line.encode()))
    def at(line: int, col: int) -> int: return starts[line - 1] + col
    def span(n: ast.AST) -> tuple[int, int]: return at(n.lineno, n.col_offset), at(n.end_lineno, n.end_col_offset)
    doc = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if not doc and not isinstance(node, KEPT) and not hasattr(node, 'body'): yield 'drop', *span(node), 'pass'
    heads = [node] if not hasattr(node, 'body') else [v for k, v in ast.iter_fields(node) if k in ('test', 'iter', 'subject')]
    for n in (n for head in heads for n in ast.walk(head)):
        if isinstance(n, ast.Compare):
            left = n.left
            for op, right in zip(n.ops, n.comparators):
                begin, end = span(left)[1], span(right)[0]
                between = text.encode()[begin:end].decode()
                found = list(re.finditer(SIGNS[type(op)], between))
                if len(found) == 1:
                    m = found[0]
                    yield 'compare', begin + len(between[:m.start()].encode()), begin + len(between[:m.end()].encode()), TURNED[type(op)]
                left = right
        if isinstance(n, ast.Constant) and type(n.value) is int: yield 'constant', *span(n), repr(n.value + 1)


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    "All statements of a function, those of functions within it too."
    for node in body:
        yield node
        for part in ('body', 'orelse', 'finalbody'): yield from statements(getattr(node, part, []))
        for handler in getattr(node, 'handlers', []): yield from statements(handler.body)
        for case in getattr(node, 'cases', []): yield from statements(case.body)


def functions(body: list[ast.stmt], prefix: str = '') -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.args.args[0] if node.args.args else None
            owner = ast.unparse(first.annotation) + '.' if any(ast.unparse(d) == 'patch' for d in node.decorator_list) and first else ''
            yield prefix + owner + node.name, node
        elif isinstance(node, ast.ClassDef): yield from functions(node.body, f'{node.name}.')


def mutants(repo: Path, module: Path) -> Iterator[Mutant]:
    "All faults of a module that can be planted into its notebook too."
    text, where = module.read_text(), []
    lines = text.splitlines()
    for n, line in enumerate(lines, 1):
        if m := CELL.match(line): where.append((n, m[1], m[2]))
    cells: dict[str, dict[str, str]] = {}
    for name in {w[1] for w in where}:
        nb = json.loads((repo / 'nbs' / name).read_text())
        cells[name] = {c['id']: ''.join(c['source']) for c in nb['cells']}
    raw = text.encode()
    for name, node in functions(ast.parse(text).body):
        seen: dict[tuple[str, str, str], int] = {}
        for stmt in statements(node.body):
            for kind, begin, end, new in edits(stmt, text):
                first, last = raw.rfind(b'\n', 0, begin) + 1, (raw.find(b'\n', end) + 1 or len(raw) + 1) - 1
                old, changed = raw[first:last].decode(), (raw[first:begin] + new.encode() + raw[end:last]).decode()
                notebook, cell = next((w[1:] for w in reversed(where) if w[0] <= stmt.lineno), ('', ''))
                count = seen[kind, old, changed] = seen.get((kind, old, changed), -1) + 1
                if cells.get(notebook, {}).get(cell, '').count(old) == 1 == text.count(old):
                    yield Mutant(str(module.relative_to(repo)), notebook, cell, name, kind, old, changed, count)


def plant(tree: Path, m: Mutant, undo: bool = False) -> None:
    "Put a fault into a tree, or take it out again."
    old, new = (m.new, m.old) if undo else (m.old, m.new)
    module, path = tree / m.module, tree / 'nbs' / m.notebook
    text = module.read_text()
    nb = json.loads(path.read_text())
    if not undo:
        module.with_suffix('.orig').write_text(text)
        path.with_suffix('.orig').write_text(path.read_text())
        module.write_text(text.replace(old, new))
        for c in nb['cells']:
            if c.get('id') == m.cell: c['source'] = ''.join(c['source']).replace(old, new)
        path.write_text(json.dumps(nb))
    else:
        for p in (module, path): p.with_suffix('.orig').replace(p)
    stamp = next(STAMPS)
    os.utime(module, (stamp, stamp))


def children(pid: int) -> list[int]:
    "All living descendants of a process."
    parents: dict[int, list[int]] = {}
    for entry in os.listdir('/proc'):
        if not entry.isdigit(): continue
        try: stat = Path('/proc', entry, 'stat').read_text()
        except OSError: continue
        state, parent = stat.rpartition(')')[2].split()[:2]
        if state != 'Z': parents.setdefault(int(parent), []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        new = parents.get(todo.pop(), [])
        found += new
        todo += new
    return found


def end_children() -> None:
    "Kill and reap whatever this process (a subreaper) has below it."
    while left := children(os.getpid()):
        for pid in left:
            try: os.kill(pid, signal.SIGKILL)
            except ProcessLookupError: pass
        reap()
        time.sleep(.01)
    reap()


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass


def tested(tree: Path, notebook: str, limit: float, flags: list[str]) -> tuple[str, float]:
    "Test a notebook of a tree in a copy of this process: 'ok', 'failed' or 'limit', and the seconds."
    began = time.monotonic()
    pid = os.fork()
    if not pid:
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2): os.dup2(null, fd)
            sys.stdout, sys.stderr = open(1, 'w', closefd=False), open(2, 'w', closefd=False)
            sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
            os.setsid()
            sys.path.insert(0, str(tree))
            os.environ.update(PYTHONPATH=str(tree), TMPDIR=tempfile.mkdtemp(dir=tree.parent))
            tempfile.tempdir = None
            os.chdir(tree / 'nbs')
            from nbdev.test import test_nb
            ok, _ = test_nb(tree / 'nbs' / notebook, skip_flags=flags, showerr=False, basepath=tree)
            import atexit
            atexit._run_exitfuncs()
            os._exit(0 if ok else 1)
        except BaseException: os._exit(1)
    fd = os.pidfd_open(pid)
    late = not wait([fd], limit)
    if late: os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(fd)
    end_children()
    for folder in tree.parent.glob('tmp*'): shutil.rmtree(folder, ignore_errors=True)
    return 'limit' if late else 'failed' if code else 'ok', time.monotonic() - began


def worker(repo: Path, box: Path, jobs: multiprocessing.Queue, out: multiprocessing.Queue, flags: list[str], notebooks: dict[str, list[str]]) -> None:
    "Take mutants from `jobs`, say of each what became of it."
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # a subreaper: orphans of a lesson are found here
    tree = box / 'tree'
    shutil.copytree(repo, tree, ignore=shutil.ignore_patterns('.git', '__pycache__'))
    for name in ('torch', 'torch._dynamo', 'matplotlib_inline.backend_inline', 'nbdev.test'): __import__(name)
    plain: dict[str, tuple[str, float]] = {}
    while (m := jobs.get()) is not None:
        result, seconds = 'survived', 0.
        for notebook in notebooks[m.module]:
            if notebook not in plain:
                for _ in range(3):
                    plain[notebook] = tested(tree, notebook, 300, flags)
                    if plain[notebook][0] == 'ok': break
            state, usual = plain[notebook]
            if state != 'ok': result = 'unknown'; continue
            plant(tree, m)
            try: state, took = tested(tree, notebook, 3 * usual + 30, flags)
            finally: plant(tree, m, undo=True)
            seconds += took
            if state != 'ok': result = 'killed' if state == 'failed' else 'limit'; break
        out.put((m, result, seconds))
    out.put(None)


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--seed', type=int, default=1)
    ap.add_argument('-n', type=int, default=300, help='how many faults')
    ap.add_argument('--repo', type=Path, default=Path(__file__).parents[1])
    ap.add_argument('--only', default='', help='only modules whose path holds this text')
    ap.add_argument('--workers', type=int, default=2)
    ap.add_argument('--json', type=Path, help='where the result goes')
    ap.add_argument('--list', action='store_true', help='show the faults, run nothing')
    args = ap.parse_args()
    repo = args.repo.resolve()
    every = [m for p in sorted((repo / 'elastic_nb').rglob('*.py')) if args.only in str(p) for m in mutants(repo, p)]
    chosen = sorted(every, key=lambda m: m.key(args.seed))[:args.n]
    if args.list:
        for m in chosen: print(f'{m.module} {m.function} {m.kind}\n  - {m.old.strip()}\n  + {m.new.strip()}')
        print(len(every), 'in all')
        return 0
    notebooks: dict[str, list[str]] = {}
    for p in {m.module for m in chosen}:
        notebooks[p] = sorted({m[1] for line in (repo / p).read_text().splitlines() if (m := CELL.match(line))})
    config = (repo / 'settings.ini').read_text()
    flags = re.search(r'^tst_flags = (.*)$', config, re.M)[1].split()
    chosen.sort(key=lambda m: m.module)  # a worker that has seen a notebook without a fault knows its seconds
    room = tempfile.mkdtemp()  # TemporaryDirectory would be deleted by the first lesson that ends: it runs what runs at exit
    try:
        jobs, out = multiprocessing.Queue(), multiprocessing.Queue()
        crew = []
        for k in range(args.workers):
            (box := Path(room, str(k))).mkdir()
            crew.append(multiprocessing.Process(target=worker, args=(repo, box, jobs, out, flags, notebooks)))
            crew[-1].start()
        for m in chosen: jobs.put(m)
        for _ in crew: jobs.put(None)
        rows, left = [], len(crew)
        with tqdm(total=len(chosen), mininterval=10) as bar:
            while left:
                row = out.get()
                if row is None: left -= 1; continue
                rows.append(asdict(row[0]) | dict(result=row[1], seconds=round(row[2], 2)))
                bar.update()
                if args.json: args.json.write_text(json.dumps(rows, indent=1))
        for p in crew: p.join()
    finally: shutil.rmtree(room)
    count = {k: sum(r['result'] == k for r in rows) for k in ('killed', 'limit', 'survived', 'unknown')}
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=repo, capture_output=True, text=True).stdout.strip()
    found = dict(commit=commit, seed=args.seed, n=len(rows)) | count
    if args.json: args.json.write_text(json.dumps(found | dict(rows=sorted(rows, key=lambda r: (r['module'], r['function'], r['old']))), indent=1))
    print(json.dumps(found))
    return int(bool(count['unknown']))


if __name__ == '__main__': sys.exit(main())
