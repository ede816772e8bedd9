"""Do the tests take the time that CONTRIBUTING.md allows them?

    NB_JSON=F nbdev-test --n-workers 4 && python tools/seconds.py F

The table "Seconds" there has a row for each folder of nbs: the seconds of processor time that all its notebooks use, for
these depend less than others on what else the machine does. They are multiplied by the slowness that the test run has
measured at its start and its end, and by `SLACK`; and whichever notebook comes first compiles what it imports, for which each
folder has `FIRST` seconds more. And no more than `LONG` notebooks may take more than `LONGEST` by the clock, multiplied by the
slowness, by the workers per core, and by `LATE`. Prints the seconds of each folder beside what it may use, and what is
too long.
"""
from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 20.  # seconds of a notebook
LONG = 5  # how many may take longer
SLACK = 1.5  # one run may use so much more than another one
LATE = 1.25  # and a notebook may end so much later, for it depends on its neighbours
FIRST = 5.  # seconds of processor time
ROW = re.compile(r'^\| `(\w+)` \| ([\d,]+) \|$', re.M)


def table(text: str) -> dict[str, float]:
    "Folder -> seconds, from the text of CONTRIBUTING.md"
    part = text.partition('## Seconds\n')[2].partition('\n## ')[0]
    return {name: float(seconds.replace(',', '')) for name, seconds in ROW.findall(part)}


def judge(found: dict, folders: dict[str, float]) -> tuple[dict[str, float], list[str]]:
    "Seconds of each folder, and complaints; `found` is what NB_JSON holds"
    took: dict[str, float] = {}
    much = found['scale'] * SLACK
    pace = LATE * found['scale'] * max(1., found.get('workers', 1) / (os.cpu_count() or 1))   # they share the cores
    for row in found['notebooks']:
        name = row['path'].removeprefix('nbs/')
        folder = name.split('/')[0] if '/' in name else 'index'
        took[folder] = took.get(folder, 0.) + row['cpu_s']
    wrong = [f'CONTRIBUTING.md has no seconds for {f}' for f in took if f not in folders]
    wrong += [f'CONTRIBUTING.md has seconds for {f}, which did not run' for f in folders if f not in took]
    wrong += [f'{f} used {s:.0f} s; it may use {folders[f]:.0f} x {much:.2f} + {FIRST:.0f}' for f, s in took.items()
              if s > folders.get(f, s) * much + FIRST]
    long = [r['path'] for r in found['notebooks'] if r['seconds'] > LONGEST * pace]
    if len(long) > LONG: wrong.append(f'{len(long)} notebooks take more than {LONGEST:.0f} s, at most {LONG} may')
    return took, wrong


def self_test() -> None:
    "A folder that is too slow, one that is not in the table, too many long notebooks: each is noticed"
    folders = table('## Seconds\n| `01_a` | 1,030 |\n## Next\n| `02_b` | 3 |\n')
    assert folders == {'01_a': 1030.}, folders
    def run(*rows: tuple[str, float], scale: float = 1.) -> list[str]:
        return judge(dict(scale=scale, notebooks=[dict(path=f'nbs/{n}.ipynb', seconds=s, cpu_s=s) for n, s in rows]), folders)[1]
    assert run(('01_a/02_b', 800.), ('01_a/03_c', 700.)) == []
    assert run(('01_a/02_b', 800.), ('01_a/03_c', 800.)) == ['01_a used 1600 s; it may use 1030 x 1.50 + 5']
    assert run(('01_a/02_b', 1600.), scale=2.) == []
    assert run(('01_a/03_c', 1.), ('02_x/01_y', 1.)) == ['CONTRIBUTING.md has no seconds for 02_x']
    many = [(f'01_a/{n}', 1.01 * LATE * LONGEST) for n in range(LONG + 1)]
    assert run(*many)[0].startswith(f'{LONG + 1} notebooks take more than 20 s') and run(*many, scale=1.1) == []


def main() -> int:
    self_test()
    found = json.loads(Path(sys.argv[1]).read_text())
    took, wrong = judge(found, folders := table((ROOT / 'CONTRIBUTING.md').read_text(encoding='utf-8')))
    for folder in sorted(took): print(f'{folder:14} {took[folder]:6.0f} s of {folders.get(folder, 0.):.0f}')
    longest = sorted(found['notebooks'], key=lambda r: -r['seconds'])[:12]
    print('longest:', ', '.join(f"{r['path'].removeprefix('nbs/').removesuffix('.ipynb')} {r['seconds']:.0f}" for r in longest))
    print(*wrong, f"{sum(took.values()):.0f} s of processor time, {found['seconds']:.0f} s in all with {found['workers']} "
          f"workers, slowness {found['scale']}", sep='\n')
    return int(bool(wrong))


if __name__ == '__main__': sys.exit(main())
