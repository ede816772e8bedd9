"""What `lint_notebooks.py --self-test` does: a small sound project, broken in one way at a time."""
from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import nbformat
from lint_house import MAX_CELL, MAX_FUNCTION, WHERE
from lint_notebooks import BADGE, FOLDED, MAX_OUTPUT, ROOT, badge_url, check_code, fix, lint, settings
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell

CFG = settings()
URL = CFG['git_url']
Break = Callable[[nbformat.NotebookNode], object]  # changes a notebook in place


def project(root: Path) -> Path:
    "Build a project without fault in `root`; the path of its one lesson"
    for name in ('settings.ini', 'pyproject.toml'): shutil.copy(ROOT / name, root)
    cfg = settings(root)
    lib, page = root / cfg['lib_path'], root / cfg['nbs_path'] / '00_good.ipynb'
    for folder in (lib, page.parent): folder.mkdir()
    (lib / '__init__.py').write_text(f'__version__ = "{cfg["version"]}"\n')
    url = badge_url(cfg, page.relative_to(root).as_posix())
    (root / 'README.md').write_text(f"[the lesson]({url}), [the project]({cfg['git_url']}).\n")
    nbformat.write(new_notebook(metadata={}, cells=[
        new_markdown_cell(f'# Good\n\n> A promise.\n\n[![Open in Colab]({BADGE})]({url})'),
        new_code_cell('#| default_exp good'),
        new_code_cell('#| export\nimport os\ntry: import torch\nexcept ImportError: torch = None'),
        new_code_cell('#| export\ndef f():\n    import json\n    return json'),
        new_code_cell('%matplotlib inline\n!ls\n1', outputs=[new_output('stream', name='stdout', text='1')]),
    ]), page)
    return page


def prints(text: str, kind: str = 'stdout') -> Break:
    "Give the last cell an output"
    return lambda nb: nb.cells[-1].outputs.append(new_output('stream', name=kind, text=text))


def code(src: str) -> Break:
    "Add a code cell"
    return lambda nb: nb.cells.append(new_code_cell(src))


def words(text: str) -> Break:
    "Add a markdown cell"
    return lambda nb: nb.cells.append(new_markdown_cell(text))


def head(old: str, new: str) -> Break:
    "Change the first cell"
    return lambda nb: nb.cells[0].update(source=nb.cells[0].source.replace(old, new))


def svg(nb: nbformat.NotebookNode) -> None:
    "Store a picture that carries the moment of its making"
    date = '<date>2024-01-01' + 'T10:00</date>'
    nb.cells[-1].outputs.append(new_output('display_data', {'image/svg+xml': date}))


# What is done to the notebook, and a part of the complaint that must follow.
NOTEBOOK: list[tuple[Break, str]] = [
    (lambda nb: nb.cells[1].pop('id'), 'id of its own'),
    (lambda nb: nb.cells[1].update(id=nb.cells[2].id), 'id of its own'),
    (lambda nb: nb.cells[1].update(cell_type='poem'), 'not a valid notebook'),
    (head('# Good', 'Good'), 'the title'),
    (lambda nb: nb.cells.pop(0), 'the title'),
    (head('> A', 'A'), 'one line "> ..."'),
    (head('> A promise.', '> A\n> promise.'), 'one line "> ..."'),
    (head('promise', 'pro\\mise'), 'no backslash'),
    (head('00_good', '00_other'), 'the badge'),
    (head('/blob/', '/blob/x'), 'the badge'),
    (head('[![', '[['), 'the badge'),
    (words(f'{URL}/blob/other/README.md'), 'links differ'),
    (words(f'git+{URL}.git@other'), 'links differ'),
    (words(f"https://raw.githubusercontent.com/someone/{CFG['repo']}/main/README.md"), 'links differ'),
    (words(f"{URL}/blob/{CFG['branch']}/nbs/nowhere.ipynb"), 'dead link'),
    (words('[there](01_there.ipynb#top)'), 'dead link'),
    (words('## Why?\n\n[here](00_good.ipynb#Why?), [here](#Why?), `f[0](x)`'), ''),
    (words('## Why `f`\n\n[here](#Why-f)'), ''),
    (words('## Why?\n\n[here](#Why)'), 'no such heading: #Why'),
    (words('## Why?\n\n[here](00_good.ipynb#why)'), 'no such heading: 00_good.ipynb#why'),
    (lambda nb: nb.metadata.update(widgets={}), 'metadata.widgets'),
    (lambda nb: nb.metadata.update(nbdev={'default_exp': 'good'}), 'metadata.nbdev'),
    (lambda nb: nb.cells.append(new_raw_cell('---\nskip_exec: true\n---')), 'no raw cells'),
    (words('#| export\nwords'), '#| in markdown'),
    (lambda nb: nb.cells[-1].outputs.append(new_output('error', ename='E')), 'error output'),
    (prints('careful', 'stderr'), 'stderr'),
    (prints('x' * MAX_OUTPUT), 'outputs take'),
    (prints('saved in /' + 'tmp/run'), 'a path of one machine'),
    (prints('<Event at 0x7f' + 'a1b2c3d4>'), 'a memory address'),
    (prints('2024-01-01' + ' 10:00'), 'a date with its time'),
    (prints('UserWarning: so'), 'a warning'),
    (svg, 'a date with its time'),
    (code('#| hide\n%%time\n1'), '#| and %%'),
    (code('#| eval: false\n1'), 'directive eval'),
    (code('#| notest\n1'), 'directive notest'),
    (code('x = 1  # ' + 'x' * 110), 'characters'),
    (code('def f(:'), 'does not parse'),
    (code('import os\nos.getpid()'), 'imports and other code'),
    (code('try: import os\nexcept ImportError: pass\nx = 1'), 'imports and other code'),
    (code('#| export\n' + 'x = 1\n' * MAX_CELL), 'lines are exported at once'),
    (code('#| export\ndef f() -> None:\n' + '    pass\n' * MAX_FUNCTION), 'f has'),
    (code('def g() -> None:\n' + '    pass\n' * MAX_CELL), ''),   # a lesson may be longer
    (code('#| export\n' + 'x = 1\n' * (MAX_CELL - 1)), ''),
    (lambda nb: nb.cells[1].update(source='#| default_exp goods'), 'its name says good'),
    (code('f = 1'), 'hides what this lesson exports'),
    (code('for f in range(3): f'), 'hides what this lesson exports'),
    (code('[f for f in range(3)]'), ''),
    (code('kept, f = f, None\nf = kept'), ''),   # lent, and given back
    (lambda nb: nb.cells.extend([new_markdown_cell('## Exercises'), new_code_cell('1')]), 'not folded'),
    (lambda nb: nb.cells.extend([new_markdown_cell('## Exercises'), new_code_cell('1', metadata=FOLDED)]), ''),
    (lambda nb: nb.cells.extend([new_markdown_cell('## Exercises'), new_markdown_cell('## Next'), new_code_cell('1')]), ''),
    (code("state = torch." + "load('f')"), 'banned'),
    (code("state = torch." + "load('f', weights_only=True)"), 'banned'),
    (code('import pick' + 'le'), 'banned'),
    (code('from hypothesis import given'), 'imports hypothesis'),
    (lambda nb: nb.cells.extend([new_code_cell('! pip install -q hypothesis'), new_code_cell('import hypothesis')]), ''),
    (code('from fastcore.test import *'), 'imports fastcore'),
    (code('from pick' + 'le import loads'), 'banned'),
    (code('a = np.load(f, allow_pick' + 'le=True)'), 'banned'),
    (code('s = read(f, weights' + '_only=False)'), 'banned'),
    (code('dist.all_gather' + '_object(a, b)'), 'banned'),
    (code('from torch.distributed import broadcast' + '_object_list'), 'banned'),
    (code('import copyreg'), 'banned'),
    (code('import pick' + 'letools'), ''),   # it reads them, and runs nothing
]


def walkthrough(src: str, folder: str = 'walkthroughs', end: str = '## Where to go next', linked: bool = True
                ) -> Callable[[Path], None]:
    "Add a walkthrough, or another notebook for users, with this code cell"
    def add(root: Path) -> None:
        nb = nbformat.read(root / 'nbs/00_good.ipynb', as_version=4)
        page = root / f'nbs/{folder}/a.ipynb'
        page.parent.mkdir()
        nb.cells = [nb.cells[0], new_code_cell(src), new_markdown_cell(end)]
        nb.cells[0].source = nb.cells[0].source.replace('00_good', f'{folder}/a')
        nbformat.write(nb, page)
        nb = nbformat.read(root / 'nbs/00_good.ipynb', as_version=4)
        if linked: nb.cells.append(new_markdown_cell(f'[a]({folder}/a.ipynb)'))
        nbformat.write(nb, root / 'nbs/00_good.ipynb')
    return add


def module(**files: str) -> Callable[[Path], None]:
    "Add modules: `checkpoint__disk` is checkpoint/disk.py"
    def add(root: Path) -> None:
        for name, text in files.items():
            path = root / settings(root)['lib_path'] / (name.replace('__', '/', 1) + '.py')
            path.parent.mkdir(exist_ok=True)
            (path.parent / '__init__.py').touch()
            path.write_text(text)
    return add


BELOW = {'exact__share': '', 'elastic__loop': '', 'testing__ranks': '', 'report__html': '', 'data__index': ''}


def lesson(folder: str, name: str, exp: str) -> Callable[[Path], None]:
    "Add a lesson in a folder of its own"
    def add(root: Path) -> None:
        nb = nbformat.read(root / 'nbs/00_good.ipynb', as_version=4)
        page = root / 'nbs' / folder / f'{name}.ipynb'
        page.parent.mkdir()
        nb.cells = [nb.cells[0], new_code_cell(f'#| default_exp {exp}')]
        nb.cells[0].source = nb.cells[0].source.replace('00_good', f'{folder}/{name}')
        nbformat.write(nb, page)
    return add


def tool(src: str) -> Callable[[Path], object]:
    "Add a tool"
    def add(root: Path) -> None:
        (root / 'tools').mkdir()
        (root / 'tools/some.py').write_text(src)
    return add


def where(row: str) -> Callable[[Path], None]:
    "Add CONTRIBUTING.md with one question"
    page = f'# How\n\n{WHERE}\n\n| question | notebook | name |\n| --- | --- | --- |\n{row}\n\n## Next\n'
    return lambda root: (root / 'CONTRIBUTING.md').write_text(page)


def listing(*listed: str) -> Callable[[Path], None]:
    "A package with the notebooks 01_a and 02_b, and an overview that lists `listed`"
    def add(root: Path) -> None:
        nb = nbformat.read(root / 'nbs/00_good.ipynb', as_version=4)
        head = nb.cells[0].source
        (root / 'nbs/03_data').mkdir()
        for name in ('00_overview', '01_a', '02_b'):
            nb.cells = [new_markdown_cell(head.replace('00_good', f'03_data/{name}'))]
            if name == '00_overview': nb.cells += [new_markdown_cell('\n\n'.join(f'[x]({x}.ipynb): y' for x in listed))]
            nbformat.write(nb, root / 'nbs/03_data' / f'{name}.ipynb')
    return add


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    "Change a file of the project"
    def change(root: Path) -> None:
        text = (root / name).read_text()
        assert old in text, f'{name} has no {old!r}'
        (root / name).write_text(text.replace(old, new))
    return change


# The same for the other files.
FILES: list[tuple[Callable[[Path], object], str]] = [
    (module(**BELOW), ''),
    (module(**BELOW, elastic__a='from ..exact.share import f\nfrom ..exact import share\nimport elastic_nb.data'), ''),
    (module(**BELOW, report__a='from ..elastic import loop'), ''),
    (module(**BELOW, exact__a='from ..elastic.loop import f'), 'does not lie below exact'),
    (module(**BELOW, exact__a='import elastic_nb.elastic.loop'), 'does not lie below exact'),
    (module(**BELOW, exact__a='from elastic_nb.elastic import loop'), 'does not lie below exact'),
    (module(**BELOW, exact__a='def f():\n    from ..elastic.loop import g'), 'does not lie below exact'),
    (module(**BELOW, exact__a="RUN = ['elastic_nb.elastic.loop:run']"), 'does not lie below exact'),
    (module(**BELOW, checkpoint__a='from ..data.index import f'), 'does not lie below checkpoint'),
    (module(**BELOW, train__run='x = 1', report__a='from ..train import run'), 'does not lie below report'),
    (module(**BELOW, train__a='def f():\n    from ..testing import ranks'), 'but train is for users'),
    (module(**BELOW, elastic__a="f('elastic_nb.testing.worker_entrypoints:sleeper')"), 'but elastic is for users'),
    (module(**BELOW, exact__a='class Hands: pass\nclass Seat: pass\nclass Line: pass\nclass Trip: pass'), 'names of one word'),
    (module(**BELOW, **{f'exact__{m}': '\n'.join(f'class Same{k}Name: pass' for k in 'ABCDEF') for m in 'ab'}), 'in several modules'),
    (module(**BELOW, attic__a='x = 1'), 'is in no line'),
    (module(**BELOW, exact__a='from . import b', exact__b='from .a import f'), 'imports itself'),
    (module(**BELOW, exact__a='from . import b', exact__b='def f():\n    from .a import f'), 'imports itself'),
    (module(**BELOW, exact__a='from . import b', exact__b="MADE = 'elastic_nb.exact.a:f'"), 'imports itself'),
    (module(**BELOW, exact__a='from . import b', exact__b='from . import c', exact__c='def f():\n    from . import a'),
     'imports itself'),
    (module(**BELOW, exact____init__="lazy_imports('elastic_nb.exact', {'.share': 'portion'})"), ''),
    (module(**BELOW, exact____init__="lazy_imports('elastic_nb.exact', {'.share': 'portion share'})"), 'is also the name'),
    (module(**BELOW, exact____init__="lazy_imports('elastic_nb.exact', {'..elastic.loop': 'run'})"), 'does not lie below exact'),
    (module(exact__share='# AUTOGENERATED! DO NOT EDIT! File to edit: ../../nbs/00_good.ipynb.'), ''),
    (module(exact__share='# AUTOGENERATED! DO NOT EDIT! File to edit: ../../nbs/00_gone.ipynb.'), 'remove the module'),
    (tool('import os'), ''),
    (tool('def f():\n    import pick' + 'le'), 'tools/some.py: line 2: '),
    (lesson('03_checkpoint', '00_overview', 'checkpoint.__init__'), ''),
    (lesson('03_checkpoint', '00_overview', 'checkpoint.door'), 'its name says checkpoint.__init__'),
    (lesson('03_checkpoint', '01_disk', 'checkpoint.disk'), 'has no 00_overview'),
    (lesson('00_start', '00_overview', '__init__'), ''),
    (listing('01_a', '02_b'), ''), (listing('01_a'), 'begins with a link to 02_b.ipynb'),
    (listing('02_b', '01_a'), 'in the order of the numbers'), (listing('01_a', '02_b', '01_a'), 'in the order of the numbers'),
    (where('| which? | [good](nbs/00_good.ipynb) | `f` |'), ''),
    (where('| which? | [good](nbs/00_good.ipynb) | `f`, `g` |'), 'has no g'),
    (where('| which? | [good](nbs/01_good.ipynb) | `f` |'), 'no such notebook'),
    (where('| which? | [good](nbs/00_good.ipynb) | f |'), 'no name in the last column'),
    (where('nothing'), 'no row'),
    (edit('elastic_nb/__init__.py', '"0', '"9'), '__version__'),
    (edit('README.md', '/blob/', '/blob/other-'), 'README.md: links differ'),
    (edit('README.md', '.\n', ', [more](more.md).\n'), 'README.md: a dead link'),
    (edit('README.md', '.\n', '.\n\n## Why?\n\n[why](#why), [good](nbs/00_good.ipynb#Good)\n'), ''),
    (edit('README.md', '.\n', '.\n\n[why](#why)\n'), 'README.md: there is no such heading'),
    (edit('pyproject.toml', '>=3.1', '>=3.2'), 'requires-python'),
    (edit('pyproject.toml', 'slow gpu', 'slow'), 'tst_flags'),
    (edit('settings.ini', 'user = ', 'user = the-'), 'links differ'),
    (edit('settings.ini', 'repo = ', 'repo = the-'), 'links differ'),
    (edit('settings.ini', 'branch = ', 'branch = the-'), 'links differ'),
    (walkthrough('x = 1'), ''), (walkthrough('x = 1', end='Done.'), 'end with a section'),
    (walkthrough('x = 1', linked=False), 'link it from where'), (walkthrough('x = 1', 'howto', linked=False), 'link it from where'),
    (walkthrough('#| default_exp a'), 'exports nothing'),
    (walkthrough('#| export\nx = 1'), 'exports nothing'),
    (walkthrough('from fastcore.test import *'), 'for developers'),
    (walkthrough('x = 1', 'howto'), ''), (walkthrough('#| export\nx = 1', 'essays'), 'exports nothing'),
    (lambda root: (root / 'nbs' / '.notest').touch(), 'untested'),
    (lambda root: shutil.copy(root / 'nbs/00_good.ipynb', root / 'nbs/_draft.ipynb'), 'never tested'),
]


def renamed(root: Path) -> bool:
    "Does one edit of settings.ini, and a --fix, move a whole project to another name, place and version?"
    page = project(root)
    for key in ('user', 'repo', 'branch'): edit('settings.ini', f'\n{key} = ', f'\n{key} = the-')(root)
    edit('settings.ini', '\nversion = ', '\nversion = 1')(root)
    noticed, changed = lint(root), fix(root)
    files = (page, root / 'README.md', root / 'pyproject.toml')
    left = [p for p in files if f"/{CFG['user']}/{CFG['repo']}" in p.read_text()]
    return bool(noticed) and len(changed) == 4 and not left and not lint(root)


def exempt() -> bool:
    "Where torch.load is measured, is it allowed with weights_only=True, and nothing else?"
    loads = ["torch.load(f, weights_only=True)", "torch.load(f)", "import pick" + "le"]
    return [bool([*check_code(src, may_load=True)]) for src in loads] == [False, True, True]


def run() -> int:
    "Break a fresh project once for each case; 0 if every complaint came and none came without a cause"
    failed = []
    cases = [(None, '')] + [(b, w) for b, w in NOTEBOOK] + FILES
    for n, (change, want) in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            page = project(Path(folder))
            if (change, want) in NOTEBOOK:
                nb = nbformat.read(page, as_version=4)
                change(nb)
                page.write_text(nbformat.v4.writes(nb))
            elif change: change(Path(folder))
            found = lint(Path(folder))
            if want and not any(want in p for p in found):
                failed.append(f'case {n}: no complaint of {want!r}: {found}')
            if not want and found: failed.append(f'case {n}: a sound project got complaints: {found}')
    with tempfile.TemporaryDirectory() as folder:
        if not renamed(Path(folder)): failed.append('--fix left links behind')
    if not exempt(): failed.append('where torch.load is measured, too much or too little is allowed')
    for line in failed: print(line)
    print(f'lint self-test: {len(cases) + 2 - len(failed)} of {len(cases) + 2} cases as expected')
    return 1 if failed else 0
