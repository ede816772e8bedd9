"""Do two outputs say the same? The rule of run_walkthroughs.py and run_commands.py.

Three things may differ from machine to machine. A number with a unit of time, or per second, may be any other. Other
numbers with a decimal point may differ by 2 % (+ 0.001), as processors round differently. A word of 8 or more
hexadecimal digits, such as a sha256, may be any other. `like` allows one thing more: where a page shows `...`, any
text matches.
"""
from __future__ import annotations

import math
import re

TIME = re.compile(r'[-+]?\d[\d.,]*(?:e[-+]?\d+)?(?= ?(?:ns|us|µs|ms|s|sec|seconds?|min|minutes?|h|hours?)\b'
                  r'| ?[A-Za-z]{0,12}/(?:s|sec|min|h)\b)')
HEX = re.compile(r'\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}')
DECIMAL = re.compile(r'([-+]?\d[\d,]*(?:\.\d+)?e[-+]?\d+|[-+]?\d[\d,]*\.\d+)')
COLOUR = re.compile(r'\x1b\[[\d;]*m')
ANY = '...'  # in a shown output


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


def like(shown: str, got: str) -> bool:
    "As `same`, and `...` in what a page shows matches any text"
    numbers, pattern = [], ''
    for k, part in enumerate(DECIMAL.split(normal(shown))):
        if k % 2: numbers.append(part)
        pattern += DECIMAL.pattern if k % 2 else '.*?'.join(map(re.escape, part.split(ANY)))
    found = re.fullmatch(pattern, normal(got), re.S)
    if not found: return False
    pairs = [[float(x.replace(',', '')) for x in pair] for pair in zip(numbers, found.groups())]
    return all(math.isclose(x, y, rel_tol=.02, abs_tol=1e-3) for x, y in pairs)


CASES = [  # kept, now, are they the same?
    ('took 1.2 s', 'took 13 s', True), ('12 ms and 3.1e-05 s', '9 ms and 1e-05 s', True),
    ('4,000 tokens/s', '12 tokens/s', True), ('3 steps', '4 steps', False), ('3 workers', '4 workers', False),
    ('loss 3.141', 'loss 3.150', True), ('loss 3.141', 'loss 3.4', False), ('by 0.0', 'by 1e-07', True),
    ('sha256 cf0506a39e2a…', 'sha256 0123abcd77ff…', True), ('deadline', 'decade', False), ('', 'a', False),
    ('1,230,848 parameters', '1,230,849 parameters', False),
    ('│ 0.5 s  │\n└───┘', '│ 10.5 s │\n└────┘', True),
]
LIKE = [  # shown, got, is it like it?
    *CASES, ('a ... z', 'a b c z', True), ('a ... z', 'a b c', False), ('... loss 3.141', 'x 2.5\nloss 3.15', True),
    ('loss 3.141 ...', 'loss 4.1 and 3.141', False), ('runs/demo-...', 'runs/demo-20261122', True), ('...', '', True),
    ('1 ... 2', '1 and 3', False),
]
