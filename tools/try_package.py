"""Does the installed package work where there is nothing else? Imports every module, then runs a small demo.

    python tools/try_package.py         with the Python of the environment to try, from outside the repository
"""
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import elastic_nb
from elastic_nb.checkpoint.remote.object_store import StoreRefused
from elastic_nb.checkpoint.remote.object_store_tier import open_store

EXTRA = {'elastic_nb.checkpoint.remote.gcs', 'elastic_nb.train.lightning'}  # modules that need an extra
SLOW = 'torch', 'torch._dynamo', 'matplotlib.pyplot', 'pydantic', 'boto3'


def imports() -> None:
    "Each module can be imported, first and alone, with nothing but the declared requirements, or names its extra"
    names = [m.name for m in pkgutil.walk_packages(elastic_nb.__path__, 'elastic_nb.')]
    for name in SLOW: importlib.import_module(name)  # once, for all
    ended = {name: alone(name) for name in sorted({*names} - EXTRA)}
    assert not any(ended.values()), [name for name, code in ended.items() if code]
    try: open_store('gs://bucket/run')
    except StoreRefused as e: assert "pip install 'elastic-nb[gcs]'" in str(e), e
    else: raise AssertionError('the libraries of the extra gcs are here, so nothing is shown')
    print(f'{len(names)} modules, {len(EXTRA)} of an extra')


def alone(name: str) -> int:
    "The exit code of a process that imports this module before any other of the package but those around it"
    if not (pid := os.fork()):
        try: importlib.import_module(name)
        except BaseException: traceback.print_exc(); os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def demo() -> None:
    "The command of the README, small: killed and undisturbed, the same bits"
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / 'demo.json'
        subprocess.run([Path(sys.executable).parent / 'elastic-nb', 'demo', '--workers', '2', '--steps', '8',
                        '--out', Path(folder) / 'run', '--json', result], check=True, timeout=300, cwd=folder)
        told = json.loads(result.read_text())
    assert told['identical'] and told['sha256'] == told['sha256_undisturbed'], told
    print(f"sha256 {told['sha256']}, twice")


if __name__ == '__main__':
    assert Path(elastic_nb.__file__).is_relative_to(sys.prefix), elastic_nb.__file__
    imports()
    demo()
