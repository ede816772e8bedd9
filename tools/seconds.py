"""Do the tests take the time that CONTRIBUTING.md allows them?

    NB_JSON=F nbdev-test --n-workers 2 && python tools/seconds.py F

The table "Seconds" there has a row for each folder of nbs, with the seconds of all its notebooks on one core, and a row
for each notebook that may take more than `LONGEST`, with the reason. All are multiplied by the slowness that the test run has
measured at its start. Prints the seconds of each folder beside what it may take, and what is too long.
"""
from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST, EXCEPTIONS = 20., 5  # seconds of a notebook; how many may take longer
ROW = re.compile(r'^\| `([\w/]+?)(\.ipynb)?` \| ([\d,]+) \|(.*)\|$', re.M)


def table(text: str) -> tuple[dict[str, float], dict[str, float]]:
    "Folder -> seconds, and notebook -> seconds, from the text of CONTRIBUTING.md"
    part = text.partition('## Seconds\n')[2].partition('\n## ')[0]
    folders, notebooks = {}, {}
    for name, is_notebook, seconds, _ in ROW.findall(part): (notebooks if is_notebook else folders)[name] = float(seconds.replace(',', ''))
    return folders, notebooks


def judge(found: dict, folders: dict[str, float], exceptions: dict[str, float]) -> tuple[dict[str, float], list[str]]:
    "Seconds of each folder, and complaints; `found` is what NB_JSON holds"
    took: dict[str, float] = {}
    wrong = [] if len(exceptions) <= EXCEPTIONS else [f'{len(exceptions)} notebooks may take more than {LONGEST:.0f} s; {EXCEPTIONS} is the most']
    scale = found['scale']
    for row in found['notebooks']:
        name = row['path'].removeprefix('nbs/').removesuffix('.ipynb')
        folder = name.split('/')[0] if '/' in name else 'index'
        took[folder] = took.get(folder, 0.) + row['seconds']
        most = exceptions.get(name, LONGEST)
        if row['seconds'] > most * scale: wrong.append(f"{row['path']} took {row['seconds']:.1f} s; it may take {most:.0f} x {scale:.1f}")
    for folder, seconds in took.items():
        if folder not in folders: wrong.append(f'CONTRIBUTING.md has no seconds for {folder}')
        elif seconds > folders[folder] * scale: wrong.append(f'{folder} took {seconds:.0f} s; it may take {folders[folder]:.0f} x {scale:.1f}')
    return took, wrong + [f'CONTRIBUTING.md has seconds for {f}, which did not run' for f in folders if f not in took]


def self_test() -> None:
    "A folder that is too slow, a notebook that is, one that is not in the table: each is noticed"
    folders, exceptions = table('## Seconds\n| `01_a` | 30 | |\n| `01_a/02_b.ipynb` | 25 | starts etcd |\n## Next\n')
    assert (folders, exceptions) == ({'01_a': 30.}, {'01_a/02_b': 25.}), (folders, exceptions)
    def run(*rows: tuple[str, float], scale: float = 1.) -> list[str]:
        return judge(dict(scale=scale, notebooks=[dict(path=f'nbs/{n}.ipynb', seconds=s) for n, s in rows]), folders, exceptions)[1]
    assert run(('01_a/02_b', 24.), ('01_a/03_c', 5.)) == []
    assert run(('01_a/02_b', 26.))[0].startswith('nbs/01_a/02_b.ipynb took 26.0 s')
    assert run(('01_a/02_b', 26.), scale=2.) == []
    assert run(('01_a/02_b', 19.), ('01_a/03_c', 19.)) == ['01_a took 38 s; it may take 30 x 1.0']
    assert run(('01_a/03_c', 1.), ('02_x/01_y', 1.)) == ['CONTRIBUTING.md has no seconds for 02_x']


def main() -> int:
    self_test()
    found = json.loads(Path(sys.argv[1]).read_text())
    folders, exceptions = table((ROOT / 'CONTRIBUTING.md').read_text(encoding='utf-8'))
    took, wrong = judge(found, folders, exceptions)
    for folder in sorted(took): print(f'{folder:14} {took[folder]:6.0f} s of {folders.get(folder, 0.):.0f}')
    longest = sorted(found['notebooks'], key=lambda r: -r['seconds'])[:12]
    print('longest:', ', '.join(f"{r['path'].removeprefix('nbs/').removesuffix('.ipynb')} {r['seconds']:.0f}" for r in longest))
    print(*wrong, f"{sum(took.values()):.0f} s on one core, {found['seconds']:.0f} s in all with {found['workers']} workers, slowness {found['scale']}", sep='\n')
    return int(bool(wrong))


if __name__ == '__main__': sys.exit(main())
