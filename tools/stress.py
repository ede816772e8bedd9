"""Does a notebook pass every time? Runs each many times, on a machine that is made worse than yours, and counts.

    python tools/stress.py NOTEBOOK... -n 60             one after the other
    python tools/stress.py NOTEBOOK... -n 20 --busy 8    beside 8 processes that only count
    python tools/stress.py NOTEBOOK... -n 20 --cpus 1    on one core
    python tools/stress.py NOTEBOOK... -n 20 --pairs     two at a time
    python tools/stress.py NOTEBOOK... -n 20 --json F    and write {failed, runs, logs} to F; logs are those of failures

The exit code is 1 if any run failed.
"""
from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from multiprocessing.connection import wait
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent


def busy() -> None:
    while True: pass


def one(notebook: Path, log: str, flags: list[str], slow: bool) -> None:
    "In a child: test a notebook, with all that is printed in `log`"
    with open(log, 'wb', 0) as f:
        for fd in (1, 2): os.dup2(f.fileno(), fd)
    import apart
    os.chdir(ROOT / 'nbs')
    passed, _ = apart.test_apart(notebook, skip_flags=flags, force_flags=['slow'] if slow else [], basepath=ROOT)
    sys.exit(0 if passed else 1)


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('notebooks', nargs='+', type=Path)
    ap.add_argument('-n', type=int, default=20, help='runs of each notebook')
    ap.add_argument('--busy', type=int, default=0, help='processes that only count, beside')
    ap.add_argument('--cpus', type=int, help='run on the first so many cores')
    ap.add_argument('--pairs', action='store_true', help='two at a time')
    ap.add_argument('--slow', action='store_true', help='slow cells too')
    ap.add_argument('--json', type=Path)
    args = ap.parse_args()
    notebooks = [p.resolve() for p in args.notebooks]
    if args.cpus: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:args.cpus])
    from apart import each_apart
    from nbdev.config import get_config

    each_apart([])
    flags = get_config(ROOT).tst_flags
    flags = flags.split() if isinstance(flags, str) else list(flags)
    crew = [multiprocessing.Process(target=busy, daemon=True) for _ in range(args.busy)]
    for p in crew: p.start()
    todo, running, failed, logs = [p for _ in range(args.n) for p in notebooks], {}, [], {}
    with tempfile.TemporaryDirectory() as room, tqdm(total=len(todo), mininterval=5) as bar:
        while todo or running:
            while todo and len(running) < 1 + args.pairs:
                notebook, log = todo.pop(0), os.path.join(room, f'{len(todo)}.log')
                child = multiprocessing.Process(target=one, args=(notebook, log, flags, args.slow))
                child.start()
                running[child.sentinel] = child, notebook, log
            for sentinel in wait(list(running)):
                child, notebook, log = running.pop(sentinel)
                child.join()
                bar.update()
                if not child.exitcode: continue
                name = str(notebook.relative_to(ROOT))
                failed.append(name)
                text = Path(log).read_text(errors='replace')
                logs.setdefault(name, []).append(text[-20_000:])
                bar.write(f'{name} failed:\n{text[-3000:]}')
    found = dict(failed=len(failed), runs=args.n * len(notebooks), logs=logs)
    if args.json: args.json.write_text(json.dumps(found, indent=1))
    print(f"{found['failed']} of {found['runs']} runs failed", *sorted({*failed}))
    return int(bool(failed))


if __name__ == '__main__': sys.exit(main())
