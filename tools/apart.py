"""Each notebook is tested in a process of its own: one lesson's leftovers cannot fail another, and a crash is attributed.

nbdev's workers run one notebook after the other in the same process. Each leaves something behind (files, sockets, shared
memory), and after seventy of them an innocent one fails; a lesson that dies takes its worker along, and no one learns which
lesson it was. So each worker passes a notebook to a child of its own, a copy of itself, which has everything imported:

| | what happens | what the worker does |
|---|---|---|
| 1 | the child has run the notebook | takes the result, and waits for the end of the child |
| 2 | the child ends without a result | the notebook has failed; it names the signal, and prints where a crash was |
| 3 | the child has sent the result, but does not end | the notebook has failed, as in 4 |
| 4 | the limit of the notebook is over | prints the stacks of all its processes, kills these, the notebook has failed |
| 5 | the child has ended, and its children are still running | as in 4: these are orphans, which the kernel gives to this worker |

Limits are multiplied by how much slower this machine is, measured at the start, and again before a limit is believed.
It needs Linux: subreapers, `/proc`, and a copy of a process that has imported PyTorch. `NB_JSON=F` names a file for the
results. `test_setup` in `pyproject.toml` leads here; `tools/apart_selftest.py` plants each row of the table.
"""
from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from elastic_nb.testing.hosts import adopt_orphans, descendants


LIMIT = 180. # Seconds of a notebook, unless its first line of code says `# limit: 60 s`
SLOW = 1200. # With its slow cells
LEAVING = 20. # Seconds for its end after its last cell, and for the end of its last process
LOOP = .15 # Seconds of the loop below on the machine on which the limits were chosen


def _loop() -> float:
    began = time.perf_counter()
    n = 0
    for k in range(2_000_000): n += k & 3
    return time.perf_counter() - began


def slowness(processes: int = 1) -> float:
    "How many times slower than there so many such loops at once run here and now, at least 1."
    pids = []
    for _ in range(processes):
        if pid := os.fork(): pids.append(pid)
        else: os._exit(min(255, round(10 * max(_loop() for _ in range(3)) / LOOP)))
    return max(1., *(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) / 10 for pid in pids))


def limit_of(notebook: str | Path) -> float:
    "The limit of a notebook in seconds."
    for cell in json.loads(Path(notebook).read_text(encoding='utf-8'))['cells']:
        for line in ''.join(cell['source']).splitlines() if cell['cell_type'] == 'code' else ():
            if not line.strip() or line.startswith('#|'): continue
            said = re.fullmatch(r'# limit: (\d+) s', line)
            return float(said[1]) if said else LIMIT
    return LIMIT


_STACKS = 'NB_STACKS' # Environment: the file for stacks
_SITE = f"""
import faulthandler, importlib.util, os, signal, sys
if {_STACKS!r} in os.environ:
    try: faulthandler.register(signal.SIGQUIT, open(os.environ[{_STACKS!r}], 'ab', 0), all_threads=True)
    except (OSError, AttributeError): pass
sys.path[:] = [p for p in sys.path if p != os.path.dirname(__file__)]
if (spec := importlib.machinery.PathFinder.find_spec('sitecustomize')):   # another one lies behind this one
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
"""


def _caught(pid: int, number: int) -> bool:
    with suppress(OSError, TypeError):
        status = Path(f'/proc/{pid}/status').read_text()
        return bool(int(re.search(r'^SigCgt:\s*(\w+)', status, re.M)[1], 16) >> (number - 1) & 1)
    return False


def _about(pid: int) -> str:
    try:
        words = Path(f'/proc/{pid}/cmdline').read_bytes().decode(errors='replace').split('\0')
        state = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]
        return f"process {pid} ({state}): {' '.join(words).strip()[:200]}"
    except OSError: return f'process {pid}: gone'


def stacks(
    pids: Sequence[int], # Processes that have been given `file`
    file: str | Path, # Where they write
) -> str:
    "Command and state of each process, and the stacks of all its threads if it is Python."
    said = []
    for pid in pids:
        said.append(_about(pid))
        if not _caught(pid, signal.SIGQUIT): continue
        before = os.path.getsize(file)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGQUIT)
            os.kill(pid, signal.SIGCONT)   # it may have been stopped
        size, end = before, time.monotonic() + 2.
        while time.monotonic() < end:
            time.sleep(.05)
            if before < size == os.path.getsize(file): break
            size = os.path.getsize(file)
        with open(file, 'rb') as f:
            f.seek(before)
            said.append(f.read().decode(errors='replace').rstrip())
    return '\n'.join(said)


IN_CHILD = 'torch', 'elastic_nb.testing.program_forker', 'elastic_nb.elastic.zygote' # Needed there


def _in_child(out: Connection, notebook: str, options: dict[str, Any], file: str) -> None:
    "Run the notebook as nbdev does, and send what came of it."
    from nbdev import test
    said = open(file, 'ab', 0)
    faulthandler.register(signal.SIGQUIT, said, all_threads=True)
    faulthandler.enable(said, all_threads=True)   # a crash writes where each thread was
    signal.signal(signal.SIGINT, signal.default_int_handler)   # ignored behind a shell
    torch, copies, forkserver = (importlib.import_module(name) for name in IN_CHILD)   # all there already
    with suppress(OSError): forkserver.start_interpreter = copies.ProgramForker().interpreter
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // _test_run.workers))
    why = ''
    class Shell(test.CaptureShell):
        def run_all(self, *args: Any, **more: Any) -> Any:
            nonlocal why
            try: return super().run_all(*args, **more)
            except BaseException as e:
                why = ' '.join(f'cell {self._cell_idx}: {type(e).__name__}: {e}'.split())[:200]
                raise
    test.CaptureShell = Shell
    run = getattr(test.test_nb, 'of_nbdev', test.test_nb)
    passed, _ = run(notebook, **options)
    out.send_bytes(json.dumps([bool(passed), why]).encode())


def _reap(but: int) -> None:
    "Take the exits of adopted orphans, as process 1 would, but not that of the child `but`."
    with suppress(ChildProcessError):
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid == but: return
            os.waitpid(found.si_pid, 0)


class Patience:
    "A limit in seconds of an idle machine."
    def __init__(self, seconds: float, scale: float = 1.):
        self.began, self.seconds, self.scale = time.monotonic(), seconds, scale

    def __bool__(self) -> bool:
        "Whether there is time left; where there seems to be none, the speed is measured again."
        took = time.monotonic() - self.began
        if took > self.seconds * self.scale: self.scale = max(self.scale, slowness())
        return took <= self.seconds * self.scale


class TestRun:
    "One call of nbdev-test: what its workers share, and what they report."
    def __init__(self, total: int, workers: int):
        self.total, self.workers, self.scale = total, workers, slowness(workers)
        self.ended = multiprocessing.Value('i', 0)
        self.began = time.monotonic()

    def row(self, notebook: str, passed: bool, seconds: float, why: str) -> None:
        "One line for a notebook that has ended."
        with self.ended:
            self.ended.value += 1
            n = f'{self.ended.value:{len(str(self.total))}}'
            state = 'ok    ' if passed else 'FAILED'
            line = f"[{n}/{self.total}] {state} {seconds:6.1f} s  {os.path.relpath(notebook, '..')}"
            print(line + (f': {why}' if why else ''), flush=True)


class Outcome(tuple):
    "What nbdev wants to know of a notebook, (passed, seconds), and what we keep of it beside."
    kept: dict[str, Any] = {}

_test_run: TestRun | None = None # Of this process and those that it makes


def _supervised(notebook: str, options: dict[str, Any], file: Path, patience: Patience,
                older: set[int]) -> tuple[bool, str]:
    "The result of a notebook, and what is wrong if something is: the five rows of the table."
    how = multiprocessing.get_context('fork')
    here, there = how.Pipe(duplex=False)
    child = how.Process(target=_in_child, args=(there, notebook, options, str(file)))
    child.start()
    there.close()
    while (left := bool(patience)) and child.is_alive() and not wait([here], .02): _reap(child.pid)
    passed, why = False, '' if left else f'not over after {patience.seconds * patience.scale:.0f} s'
    with suppress(EOFError):
        if left and here.poll(): passed, why = json.loads(here.recv_bytes())
    leaving = Patience(LEAVING, patience.scale)
    while left and leaving and child.is_alive():
        _reap(child.pid)
        time.sleep(.005)
    if left and child.is_alive(): why = why or 'its process does not end after its last cell'
    while left and leaving and descendants(os.getpid()) - older:   # what it has left may need a moment to end
        _reap(child.pid)
        time.sleep(.02)
    if remain := sorted(descendants(os.getpid()) - older):
        passed, why = False, why or f'{len(remain)} of its processes do not end: {_about(remain[0])}'
        print(f'\n{why} in {notebook}:\n{stacks(remain, file)}', file=sys.__stderr__, flush=True)
    while remain := descendants(os.getpid()) - older:
        for pid in remain:
            with suppress(ProcessLookupError): os.kill(pid, signal.SIGKILL)
        _reap(child.pid)
        child.join(.02)
    child.join()
    if child.exitcode and not why:
        code = child.exitcode
        cause = signal.Signals(-code).name if code < 0 else f'exit {code}'
        passed, why = False, f'{cause}: its process ended before or after its last cell'
        where = file.read_text(errors='replace').rstrip()
        said = f'{cause} in {notebook}:\nthe process of this notebook ended before or after its last cell'
        print(f'\n{said}\n{where}', file=sys.__stderr__, flush=True)
    return passed, why


def test_apart(
    fn: str | Path, # The notebook
    **options: Any, # What `nbdev.test.test_nb` takes
) -> tuple[bool, float]:
    "Runs a notebook's tests in a process of its own: whether they passed, and the seconds they took."
    global _test_run
    if _test_run is None: _test_run = TestRun(1, 1)
    adopt_orphans()
    older, cpu, began = descendants(os.getpid()), _cpu_of_children(), time.monotonic()
    slow = 'slow' in (options.get('force_flags') or ())
    patience = Patience(SLOW if slow else limit_of(fn), _test_run.scale)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, 'stacks')
        file.touch()
        os.environ[_STACKS] = str(file)
        passed, why = _supervised(str(fn), options, file, patience, older)
    passed = passed and not why
    if not passed: why = why or 'no reason given'
    seconds = time.monotonic() - began
    _test_run.row(str(fn), passed, seconds, why)
    outcome = Outcome((passed, seconds))
    outcome.kept = dict(path=os.path.relpath(fn, '..'), seconds=round(seconds, 2),
                        cpu_s=round(_cpu_of_children() - cpu, 2), ok=passed, why=why)
    return outcome


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# Imported once, for all lessons
SHARED = ('torch', 'torch._dynamo', 'matplotlib_inline.backend_inline', 'matplotlib.pyplot', 'pydantic',
          'ipywidgets', 'boto3', 'hypothesis', *IN_CHILD)
OPTIONAL = 'kubernetes_validate', # Of an extra; it compiles grammars for seconds
_LEVEL = 'TORCH_CPP_LOG_LEVEL'
OFTEN = 4 # Cells that import a module of the project, so that it is imported once, too


def of_project(cells: list[Any], package: str) -> list[str]:
    "Modules of `package` that many of the cells import."
    line = re.compile(rf'^ *(?:from|import) ({package}\.[\w.]+)', re.M)
    times = Counter(name for cell in cells for name in line.findall(cell.source))
    return [name for name, n in times.items() if n >= OFTEN]


def without_a_clock() -> None:
    "From now on hypothesis does not judge how fast a property or its examples are."
    how = importlib.import_module('hypothesis')
    how.settings.register_profile('lessons', deadline=None, suppress_health_check=[how.HealthCheck.too_slow])
    how.settings.load_profile('lessons')


def each_apart(cells: list[Any]) -> None:
    "From now on nbdev tests each notebook in a process of its own; `cells`: all that will be tested."
    from nbdev import test
    if hasattr(test.test_nb, 'of_nbdev'): return
    level = os.environ.get(_LEVEL)
    os.environ[_LEVEL] = 'FATAL'   # PyTorch reads it when it is imported; workers begin so
    for name in SHARED: importlib.import_module(name)
    without_a_clock()
    if level is None: del os.environ[_LEVEL]
    else: os.environ[_LEVEL] = level
    for name in (*OPTIONAL, *of_project(cells, test.get_config().lib_path.name)):
        with suppress(Exception): importlib.import_module(name)   # the lesson that needs it will say
    site = tempfile.TemporaryDirectory()
    Path(site.name, 'sitecustomize.py').write_text(_SITE)
    os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [site.name, os.environ.get('PYTHONPATH', '')]))
    of_nbdev = test.parallel
    def parallel(fn: Callable[..., Any], files: Sequence[Path], n_workers: int, **options: Any) -> Any:
        global _test_run
        _test_run = TestRun(len(files), max(1, n_workers))
        results = of_nbdev(fn, files, n_workers=n_workers, **options)
        if out := os.environ.get('NB_JSON'):
            took = round(time.monotonic() - _test_run.began, 1)
            scale = max(_test_run.scale, slowness(_test_run.workers))   # it may have become slower meanwhile
            about = dict(seconds=took, workers=_test_run.workers, scale=scale,
                         notebooks=[r.kept for r in results])
            (test.get_config().config_path / out).write_text(json.dumps(about, indent=1))
        site.cleanup()
        return results
    test.parallel = parallel
    gc.freeze()
    test_apart.of_nbdev, test.test_nb = test.test_nb, test_apart
