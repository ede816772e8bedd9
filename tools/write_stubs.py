"""Stubs (.pyi) for the modules that use `patch`, with every patched method in its class: setup.py adds them to a wheel.

    python tools/write_stubs.py FOLDER     beside the modules of the package in FOLDER

A type checker reads text, and knows nothing of `patch`. A stub is the module's own text with patched methods moved
into their classes, so all types are seen or inferred as they are.
"""
from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path


def kind(node: ast.stmt) -> str:
    "'method' or 'property' for a patched function, else ''"
    for d in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
        if getattr(d, 'id', '') == 'patch': return 'method'
        if getattr(getattr(d, 'func', None), 'id', '') == 'patch': return 'property'
    return ''


def reordered(text: str) -> str | None:
    "`text` with patched functions moved to the ends of their classes; None if there are none"
    lines, tree = text.splitlines(), ast.parse(text)
    ends = {n.name: n.end_lineno for n in tree.body if isinstance(n, ast.ClassDef)}
    patched = [n for n in tree.body if kind(n) and n.args.args[0].annotation.id in ends]
    added: dict[int, list[str]] = {}
    gone: set[int] = set()
    for n in patched:
        gone |= {*range(n.decorator_list[0].lineno, n.end_lineno + 1)}
        body = '\n'.join(['@property'] * (kind(n) == 'property') + lines[n.lineno - 1:n.end_lineno])
        added.setdefault(ends[n.args.args[0].annotation.id], []).append('\n' + textwrap.indent(body, '    '))
    kept = ((i, line) for i, line in enumerate(lines, 1) if i not in gone)
    return '\n'.join(x for i, line in kept for x in (line, *added.get(i, ()))) + '\n' if patched else None


def write(package: Path) -> list[Path]:
    "Write the stubs; their paths"
    stubs = {p.with_suffix('.pyi'): reordered(p.read_text(encoding='utf-8')) for p in sorted(package.rglob('*.py'))}
    for path, text in stubs.items():
        if text: path.write_text(text, encoding='utf-8')
    return [path for path, text in stubs.items() if text]


if __name__ == '__main__': print(*write(Path(sys.argv[1])), sep='\n')
