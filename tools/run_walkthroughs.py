"""Run the walkthroughs as in Colab: plain IPython, the installed wheel, an empty folder, and FAST=1.

    python tools/run_walkthroughs.py FOLDER...          with the Python of the environment of the wheel, two at a time
    python tools/run_walkthroughs.py --self-test        does the comparison notice what it should, no more?

Every cell must run, and print what is kept in the notebook: what goes to stdout, and the text of each result
(of a picture, its size), as same_text.py compares them: times, hashes and the last digits of numbers may differ. A cell
for which that is not enough says so itself, in a line `# output varies: REASON`; it is run, not compared, and listed.
"""
from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from same_text import CASES, COLOUR, same

LIMIT_S = 300  # for one cell
AT_ONCE = 2  # notebooks; each has a process, a kernel and a folder of its own
PROBE = '''
def probe():
    import importlib.util, os, sys, elastic_nb
    assert elastic_nb.__file__.startswith(sys.prefix), f'not the wheel: {{elastic_nb.__file__}}'
    assert sys.prefix == {prefix!r}, f'a kernel of {{sys.prefix}}'
    assert importlib.util.find_spec('nbdev') is None, 'nbdev is here; it is not where readers are'
    assert os.environ['FAST'] == '1' and not os.listdir(), 'an empty folder'
probe(); del probe
'''
VARIES = re.compile(r'^# output varies: (.+)$', re.M)


def said(cell: NotebookNode) -> list[str]:
    "The text of a cell's outputs: all of stdout, then each result"
    out = ''.join(o.text for o in cell.outputs if o.output_type == 'stream' and o.name == 'stdout')
    return [out, *(o.data.get('text/plain', '') for o in cell.outputs if 'data' in o)]


def compare(kept: NotebookNode, ran: NotebookNode) -> tuple[list[str], list[str], int]:
    "Differences, cells that vary with their reasons, and how many cells with an output were compared"
    wrong, varies, compared = [], [], 0
    for n, (old, new) in enumerate(zip(kept.cells, ran.cells, strict=True)):
        if old.cell_type != 'code': continue
        a, b = said(old), said(new)
        if reason := VARIES.search(old.source): varies.append(f'cell {n}: {reason[1]}')
        elif len(a) != len(b) or not all(map(same, a, b)):
            kept_text, text = ('\n'.join(x).strip() for x in (a, b))
            wrong.append(f'cell {n} keeps\n{kept_text}\nand now says\n{text}')
        else: compared += any(a)
    return wrong, varies, compared


def run(path: Path) -> NotebookNode:
    "The notebook after a run in an empty folder; raises CellExecutionError or TimeoutError"
    nb = nbformat.read(path, as_version=4)
    nb.cells.insert(0, nbformat.v4.new_code_cell(PROBE.format(prefix=sys.prefix)))
    with tempfile.TemporaryDirectory() as folder:
        where = {'metadata': {'path': folder}}
        NotebookClient(nb, timeout=LIMIT_S, kernel_name='python3', resources=where).execute()
    del nb.cells[0]
    return nb


def check(path: Path) -> tuple[list[str], list[str]]:
    "What is wrong with one walkthrough, and what there is to say about it"
    begin = time.monotonic()
    try: ran = run(path)
    except (CellExecutionError, TimeoutError) as e: return [COLOUR.sub('', f'{path.name} stops: {e}')], []
    wrong, varies, compared = compare(nbformat.read(path, as_version=4), ran)
    took = time.monotonic() - begin
    notes = [f'{path.name}: {took:.0f} s, {compared} cells say what is kept, {len(varies)} vary',
             *(f'  {line}' for line in varies)]
    if not compared: wrong.append('no kept output was compared, so nothing is shown')
    return [f'{path.name}: {line}' for line in wrong], notes


def check_all(paths: list[Path]) -> list[str]:
    "What is wrong with any of them"
    complaints = []
    with ProcessPoolExecutor(AT_ONCE) as pool:
        for wrong, notes in pool.map(check, paths):
            complaints += wrong
            for line in notes: print(line, flush=True)
    return complaints


def main() -> int:
    "The command line"
    if sys.argv[1:] == ['--self-test']:
        wrong = [f'{a!r} and {b!r}: same() must say {want}' for a, b, want in CASES if same(a, b) != want]
    else:
        os.environ |= {'FAST': '1', 'PYDEVD_DISABLE_FILE_VALIDATION': '1'}  # no remark on every start
        found = sorted(p for folder in sys.argv[1:] for p in Path(folder).rglob('*.ipynb')
                       if '.ipynb_checkpoints' not in p.parts)
        wrong = check_all(found)
        if not found: wrong = [f'there is no walkthrough in {sys.argv[1:]}']
    print('\n'.join(wrong) or 'as kept')
    return 1 if wrong else 0


if __name__ == '__main__': sys.exit(main())
