"""The project's own rules, for lint_notebooks.py: which package may import which, where a module is, how long a cell is.

The packages are layered in one table: a module imports from its own package and from packages below it. Imports inside functions
count, and so do names in strings, such as 'elastic_nb.testing.worker_entrypoints:sleeper'.
There is no circle, also through these.
"""
from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

MAX_CELL, MAX_FUNCTION = 60, 50  # lines of an exported cell, and of a function in it: about a screen
# From the top down. Packages on one line do not import each other.
PACKAGES = ['course', 'command nano', 'start cli', 'bench deploy', 'demo', 'chaos', 'testing', 'simulate', 'train', 'lowcomm',
            'report', 'elastic', 'models', 'data', 'checkpoint scaling', 'exact', 'config_file', 'config', 'basics']
FLOOR = {package: len(PACKAGES) - n for n, packages in enumerate(PACKAGES) for package in packages.split()}
PRODUCT = {'exact', 'data', 'checkpoint', 'scaling', 'models', 'elastic', 'train', 'report', 'lowcomm', 'deploy'}
NOT_IN_PRODUCT = {'testing', 'bench', 'chaos', 'demo'}
REHEARSALS = {'elastic_nb.deploy.rehearsal'}  # tests that users run themselves
DOTTED = re.compile(r'[a-z_]+(?:\.\w+)+(?=:\w+$|$)')  # a string that names a module, with or without a function
WHERE = '## Where is what'
ONE_WORD, SAME = .1, 5  # part of the classes with names of one word; class names in several modules


def parse(src: str) -> ast.Module:
    "The syntax tree of a cell; shell lines and magics count as `pass`, and so does a file that is written and not Python"
    if re.match(r'(#\|.*\n)*%%writefile .*(?<!\.py)\n', src): src = 'pass'
    return ast.parse(re.sub(r'^([ \t]*)[%!].*$', r'\1pass', src, flags=re.M))


# ---- names ---------------------------------------------------------------------------------------
def check_classes(trees: dict[str, ast.Module]) -> Iterator[str]:
    "A class's name says what it is: two words, seldom one, and in one module"
    names = [node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)]
    short = sorted(name for name in names if len(re.findall('[A-Z]+(?![a-z])|[A-Z][a-z0-9]*', name)) == 1)
    if len(short) > max(3, ONE_WORD * len(names)):
        yield f"{len(short)} of {len(names)} classes have names of one word: {', '.join(short[:30])}"
    twice = sorted({name for name in names if names.count(name) > 1})
    if len(twice) > SAME: yield f"{len(twice)} names of classes are in several modules: {', '.join(twice)}"


# ---- who imports whom ----------------------------------------------------------------------------
def modules(root: Path, lib: str) -> dict[str, ast.Module]:
    "Dotted name -> syntax tree, of all modules of the package"
    found = {}
    for path in sorted((root / lib).rglob('*.py')):
        name = '.'.join(path.relative_to(root).with_suffix('').parts)
        if path.name != '_modidx.py': found[name] = ast.parse(path.read_text(encoding='utf-8'))
    return {name.removesuffix('.__init__'): tree for name, tree in found.items()}


def known(name: str, names: set[str]) -> str | None:
    "The module that `name` is in: itself, or the longest beginning of it that is a module"
    while name and name not in names: name = name.rpartition('.')[0]
    return name or None


def imported(node: ast.AST, package: str, lib: str, names: set[str]) -> Iterator[str]:
    "Modules of ours that one import, or one string, names; `package`: what relative names are relative to"
    if isinstance(node, ast.Import): wanted = [a.name for a in node.names]
    elif isinstance(node, ast.ImportFrom):
        up = package.split('.')[:len(package.split('.')) - node.level + 1] if node.level else []
        base = '.'.join([*up, *([node.module] if node.module else [])])
        wanted = [f'{base}.{a.name}' for a in node.names]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = DOTTED.match(node.value)
        wanted = [found[0]] if found and found[0].startswith(lib + '.') else []
    else: return
    for name in wanted:
        module = known(name, names) if name.split('.')[0] == lib else None
        if module and module != lib: yield module


def lazy_table(tree: ast.Module) -> dict[str, str]:
    "The table of a lazy package, the second argument of its call of `lazy_imports`: module -> names; {} without one"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, 'id', '') == 'lazy_imports':
            return ast.literal_eval(node.args[1])
    return {}


def lazily(tree: ast.Module, package: str) -> Iterator[str]:
    "Modules in the table of a lazy package"
    for key in lazy_table(tree):
        up = package.split('.')[:len(package.split('.')) - len(key) + len(key.lstrip('.')) + 1]
        yield '.'.join([*up, key.lstrip('.')])


def named_twice(root: Path, lib: str) -> Iterator[str]:
    "Complaints about a lazy name that is a module, too: which of them an import gives depends on what came before"
    trees = modules(root, lib)
    for package, tree in trees.items():
        for name in ' '.join(lazy_table(tree).values()).split():
            if f'{package}.{name}' in trees: yield f'{package}: lazy {name} is also the name of a room'


def orphans(root: Path, lib: str) -> Iterator[str]:
    "Complaints about modules whose notebook is gone"
    for path in sorted((root / lib).rglob('*.py')):
        text = path.read_text(encoding='utf-8')
        found = re.search(r'^# AUTOGENERATED! DO NOT EDIT! File to edit: (.+)\.$', text, re.M)
        if found and not (path.parent / found[1]).exists():
            yield f'{path.relative_to(root)}: there is no notebook {found[1]}; remove the module'


def imports(root: Path, lib: str) -> dict[str, set[str]]:
    "Module -> modules of ours that it names: in imports, also in functions; in strings; as a package, in its lazy table"
    trees, graph = modules(root, lib), {}
    for name, tree in trees.items():
        is_package = (root / Path(*name.split('.')) / '__init__.py').exists()
        package = name if is_package else name.rpartition('.')[0]
        found = {m for n in ast.walk(tree) for m in imported(n, package, lib, {*trees})}
        graph[name] = (found | ({*lazily(tree, package)} if is_package else set())) - {name}
    return graph


def package_of(module: str) -> str:
    "The package of a module: `elastic_nb.checkpoint.remote.s3` is in checkpoint, `elastic_nb` itself is start"
    return (module.split('.') + ['start'])[1]


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    "Each circle of modules, once, beginning with the smallest name"
    found: set[tuple[str, ...]] = set()
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            ring = path[path.index(name):]
            k = ring.index(min(ring))
            found.add((*ring[k:], *ring[:k]))
        elif name not in done:
            for other in sorted(graph.get(name, ())): visit(other, [*path, name])
            done.add(name)

    for name in sorted(graph): visit(name, [])
    return [[*ring] for ring in sorted(found)]


def check_imports(root: Path, lib: str) -> Iterator[str]:
    "Complaints about arrows that run upwards, about products that need test rigs, and about circles"
    graph = imports(root, lib)
    for name, targets in graph.items():
        if (own := package_of(name)) not in FLOOR:
            yield f'{name}: {own} is in no line of PACKAGES (tools/lint_house.py)'
            continue
        for target in sorted(targets):
            other = package_of(target)
            if own in PRODUCT and other in NOT_IN_PRODUCT and name not in REHEARSALS:
                yield f'{name}: imports {target}, but {own} is for users and {other} is not'
            elif other != own and FLOOR.get(other, 0) >= FLOOR[own]:
                yield f'{name}: imports {target}, and {other} does not lie below {own}'
    yield from check_classes(modules(root, lib))
    yield from named_twice(root, lib)
    yield from orphans(root, lib)
    for ring in circles(graph): yield f"{ring[0]}: imports itself: {' -> '.join([*ring, ring[0]])}"


# ---- where a module is ---------------------------------------------------------------------------
def module_of(page: Path) -> str:
    "What a notebook at `page` (below nbs/) exports to: 03_checkpoint/05_disk is checkpoint.disk"
    parts = [re.sub(r'^\d\d_', '', part) for part in page.with_suffix('').parts]
    parts[-1] = dict(overview='__init__', torchrun='__main__').get(parts[-1], parts[-1])
    return '.'.join(parts[1:] if parts[0] == 'start' else parts)


def check_layout(pages: dict[Path, list[str]], folders: list[str]) -> Iterator[str]:
    "Complaints about names and overviews; `pages`: path below nbs/ -> sources of its code cells"
    for folder in folders:
        if Path(folder) / '00_overview.ipynb' not in pages: yield f'{folder}: has no 00_overview.ipynb'
    for page, cells in pages.items():
        found = [m[1] for src in cells if (m := re.search(r'^\s*#\s*\|\s*default_exp\s+(\S+)', src, re.M))]
        if found and found != [module_of(page)]:
            yield f"{page}: exports to {', '.join(found)}, its name says {module_of(page)}"


ENTRY = re.compile(r'^(?:- \**|\| )?\[[^\]]+\]\(((?:\w+/)?\d\d_\w+\.ipynb)\)', re.M)  # a line of an overview's list


def check_list(overview: str, folder: str, pages: set[str]) -> Iterator[str]:
    "Complaints about the list in an overview (its markdown): all notebooks of the folder, in the order of their numbers"
    listed = ENTRY.findall(overview)
    wanted = sorted(pages, key=lambda page: (page.count('/'), page))
    where = f'{folder}/00_overview.ipynb'
    for page in wanted:
        if page not in listed: yield f'{where}: no line of the list begins with a link to {page}'
    for page in {*listed} - pages: yield f'{where}: lists {page}, which is not there'
    if {*listed} == pages and listed != wanted: yield f'{where}: list each notebook once, in the order of the numbers'


def check_linked_pages(pages: dict[str, str]) -> Iterator[str]:
    "Complaints about user pages that no lesson, overview or README links; `pages`: path below nbs/ -> its markdown"
    for page in pages:
        kind, _, name = page.partition('/')
        if kind not in ('howto', 'essays', 'walkthroughs') or not name: continue
        if not any(f'{page})' in text for other, text in pages.items() if other.partition('/')[0] != kind):
            yield f'{page}: link it from where a reader needs it'
        if kind == 'walkthroughs' and '## Where to go next' not in pages[page]:
            yield f'{page}: end with a section "Where to go next"'


# ---- how long ------------------------------------------------------------------------------------
def exported(src: str) -> bool:
    "Does a cell go into the module?"
    return bool(re.search(r'^\s*#\s*\|\s*exports?i?\b', src, re.M))


def bound(src: str) -> dict[str, bool]:
    """Names that a cell binds at its top level -> whether the last binding is `name = another_name`, which gives a
    name that was lent its value back. Imports and methods by `patch` do not count."""
    found: dict[str, bool] = {}
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
              ast.GeneratorExp)

    def walk(node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            decorators = [getattr(getattr(d, 'func', d), 'id', '') for d in node.decorator_list]
            if 'patch' not in decorators: found[node.name] = False
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store): found[node.id] = False
        elif not isinstance(node, scopes):
            for child in ast.iter_child_nodes(node): walk(child)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            found.update((t.id, True) for t in node.targets if isinstance(t, ast.Name))

    walk(parse(src))
    return found


def check_hidden(sources: list[str]) -> Iterator[tuple[int, str]]:
    """(index, complaint) for cells that bind a name which a cell before them has exported: from there on the lesson
    would try something else than the module holds."""
    own: set[str] = set()
    for n, src in enumerate(sources):
        try: names = bound(src)
        except SyntaxError: continue
        if exported(src): own |= {*names}
        else: yield from ((n, f'{name} hides what this lesson exports under that name') for name, back in names.items()
                          if name in own and not back)


def solutions(cells: list[tuple[str, str]]) -> set[int]:
    "Indices of the code cells below a heading Exercises, up to the next heading; `cells`: (type, source)"
    found, inside = set(), False
    for n, (kind, src) in enumerate(cells):
        if kind == 'markdown' and (headings := re.findall(r'^#+ (.*)$', src, re.M)):
            inside = headings[-1].startswith(('Exercise', 'Your turn'))
        elif kind == 'code' and inside: found.add(n)
    return found


def check_size(src: str) -> Iterator[str]:
    "Complaints about an exported cell that is longer than a screen, and about functions in it"
    n = len(src.splitlines())
    if n > MAX_CELL: yield f'{n} lines are exported at once, at most {MAX_CELL}: let the class grow with `patch`'
    for node in ast.walk(parse(src)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)): continue
        n = node.end_lineno - min(x.lineno for x in [node, *node.decorator_list]) + 1
        if n > MAX_FUNCTION: yield f'{node.name} has {n} lines, at most {MAX_FUNCTION}'


# ---- "Where is what" -----------------------------------------------------------------------------
def defined(src: str) -> Iterator[str]:
    "The names a cell defines: functions, classes, `Class.method` (also patched in) and plain variables"
    for node in parse(src).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
            first = next(iter(node.args.args), None)
            if first is not None and isinstance(first.annotation, ast.Name):
                yield f'{first.annotation.id}.{node.name}'
        if isinstance(node, ast.ClassDef):
            yield node.name
            for n in node.body:
                if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)): yield f'{node.name}.{n.name}'
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))


def check_where(text: str, nbs: str, pages: dict[Path, list[str]]) -> Iterator[str]:
    "Complaints about the table under WHERE: each row links a notebook, and the names in its last column are there"
    if WHERE not in text: return
    section = text.split(WHERE, 1)[1].split('\n## ', 1)[0]
    rows = [line for line in section.splitlines() if '](' in line]
    if not rows: yield f'{WHERE}: there is no row with a link'
    for row in rows:
        page = re.search(rf'\]\({nbs}/([^)]+\.ipynb)\)', row)
        names = re.findall(r'`([\w.]+)`', row.rstrip(' |').rpartition('|')[2])
        cells = pages.get(Path(page[1])) if page else None
        if cells is None or not names: yield f'{WHERE}: no such notebook, or no name in the last column: {row}'
        else:
            there = {name for src in cells if exported(src) for name in defined(src)}
            yield from (f'{WHERE}: {page[1]} has no {name}' for name in names if name not in there)
