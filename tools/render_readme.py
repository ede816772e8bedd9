"""README.md from nbs/index.ipynb. The README is never edited by hand.

    python tools/render_readme.py            write README.md
    python tools/render_readme.py --check    exit code 1, with the difference, if README.md is out of date

Three kinds of lines in the notebook are filled in, so that nobody types what can be looked up:
`<!-- lessons -->` becomes the table of all notebooks, from the title and the "> " line of each;
`<!-- walkthroughs -->` the same for those in the folder of that name;
`<!-- bench: NAME -->` becomes the table of benchmarks/NAME.json, as
`elastic-nb bench NAME --json benchmarks/NAME.json` writes it;
`<!-- bench: NAME, WHAT -->` one with a column for each metric that ends in `, WHAT`, of medians and extremes.
"""
from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from lint_notebooks import BADGE, ROOT, badge_url, is_walkthrough, notebooks, settings
from nbconvert import MarkdownExporter

BENCH = re.compile(r'^<!-- bench: (\w+)(?:, (.+))? -->$', re.M)
LESSONS = re.compile(r'^<!-- (lessons|walkthroughs) -->$', re.M)
RELATIVE = re.compile(r'(?<=\]\()(?!https?:|#|mailto:)([^)\s]+)')  # the target of a markdown link or image


def number(x: Any) -> str:
    "Three significant digits for measurements, whole numbers and yes/no as they are"
    if isinstance(x, bool): return 'yes' if x else 'no'
    if not isinstance(x, float): return f'{x:,}' if isinstance(x, int) else str(x)
    return f'{x:,.0f}' if abs(x) >= 1000 else f'{x:.3g}'


def table(head: list[str], rows: list[list[Any]]) -> str:
    "A markdown table; after the first two columns come numbers, which stand on the right"
    rule = ['---' if i < 2 else '---:' for i in range(len(head))]
    return '\n'.join('| ' + ' | '.join(map(str, r)) + ' |' for r in [head, rule, *rows])


def wide(rows: list[dict[str, Any]], what: str) -> str:
    "A line for each contestant, a column for each metric of `what`"
    cells = {(r['who'], f"{r['metric'].removesuffix(', ' + what)}, {r['unit']}"):
             f"{number(r['median'])} ({number(r['min'])} to {number(r['max'])})"
             for r in rows if r['metric'].endswith(', ' + what)}
    who, metrics = (list(dict.fromkeys(names)) for names in zip(*cells))
    return table(['who', *metrics], [[w, *(cells.get((w, m), '') for m in metrics)] for w in who])


def bench(name: str, root: Path = ROOT, what: str | None = None) -> str:
    "The measured table `name`, with date, commit and machine; or that it has not been measured"
    file = f'benchmarks/{name}.json'
    if not (root / file).exists(): return f'Not measured yet: `elastic-nb bench {name} --json {file}`'
    b = json.loads((root / file).read_text(encoding='utf-8'))
    rows = [[r['who'], r['metric'], f"{number(r['median'])} {r['unit']}".strip(),
             number(r['min']), number(r['max']), r['n']] for r in b['rows']]
    parts = [wide(b['rows'], what) if what else table(['who', 'what', 'median', 'min', 'max', 'n'], rows)]
    if b.get('ratios'): parts.append(', '.join(f'`{k}` {number(v)}' for k, v in b['ratios'].items()))
    machine = b['machine']
    if isinstance(machine, dict): machine = ', '.join(f'{k} {v}' for k, v in machine.items())
    parts.append(f"<sub>{b.get('date', 'no date')}, commit {str(b['commit'])[:10]}, {machine}; measured by "
                 f"`elastic-nb bench {name}`.</sub>")
    return '\n\n'.join(parts)


def lessons(root: Path, cfg: dict[str, str], kind: str = 'lessons') -> str:
    "The table of lessons or walkthroughs: name, title and promise, and the badge that opens it in Colab"
    rows = []
    for path in notebooks(root, cfg):
        if path.name == cfg['readme_nb'] or is_walkthrough(path) != (kind == 'walkthroughs'): continue
        page = path.relative_to(root).as_posix()
        lines = nbformat.read(path, as_version=4).cells[0].source.splitlines()
        title = next((line[2:] for line in lines if line.startswith('# ')), '')
        promise = next((line[2:] for line in lines if line.startswith('> ')), '')
        title += '' if title[-1:] in '?!' else '.'
        about = f'**{title}** {promise}'.replace('|', '\\|')  # a bare bar would end the cell
        rows.append([f'[{path.stem}]({page})', about, f'[![Open in Colab]({BADGE})]({badge_url(cfg, page)})'])
    return table(['notebook', 'what it is about', ''], rows)


def from_root(text: str, root: Path, nbs: str) -> str:
    "Relative links are right in the notebook's folder; the README lies one above it"
    def one(m: re.Match[str]) -> str:
        file = (root / nbs / m[1].split('#')[0]).resolve()
        if not (file.is_relative_to(root) and file.exists()): raise SystemExit(f'index: no such file: {m[1]}')
        return file.relative_to(root).as_posix() + m[1][len(m[1].split('#')[0]):]
    return RELATIVE.sub(one, text)


def render(root: Path = ROOT) -> str:
    "The text of README.md"
    cfg = settings(root)
    nb = nbformat.read(root / cfg['nbs_path'] / cfg['readme_nb'], as_version=4)
    nb.cells = [c for c in nb.cells if not re.match(r'\s*#\s*\|\s*(hide|default_exp)\b', c.source)]
    for cell in nb.cells:
        if cell.cell_type == 'code': cell.source = re.sub(r'^\s*#\s*\|.*\n?', '', cell.source, flags=re.M)
        else: cell.source = from_root(cell.source, root, cfg['nbs_path'])
        if 'attachments' in cell: raise SystemExit('index: no attached pictures, link to a file')
        for mime in (m for out in cell.get('outputs', []) for m in out.get('data', {})):
            if mime.startswith('image/'): raise SystemExit('index: GitHub shows no inline pictures')
    nb.metadata['language_info'] = dict(name='python')   # so that code is coloured
    text, _ = MarkdownExporter().from_notebook_node(nb)
    text = BENCH.sub(lambda m: bench(m[1], root, m[2]), text)
    text = LESSONS.sub(lambda m: lessons(root, cfg, m[1]), text)
    text = '\n'.join(line.rstrip() for line in text.splitlines())
    source = f"{cfg['nbs_path']}/{cfg['readme_nb']}"
    note = f'<!-- Rendered from {source} by tools/render_readme.py: edit the notebook. -->'
    return f'{note}\n\n' + re.sub(r'\n{3,}', '\n\n', text).strip() + '\n'


def main() -> int:
    "The command line"
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--check', action='store_true', help='compare only; exit code 1 if out of date')
    args = ap.parse_args()
    new, file = render(), ROOT / 'README.md'
    if not args.check:
        file.write_text(new, encoding='utf-8')
        return 0
    old = file.read_text(encoding='utf-8') if file.exists() else ''
    diff = difflib.unified_diff(old.splitlines(True), new.splitlines(True), 'README.md', 'rendered')
    sys.stdout.writelines(diff)
    print('README.md is ' + ('up to date' if old == new else 'out of date: run tools/render_readme.py'))
    return 0 if old == new else 1


if __name__ == '__main__': sys.exit(main())
