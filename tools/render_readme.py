"""README.md and benchmarks/README.md. Never edit either one manually.

    python tools/render_readme.py            write both pages
    python tools/render_readme.py --check    exit code 1, with the difference, if one is out of date
    python tools/render_readme.py --self-test does it refuse what it must not publish?
    python tools/render_readme.py --collect  first gather the runs of all commits into benchmarks/history.json

README.md comes from nbs/index.ipynb, benchmarks/README.md from tools/benchmarks.md. Lines that can be looked up are
filled in, so no number is typed:
`<!-- packages -->` becomes the table of the folders, from the "> " line of each overview;
`<!-- walkthroughs -->` the list of the walkthroughs;
`<!-- numbers -->` and `<!-- gpu -->` what the README shows of the measurements;
`<!-- bench: NAME -->` the table of benchmarks/NAME.json; `<!-- bench: NAME, WHAT -->` one with a column for each
metric that ends in `, WHAT`;
`<!-- spread: NAME -->` its ratios with their range over all runs; `<!-- ahead: NAME -->` where others are ahead;
`<!-- picture: NAME -->` the picture of its ratios, from draw_ratios.py; `<!-- notes: NAME -->` the notes of the benchmark;
`<!-- matrix -->` the faults against the phases, from benchmarks/matrix.json.
"""
from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from pathlib import Path

import draw_ratios
import nbformat
import render_tables as tables
from lint_notebooks import ROOT, settings
from nbconvert import MarkdownExporter

FILL = re.compile(r'<!-- (\w+)(?:: (\w+)(?:, (.+?))?)? -->')
RELATIVE = re.compile(r'(?<=\]\()(?!https?:|#|mailto:)([^)\s]+)')  # the target of a markdown link or image
FILE = re.compile(r'^```python\n%%writefile (\S+)\n', re.M)
MISSING = '## Not measured'  # the last section of tools/benchmarks.md
LIMIT = 10_000  # bytes of README.md: what a visitor reads


def head(path: Path) -> tuple[str, str]:
    "Title and promise of a notebook"
    lines = nbformat.read(path, as_version=4).cells[0].source.splitlines()
    return tuple(next((line[2:] for line in lines if line.startswith(mark)), '') for mark in ('# ', '> '))


def packages(root: Path, cfg: dict[str, str]) -> str:
    "The table of the folders: name, link to the overview, promise"
    rows = []
    for path in sorted((root / cfg['nbs_path']).glob('[0-9]*/00_overview.ipynb')):
        name = path.parent.name.split('_', 1)[1]
        rows.append([f'[{name}]({path.relative_to(root).as_posix()})', head(path)[1].replace('|', '\\|')])
    return tables.table(['package', 'what it is for'], rows)


def walkthroughs(root: Path, cfg: dict[str, str]) -> str:
    "The walkthroughs, one line each"
    lines = []
    for path in sorted((root / cfg['nbs_path'] / 'walkthroughs').glob('*.ipynb')):
        page = path.relative_to(root).as_posix()
        lines.append(f'  - [{head(path)[0]}]({page})')
    return '\n'.join(lines)


def fill(text: str, root: Path, cfg: dict[str, str]) -> str:
    "`text` with all that can be looked up"
    def one(m: re.Match[str]) -> str:
        kind, name, what = m.groups()
        if kind in ('packages', 'walkthroughs'): return globals()[kind](root, cfg)
        if kind in ('numbers', 'gpu', 'matrix'): return getattr(tables, kind)(root)
        if kind == 'bench': return tables.bench(name, root, what)
        if kind == 'picture': return draw_ratios.picture(name, root)
        if kind in ('spread', 'ahead', 'notes'): return getattr(tables, kind)(name, root)
        raise SystemExit(f'there is nothing to fill in for {m[0]}')
    return FILL.sub(one, text)


def from_root(text: str, root: Path, folder: str) -> str:
    "Relative links are right in the notebook's folder; the README is one above it"
    def one(m: re.Match[str]) -> str:
        file = (root / folder / m[1].split('#')[0]).resolve()
        if not (file.is_relative_to(root) and file.exists()): raise SystemExit(f'index: no such file: {m[1]}')
        return file.relative_to(root).as_posix() + m[1][len(m[1].split('#')[0]):]
    return RELATIVE.sub(one, text)


def tidy(text: str, source: str) -> str:
    "One blank line between paragraphs, none with spaces, and a note where the page comes from"
    text = '\n'.join(line.rstrip() for line in text.splitlines())
    note = f'<!-- Rendered from {source} by tools/render_readme.py: edit that file. -->'
    return f'{note}\n\n' + re.sub(r'\n{3,}', '\n\n', text).strip() + '\n'


def render(root: Path = ROOT) -> str:
    "The text of README.md"
    cfg = settings(root)
    nb = nbformat.read(root / cfg['nbs_path'] / cfg['readme_nb'], as_version=4)
    nb.cells = [c for c in nb.cells if not re.match(r'\s*#\s*\|\s*(hide|default_exp)\b', c.source)]
    for cell in nb.cells:
        if cell.cell_type == 'code': cell.source = re.sub(r'^\s*#\s*\|.*\n?', '', cell.source, flags=re.M)
        else: cell.source = from_root(cell.source, root, cfg['nbs_path'])
        if cell.source.startswith('%%writefile'): cell.outputs = []
        if 'attachments' in cell: raise SystemExit('index: no attached pictures, link to a file')
        for mime in (m for out in cell.get('outputs', []) for m in out.get('data', {})):
            if mime.startswith('image/'): raise SystemExit('index: GitHub shows no inline pictures')
    nb.metadata['language_info'] = dict(name='python')   # so that code is coloured
    text, _ = MarkdownExporter().from_notebook_node(nb)
    text = FILE.sub(lambda m: f'```python\n# {m[1]}\n', text)   # a reader has an editor, and no magics
    page = tidy(fill(text, root, cfg), f"{cfg['nbs_path']}/{cfg['readme_nb']}")
    if len(page.encode()) > LIMIT: raise SystemExit(f'README.md: {len(page.encode()):,} bytes, at most {LIMIT:,}')
    return page


def render_benchmarks(root: Path = ROOT) -> str:
    "The text of benchmarks/README.md; every file of measurements must have a table in it"
    source = 'tools/benchmarks.md'
    text = (root / source).read_text(encoding='utf-8')
    shown = {m[2] or m[1] for m in FILL.finditer(text) if m[1] in ('bench', 'matrix')}
    for file in sorted((root / 'benchmarks').glob('*.json')):
        if file.stem not in shown | {Path(tables.HISTORY).stem}:
            raise SystemExit(f'{source}: there is no <!-- bench: {file.stem} -->')
    last = [run for file in sorted((root / 'benchmarks').glob('*.json')) if 'bench' in (run := json.loads(file.read_text('utf-8')))]
    wrong = [why for run in last for why in tables.refused(run)]
    _, _, missing = text.partition(MISSING)
    wrong += [f'{source}: say under "{MISSING}" why {name} was not measured' for run in last for name in tables.absent(run)
              if f'`{name}`' not in missing]
    if wrong: raise SystemExit('\n'.join(wrong))
    for target in RELATIVE.findall(text):
        if not (root / 'benchmarks' / target.split('#')[0]).exists():
            raise SystemExit(f'{source}: no such file: {target}')
    return tidy(fill(text, root, settings(root)), source)


def compare(file: Path, new: str) -> bool:
    "Is `file` what it should be? Prints the difference"
    name = file.relative_to(ROOT).as_posix()
    old = file.read_text(encoding='utf-8') if file.exists() else ''
    sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, 'rendered'))
    print(f'{name} is ' + ('up to date' if old == new else 'out of date: run tools/render_readme.py'))
    return old == new


def self_test() -> int:
    "A failure of ours is refused; one of others is not, nor a waived run; long tables fold"
    def run(*notes: str, bench: str = 'data', commit: str = 'abc', **more: object) -> list[str]:
        return tables.refused(dict(bench=bench, commit=commit, notes=[*notes], **more))
    assert run('failed: grain: OSError', 'all is well') == [] and len(run('failed: ours, packed: OSError')) == 1
    assert len(run('GPT-2: failed: ours: OSError', bench='checkpoint')) == 1 and len(run('ours, warm failed: OSError')) == 1
    assert len(run('groups failed: OSError', bench='gpu')) == 1 and len(run(bench='soak', failures=['it grew'])) == 1
    cell = dict(fault='kill', phase='save')
    assert run(bench='matrix', cells=[cell | dict(passed=True), cell | dict(why_not='x')]) == []
    assert len(run(bench='matrix', cells=[cell | dict(passed=False)])) == 1
    for bench, commit in tables.WAIVED: assert run('failed: ours: x', bench=bench, commit=commit) == []
    assert tables.absent(dict(notes=['not installed: a, b', 'c'])) == ['a', 'b']
    short = tables.table(['a'], [['1']] * tables.FOLD)
    assert tables.folded(short) == short and 'All 13 lines' in tables.folded(short + '\n| 1 |')
    assert draw_ratios.ticks(.9, 25.) == [1, 2, 5, 10, 20] and draw_ratios.ticks(.5, 2000.) == [1, 10, 100, 1000]
    assert draw_ratios.said(2., 1., 2.) == '2 (1 to 2)' and draw_ratios.said(2., 2., 2.) == '2'
    print('what must not be published is refused')
    return 0


def main() -> int:
    "The command line"
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--check', action='store_true', help='compare only; exit code 1 if a page is out of date')
    ap.add_argument('--self-test', action='store_true', help='see that it refuses what it must')
    ap.add_argument('--collect', action='store_true', help='write benchmarks/history.json from git history first')
    args = ap.parse_args()
    if args.self_test: return self_test()
    if args.collect:
        for name, n in tables.collect(ROOT).items(): print(f'{name}: {n} runs')
    good = True
    drawn = {f'benchmarks/{name}': text for name, text in draw_ratios.pictures(ROOT).items()}
    if args.check: good = all([compare(ROOT / name, text) for name, text in drawn.items()])
    for name, text in ({} if args.check else drawn).items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(text, encoding='utf-8')
    for name, make in (('benchmarks/README.md', render_benchmarks), ('README.md', render)):  # each links to those before
        file, text = ROOT / name, make()
        if args.check: good &= compare(file, text)
        else: file.write_text(text, encoding='utf-8')
    return 0 if good else 1


if __name__ == '__main__': sys.exit(main())
