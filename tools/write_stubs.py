"""Stubs (.pyi) for the modules that use `patch`, with every patched method in its class: setup.py adds them to a wheel.

    python tools/write_stubs.py FOLDER     beside the modules of the package in FOLDER

A type checker reads text, and knows nothing of `patch`. A stub is the module's own text with patched methods moved
into their classes, so all types are seen or inferred as they are.
"""
from __future__ import annotations

import ast
import sys
from pathlib import Path


def kind(node: ast.stmt) -> str:
    "'method' or 'property' for a patched function, else ''"
    for d in node.decorator_list if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else ():
        if getattr(d, 'id', '') == 'patch': return 'method'
        if getattr(getattr(d, 'func', None), 'id', '') == 'patch': return 'property'
    return ''


def moved(text: str, guests: str = '', imports: str = '', host: str = '') -> list[tuple[int, str]] | None:
    """The lines of `text`, each with its number there (0 if it has none), with patched functions moved to the ends of
    their classes; None if there are none. `guests`: methods that other modules patch into the class `host`, with the
    `imports` that these need"""
    lines, tree = text.splitlines(), ast.parse(text)
    ends = {n.name: n.end_lineno for n in tree.body if isinstance(n, ast.ClassDef)}
    patched = [n for n in tree.body if kind(n) and owner(n) in ends]
    added: dict[int, list[tuple[int, str]]] = {}
    gone: set[int] = set()
    for n in patched:
        gone |= {*range(n.decorator_list[0].lineno, n.end_lineno + 1)}
        added.setdefault(ends[owner(n)], []).extend(method(n, lines))
    if host:
        last = max(n.end_lineno for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom)))
        added.setdefault(ends[host], []).extend((0, x) for x in guests.splitlines())
        added.setdefault(last, []).extend((0, x) for x in imports.splitlines())
    kept = ((i, line) for i, line in enumerate(lines, 1) if i not in gone)
    return [x for i, line in kept for x in ((i, line), *added.get(i, ()))] if patched or host else None


def reordered(text: str, *guests: str) -> str | None:
    "`moved` as text"
    found = moved(text, *guests)
    return None if found is None else '\n'.join(line for _, line in found) + '\n'


def owner(n: ast.FunctionDef) -> str:
    "The class that a patched function becomes a method of"
    return n.args.args[0].annotation.id


def method(n: ast.FunctionDef, lines: list[str]) -> list[tuple[int, str]]:
    "A patched function as numbered lines in the body of its class"
    kept = [(d.lineno, lines[d.lineno - 1]) for d in n.decorator_list[1:]]   # such as @contextmanager
    body = [*kept, *enumerate(lines[n.lineno - 1:n.end_lineno], n.lineno)]
    return [(0, ''), *[(0, '    @property')] * (kind(n) == 'property'), *((i, '    ' * bool(x) + x) for i, x in body)]


def visits(path: Path, text: str) -> dict[tuple[Path, str], tuple[str, str]]:
    "Of a module that patches classes of a module beside it: (its path, class) -> methods, and the imports they need"
    lines, tree, found = text.splitlines(), ast.parse(text), {}
    own = {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    homes = {a.name: n.module for n in tree.body if isinstance(n, ast.ImportFrom) and n.level == 1 for a in n.names}
    for name in {owner(n) for n in tree.body if kind(n)} - own:
        imports = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))
                   and getattr(n, 'module', '') != homes[name]]
        guests = '\n'.join(x for n in tree.body if kind(n) and owner(n) == name for _, x in method(n, lines))
        found[path.with_name(homes[name] + '.py'), name] = guests, '\n'.join(map(ast.unparse, imports))
    return found


def write(package: Path) -> list[Path]:
    "Write the stubs; their paths"
    texts = {p: p.read_text(encoding='utf-8') for p in sorted(package.rglob('*.py'))}
    guests = {home: (*got, name) for p, text in texts.items() for (home, name), got in visits(p, text).items()}
    stubs = {p.with_suffix('.pyi'): reordered(text, *guests.get(p, ())) for p, text in texts.items()}
    for path, text in stubs.items():
        if text: path.write_text(text, encoding='utf-8')
    return [path for path, text in stubs.items() if text]


if __name__ == '__main__': print(*write(Path(sys.argv[1])), sep='\n')
