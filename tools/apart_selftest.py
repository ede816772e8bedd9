"""What `apart.py` promises: small projects of nbdev, in which one notebook dies, hangs or leaves a process behind.

    python tools/apart_selftest.py
"""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from apart import limit_of, slowness

ROOT = Path(__file__).resolve().parent.parent


def project(folder: Path, setup: str = '', **notebooks: str) -> None:
    "A project of nbdev whose notebooks have one cell each"
    (folder / 'nbs').mkdir(parents=True)
    (folder / 'pyproject.toml').write_text('[project]\nname = "three"\nversion = "0.0.1"\n'
                                           f'[tool.nbdev]\nlib_path = "three"\n{setup}')
    for name, source in notebooks.items():
        cell = nbformat.v4.new_code_cell(source)
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), folder / 'nbs' / f'{name}.ipynb')


def tested(folder: Path, **env: str) -> tuple[list[str], str]:
    "The names of the notebooks that failed, and all that nbdev-test wrote"
    ran = subprocess.run(['sh', '-c', 'ulimit -n 1024; exec nbdev-test --n-workers 1'], cwd=folder,
                         capture_output=True, text=True, timeout=300, env=os.environ | env)
    failed = ran.stderr.partition('Failed On The Following')[2].split()
    return sorted(Path(word).stem for word in failed if word.endswith('.ipynb')), ran.stdout + ran.stderr


def same(found: object, wanted: object) -> None: assert found == wanted, f'{found} is not {wanted}'


THREE = dict(careless="import os\nheld = [os.open('/dev/null', 0) for _ in range(800)]",
             innocent="some = [open('/dev/null') for _ in range(300)]", other="1 + 1")
DEADLY = dict(deadly="import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", other="1 + 1")


def without(room: Path) -> None:
    "What nbdev does alone: the innocent notebook fails, and a death has no name"
    project(room / 'together', **THREE)
    failed, text = tested(room / 'together')
    same(failed, ['innocent'])   # not the careless one
    assert 'Too many open files' in text
    project(room / 'dies', **DEADLY)
    failed, text = tested(room / 'dies')
    same(failed, [])
    assert 'BrokenProcessPool' in text and 'deadly' not in text


def limits(room: Path) -> None:
    "Where a notebook says its limit, and that a measurement of the machine is possible"
    assert slowness() >= 1 and slowness(2) >= 1
    (room / 'limits').mkdir()
    for source, wanted in ('#| export\n# limit: 7 s\n1', 7.), ('1\n# limit: 7 s', 180.):
        cell = nbformat.v4.new_code_cell(source)
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), room / 'limits' / 'a.ipynb')
        same(limit_of(room / 'limits' / 'a.ipynb'), wanted)


SHORT = '# limit: 1 s\n'
PLANTED = dict(
    deadly=DEADLY['deadly'], wrong='assert 1 == 2',
    crash='import ctypes\ndef through_null(): ctypes.string_at(0)\nthrough_null()',
    endless=SHORT + "def for_ever():\n    while True: pass\nfor_ever()",
    locked=SHORT + "import ctypes\ndef with_the_lock(): ctypes.PyDLL(None).sleep(600)\nwith_the_lock()",
    thread="import threading\ndef never(): threading.Event().wait()\n"
           "threading.Thread(target=never, daemon=False).start()",
    orphan="import subprocess, sys\n"
           "waits = 'def left_behind():\\n import time; time.sleep(600)\\nleft_behind()'\n"
           "subprocess.Popen([sys.executable, '-c', waits], start_new_session=True)")
SHARED = dict(shared="import gc, sys\nfrom apart import SHARED\n"
                     "from hypothesis import settings\nassert settings.default.deadline is None\n"
                     "assert sys.modules.keys() >= set(SHARED) and gc.get_freeze_count() > 100_000",
              heard="from elastic_nb.elastic.zygote import start_interpreter\n"   # servers can be copies
                    "from elastic_nb.testing.program_forker import _inherits\n"
                    "assert start_interpreter.__self__.inherits == _inherits()")
QUICK = ('import signal\nimport apart\n'
         'signal.signal(signal.SIGINT, signal.SIG_IGN)\n'   # as behind a shell
         'apart.LEAVING = 1.\neach_apart = apart.each_apart')
WHY = dict(deadly='SIGKILL: ', crash='SIGSEGV: ', wrong='cell 1: AssertionError:',
           endless='not over after', locked='not over after',
           thread='does not end after its last cell', orphan='1 of its processes do')


def apart(room: Path) -> None:
    "Everything that can go wrong: each planted notebook fails with its reason, and no other one does"
    quick = room / 'quick' / 'quick.py'
    quick.parent.mkdir()
    quick.write_text(QUICK)
    notebooks = THREE | PLANTED | SHARED
    project(room / 'apart', 'test_setup = "quick:each_apart"\n', **notebooks)
    path = [str(quick.parent), str(ROOT / 'tools'), os.environ.get('PYTHONPATH', '')]
    failed, text = tested(room / 'apart', PYTHONPATH=os.pathsep.join(filter(None, path)), NB_JSON='result.json')
    same(failed, sorted(PLANTED))
    lines = [line for line in text.splitlines() if line.startswith('[')]
    same([line.partition(']')[0] for line in lines], [f'[{n:2}/12' for n in range(1, 13)])
    rows = json.loads((room / 'apart' / 'result.json').read_text())['notebooks']
    same([r['path'] for r in rows], [f'nbs/{name}.ipynb' for name in sorted(notebooks)])
    assert all(r['ok'] == (not r['why']) and 0 < r['cpu_s'] and 0 < r['seconds'] < 100 for r in rows), rows
    why = {Path(r['path']).stem: r['why'] for r in rows if not r['ok']}
    for name, said in WHY.items(): assert said in why[name], why[name]
    for function in 'through_null', 'for_ever', 'with_the_lock', 'never', 'left_behind':
        assert f'in {function}' in text, function
    same(subprocess.run(['pgrep', '-f', 'def left_behind'], capture_output=True).returncode, 1)   # it is gone


def main() -> int:
    assert re.search(r'^test_setup = "elastic_nb\.testing\.retry:each_apart"$', (ROOT / 'pyproject.toml').read_text(), re.M)
    with tempfile.TemporaryDirectory() as folder:
        for check in (without, limits, apart):
            check(Path(folder))
            print(f'ok  {check.__doc__}', flush=True)
    return 0


if __name__ == '__main__': sys.exit(main())
