"""Runs the notebooks that have cells marked `#| slow`, with these cells, one notebook at a time.

    python tools/run_slow.py                  all of them
    python tools/run_slow.py --shard 2/4      the second of four parts that take equally long
    python tools/run_slow.py --write          and note the seconds in tools/slow_seconds.json
    python tools/run_slow.py --list           only say which, and what they took

Parts are made from the noted seconds. `.ci/slow` does this in a new environment.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / 'tools' / 'slow_seconds.json'
UNKNOWN = 300.  # seconds of a notebook that has not been measured yet


def slow_cells(notebook: Path) -> int:
    cells = json.loads(notebook.read_text(encoding='utf-8'))['cells']
    return sum(bool(re.search(r'^#\| slow\b', ''.join(c['source']), re.M)) for c in cells if c['cell_type'] == 'code')


def notebooks() -> list[str]:
    found = (p for p in sorted((ROOT / 'nbs').rglob('*.ipynb')) if not any(s.startswith(('.', '_')) for s in p.parts))
    return [str(p.relative_to(ROOT)) for p in found if slow_cells(p)]


def shard(names: list[str], seconds: dict[str, float], part: int, parts: int) -> list[str]:
    "Part `part` of `parts`: the longest first, each to the part that has least"
    boxes: list[list[str]] = [[] for _ in range(parts)]
    loads = [0.] * parts
    for name in sorted(names, key=lambda n: (-seconds.get(n, UNKNOWN), n)):
        k = loads.index(min(loads))
        boxes[k].append(name)
        loads[k] += seconds.get(name, UNKNOWN)
    return sorted(boxes[part - 1])


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--shard', default='1/1', metavar='I/N')
    ap.add_argument('--write', action='store_true')
    ap.add_argument('--list', action='store_true')
    ap.add_argument('--only', default='', help='notebooks whose path holds this text')
    args = ap.parse_args()
    said = re.fullmatch(r'(\d+)/(\d+)', args.shard)
    if not said or not 1 <= int(said[1]) <= int(said[2]): ap.error(f'--shard {args.shard}: say 1/4, 2/4, ...')
    seconds = json.loads(TABLE.read_text())['seconds'] if TABLE.exists() else {}
    chosen = [n for n in shard(notebooks(), seconds, int(said[1]), int(said[2])) if args.only in n]
    if args.list:
        for n in chosen: print(f'{seconds.get(n, float("nan")):7.1f} s  {slow_cells(ROOT / n)} cells  {n}')
        return 0
    with tempfile.TemporaryDirectory() as room:
        out = Path(room, 'result.json')
        ran = subprocess.run(['nbdev-test', '--flags', 'slow', '--n-workers', '1',
                              '--path-re', f"(?:{'|'.join(map(re.escape, chosen))})$"],
                             cwd=ROOT, env=os.environ | {'NB_JSON': str(out)})
        rows = json.loads(out.read_text())['notebooks'] if out.exists() else []
    ended = {r['path'] for r in rows}
    for name in chosen:
        if name not in ended: print(f'{name} did not run')
    if args.write:
        seconds |= {r['path']: round(r['seconds'], 1) for r in rows if r['ok']}
        kept = {n: seconds[n] for n in notebooks() if n in seconds}
        TABLE.write_text(json.dumps(dict(what='seconds of each notebook with its slow cells, one at a time; some beside other work',
                                         seconds=kept), indent=1) + '\n')
    return ran.returncode or int(ended != set(chosen))


if __name__ == '__main__': sys.exit(main())
