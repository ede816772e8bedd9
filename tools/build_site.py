"""The site, from the notebooks: lessons, how-to, essays, and a reference from the docstrings.

    python tools/build_site.py OUT            build it into the new folder OUT; exit code 1 with all that is wrong
    python tools/build_site.py --self-test    does it notice a broken link, and a page that asks another machine?

Needs the extra `docs` and the package itself, runs no cell, and asks no other machine, neither here nor in the reader's
browser. Notebooks become Markdown here, and mkdocs-material makes the pages (tools/site/mkdocs.yml): mkdocs-jupyter
would bring its own styles and scripts from elsewhere, and mkdocs would see no links inside its pages. So `--strict`
checks every link and anchor between notebooks. Formulas become MathML, which browsers draw without a script.
"""
from __future__ import annotations

import argparse
import base64
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml
from latex2mathml.converter import convert
from lint_house import solutions
from lint_notebooks import ROOT, settings
from markdown.extensions.toc import slugify
from site_reference import command_line, reference

FIXED = {'README.md': 'index.md', 'benchmarks/README.md': 'benchmarks.md', 'CONTRIBUTING.md': 'contributing.md',
         'CHANGELOG.md': 'changelog.md'}
KINDS = {'howto': 'How-to', 'essays': 'Essays'}  # folders of nbs/ that are no lessons: name -> its section
LEARN = ['course', 'walkthroughs']  # folders of lessons that come first; all others are packages
APPENDIX = {'testing', 'bench'}  # packages that only contributors need
FIRST_SIGHT = 60  # entries that a reader sees before anything is unfolded
LINK = re.compile(r'(?P<head>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?!https?:|mailto:)(?P<to>[^)\s]+)(?P<tail>\))')
BADGE = re.compile(r'\[!\[Open [Ii]n Colab\]\([^)]*\)\]\(([^)]*)\)')
SHIELD = re.compile(r'^\[!\[CI\].*$\n?', re.M)  # a picture that another machine would draw
CODE = re.compile(r'(^(?P<f>```+).*?^(?P=f)$|`[^`\n]*`)', re.M | re.S)
MATH = re.compile(r'\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$\n]+?)\$', re.S)
OUTSIDE = re.compile(r'''<(?:script|img|iframe|source|video|audio|embed)[^>]*?\s(?:src|srcset)=["']?(?:https?:)?//'''
                     r'''|<link(?![^>]*rel="?(?:canonical|next|prev)\b)[^>]*?href=["']?(?:https?:)?//'''
                     r'''|url\(["']?(?:https?:)?//|@import\s+["'](?:https?:)?//|class="mermaid"''')


class Wrong(Exception):
    "A page cannot be made; the message says which, and why"


# ---- where a page is ----------------------------------------------------------------------------
def place(path: str) -> str | None:
    "Page of the site for a file of the repository; None if there is none"
    if path in FIXED: return FIXED[path]
    parts = path.split('/')
    if path.startswith('benchmarks/images/'): return f'images/bench/{parts[-1]}'
    if parts[0] != 'nbs' or len(parts) < 2: return None
    if parts[-1] == 'index.ipynb' and len(parts) == 2: return 'index.md'
    if path == 'nbs/glossary.ipynb': return 'glossary.md'
    if not path.endswith('.ipynb'): return '/'.join(parts[1:])
    name = 'index' if parts[-1] == '00_overview.ipynb' else parts[-1].removesuffix('.ipynb')
    return '/'.join([*([] if parts[1] in KINDS else ['lessons']), *parts[1:-1], name + '.md'])


def link_to(target: str, page: str, root: Path, cfg: dict[str, str]) -> str:
    "The link from `page` to `target`, which is relative to that file of the repository"
    to, _, anchor = target.partition('#')
    anchor = '#' + slugify(unquote(anchor).replace('-', ' '), '-') if anchor else ''
    if not to: return anchor
    file = os.path.normpath(os.path.join(os.path.dirname(page), unquote(to)))
    if not (root/file).exists(): raise Wrong(f'{page}: a link leads nowhere: {target}')
    if (there := place(file)) is None: return f"{cfg['git_url']}/blob/{cfg['branch']}/{file}"
    return os.path.relpath(there, os.path.dirname(place(page) or '') or '.') + anchor


def outside_code(text: str, change: Callable[[str], str]) -> str:
    "`text` with `change` done to all that is not between backquotes"
    kept: list[str] = []
    def keep(m: re.Match[str]) -> str:
        kept.append(m[0])
        return f'\0{len(kept) - 1}\0'
    return re.sub(r'\0(\d+)\0', lambda m: kept[int(m[1])], change(CODE.sub(keep, text)))


def mathml(m: re.Match[str]) -> str:
    "A formula, drawn by the browser"
    kind = 'block' if m['block'] else 'inline'
    made = ' '.join(convert(m['block'] or m['inline'], display=kind).split())
    return f'\n\n<div markdown="0">{made}</div>\n\n' if m['block'] else made


def markdown(text: str, page: str, root: Path, cfg: dict[str, str]) -> str:
    "Markdown of a file, or of a cell of it, as the site wants it"
    def change(text: str) -> str:
        text = LINK.sub(lambda m: m['head'] + link_to(m['to'], page, root, cfg) + m['tail'], text)
        return MATH.sub(mathml, text) if page.endswith('.ipynb') else text
    text = SHIELD.sub('', BADGE.sub(r'[Open in Colab](\1)', text))
    # A list or table right under a line of text begins a list in a notebook, but not for mkdocs
    text = outside_code(text, change)
    return re.sub(r'^(?![ \t]*(?:[-*+]|\d+\.|\|)[ \t])(?!\|)(.*\S.*)\n(?=(?:[-*]|1\.) )', r'\1\n\n', text, flags=re.M)


# ---- a notebook ----------------------------------------------------------------------------------
def fenced(text: str, info: str) -> str:
    "A block of code, whatever is in it"
    ticks = '`' * max([3, *(len(x) + 1 for x in re.findall('`{3,}', text))])
    return f'{ticks}{info}\n{text.rstrip()}\n{ticks}\n'


def output(out: dict[str, Any], picture: Callable[[str, bytes], str]) -> str:
    "Markdown of one output; `picture` keeps a picture (suffix, bytes) and says its name"
    if out['output_type'] == 'stream': return fenced(''.join(out['text']), ' { .text .output }')
    data = {k: v if isinstance(v, str) else ''.join(v) for k, v in out.get('data', {}).items() if '+json' not in k}
    if 'image/png' in data: return f"![output]({picture('png', base64.b64decode(data['image/png']))})\n"
    if 'image/svg+xml' in data: return f"![output]({picture('svg', data['image/svg+xml'].encode())})\n"
    if 'text/html' in data:
        flat = re.sub(r'\n\s*\n', '\n', data['text/html'])  # an empty line would end the block
        return f'<div class="output table" markdown="0">\n{flat}\n</div>\n'
    if 'text/markdown' in data: return data['text/markdown'] + '\n'
    return fenced(data['text/plain'], ' { .text .output }') if 'text/plain' in data else ''


def notebook(path: Path, root: Path, cfg: dict[str, str], docs: Path) -> str:
    "Markdown of a notebook; its pictures go into `docs`"
    page, nb = path.relative_to(root).as_posix(), json.loads(path.read_text(encoding='utf-8'))
    made, out, module = docs/place(page), [], ''
    made.parent.mkdir(parents=True, exist_ok=True)
    def picture(suffix: str, raw: bytes) -> str:
        name = f'{made.stem}_{len(out)}.{suffix}'
        (made.parent/name).write_bytes(raw)
        return name
    answers = solutions([(cell['cell_type'], ''.join(cell['source'])) for cell in nb['cells']])
    for n, cell in enumerate(nb['cells']):
        src = ''.join(cell['source'])
        if cell['cell_type'] == 'markdown':
            out.append(markdown(src, page, root, cfg) + '\n')
            continue
        if found := re.search(r'#\|\s*default_exp (\S+)', src): module = f"{cfg['lib_path']}.{found[1]}"
        hidden = re.match(r'\s*#\s*\|\s*(hide|default_exp)\b|! ?\[ -e /content \]', src)
        if hidden or not src.strip(): continue
        exports = re.search(r'^\s*#\s*\|\s*exports?i?\b', src, re.M)
        title = f' title="{module.removesuffix(".__init__")}"' if exports and module else ''
        shown = [fenced(re.sub(r'^\s*#\s*\|.*\n?', '', src, flags=re.M), f'python{title}')]
        shown += [output(x, picture) for x in cell['outputs']]
        if n in answers: shown = ['<details markdown="1"><summary>A solution</summary>\n', *shown, '</details>\n']
        out += shown
    return '\n'.join(out)


# ---- all pages -----------------------------------------------------------------------------------
def title_of(text: str) -> str:
    "The first heading of a page"
    found = re.search(r'^# (.+)$', text, re.M)
    return re.sub(r'[`*]', '', found[1]) if found else ''


def pages(root: Path, cfg: dict[str, str], docs: Path) -> tuple[dict[str, str], list[str]]:
    "Name of each page of the site -> its Markdown, in reading order; and what is wrong"
    made, wrong = {}, []
    books = sorted(p for p in (root/'nbs').rglob('*.ipynb') if '.ipynb_checkpoints' not in p.parts)
    for path in [root/p for p in FIXED if (root/p).exists()] + [p for p in books if p != root/'nbs'/'index.ipynb']:
        name = path.relative_to(root).as_posix()
        try:
            if path.suffix == '.ipynb': made[place(name)] = notebook(path, root, cfg, docs)
            else: made[place(name)] = markdown(path.read_text(encoding='utf-8'), name, root, cfg)
        except Wrong as e: wrong.append(str(e))
    return made, wrong


def tree(names: list[str], titles: dict[str, str]) -> list[Any]:
    "The pages of one tab as mkdocs wants them: a folder is a section, and its index the first page"
    nav: list[Any] = []
    for folder in sorted({n.split('/')[0] for n in names if '/' in n}):
        inside = [n for n in names if n.startswith(folder + '/')]
        door = [n for n in inside if n == f'{folder}/index.md']
        label = titles[door[0]] if door else folder.replace('_', ' ').capitalize()
        nav.append({label: door + [n for n in inside if n not in door]})
    return [n for n in names if '/' not in n] + nav


def package(folder: str) -> str:
    "Name of the package in a folder of lessons"
    return re.sub(r'^\d\d_', '', folder)


def navigation(titles: dict[str, str], cfg: dict[str, str]) -> list[Any]:
    "The tabs: learn, use, the packages, then what you look up"
    def inside(prefix: str, wanted: Callable[[str], bool] = lambda folder: True) -> list[Any]:
        names = [n.removeprefix(prefix + '/') for n in titles if n.startswith(prefix + '/')]
        names = [n for n in names if wanted(n.split('/')[0] if '/' in n else '')]
        short = {n: titles[f'{prefix}/{n}'] for n in names}
        def whole(x: Any) -> Any:
            return {k: [*map(whole, v)] for k, v in x.items()} if isinstance(x, dict) else f'{prefix}/{x}'
        return [*map(whole, tree(names, short))]
    learn = [x for folder in LEARN for x in inside('lessons', lambda f, folder=folder: f == folder)]
    use = [{label: pages} for kind, label in KINDS.items() if (pages := inside(kind))]
    packages = inside('lessons', lambda f: f not in LEARN and package(f) not in APPENDIX)
    if appendix := inside('lessons', lambda f: package(f) in APPENDIX): packages.append({'Appendix': appendix})
    look = [n for n in ('glossary.md', 'benchmarks.md', 'contributing.md', 'changelog.md') if n in titles]
    tabs = {'Learn': learn, 'Use': use, 'Packages': packages, 'Reference': inside('reference'),
            'Look up': [*look, {'Source': cfg['git_url']}]}
    return [{'Home': 'index.md'}, *({k: v} for k, v in tabs.items() if v)]


def first_sight(nav: list[Any]) -> dict[str, int]:
    "Entries that each tab shows before a section is unfolded, the tabs themselves with them"
    return {label: len(nav) + (len(pages) if isinstance(pages, list) else 0) for tab in nav for label, pages in tab.items()}


def too_much(nav: list[Any]) -> list[str]:
    "Tabs that show more than FIRST_SIGHT entries at first sight"
    return [f'navigation: the tab {label} shows {n} entries at first sight, at most {FIRST_SIGHT}'
            for label, n in first_sight(nav).items() if n > FIRST_SIGHT]


def lessons_door(made: dict[str, str]) -> str:
    "The page of all lessons: one line for each folder, those that teach first, the appendix last"
    rows: dict[str, list[str]] = {'Learn': [], 'Packages': [], 'Appendix': []}
    for name, text in made.items():
        if not re.fullmatch(r'lessons/[^/]+/index\.md', name): continue
        folder = name.split('/')[1]
        promise = re.search(r'^> (.+)$', text, re.M)
        kind = 'Learn' if folder in LEARN else 'Appendix' if package(folder) in APPENDIX else 'Packages'
        rows[kind].append(f"- [{title_of(text)}]({name.removeprefix('lessons/')}): {promise[1] if promise else ''}")
    parts = [f'## {kind}\n\n' + '\n'.join(lines) for kind, lines in rows.items() if lines]
    return '# Lessons\n\nEvery folder is a package; its overview lists the notebooks in reading order.\n\n' + '\n\n'.join(parts) + '\n'


def door(kind: str, made: dict[str, str]) -> str:
    "The page of the how-tos or the essays, one line for each"
    rows = [f"- [{title_of(t)}]({n.removeprefix(kind + '/')}): {m[1] if (m := re.search(r'^> (.+)$', t, re.M)) else ''}"
            for n, t in made.items() if n.startswith(kind + '/')]
    return f'# {KINDS[kind]}\n\n' + '\n'.join(rows) + '\n'


def stage(root: Path, work: Path, out: Path) -> list[str]:
    "Write pages and configuration for mkdocs into `work`; what is wrong"
    cfg, docs = settings(root), work/'docs'
    docs.mkdir()
    made, wrong = pages(root, cfg, docs)
    made['lessons/index.md'] = lessons_door(made)
    for kind in KINDS:
        if any(n.startswith(kind + '/') for n in made): made[f'{kind}/index.md'] = door(kind, made)
    made |= reference(root, cfg, place)
    made |= command_line(cfg)
    for name, text in made.items():
        (docs/name).parent.mkdir(parents=True, exist_ok=True)
        (docs/name).write_text(text, encoding='utf-8')
    if (root/'nbs'/'images').exists(): shutil.copytree(root/'nbs'/'images', docs/'images', dirs_exist_ok=True)
    if (drawn := root/'benchmarks'/'images').exists(): shutil.copytree(drawn, docs/'images'/'bench', dirs_exist_ok=True)
    shutil.copy(ROOT/'tools'/'site'/'site.css', docs)
    config = yaml.safe_load((ROOT/'tools'/'site'/'mkdocs.yml').read_text(encoding='utf-8'))
    titles = {n: title_of(t) for n, t in sorted(made.items())}
    nav = navigation(titles, cfg)
    wrong += too_much(nav)
    config |= dict(docs_dir=str(docs), site_dir=str(out), nav=nav)
    (work/'mkdocs.yml').write_text(yaml.safe_dump(config, sort_keys=False), encoding='utf-8')
    return wrong


def asks_others(site: Path) -> Iterator[str]:
    "Pages that would make a browser ask another machine"
    for path in sorted([*site.rglob('*.html'), *site.rglob('*.css')]):
        text = re.sub(r'<pre>.*?</pre>|<code>.*?</code>', '', path.read_text(encoding='utf-8'), flags=re.S)
        found = OUTSIDE.search(text)
        if found: yield f'{path.relative_to(site)}: asks another machine: {html.unescape(found[0])}'


def build(root: Path, out: Path) -> list[str]:
    "Build the site of the project in `root`; what is wrong"
    with tempfile.TemporaryDirectory() as folder:
        wrong = stage(root, Path(folder), out.absolute())
        # Never with --quiet: then mkdocs counts no warnings, and --strict does nothing.
        command = [sys.executable, '-m', 'mkdocs', 'build', '--strict', '-f', f'{folder}/mkdocs.yml']
        ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | dict(NO_MKDOCS_2_WARNING='1'))
        lines = [line for line in (ran.stdout + ran.stderr).splitlines() if not line.startswith('INFO')]
        if ran.returncode: wrong.append('\n'.join(lines).replace(folder, '').strip() or f'mkdocs: {ran.returncode}')
    return wrong + [*asks_others(out)]


def self_test() -> list[str]:
    "Rules that do not notice what they should"
    def cell(text: str, kind: str = 'markdown') -> dict[str, Any]:
        return dict(cell_type=kind, source=text, outputs=[], metadata={})
    def said(text: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)/'in'
            for name in ('nbs/00_a', 'elastic_nb'): (root/name).mkdir(parents=True)
            shutil.copy(ROOT/'settings.ini', root)
            (root/'README.md').write_text('# Home\n\n[a](nbs/00_a/01_b.ipynb)\n')
            for name, words in (('00_overview', '# A\n\n> a'), ('01_b', f'# B\n\n> b\n\n## Deep inside\n\n{text}')):
                (root/'nbs'/'00_a'/f'{name}.ipynb').write_text(json.dumps(dict(cells=[cell(words), cell('1', 'code')])))
            return '\n'.join(build(root, Path(folder)/'out'))
    cases = [('fine: [x](00_overview.ipynb), [y](#Deep-inside), $x^2$, `[z](none.md)`', ''),
             ('[x](99_none.ipynb)', 'leads nowhere'), ('[x](#Not-there)', 'not-there'),
             ('<img src="https://example.com/a.png">', 'asks another machine')]
    answers = [(text, want, said(text)) for text, want in cases]
    missed = [f'{text}: {got!r}, not {want!r}' for text, want, got in answers
              if bool(want) != bool(got) or want not in got]
    names = ['lessons/00_a/index.md', 'lessons/10_bench/index.md', 'lessons/course/index.md', 'howto/index.md', 'glossary.md']
    nav = navigation({n: n for n in ['index.md', *names]}, settings())
    where = {label: str(pages) for tab in nav for label, pages in tab.items()}
    want = dict(Learn='course/index', Use='howto/index', Packages='Appendix', **{'Look up': 'glossary'})
    missed += [f'navigation: {text} is not in {label}' for label, text in want.items() if text not in where.get(label, '')]
    if too_much(nav) or len(too_much([*nav, {'Much': ['a.md'] * FIRST_SIGHT}])) != 1: missed.append('navigation: the limit')
    return missed


def main() -> int:
    "The command line"
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('out', nargs='?', type=Path)
    ap.add_argument('--self-test', action='store_true', help='see that every rule notices what it forbids')
    args = ap.parse_args()
    if not (args.self_test or args.out): ap.error('where shall the site go?')
    wrong = self_test() if args.self_test else build(ROOT, args.out)
    print('\n'.join(wrong))
    if args.out and not wrong: print(f"{len([*args.out.rglob('index.html')])} pages in {args.out}")
    return 1 if wrong else 0


if __name__ == '__main__': sys.exit(main())
