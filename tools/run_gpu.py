"""Run on a GPU what is written for one: every gpu cell, and the rows of `elastic_nb.bench.gpu`.

    python tools/run_gpu.py                      all of it, under nine minutes; writes benchmarks/gpu.json
    python tools/run_gpu.py --rehearse           the same machinery without a GPU; nothing is kept
    python tools/run_gpu.py --rehearse NB...     only the cells of these notebooks
    python tools/run_gpu.py --show NB            print the program that is made of a notebook
    python tools/run_gpu.py --needs              what is imported, and what of it is missing here

Needs Python, torch and the packages that `--needs` lists; no nbdev, no fastcore, no network. Folders of more
packages go into PYTHONPATH. Exit code 0: all passed; 1: something failed; 2: it could not begin.

How a program is made of a notebook
-----------------------------------
A GPU is lent for minutes, and a lesson can take one. So a lesson is not run: it is *sliced*. All code cells
are split into top-level statements, and of these stay only those that a gpu cell needs, in their old order:

1. Begin with the names that the gpu cell looks up, and walk backwards from there.
2. A statement that binds a needed name stays. What it looks up itself is needed from there on, and names
   that it binds for sure (assignment, `def`, `class`, `import`) are not needed any more: what they were
   before is of no interest. A statement that only may bind or that changes the value (`x += 1`, `x.a = 1`,
   `x[i] = 1`, `if c: x = 1`, `x.append(1)`, a patched method) stays too, but `x` is still needed.
3. The body of a function looks names up when it is called. So what it needs is needed at its `def` and, as
   it may be rebound, at the end; the walk is repeated until nothing new is needed.
4. Of an import only the names that are needed stay; so what only pictures need is not even imported.

Lines that begin with `%` or `!` are dropped; of a cell that begins with `%%writefile F` a statement is made
that writes F; cells of other magics, and those flagged `slow` or `net`, are left out. What this cannot see
is a change through another function (`fill(x)`, on a line of its own). The rehearsal notices names that are
not there.
"""
from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import importlib
import importlib.util
import itertools
import json
import linecache
import os
import re
import signal
import subprocess
import symtable
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / 'benchmarks' / 'gpu.json'
LIMIT_S = 530  # all in all
CELLS_S = 260  # all notebooks
NOTEBOOK_S = 120  # one notebook
STANDS_IN = 'fastcore',  # packages that need not be there: see `stand_in`


# ---- a notebook as a list of statements --------------------------------------------------------------------

@dataclass
class Cell:
    "A code cell: its number and id in the notebook, its directives, and its Python."
    number: int
    id: str
    flags: set[str]
    source: str


def python_of(source: str) -> str:
    "The Python in the source of a cell, with as many lines; magics and shell commands become empty."
    first, _, rest = source.partition('\n')
    if written := re.match(r'%%writefile\s+(?:-a\s+)?(\S+)', first):
        return f'__import__("pathlib").Path({written[1]!r}).write_text({rest!r})'
    if first.startswith('%%'): return ''
    lines = source.split('\n')
    return '\n'.join('' if re.match(r'\s*[%!]', line) else line for line in lines)


def cells_of(path: Path) -> list[Cell]:
    "The code cells of a notebook."
    found = []
    for n, c in enumerate(json.loads(path.read_text())['cells']):
        if c['cell_type'] != 'code': continue
        source = ''.join(c['source'])
        lines = source.split('\n')
        head = itertools.takewhile(lambda line: line.startswith('#') or not line.strip(), lines)
        flags = {line.partition('|')[2].strip() for line in head if line.replace(' ', '').startswith('#|')}
        found.append(Cell(n, c.get('id', str(n)), flags, python_of(source)))
    return found


@dataclass
class Statement:
    "One top-level statement, and the names it has to do with."
    cell: Cell
    node: ast.stmt
    binds: set[str] = field(default_factory=set)  # for sure
    touches: set[str] = field(default_factory=set)  # may bind, or changes the value
    calls: set[str] = field(default_factory=set)  # a method of it is called on a line of its own
    now: set[str] = field(default_factory=set)  # looked up when the statement runs
    late: set[str] = field(default_factory=set)  # looked up when a function that it defines is called


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children(): yield from _tables(child)


def _roots(node: ast.AST) -> set[str]:
    "Names in the expression of which `.a` or `[0]` is assigned, or `.f()` called."
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _exported(module: str) -> set[str]:
    "What `from module import *` binds."
    if module.partition('.')[0] in STANDS_IN: return set(stand_in())
    file = ROOT / (module.replace('.', '/') + '.py')
    file = file if file.exists() else ROOT / module.replace('.', '/') / '__init__.py'
    if not file.exists(): raise ValueError(f"cannot tell what `from {module} import *` brings")
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and any(getattr(t, 'id', '') == '__all__' for t in node.targets):
            return set(ast.literal_eval(node.value))
    return set()


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    names = {(a.asname or a.name).partition('.')[0] for a in node.names}
    return _exported(node.module) if names == {'*'} else names


def _analysed(cell: Cell, node: ast.stmt) -> Statement:
    s = Statement(cell, node)
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        s.binds = _imported(node)
        return s
    top, *inner = _tables(symtable.symtable(ast.unparse(node), '<cell>', 'exec'))
    bound = {x.get_name() for x in top.get_symbols()
             if x.is_assigned() or x.is_imported() or x.is_namespace()}
    s.now = {x.get_name() for x in top.get_symbols() if x.is_referenced()}
    for table in inner:
        known = {x.get_name() for x in table.get_symbols() if x.is_global() and x.is_referenced()}
        (s.now if table.get_type() == 'class' else s.late).update(known)
        bound |= {x.get_name() for x in table.get_symbols() if x.is_declared_global() and x.is_assigned()}
    sure = isinstance(node, (ast.Assign, ast.AnnAssign, ast.With, ast.ClassDef, ast.FunctionDef,
                             ast.AsyncFunctionDef))
    (s.binds if sure else s.touches).update(bound)
    for n in _run_now(node):
        if isinstance(n, (ast.Attribute, ast.Subscript)) and isinstance(n.ctx, (ast.Store, ast.Del)):
            s.touches |= _roots(n.value)
        call = n.value if isinstance(n, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            s.calls |= _roots(call.func.value)
    if isinstance(node, ast.FunctionDef) and node.decorator_list and node.args.args:   # @patch
        first = node.args.args[0].annotation
        if isinstance(first, ast.Name): s.touches.add(first.id)
    return s


def _run_now(node: ast.AST) -> Iterator[ast.AST]:
    "All nodes but those in bodies of functions and classes."
    yield node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)): return
    for child in ast.iter_child_nodes(node): yield from _run_now(child)


def statements(cells: Iterable[Cell]) -> list[Statement]:
    "All top-level statements of `cells`. Raises SyntaxError."
    return [_analysed(cell, node) for cell in cells
            for node in ast.parse(cell.source, f'cell {cell.number}').body]


# ---- the slice ---------------------------------------------------------------------------------------------

def needed_by(cell: Cell, before: list[Statement]) -> list[Statement]:
    "What of `before` the statements of `cell` need, in order."
    own, late, first = statements([cell]), set(), set()
    later = set().union(*(s.binds for s in own))   # a function of the cell finds these in the cell
    for s in own[::-1]: first = first - s.binds | s.now | s.late - later
    kinds = ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef   # torch.f() changes no value of ours
    fixed = {n for s in before if isinstance(s.node, kinds) for n in s.binds}
    while True:
        needed, kept, found = first | late, [], set()
        for s in reversed(before):
            if not (s.binds | s.touches | s.calls - fixed) & needed: continue
            kept.append(s)
            needed = needed - s.binds | s.now | s.late
            found |= s.late
        if found <= late: return kept[::-1]
        late |= found


def _text(s: Statement, wanted: set[str]) -> str:
    "The source of a statement; of an import, what is wanted of it."
    if not isinstance(s.node, (ast.Import, ast.ImportFrom)):
        lines = s.cell.source.split('\n')
        first = min([s.node.lineno, *(d.lineno for d in getattr(s.node, 'decorator_list', []))])
        if ';' in lines[first - 1] or ';' in lines[s.node.end_lineno - 1]: return ast.unparse(s.node)
        return '\n'.join(lines[first - 1:s.node.end_lineno])
    def asked_for(a: ast.alias) -> bool:
        return a.name == '*' or (a.asname or a.name).partition('.')[0] in wanted
    names = [a for a in s.node.names if asked_for(a)]
    again = type(s.node)(**{k: v for k, v in ast.iter_fields(s.node)} | dict(names=names))
    return ast.unparse(again)


@dataclass
class Part:
    "A piece of the program: the statements of one cell that are needed, or a whole gpu cell."
    cell: Cell
    gpu: bool
    text: str


def program(path: Path) -> list[Part]:
    "The program for a notebook: in the order of its cells, the gpu cells and what they need."
    before, parts = [], {}
    cells = cells_of(path)
    gpu = [c for c in cells if 'gpu' in c.flags]
    last = max((c.number for c in gpu), default=-1)
    kept: dict[int, Statement] = {}
    wanted: set[str] = set()
    for c in cells:
        if c.number > last: break
        if 'gpu' in c.flags:
            for s in (own := needed_by(c, before)): kept[id(s)] = s
            wanted = wanted.union(*(s.now | s.late for s in [*own, *statements([c])]))
        if not c.flags & {'slow', 'net'} and 'eval: false' not in c.flags: before += statements([c])
    for s in before:
        if id(s) in kept and 'gpu' not in s.cell.flags: parts.setdefault(s.cell.number, []).append(s)
    out = []
    for c in cells:
        if c in gpu: out.append(Part(c, True, c.source))
        elif c.number in parts:
            out.append(Part(c, False, '\n'.join(_text(s, wanted) for s in parts[c.number])))
    return out


# ---- what must be installed --------------------------------------------------------------------------------

def _imports(tree: ast.AST, package: str) -> Iterator[tuple[str, bool]]:
    "Modules that a file imports, and whether at once (True) or in a function, or after a `try` (False)."
    def walk(node: ast.AST, now: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.Import): yield from ((a.name, now) for a in node.names)
        if isinstance(node, ast.ImportFrom):
            above = package.split('.')
            base = '.'.join(above[:len(above) - node.level + 1]) if node.level else ''
            name = '.'.join(filter(None, (base, node.module)))
            yield name, now
            yield from ((f'{name}.{a.name}', now) for a in node.names if name.startswith('elastic_nb'))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):   # a worker's entry; a script
            for found in re.finditer(r'\belastic_nb(?:\.\w+)+', node.value): yield found[0], now
        inner = now and not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.Try))
        for child in ast.iter_child_nodes(node): yield from walk(child, inner)
    yield from walk(tree, True)


def closure(texts: Iterable[str]) -> dict[str, bool]:
    "Packages from outside that these programs import, also through elastic_nb; whether at once."
    found: dict[str, bool] = {}
    todo = [(name, now) for text in texts for name, now in _imports(ast.parse(text), '')]
    seen: set[tuple[str, bool]] = set()
    while todo:
        name, now = todo.pop()
        if (name, now) in seen: continue
        seen.add((name, now))
        root = name.partition('.')[0]
        if root != 'elastic_nb':
            if root not in sys.stdlib_module_names: found[root] = found.get(root, False) or now
            continue
        for i in range(1, name.count('.') + 2):   # the packages above it, too
            module = '.'.join(name.split('.')[:i])
            file = ROOT / (module.replace('.', '/') + '.py')
            is_package = not file.exists()
            file = ROOT / module.replace('.', '/') / '__init__.py' if is_package else file
            if not file.exists(): continue
            package = module if is_package else module.rpartition('.')[0]
            todo += [(n, now and at_once) for n, at_once in _imports(ast.parse(file.read_text()), package)]
    return found


def missing(packages: Mapping[str, bool], late: bool = False) -> list[str]:
    "Which are not installed; `late`: also of those that are only imported when a function asks for them."
    wanted = (n for n, now in packages.items() if (now or late) and n not in STANDS_IN)
    return sorted(n for n in wanted if importlib.util.find_spec(n) is None)


# ---- what is used of fastcore, where there is none ---------------------------------------------------------

def stand_in() -> dict[str, Any]:
    "The functions of `fastcore.test` that lessons use."
    def equals(a: Any, b: Any) -> bool:
        import torch
        if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
            a, b = torch.as_tensor(a), torch.as_tensor(b)
            return a.shape == b.shape and bool((a.cpu() == b.cpu()).all())
        if hasattr(a, '__array__') or hasattr(b, '__array__'):
            import numpy
            return numpy.array_equal(a, b)
        if isinstance(a, (dict, str)) or isinstance(b, (dict, str)): return a == b
        if hasattr(a, '__iter__') and hasattr(b, '__iter__'):
            a, b = list(a), list(b)
            return len(a) == len(b) and all(map(equals, a, b))
        return a == b
    def near(a: Any, b: Any, eps: float) -> bool:
        if hasattr(a, '__iter__'): return all(near(x, y, eps) for x, y in zip(a, b, strict=True))
        return abs(a - b) < eps
    def test(a: Any, b: Any, cmp: Any, cname: str | None = None) -> None:
        assert cmp(a, b), f'{cname}:\n{a}\n{b}'
    def test_eq(a: Any, b: Any) -> None: test(a, b, equals, '==')
    def test_ne(a: Any, b: Any) -> None: test(a, b, lambda x, y: not equals(x, y), '!=')
    def test_is(a: Any, b: Any) -> None: test(a, b, lambda x, y: x is y, 'is')
    def test_close(a: Any, b: Any, eps: float = 1e-5) -> None:
        test(a, b, lambda x, y: near(x, y, eps), 'close')
    @contextlib.contextmanager
    def expect_fail(exc: Any = Exception, msg: str = '', contains: str = '') -> Iterator[None]:
        msg = msg or contains
        try: yield
        except exc as e: assert msg in str(e), f'expected {msg!r} in {e}'
        else: raise AssertionError('expected an exception, and there was none')
    def test_fail(f: Any, msg: str = '', contains: str = '', args: Any = (), kwargs: Any = None) -> None:
        with expect_fail(Exception, msg or contains): f(*args, **(kwargs or {}))
    return {k: v for k, v in locals().items() if k.startswith('test') or k == 'expect_fail'}


def lend_fastcore() -> None:
    "Make `from fastcore.test import ...` work where fastcore is missing."
    if importlib.util.find_spec('fastcore'): return
    package, test = types.ModuleType('fastcore'), types.ModuleType('fastcore.test')
    vars(test).update(stand_in(), __all__=[*stand_in()])
    package.test, package.__path__ = test, []
    sys.modules |= {'fastcore': package, 'fastcore.test': test}


# ---- running a program -------------------------------------------------------------------------------------

def unknown(text: str, space: Mapping[str, Any]) -> list[str]:
    "Names in `text`, and attributes of modules, that are not there."
    own = statements([Cell(0, '', set(), text)])
    made = set().union(*(s.binds | s.touches for s in own))
    asked = set().union(*(s.now | s.late for s in own))
    wrong = {n for n in asked if not (n in space or n in made or hasattr(builtins, n))}
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load): continue
        chain, at = [], node
        while isinstance(at, ast.Attribute): chain, at = [at.attr, *chain], at.value
        value = space.get(at.id) if isinstance(at, ast.Name) and at.id not in made else None
        for i, name in enumerate(chain):
            if not isinstance(value, types.ModuleType): break
            if not hasattr(value, name): wrong.add('.'.join([at.id, *chain[:i + 1]]))
            value = getattr(value, name, None)
    return sorted(wrong)


def _why(e: BaseException, file: str) -> str:
    "The last line of an error, and the line of the cell."
    frames = [f for f in traceback.extract_tb(e.__traceback__) if f.filename == file]
    at = f' (line {frames[-1].lineno} of the cell)' if frames else ''
    last = [line for line in f'{type(e).__name__}: {e}'.strip().split('\n') if line.strip()]
    return f'{last[0][:300]}{" ... " + last[-1][:200] if len(last) > 1 else ""}{at}'


def run_notebook(path: Path, rehearse: bool, report: Path) -> bool:
    "Run the program of a notebook in this process; `report` gets a line of JSON for each gpu cell."
    lend_fastcore()
    lesson = types.ModuleType('lesson')
    sys.modules['lesson'] = lesson
    good, broken, promised = True, '', {}
    for part in program(path):
        file, start = f'{path.name} cell {part.cell.number}', time.perf_counter()
        linecache.cache[file] = len(part.text), None, part.text.splitlines(True), file
        error = ''
        try:
            code = compile(part.text, file, 'exec', dont_inherit=True)  # of this file's __future__
            if part.gpu and rehearse:
                names = unknown(part.text, promised | vars(lesson))
                if names: raise NameError(f"not defined: {', '.join(names)}")
                made = statements([part.cell])   # what later gpu cells find here
                promised |= dict.fromkeys(set().union(*(s.binds | s.touches for s in made)))
            else:
                exec(code, vars(lesson))
                if part.gpu: _settled()
        except (Exception, SystemExit, KeyboardInterrupt) as e:
            error = _why(e, file)
            traceback.print_exc()
            if not part.gpu: broken = broken or f'cell {part.cell.number}, which it needs: {error}'
        if not part.gpu: continue
        if error and broken: error = broken
        good = good and not error
        verdict = 'failed' if error else 'rehearsed' if rehearse else 'passed'
        line = verdict_on(path, part.cell, verdict, error, round(time.perf_counter() - start, 3))
        with report.open('a') as f: f.write(json.dumps(line) + '\n')
    return good


def verdict_on(path: Path, cell: Cell, verdict: str, error: str,
               seconds: float | None = None) -> dict[str, Any]:
    about = dict(notebook=str(path.resolve().relative_to(ROOT)), cell=cell.id, number=cell.number)
    return about | dict(verdict=verdict, seconds=seconds, error=error)


def _settled() -> None:
    "Errors of kernels that still run belong to this cell; and the next one starts with the default kernels."
    import torch
    if torch.cuda.is_initialized(): torch.cuda.synchronize()
    torch.use_deterministic_algorithms(False)


def environment(rehearse: bool) -> dict[str, str]:
    "For all processes: this repository's package first, no network, nothing written beside the sources."
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get('PYTHONPATH', ''))))
    env = os.environ | dict(PYTHONPATH=path, PYTHONDONTWRITEBYTECODE='1', PYTHONUNBUFFERED='1',
                            MPLBACKEND='Agg', HF_HUB_OFFLINE='1', TRANSFORMERS_OFFLINE='1')
    if sys.platform == 'linux': env.setdefault('GLOO_SOCKET_IFNAME', 'lo')   # its name need not resolve
    if rehearse: env['CUDA_VISIBLE_DEVICES'] = ''
    return env


def child(args: list[str], limit: float, rehearse: bool, log: Path, cwd: Path = ROOT) -> str:
    "Run this file with `args` in a process of its own; '' or why it has not ended well."
    if limit <= 0: return 'no time was left'
    with log.open('wb') as out:
        p = subprocess.Popen([sys.executable, str(Path(__file__).resolve()), *args], stdin=subprocess.DEVNULL,
                             stdout=out, stderr=subprocess.STDOUT, env=environment(rehearse), cwd=cwd,
                             start_new_session=True)
        try: code = p.wait(limit)
        except subprocess.TimeoutExpired: code = None
        finally:
            with contextlib.suppress(ProcessLookupError): os.killpg(p.pid, signal.SIGKILL)
            p.wait()
    if code is None: return f'not done in {limit:.0f} s'
    return '' if code == 0 else f'ended with {code}'


def try_cells(path: Path, limit: float, rehearse: bool, folder: Path) -> list[dict[str, Any]]:
    "The verdicts on the gpu cells of a notebook."
    parts, told = program(path), []
    if lacks := missing(closure(p.text for p in parts)): why = f"missing here: {', '.join(lacks)}"
    else:
        report, log = folder / f'{path.stem}.jsonl', folder / f'{path.stem}.log'
        report.touch()
        args = ['--one', str(path.resolve()), '--report', str(report), *['--rehearse'] * rehearse]
        why = child(args, limit, rehearse, log, path.parent) or 'the process ended before it'
        told = [json.loads(line) for line in report.read_text().splitlines()]
        if any(t['error'] for t in told) or len(told) < sum(p.gpu for p in parts): show_end(log)
    done = {t['cell'] for t in told}
    return told + [verdict_on(path, p.cell, 'failed', why) for p in parts if p.gpu and p.cell.id not in done]


def show_end(log: Path) -> None:
    lines = log.read_text(errors='replace').strip().split('\n') if log.exists() else []
    print('\n'.join(f'    | {line}' for line in lines[-25:]), file=sys.stderr)


# ---- all of it ---------------------------------------------------------------------------------------------

def with_gpu_cells() -> list[Path]:
    "The notebooks that have gpu cells, in reading order."
    every = sorted(p for p in (ROOT / 'nbs').rglob('*.ipynb') if '.ipynb_checkpoints' not in p.parts)
    return [p for p in every if any('gpu' in c.flags for c in cells_of(p))]


BENCH = "from elastic_nb.bench.gpu import bench_gpu"


def measure(report: Path, rehearse: bool, seconds: float, commit: str | None) -> None:
    "The rows of the benchmark, in this process; what is measured is written after each section."
    from elastic_nb.bench.gpu import QUICK_JOB, REAL_JOB, bench_gpu
    more = dict(commit=commit) if commit else {}
    bench_gpu(QUICK_JOB if rehearse else REAL_JOB, seconds=seconds, tell=lambda result: result.save(report), **more)


def needs(paths: Iterable[Path]) -> None:
    "Print what is imported."
    texts = [p.text for path in paths for p in program(path)] + [BENCH]
    packages = closure(texts)
    for late, about in ((False, 'at once'), (True, 'only when asked for')):
        names = sorted(n for n, now in packages.items() if now != late)
        print(f'{about}:', ', '.join(n + ' (missing)' * bool(missing({n: True})) for n in names) or 'nothing')


def try_bench(seconds: float, rehearse: bool, commit: str | None, folder: Path) -> dict[str, Any]:
    "The result of the benchmark; what is not complete is in its notes."
    report, log = folder / 'gpu.json', folder / 'bench.log'
    if lacks := missing(closure([BENCH])): why = f"missing here: {', '.join(lacks)}"
    else:
        args = ['--measure', str(report), '--seconds', f'{seconds:.0f}', *['--rehearse'] * rehearse]
        why = child([*args, *(['--commit', commit] if commit else [])], seconds + 10, rehearse, log)
        if why: show_end(log)
    result = json.loads(report.read_text()) if report.exists() else {}
    result.setdefault('notes', []).extend([f'The benchmark failed: {why}'] if why else [])
    for r in result.get('rows', ()):
        spread = f"({r['min']:.4g} to {r['max']:.4g}, n = {r['n']})"
        print(f"{r['median']:12,.4g} {r['unit']:9} {r['who']}: {r['metric']} {spread}")
    for k, v in result.get('ratios', {}).items(): print(f'{v:12.4f} x         {k}')
    for note in failures(result): print(note)
    return result


def failures(result: Mapping[str, Any]) -> list[str]: return [n for n in result['notes'] if ' failed: ' in n]


def perform(paths: list[Path], rehearse: bool, bench: bool, commit: str | None, out: Path) -> int:
    "Run the cells of these notebooks, and the benchmark; write the result; the exit code."
    begin, verdicts, result = time.monotonic(), [], dict(notes=[])
    with tempfile.TemporaryDirectory() as name:
        for path in paths:
            left = CELLS_S - (time.monotonic() - begin)
            limit = NOTEBOOK_S * 5 if rehearse else min(NOTEBOOK_S, left)   # a rehearsal may take its time
            for v in try_cells(path, limit, rehearse, Path(name)):
                verdicts.append(v)
                took = '' if v['seconds'] is None else f"{v['seconds']:.2f} s"
                where = f"{v['notebook']} cell {v['number']}"
                print(f"{v['verdict']:9} {took:>9}  {where}  {v['error']}".rstrip(), flush=True)
        left = 300. if rehearse else LIMIT_S - (time.monotonic() - begin) - 15
        if bench: result = try_bench(left, rehearse, commit, Path(name))
    result['cells'] = verdicts
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + '\n')
    failed = [v for v in verdicts if v['verdict'] == 'failed']
    print(f"{len(verdicts) - len(failed)} {'rehearsed' if rehearse else 'passed'}, {len(failed)} failed, "
          f"{len(result.get('rows', ()))} rows, {time.monotonic() - begin:.0f} s; written to "
          f"{'a temporary file' if rehearse else out}")
    return 1 if failed or failures(result) else 0


def refuse(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument('notebooks', nargs='*', type=Path, help='only these (and no benchmark)')
    ask.add_argument('--rehearse', action='store_true', help='on the CPU: up to each gpu cell; tiny rows')
    ask.add_argument('--show', type=Path, help='print the program made of this notebook')
    ask.add_argument('--needs', action='store_true', help='print which packages are needed')
    ask.add_argument('--out', type=Path, help=f'where to write; else {OUT.relative_to(ROOT)}')
    ask.add_argument('--commit', help='what is measured, where git cannot say')
    for own in ('--one', '--report', '--measure'): ask.add_argument(own, type=Path, help=argparse.SUPPRESS)
    ask.add_argument('--seconds', type=float, help=argparse.SUPPRESS)
    a = ask.parse_args()
    if a.one: return 0 if run_notebook(a.one, a.rehearse, a.report) else 1
    if a.measure: return measure(a.measure, a.rehearse, a.seconds, a.commit) or 0
    if a.show:
        for p in program(a.show): print(f"# ---- cell {p.cell.number}{', gpu' * p.gpu}\n{p.text}\n")
        return 0
    wrong = [str(p) for p in a.notebooks if not p.exists()]
    if wrong: return refuse(f"There is no {', '.join(wrong)}.")
    paths = [p.resolve() for p in a.notebooks] or with_gpu_cells()
    if a.needs: return needs(paths) or 0
    if importlib.util.find_spec('torch') is None: return refuse("torch is not installed: nothing can be run.")
    if not a.rehearse:
        import torch
        if not torch.cuda.is_available():
            return refuse("No GPU that torch can use was found, so nothing was run; `--rehearse` tries what "
                          "can be tried without one.")
    lacks = missing(closure([p.text for path in paths for p in program(path)] + [BENCH]))
    if lacks:
        print(f"Missing packages, without which some of this cannot run: {', '.join(lacks)}; "
              "put a folder that has them into PYTHONPATH.", file=sys.stderr)
        if not a.rehearse and missing(closure([BENCH])): return 2
    with tempfile.TemporaryDirectory() as name:
        out = a.out or (Path(name) / 'gpu.json' if a.rehearse else OUT)
        return perform(paths, a.rehearse, not a.notebooks, a.commit, out)


if __name__ == '__main__': sys.exit(main())
