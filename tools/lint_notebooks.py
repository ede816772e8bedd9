"""This project's rules that nbdev does not check. Prints one line per complaint; exit code 1 if there is any.

    python tools/lint_notebooks.py              look at every notebook, link and module
    python tools/lint_notebooks.py --fix        after an edit of settings.ini: links and the version follow; and solutions are folded
    python tools/lint_notebooks.py --self-test  break a small project in every way: does each rule notice?
"""
from __future__ import annotations

import argparse
import ast
import configparser
import json
import logging
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
from lint_house import (check_linked_pages, check_hidden, check_imports, check_layout, check_list, check_size, check_where, exported,
                        parse, solutions)

logging.getLogger('traitlets').disabled = True  # nbformat also logs what we report
ROOT = Path(__file__).resolve().parent.parent
BADGE = 'https://colab.research.google.com/assets/colab-badge.svg'
PAGES = ['README.md', 'benchmarks/README.md', 'tools/benchmarks.md', 'CHANGELOG.md', 'CONTRIBUTING.md',
         'pyproject.toml']  # hold links, as notebooks do
DIRECTIVES = {'default_exp', 'export', 'exporti', 'exports', 'hide', 'slow', 'gpu', 'net'}
PICKLES = {'pickle', 'cPickle', 'cloudpickle', 'copyreg', 'dill', 'joblib', 'marshal', 'shelve'}
OBJECTS = re.compile(r'(all_gather|gather|scatter|broadcast|send|recv)_object(_list)?')  # of torch.distributed
MEASURES_LOAD = {'nbs/10_bench/08_checkpoint.ipynb',  # may torch.load, weights only, what it has just written itself
                 'nbs/03_checkpoint/15_interop.ipynb'}  # and this one, which takes in files of other programs
GUIDES = {'walkthroughs', 'howto', 'essays'}  # folders of notebooks for users, which export nothing
FOLDED = {'cellView': 'form', 'jupyter': {'source_hidden': True}}  # a solution: folded in Colab, and in JupyterLab
MAX_OUTPUT, MAX_LINE = 64 * 1024, 110  # bytes per cell, characters

LESSONS_NEED = ('fastcore', 'hypothesis')  # and users need not have: a lesson installs what Colab lacks

# What differs on the next machine or at the next run has no place in a stored output.
LEAKS = {
    'a path of one machine': re.compile(r'(?<![\w.])/(?:home|root|tmp|Users|private|mnt|var/folders)/'),
    'a memory address': re.compile(r'\b0x[0-9a-fA-F]{6,}\b'),
    'a date with its time': re.compile(r'\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d'),
    'a warning': re.compile(r'\b[A-Z]\w*Warning:'),
}
HOST = socket.gethostname()
if re.search(r'\d', HOST) and len(HOST) > 5:  # a plain word might be anywhere for another reason
    LEAKS['the name of this machine'] = re.compile(rf'\b{re.escape(HOST)}\b')
# A link into a GitHub project, however spelled: owner, repository and, where it has them, branch and path.
LINK = re.compile(r'(?P<site>(?P<raw>raw\.githubusercontent\.com)|github\.com|'
                  r'colab\.research\.google\.com/github)/'
                  r'(?P<user>[\w.-]+)/(?P<repo>[\w.-]+?)(?P<git>\.git)?'
                  r'(?:(?P<sep>(?(raw)/|(?:/(?:blob|tree|raw|edit)/|@)))'
                  r'(?P<branch>[\w.-]*\w)(?P<path>/[\w./-]*\w)?)?'
                  r'(?![\w-]|\.\w)')

RELATIVE = re.compile(r'\]\((?!https?:|#|mailto:)([^)\s]+)\)')  # the target of a link inside the repository
ANCHOR = re.compile(r'\]\((?!https?:|mailto:)([^)\s#]*)#([^)\s]+)\)')  # page ('': this one) and heading of a link
HEADING = re.compile(r'^#{1,6} +(.+?)\s*$', re.M)


# ---- what settings.ini says ----------------------------------------------------------------------
def settings(root: Path = ROOT) -> dict[str, str]:
    "The keys of settings.ini, with interpolation done"
    ini = configparser.ConfigParser(delimiters=['='])
    if not ini.read(root / 'settings.ini', encoding='utf-8'): raise SystemExit(f'no settings.ini in {root}')
    return dict(ini['DEFAULT'])


def badge_url(cfg: dict[str, str], page: str) -> str:
    "Where the Open-in-Colab badge of the notebook at `page` (relative to the repository) leads"
    return f"https://colab.research.google.com/github/{cfg['user']}/{cfg['repo']}/blob/{cfg['branch']}/{page}"


def notebooks(root: Path, cfg: dict[str, str]) -> list[Path]:
    "All notebooks of the project, in reading order"
    found = (root / cfg['nbs_path']).rglob('*.ipynb')
    return sorted(p for p in found if '.ipynb_checkpoints' not in p.parts)


def is_walkthrough(path: Path) -> bool:
    "These folders use the installed package, as its users do; all other notebooks are its source"
    return path.parent.name in GUIDES


def pyproject(cfg: dict[str, str]) -> dict[str, str]:
    "The values pyproject.toml has to repeat, because nbdev 3 reads no settings.ini: key -> value"
    return {'name': cfg['lib_name'], 'requires-python': f">={cfg['min_python']}",
            'Repository': cfg['git_url'], 'lib_path': cfg['lib_path'], 'branch': cfg['branch'],
            'tst_flags': cfg['tst_flags']}


def toml_value(text: str, key: str) -> str | None:
    "The string that `key` has in our own small pyproject.toml (Python 3.10 has no TOML reader)"
    found = re.search(rf'^{re.escape(key)} = "(.*)"$', text, re.M)
    return found and found[1]


# ---- links ---------------------------------------------------------------------------------------
def lost(page: Path, text: str) -> Iterator[str]:
    "Relative links of `page` that lead nowhere; of a notebook, its markdown counts"
    for target in RELATIVE.findall(re.sub(r'`[^`\n]*`', '', text)):
        if not (page.parent / target.split('#')[0]).exists(): yield target


def prose(page: Path) -> str:
    "The Markdown of a page; of a notebook, that of its cells"
    text = page.read_text(encoding='utf-8')
    if page.suffix != '.ipynb': return text
    try: cells = json.loads(text)['cells']
    except ValueError: return ''   # which check_notebook complains of
    return '\n\n'.join(''.join(c['source']) for c in cells if c['cell_type'] == 'markdown')


def anchors(page: Path) -> set[str]:
    "The anchors of a page's headings, as Jupyter makes them for a notebook, and GitHub for a Markdown page"
    text = re.sub(r'^```.*?^```', '', prose(page), flags=re.M | re.S).replace('`', '')
    found = HEADING.findall(text)
    if page.suffix == '.md': found = [re.sub(r'[^\w -]', '', heading).lower() for heading in found]
    return {heading.replace(' ', '-') for heading in found}


def check_anchors(root: Path, cfg: dict[str, str]) -> Iterator[str]:
    "Complaints about links to a heading that its page does not have"
    known: dict[Path, set[str]] = {}
    for page in notebooks(root, cfg) + [root / p for p in PAGES if p.endswith('.md') and (root / p).exists()]:
        if page.parent.name == 'tools': continue   # its files are templates of other pages
        for path, anchor in ANCHOR.findall(re.sub(r'`[^`\n]*`', '', prose(page))):
            there = (page.parent / path).resolve() if path else page
            if there.suffix not in ('.ipynb', '.md') or not there.exists(): continue
            if there not in known: known[there] = anchors(there)
            if unquote(anchor) not in known[there]:
                yield f'{page.relative_to(root).as_posix()}: there is no such heading: {path}#{anchor}'


def relink(text: str, root: Path, cfg: dict[str, str], old: str) -> tuple[str, list[str]]:
    "`text` with its links to this project (until now `old`, a user/repo) as settings.ini says; dead links"
    dead = []

    def one(m: re.Match[str]) -> str:
        path = (m['path'] or '').strip('/')
        ours = f"{m['user']}/{m['repo']}" == old or m['repo'] == cfg['repo']
        # Or it leads to a file that we have: so links are found without the old name.
        known = path.startswith((cfg['nbs_path'] + '/', cfg['lib_path'] + '/')) and (root / path).exists()
        if not (ours or known): return m[0]
        if path and not (root / path).exists(): dead.append(m[0])
        link = f"{m['site']}/{cfg['user']}/{cfg['repo']}{m['git'] or ''}"
        return link + (f"{m['sep']}{cfg['branch']}{m['path'] or ''}" if m['sep'] else '')

    return LINK.sub(one, text), dead


def former_name(root: Path) -> str:
    "user/repo as pyproject.toml still has it: the name before an edit of settings.ini"
    url = toml_value((root / 'pyproject.toml').read_text(encoding='utf-8'), 'Repository') or ''
    return '/'.join(url.rstrip('/').split('/')[-2:])


def linked(root: Path, cfg: dict[str, str]) -> list[Path]:
    "All files that may link to the project"
    return notebooks(root, cfg) + [root / p for p in PAGES if (root / p).exists()]


def check_links(root: Path, cfg: dict[str, str]) -> Iterator[str]:
    "Complaints about links and about settings that pyproject.toml repeats"
    old = former_name(root)
    for page in linked(root, cfg):
        text = page.read_text(encoding='utf-8')
        new, dead = relink(text, root, cfg, old)
        name = page.relative_to(root).as_posix()
        if new != text: yield f'{name}: links differ from settings.ini (user, repo, branch): use --fix'
        for link in dead: yield f'{name}: a dead link, there is no such file: {link}'
        if page.suffix == '.md' and page.parent.name != 'tools':   # its files are templates of other pages
            yield from (f'{name}: a dead link, there is no such file: {link}' for link in lost(page, text))
    toml = (root / 'pyproject.toml').read_text(encoding='utf-8')
    for key, want in pyproject(cfg).items():
        if (got := toml_value(toml, key)) != want:
            yield f'pyproject.toml: {key} is {got!r}, settings.ini says {want!r}'


def fix(root: Path) -> list[str]:
    "Make all links, pyproject.toml and the version follow settings.ini; the names of the files that changed"
    cfg, old, changed = settings(root), former_name(root), []
    for page in linked(root, cfg):
        text = page.read_text(encoding='utf-8')
        new, _ = relink(text, root, cfg, old)
        if page.name == 'pyproject.toml':
            for key, want in pyproject(cfg).items():
                new = re.sub(rf'^{re.escape(key)} = ".*"$', lambda _: f'{key} = "{want}"', new, flags=re.M)
        if new == text: continue
        page.write_text(new, encoding='utf-8')
        changed.append(page.relative_to(root).as_posix())
    changed += [path.relative_to(root).as_posix() for path in notebooks(root, cfg) if fold(path)]
    init, says = root / cfg['lib_path'] / '__init__.py', re.compile(r'(__version__ = \\?")[^"\\]*')
    # nbdev 3 takes the version from the notebook of __init__, or gives every project 0.0.1.
    for file in [init, *(p for p in notebooks(root, cfg) if p.name == '00_overview.ipynb')]:
        text = file.read_text(encoding='utf-8')
        new = says.sub(lambda m: m[1] + cfg['version'], text)
        if new == text: continue
        file.write_text(new, encoding='utf-8')
        changed.append(file.relative_to(root).as_posix())
    return changed


def unfolded(cells: list[dict[str, Any]]) -> list[int]:
    "Indices of solutions that a reader sees before trying"
    kinds = [(c['cell_type'], ''.join(c['source'])) for c in cells]
    return sorted(n for n in solutions(kinds) if any(cells[n]['metadata'].get(k) != v for k, v in FOLDED.items()))


def fold(path: Path) -> bool:
    "Fold the solutions of a notebook; was there anything to do?"
    nb = json.loads(path.read_text(encoding='utf-8'))
    for n in (found := unfolded(nb['cells'])): nb['cells'][n]['metadata'] |= FOLDED
    if found: path.write_text(json.dumps(nb, sort_keys=True, indent=1, ensure_ascii=False) + '\n', encoding='utf-8')
    return bool(found)


# ---- one notebook --------------------------------------------------------------------------------
def is_import(node: ast.stmt) -> bool:
    "An import, or a try or if around imports"
    if isinstance(node, (ast.Try, ast.If)): return all(map(is_import, node.body))
    return isinstance(node, (ast.Import, ast.ImportFrom))


def loads_weights(node: ast.AST) -> bool:
    "torch.load(..., weights_only=True)"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and unpickles(node.func) and any(
        (k.arg, getattr(k.value, 'value', None)) == ('weights_only', True) for k in node.keywords)


def unpickles(node: ast.AST) -> bool:
    "Does this run code out of a file or a message? torch.load, the pickle family, and arguments that switch it on"
    if isinstance(node, ast.Import): return any(a.name.split('.')[0] in PICKLES for a in node.names)
    if isinstance(node, ast.ImportFrom):
        home = (node.module or '').split('.')[0]
        return home in PICKLES or home == 'torch' and any(
            a.name == 'load' or OBJECTS.fullmatch(a.name) for a in node.names)
    if isinstance(node, ast.Attribute):
        owner = getattr(node.value, 'id', '')
        return owner == 'torch' and node.attr == 'load' or owner == 'dist' and bool(OBJECTS.fullmatch(node.attr))
    if isinstance(node, ast.keyword):
        value = getattr(node.value, 'value', None)
        return (node.arg, value) in {('allow_pickle', True), ('weights_only', False)}
    return False


def check_code(src: str, may_load: bool = False) -> Iterator[str]:
    "Complaints about the source of one code cell; `may_load`: see MEASURES_LOAD"
    lines = src.splitlines()
    for n, line in enumerate(lines, 1):
        if len(line) > MAX_LINE: yield f'line {n} has {len(line)} characters, at most {MAX_LINE}'
    flags = [m[1] for m in (re.match(r'\s*#\s*\|\s*([^\s:]+)', line) for line in lines) if m]
    for flag in flags:
        if flag not in DIRECTIVES: yield f'directive {flag}: only {", ".join(sorted(DIRECTIVES))} are used'
    magic = re.search(r'^\s*%%', src, re.M)
    if flags and magic: yield '#| and %% in one cell fail in plain IPython and in Colab'
    if magic: return  # another language from here on
    try: tree = parse(src)
    except SyntaxError as e:
        yield f'does not parse: {e.msg} (line {e.lineno})'
        return
    body = [node for node in tree.body if not isinstance(node, ast.Pass)]
    if any(map(is_import, body)) and not all(map(is_import, body)):
        yield 'imports and other code in one cell: give the imports a cell of their own'
    fine = {id(n.func) for n in ast.walk(tree) if may_load and loads_weights(n)}
    if any(unpickles(n) for n in ast.walk(tree) if id(n) not in fine):
        yield 'torch.load and pickles are banned: files run code'
    if exported(src): yield from check_size(src)


def check_walkthrough(src: str) -> Iterator[str]:
    "Complaints about a code cell that is to run where nothing but the package was installed"
    if re.search(r'^\s*#\s*\|\s*(default_exp|export)', src, re.M): yield 'a walkthrough exports nothing'
    if found := re.search(r'^\s*(?:from|import)\s+(fastcore|nbdev)\b', src, re.M):
        yield f'{found[1]} is for developers, and a walkthrough is for users'


def check_installs(sources: list[str], colab: str) -> Iterator[str]:
    "Complaints about what a lesson imports and does not install; `colab`: what is there, as in constraints-colab.txt"
    code = '\n'.join(sources)
    for name in LESSONS_NEED:
        if not re.search(rf'^\s*(?:from|import)\s+{name}\b', code, re.M): continue
        there = re.search(rf'^{name}\b', colab, re.M)
        if not (there or re.search(rf'pip install .*(?:{name}|\[dev\])', code)):
            yield f"imports {name}, which Colab lacks: write ! [ -e /content ] && pip install -q {name}"


def texts(out: dict[str, Any]) -> Iterator[str]:
    "The readable parts of an output (not the pixels)"
    if 'text' in out: yield out['text']
    for mime, data in out.get('data', {}).items():
        if mime.startswith('text/') or mime == 'image/svg+xml': yield data


def check_outputs(outs: list[dict[str, Any]]) -> Iterator[str]:
    "Complaints about the stored outputs of one code cell"
    size = len(json.dumps(outs).encode())
    if size > MAX_OUTPUT: yield f'outputs take {size:,} bytes, at most {MAX_OUTPUT:,}'
    for out in outs:
        if out['output_type'] == 'error': yield f"an error output is stored: {out.get('ename')}"
        if out.get('name') == 'stderr': yield 'an output on stderr is stored'
        for what, pattern in LEAKS.items():
            if found := next(filter(None, map(pattern.search, texts(out))), None):
                yield f'an output shows {what}: {found[0]}'


def check_head(nb: Any, page: str, cfg: dict[str, str]) -> Iterator[str]:
    "Complaints about the beginning: title, promise, badge"
    first = nb.cells[0] if nb.cells else nbformat.v4.new_markdown_cell('')
    lines = first.source.splitlines()
    if first.cell_type != 'markdown' or not lines or not lines[0].startswith('# '):
        yield 'cell 0 must be markdown with the title, "# ...", in its first line'
    # The "> " line becomes the module's docstring; of two, or a backslash, nbdev 2 and 3 differ.
    promise = [line for line in lines if line.startswith('>')]
    if len(promise) != 1: yield f'the cell of the title must have one line "> ...", not {len(promise)}'
    elif '\\' in promise[0]: yield 'no backslash in the "> " line: it becomes a docstring'
    url = badge_url(cfg, page)
    head = '\n'.join(c.source for c in nb.cells[:3] if c.cell_type == 'markdown')
    shown = re.search(rf'\[!\[[^]]*\]\({re.escape(BADGE)}\)\]\({re.escape(url)}\)', head)
    if page != f"{cfg['nbs_path']}/{cfg['readme_nb']}" and not shown:
        yield f'the badge is missing or leads elsewhere; write [![Open in Colab]({BADGE})]({url})'


def check_notebook(path: Path, root: Path, cfg: dict[str, str]) -> Iterator[str]:
    "Complaints about one notebook"
    page = path.relative_to(root).as_posix()
    if any(part.startswith(('_', '.')) for part in path.relative_to(root).parts):
        yield f'{page}: nbdev passes over names that begin with _ or ., so this is never tested'
    try:
        text = path.read_text(encoding='utf-8')
        ids = [c.get('id') for c in json.loads(text)['cells']]  # nbformat would silently invent missing ones
        if None in ids or len({*ids}) < len(ids): raise ValueError('each cell needs an id of its own')
        nb = nbformat.reads(text, as_version=4)
        nbformat.validate(nb)
    except Exception as e:
        yield f'{page}: not a valid notebook: {str(e).splitlines()[0]}'
        return
    for problem in check_head(nb, page, cfg): yield f'{page}: {problem}'
    for key in {'widgets', 'nbdev'} & set(nb.metadata): yield f'{page}: metadata.{key} must go'
    colab = root / 'constraints-colab.txt'
    sources = [cell.source for cell in nb.cells if cell.cell_type == 'code']
    for problem in check_installs(sources, colab.read_text(encoding='utf-8') if colab.exists() else ''):
        yield f'{page}: {problem}'
    for n in unfolded(nb.cells): yield f'{page}: cell {n}: a solution is not folded: use --fix'
    for n, problem in check_hidden([c.source if c.cell_type == 'code' else '' for c in nb.cells]):
        yield f'{page}: cell {n}: {problem}'
    for n, cell in enumerate(nb.cells):
        if cell.cell_type == 'raw': yield f'{page}: cell {n}: no raw cells: front matter can switch tests off'
        if cell.cell_type == 'markdown' and re.match(r'\s*#\|', cell.source):
            yield f'{page}: cell {n}: nbdev 2 and nbdev 3 disagree about #| in markdown'
        if cell.cell_type == 'markdown':
            yield from (f'{page}: cell {n}: a dead link, there is no such file: {link}'
                        for link in lost(path, cell.source))
        if cell.cell_type != 'code': continue
        problems = [*check_code(cell.source, page in MEASURES_LOAD), *check_outputs(cell.outputs)]
        if is_walkthrough(path): problems += check_walkthrough(cell.source)
        for problem in problems: yield f'{page}: cell {n}: {problem}'


# ---- everything ----------------------------------------------------------------------------------
def check_modules(root: Path, cfg: dict[str, str]) -> Iterator[str]:
    "Complaints about the exported package"
    yield from check_imports(root, cfg['lib_path'])
    init = (root / cfg['lib_path'] / '__init__.py').read_text(encoding='utf-8')
    if f'__version__ = "{cfg["version"]}"' not in init.splitlines():
        yield f"{cfg['lib_path']}/__init__.py: __version__ differs from settings.ini ({cfg['version']})"


def check_tools(root: Path) -> Iterator[str]:
    "Complaints about pickles in tools; the package is in the notebooks"
    for path in sorted((root / 'tools').rglob('*.py')):
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if unpickles(node):
                where = f'{path.relative_to(root).as_posix()}: line {getattr(node, "lineno", 0)}'
                yield f'{where}: torch.load and pickles are banned: files run code'


def check_house(root: Path, cfg: dict[str, str]) -> Iterator[str]:
    "Complaints about names, overviews, links between kinds of pages, and the map in CONTRIBUTING.md"
    nbs, pages, words = root / cfg['nbs_path'], {}, {}
    for path in notebooks(root, cfg):
        try: cells = json.loads(path.read_text(encoding='utf-8'))['cells']
        except ValueError: continue   # which check_notebook complains of
        page = path.relative_to(nbs)
        pages[page] = [''.join(c['source']) for c in cells if c['cell_type'] == 'code']
        words[page] = '\n\n'.join(''.join(c['source']) for c in cells if c['cell_type'] == 'markdown')
    yield from check_layout(pages, sorted({page.parts[0] for page in pages if page.parts[0][:2].isdigit()
                                           and len(page.parts) > 1}))
    for page, text in words.items():
        if page.name != '00_overview.ipynb': continue
        inside = {p.relative_to(page.parent).as_posix() for p in pages
                  if p.is_relative_to(page.parent) and p != page and 'solutions' not in p.parts}
        yield from check_list(text, page.parent.name, inside)
    yield from check_linked_pages({page.as_posix(): text for page, text in words.items()})
    file = root / 'CONTRIBUTING.md'
    if file.exists(): yield from check_where(file.read_text(encoding='utf-8'), cfg['nbs_path'], pages)


def lint(root: Path) -> list[str]:
    "All complaints about the project in `root`"
    cfg = settings(root)
    switches = (root / cfg['nbs_path']).rglob('.notest')
    found = [f'{p.relative_to(root)}: nothing may be left untested' for p in switches]
    for path in notebooks(root, cfg): found += check_notebook(path, root, cfg)
    return [*found, *check_links(root, cfg), *check_anchors(root, cfg), *check_modules(root, cfg), *check_tools(root),
            *check_house(root, cfg)]


def main() -> int:
    "The command line"
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--fix', action='store_true', help='rewrite links and the version from settings.ini, fold solutions')
    ap.add_argument('--self-test', action='store_true', help='see that every rule notices what it forbids')
    args = ap.parse_args()
    if args.self_test:
        from lint_selftest import run
        return run()
    if args.fix:
        for name in fix(ROOT): print(f'fixed {name}')
        print('now run nbdev-export and tools/render_readme.py')
    problems = lint(ROOT)
    for problem in problems: print(problem)
    print(f'{len(notebooks(ROOT, settings(ROOT)))} notebooks, {len(problems)} complaints')
    return 1 if problems else 0


if __name__ == '__main__': sys.exit(main())
