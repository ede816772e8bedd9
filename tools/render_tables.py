"""Measured numbers as markdown, from benchmarks/*.json. `render_readme.py` calls this; nothing here is typed in.

`benchmarks/NAME.json` is the last run, as `elastic-nb bench NAME --json benchmarks/NAME.json` writes it.
`benchmarks/history.json` keeps, of each run that was ever committed, the ratios and a few medians. A copy of the
project without git history can so print the range over all runs, and not the luckiest one.
"""
from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HISTORY = 'benchmarks/history.json'
Rows = list[dict[str, Any]]


def number(x: Any) -> str:
    "Three significant digits for measurements, whole numbers and yes/no as they are"
    if isinstance(x, bool): return 'yes' if x else 'no'
    if not isinstance(x, float): return f'{x:,}' if isinstance(x, int) else str(x)
    return f'{x:,.0f}' if abs(x) >= 1000 else f'{x:.3g}'


def table(head: list[str], rows: list[list[Any]], left: int = 2) -> str:
    "A markdown table; after the first `left` columns come numbers, aligned to the right"
    rule = ['---' if i < left else '---:' for i in range(len(head))]
    return '\n'.join('| ' + ' | '.join(map(str, r)) + ' |' for r in [head, rule, *rows])


# ---- what the README shows -----------------------------------------------------------------------
@dataclass
class Cell:
    "A median (of `who` and a metric that begins with `metric`), or a ratio, of a benchmark"
    bench: str
    who: str = ''
    metric: str = ''
    ratio: str = ''

    def find(self, run: dict[str, Any]) -> dict[str, Any] | None:
        "The row in a run, which has all rows, or in the history, which has medians by this cell's name"
        if self.ratio: return {'median': run['ratios'][self.ratio]} if self.ratio in run['ratios'] else None
        if 'rows' not in run: return {'median': run['medians'][self.name]} if self.name in run['medians'] else None
        rows = (r for r in run['rows'] if r['who'] == self.who and r['metric'].startswith(self.metric))
        return next(rows, None)

    @property
    def name(self) -> str: return f'{self.who}: {self.metric}'


def rto(who: str) -> Cell: return Cell('recovery', who, 'RTO')
def redone(who: str) -> Cell: return Cell('recovery', who, 'redone steps')
def blocking(who: str) -> Cell: return Cell('checkpoint', who, 'blocking, GPT-2')
def gradients(who: str) -> Cell: return Cell('exact', who, 'different gradients')


# One line each: what is measured, ours, the others. A {} takes the next cell.
NUMBERS: list[tuple[str, str, str, list[Cell]]] = [
    ('one worker killed: seconds between the commits before and after',
     '**{}**, {} steps redone', 'torchrun {}, {} steps redone; torchft {}, {} steps redone',
     [f(who) for who in ('notice', 'torchrun', 'torchft') for f in (rto, redone)]),
    ('one of three machines lost: seconds between the same two commits',
     '**{}**, {} steps redone', 'torchrun {}, tuned {}',
     [Cell('nodes', 'ours', 'node loss'), Cell('nodes', 'ours', 'redone steps'),
      Cell('nodes', 'torchrun', 'node loss'), Cell('nodes', 'torchrun_tuned', 'node loss')]),
    ('distinct results for one gradient at world sizes 2 and 4',
     '**{}**', 'accumulate + all_reduce {}', [gradients('exact'), gradients('plain')]),
    ('save of GPT-2 and AdamW (1.5 GB): seconds training is blocked',
     '**{}**', 'DCP async {}, with a cached stager {}; one memcpy {}',
     [blocking(w) for w in ('ours', 'DCP async', 'DCP async, cached', 'memcpy')]),
    ('seconds per step at world sizes 2 and 4, exact sums',
     '**{}**, **{}**', 'accumulate + all_reduce {}, {}',
     [Cell('exact', who, f'step, world {w}') for who in ('exact', 'plain') for w in (2, 4)]),
    ('runs with one fault each (all phases covered) that end with the same bits',
     '**{}** of {}, median pause {} s', '',
     [Cell('matrix', 'matrix', m) for m in ('passed', 'measured', 'recovery')]),
]


# ---- runs, now and before ------------------------------------------------------------------------
def load(name: str, root: Path) -> dict[str, Any] | None:
    "The last run of benchmark `name`, if there is one"
    file = root / 'benchmarks' / f'{name}.json'
    return json.loads(file.read_text(encoding='utf-8')) if file.exists() else None


def short(run: dict[str, Any]) -> dict[str, Any]:
    "What the history keeps of a run"
    cells = [c for *_, cells in NUMBERS for c in cells if c.bench == run['bench'] and not c.ratio]
    kept = {c.name: round(r['median'], 5) for c in cells if (r := c.find(run))}
    ratios = {k: round(v, 5) for k, v in run['ratios'].items()}
    return {'date': run['date'], 'commit': run['commit'], 'machine': run['machine'], 'ratios': ratios, 'medians': kept}


GROWS = {'matrix'} # Each measurement adds cells to those of the last one: a range over parts would mean nothing


def history(name: str, root: Path) -> list[dict[str, Any]]:
    "All known runs of benchmark `name`, oldest first; the last one is the file's"
    file, last = root / HISTORY, load(name, root)
    known = json.loads(file.read_text(encoding='utf-8')).get(name, []) if file.exists() else []
    if last is None: return known
    if name in GROWS: return [short(last)]
    return [run for run in known if not same(run, last)] + [short(last)]


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    "Are these one run? The history may keep more or fewer medians of it than it did before"
    if (a['date'], a['commit'], {*a['ratios']}) != (b['date'], b['commit'], {*b['ratios']}): return False
    return all(round(a['ratios'][k], 5) == round(b['ratios'][k], 5) for k in a['ratios'])


def collect(root: Path) -> dict[str, int]:
    "Write the history from git and from the history that is there; benchmark -> number of runs"
    def git(*args: str) -> str:
        return subprocess.run(['git', *args], cwd=root, capture_output=True, text=True, check=True).stdout
    found = {}
    for file in sorted((root / 'benchmarks').glob('*.json')):
        if file.name == Path(HISTORY).name: continue
        page = file.relative_to(root).as_posix()
        commits = git('log', '--format=%h', '--diff-filter=AM', '--', page).split()
        old = [short(json.loads(git('show', f'{c}:{page}'))) for c in commits]
        runs: Rows = []
        if file.stem in GROWS: old = []
        for run in [*reversed(old), *history(file.stem, root)]:   # git lists the newest first
            if not any(same(run, other) for other in runs): runs.append(run)
        found[file.stem] = sorted(runs, key=lambda run: run['date'])
    (root / HISTORY).write_text(json.dumps(found, indent=1) + '\n', encoding='utf-8')
    return {name: len(runs) for name, runs in found.items()}


def span(values: list[float]) -> str:
    "`a to b`, or one value if all read the same"
    texts = [number(x) for x in (min(values), max(values))]
    return ' to '.join(dict.fromkeys(texts))


def when(runs: list[dict[str, Any]]) -> str:
    "How many runs, on which days, of which commits"
    days = ' to '.join(dict.fromkeys(r['date'] for r in (runs[0], runs[-1])))
    commits = ', '.join(dict.fromkeys(str(r['commit'])[:7] for r in runs))
    return f"{len(runs)} run{'s' * (len(runs) > 1)}, {days}, commit{'s' * (',' in commits)} {commits}"


def latest(runs: list[dict[str, Any]]) -> str:
    "How many runs, and the day and the commit of the last one"
    return f"{len(runs)} run{'s' * (len(runs) > 1)}, {runs[-1]['date']}, {str(runs[-1]['commit'])[:7]}"


def value(cell: Cell, root: Path) -> str:
    "The range of a cell over all runs; of a single run, the range of its repetitions"
    runs, last = history(cell.bench, root), load(cell.bench, root)
    found = [r['median'] for run in runs if (r := cell.find(run))]
    row = cell.find(last) if last else None
    once = len(found) == 1 and row is not None and row.get('min') != row.get('max')
    if not once: return span(found) if found else 'not measured yet'
    return f"{number(row['median'])} ({span([row['min'], row['max']])})"


def numbers(root: Path) -> str:
    "The table of the README"
    lines = []
    for what, ours, others, cells in NUMBERS:
        n, got = ours.count('{}'), [value(c, root) for c in cells]
        lines.append([what, ours.format(*got[:n]), others.format(*got[n:]), latest(history(cells[0].bench, root))])
    return table(['what', 'elastic-nb', 'others, in the same run', 'measured'], lines, left=4)


def gpu(root: Path) -> str:
    "When cells last ran on a GPU"
    run = load('gpu', root)
    if run is None: return 'No notebook has run on a GPU yet.'
    return f"Last measured on a GPU: {run['date']}, commit {str(run['commit'])[:7]}, {run['machine']}."


# ---- what is refused -------------------------------------------------------------------------------
# A run that is published although something of ours failed in it, by benchmark and commit: until it is measured again
WAIVED = {('data', 'f0d64a2'): 'The row *ours, store, cold* is missing from this run: the benchmark lacked an import, '
                                  'and has it now. It will come with the next measurement.'}
OURS_FAILED = re.compile(r'\bfailed: (?:ours|trainer)\b|^(?:ours|trainer)\b.* failed:')


def failures(b: dict[str, Any]) -> list[str]:
    "What failed of ours in a run: notes, failures of a soak, cells of the matrix"
    said = [note for note in b.get('notes', []) if OURS_FAILED.search(note) or b['bench'] == 'gpu' and ' failed: ' in note]
    cells = [f"{c['fault']}, {c['phase']}: failed" for c in b.get('cells', []) if c.get('passed') is False]
    return [*said, *b.get('failures', []), *cells]


def refused(b: dict[str, Any]) -> list[str]:
    "Why a run may not be published: a failure of ours, unless this very run is waived"
    if (b['bench'], str(b.get('commit'))[:7]) in WAIVED: return []
    return [f"benchmarks/{b['bench']}.json holds a failure of ours: {why}" for why in failures(b)]


def absent(b: dict[str, Any]) -> list[str]:
    "Other systems that a run did not have"
    lists = [note.removeprefix('not installed: ') for note in b.get('notes', []) if note.startswith('not installed: ')]
    return [name for names in lists for name in names.split(', ')]


# ---- the tables ----------------------------------------------------------------------------------
def wide(rows: Rows, what: str) -> str:
    "A line for each contestant, a column for each metric of `what`"
    cells = {(r['who'], f"{r['metric'].removesuffix(', ' + what)}, {r['unit']}"):
             f"{number(r['median'])} ({number(r['min'])} to {number(r['max'])})"
             for r in rows if r['metric'].endswith(', ' + what)}
    cells = {(w, m.removesuffix(', ')): text for (w, m), text in cells.items()}   # a number without a unit
    who, metrics = (list(dict.fromkeys(names)) for names in zip(*cells))
    return table(['who', *metrics], [[w, *(cells.get((w, m), '') for m in metrics)] for w in who])


FOLD = 12  # lines that a table may have before it is folded


def folded(text: str, most: int = FOLD) -> str:
    "A table or list, folded if it is long"
    lines = [line for line in text.splitlines() if line.startswith(('|', '- '))]
    n = len(lines) - 2 * lines[0].startswith('|') if lines else 0
    if n <= most: return text
    return f'<details markdown="1"><summary>All {n} lines</summary>\n\n{text}\n\n</details>'


PARTS = {'data': ['forms', 'mixtures']}  # What has tables of its own, and is in no other


def bench(name: str, root: Path, what: str | None = None) -> str:
    "The table of the last run of `name`, with its notes, date, commit and machine; or that there was none"
    b = load(name, root)
    if b is None: return 'There is no table yet.'
    apart = tuple(f', {part}' for part in PARTS.get(name, []))
    if what and not any(r['metric'].endswith(f', {what}') for r in b['rows']): return 'Not measured yet.'
    rows = [[r['who'], r['metric'], f"{number(r['median'])} {r['unit']}".strip(),
             number(r['min']), number(r['max']), r['n']] for r in b['rows'] if not r['metric'].endswith(apart)]
    text = wide(b['rows'], what) if what else table(['who', 'what', 'median', 'min', 'max', 'n'], rows)
    return folded(text) + (f"\n\n<sub>{b.get('date', 'no date')}, commit {str(b['commit'])[:10]}, {b['machine']}; measured by "
                   f"`elastic-nb bench {name}`.</sub>")


def notes(name: str, root: Path) -> str:
    "What the benchmark itself has to say about its last run"
    b = load(name, root) or {}
    said = [note for note in b.get('notes', []) if not note.startswith('not installed: ') and note not in failures(b)]
    said += [WAIVED[key] for key in [(name, str(b.get('commit'))[:7])] if key in WAIVED]
    return '\n'.join(f'- {note}' for note in said)


def spread(name: str, root: Path) -> str:
    "Each ratio of the last run, and its range over all runs"
    last, runs = load(name, root), history(name, root)
    if last is None or not last['ratios']: return ''
    rows = [[f'`{k}`', number(v), span([r['ratios'][k] for r in runs if k in r['ratios']]),
             sum(k in r['ratios'] for r in runs)] for k, v in short(last)['ratios'].items()]
    return folded(table(['ratio', 'last run', 'range of all runs', 'runs'], rows, left=1)) + f'\n\n<sub>{when(runs)}.</sub>'


# ---- the matrix of faults and phases ---------------------------------------------------------------
def pause(c: dict[str, Any]) -> str:
    "The content of a cell: the longest pause in seconds, or that it has failed; nothing in an empty one"
    if 'why_not' in c: return ''
    if not c['passed']: return '**failed**'
    seconds = c['rto_s']
    return 'the end' if seconds is None else f'{seconds:.2f}' if seconds < 9.95 else f'{seconds:.0f}'


def matrix(root: Path) -> str:
    "The cells of benchmarks/matrix.json as a table, then what failed and why, and why cells are empty"
    b = load('matrix', root)
    if b is None: return 'There is no table yet.'
    cells = {(c['fault'], c['phase']): c for c in b['cells']}
    faults, phases = (list(dict.fromkeys(key[n] for key in cells)) for n in (0, 1))
    order = [p for p in ('forward', 'reduce', 'commit', 'save', 'load', 'rendezvous', 'join', 'idle') if p in phases]
    rows = [[f, *(pause(cells[f, p]) if (f, p) in cells else '?' for p in order)] for f in faults]
    done = [c for c in b['cells'] if 'passed' in c]
    commits = ', '.join(dict.fromkeys(str(c['commit'])[:7] for c in done))
    text = table(['seconds', *order], rows, left=1)
    text += (f"\n\n<sub>{b['date']}, commit {commits}, {b['machine']}; measured by `elastic-nb chaos matrix`. "
             f"{sum(c['passed'] for c in done)} of {len(done)} runs ended with the bits of an undisturbed one, "
             f"{sum(c['samples_lost'] or 0 for c in done)} samples were lost, and "
             f"{sum(c['redone_steps'] for c in done)} steps were done again. "
             f"?: not measured yet ({sum(r.count('?') for r in rows)} cells). Empty: it cannot happen; the file has the reason.</sub>")
    return text


# Who is compared with whom; None: with all others, but for the limits of the machine and our own second lines.
PEERS: dict[str, list[tuple[str, list[str] | None]]] = {
    'recovery': [(who, ['torchrun', 'torchft']) for who in ('notice', 'heartbeat', 'spare')],
    'exact': [('exact', ['plain'])],
    'nodes': [(who, ['torchrun', 'torchrun_tuned']) for who in ('ours', 'ours_etcd')],
    'data': [('ours', None), ('ours, mixed', None)],
    'checkpoint': [('ours', None)],
    'trainer': [('trainer, ddp', ['plain loop', 'plain DDP']), ('trainer, exact', ['plain loop, beside exact']),
                ('ours', ['torch.load', 'torch.load, mmap'])],
}
LIMITS = {'memcpy', 'raw, 2 threads', 'raw, 4 threads'}


def ahead(name: str, root: Path) -> str:
    "The lines of the last run in which the median of another is better than ours"
    b, better = load(name, root), {}
    if b is None: return ''
    for ours, peers in PEERS[name]:
        mine = {r['metric']: r for r in b['rows'] if r['who'] == ours}
        for r in b['rows']:
            own = mine.get(r['metric'])
            if own is None or r['who'] in LIMITS | {ours} or peers and r['who'] not in peers: continue
            if r['who'].startswith('ours, '): continue   # another form of ours is no peer
            sign = 1 if '/s' in r['unit'] else -1   # of a rate, more is better; of anything else, less
            if sign * r['median'] <= sign * own['median']: continue
            line = f"- {r['metric']}: {ours} {number(own['median'])} {r['unit']}".rstrip()
            better.setdefault(line, []).append(f"{r['who']} {number(r['median'])}")
    if not better: return 'No other median of this run is ahead of ours.'
    lines = [f"{line}; {'; '.join(others)}" for line, others in better.items()]
    return 'Ahead of us in this run, by the medians:\n\n' + folded('\n'.join(lines))
