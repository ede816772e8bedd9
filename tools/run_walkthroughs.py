"""Run the walkthroughs as in Colab: plain IPython, the installed wheel, an empty folder, and FAST=1.

    python tools/run_walkthroughs.py nbs/walkthroughs   with the Python of the environment of the wheel
    python tools/run_walkthroughs.py --self-test        does the comparison notice what it should, no more?

Every cell must run, and print what is kept in the notebook: what goes to stdout, and the text of each result
(of a picture, its size). Three things may differ from machine to machine. A number with a unit of time, or
per second, may be any other. Other numbers with a decimal point may differ by 2 % (+ 0.001), as processors round
differently. A word of 8 or more hexadecimal digits, such as a sha256, may be any other. A cell for which that
is not enough says so itself, in a line `# output varies: REASON`; it is run, not compared, and listed.
"""
from __future__ import annotations

import math
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

LIMIT_S = 300  # for one cell
PROBE = '''
def probe():
    import importlib.util, os, sys, elastic_nb
    assert elastic_nb.__file__.startswith(sys.prefix), f'not the wheel: {{elastic_nb.__file__}}'
    assert sys.prefix == {prefix!r}, f'a kernel of {{sys.prefix}}'
    assert importlib.util.find_spec('nbdev') is None, 'nbdev is here; it is not where readers are'
    assert os.environ['FAST'] == '1' and not os.listdir(), 'an empty folder'
probe(); del probe
'''
TIME = re.compile(r'[-+]?\d[\d.,]*(?:e[-+]?\d+)?(?= ?(?:ns|us|µs|ms|s|sec|seconds?|min|minutes?|h|hours?)\b'
                  r'| ?[A-Za-z]{0,12}/(?:s|sec|min|h)\b)')
HEX = re.compile(r'\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}')
DECIMAL = re.compile(r'([-+]?\d[\d,]*(?:\.\d+)?e[-+]?\d+|[-+]?\d[\d,]*\.\d+)')
COLOUR = re.compile(r'\x1b\[[\d;]*m')
VARIES = re.compile(r'^# output varies: (.+)$', re.M)


def normal(text: str) -> str:
    "`text` without what may be any other: times, hashes, colours, and the widths of tables that follow"
    text = TIME.sub('#', HEX.sub('#', COLOUR.sub('', text)))
    return ' '.join(re.sub(r'([─━═-])\1+', r'\1', text).split())


def same(kept: str, got: str) -> bool:
    "Do two texts say the same, numbers with a decimal point within 2 %?"
    a, b = DECIMAL.split(normal(kept)), DECIMAL.split(normal(got))
    if len(a) != len(b) or a[::2] != b[::2]: return False
    numbers = [[float(x.replace(',', '')) for x in split[1::2]] for split in (a, b)]
    return all(math.isclose(x, y, rel_tol=.02, abs_tol=1e-3) for x, y in zip(*numbers))


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


def check(path: Path) -> list[str]:
    "What is wrong with one walkthrough"
    begin = time.monotonic()
    try: ran = run(path)
    except (CellExecutionError, TimeoutError) as e: return [COLOUR.sub('', f'{path.name} stops: {e}')]
    wrong, varies, compared = compare(nbformat.read(path, as_version=4), ran)
    took = time.monotonic() - begin
    print(f'{path.name}: {took:.0f} s, {compared} cells say what is kept, {len(varies)} vary')
    for line in varies: print(f'  {line}')
    if not compared: wrong.append('no kept output was compared, so nothing is shown')
    return [f'{path.name}: {line}' for line in wrong]


CASES = [  # kept, now, are they the same?
    ('took 1.2 s', 'took 13 s', True), ('12 ms and 3.1e-05 s', '9 ms and 1e-05 s', True),
    ('4,000 tokens/s', '12 tokens/s', True), ('3 steps', '4 steps', False), ('3 workers', '4 workers', False),
    ('loss 3.141', 'loss 3.150', True), ('loss 3.141', 'loss 3.4', False), ('by 0.0', 'by 1e-07', True),
    ('sha256 cf0506a39e2a…', 'sha256 0123abcd77ff…', True), ('deadline', 'decade', False), ('', 'a', False),
    ('1,230,848 parameters', '1,230,849 parameters', False),
    ('│ 0.5 s  │\n└───┘', '│ 10.5 s │\n└────┘', True),
]


def main() -> int:
    "The command line"
    if sys.argv[1:] == ['--self-test']:
        wrong = [f'{a!r} and {b!r}: same() must say {want}' for a, b, want in CASES if same(a, b) != want]
    else:
        os.environ |= {'FAST': '1', 'PYDEVD_DISABLE_FILE_VALIDATION': '1'}  # no remark on every start
        found = sorted(p for p in Path(sys.argv[1]).rglob('*.ipynb') if '.ipynb_checkpoints' not in p.parts)
        wrong = [line for path in found for line in check(path)]
        if not found: wrong = [f'there is no walkthrough in {sys.argv[1]}']
    print('\n'.join(wrong) or 'as kept')
    return 1 if wrong else 0


if __name__ == '__main__': sys.exit(main())
