#!/usr/bin/env python3
"""Write a stub (.pyi) beside each module that uses `patch`, with every patched method in its class.

A type checker reads text and knows nothing of `patch`. The stub is the module's own text, reordered, so that
types of attributes are still inferred from it. `--check` writes nothing and fails where a stub is out of date."""
import ast
import sys
import textwrap
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / 'elastic_nb'

def kind(node: ast.stmt) -> str | None:
    "'method' or 'property' for a patched function, else None."
    if not isinstance(node, ast.FunctionDef): return None
    for d in node.decorator_list:
        if isinstance(d, ast.Name) and d.id == 'patch': return 'method'
        if isinstance(d, ast.Call) and getattr(d.func, 'id', '') == 'patch': return 'property'
    return None

def reordered(text: str) -> str | None:
    "`text` with patched functions moved to the end of their classes; None if there are none."
    lines, tree = text.splitlines(), ast.parse(text)
    ends = {n.name: n.end_lineno for n in tree.body if isinstance(n, ast.ClassDef)}
    patched = [n for n in tree.body if kind(n)]
    if not patched: return None
    added: dict[int, list[str]] = {}
    gone: set[int] = set()
    for n in patched:
        first = n.decorator_list[0].lineno
        gone |= set(range(first, n.end_lineno + 1))
        body = '\n'.join((['@property'] if kind(n) == 'property' else []) + lines[n.lineno - 1:n.end_lineno])
        added.setdefault(ends[n.args.args[0].annotation.id], []).append('\n' + textwrap.indent(body, '    '))
    out = []
    for i, line in enumerate(lines, 1):
        if i not in gone: out.append(line)
        out += added.get(i, [])
    return '\n'.join(out) + '\n'

def main() -> int:
    stale = 0
    for path in sorted(PACKAGE.rglob('*.py')):
        want, stub = reordered(path.read_text()), path.with_suffix('.pyi')
        have = stub.read_text() if stub.exists() else None
        if want == have: continue
        stale += 1
        print(f'{stub.relative_to(PACKAGE.parent)}: {"out of date" if "--check" in sys.argv else "written"}')
        if '--check' in sys.argv: continue
        if want is None: stub.unlink()
        else: stub.write_text(want)
    return int('--check' in sys.argv and stale > 0)

if __name__ == '__main__': sys.exit(main())
