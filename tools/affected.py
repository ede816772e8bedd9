"""The notebooks that a change can break: those that use what has changed, however far down.

    python tools/affected.py                  what differs from the last commit, new files too
    python tools/affected.py --base main      what differs from another one
    python tools/affected.py --run            and test them, two at a time
    python tools/affected.py --median F       no change: how long the run is for a change of one function, given the
                                              seconds of all notebooks (F is written by NB_JSON=F nbdev-test)

The unit is a top-level definition of a module: a function, a class with its methods, a constant. It depends on
the names it mentions, in its own module and in those that it imports, and on modules named in strings
('elastic_nb.testing.worker_entrypoints:sleeper'). A notebook depends on what it mentions, also in cells that are not exported. If
only such cells have changed, only that notebook is named. Files that every notebook depends on (pyproject.toml,
settings.ini, constraints.txt) name all.
"""
from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from lint_house import parse
from lint_house import lazy_table

ROOT = Path(__file__).resolve().parent.parent
LIB = 'elastic_nb'
ALL = {'pyproject.toml', 'settings.ini', 'constraints.txt'}
Symbol = tuple[str, str]  # module and name; the name '' means statements that only have an effect
NAMED = re.compile(rf'{LIB}(?:\.\w+)+(?::\w+)?')


def owner(node: ast.stmt) -> list[str]:
    "The names under which a statement at the top level is known"
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        patched = any(ast.unparse(d).split('(')[0] == 'patch' for d in node.decorator_list)
        if patched and node.args.args and node.args.args[0].annotation:
            return re.findall(r'\w+', ast.unparse(node.args.args[0].annotation))[:1]
        return [node.name]
    if isinstance(node, ast.ClassDef): return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)): return []
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, 'target', None)]
    found = [n.id for t in targets if t is not None for n in ast.walk(t) if isinstance(n, ast.Name)]
    return found or ['']


def dotted(node: ast.AST) -> str:
    "`a.b.c` of such an expression, '' for others"
    if isinstance(node, ast.Name): return node.id
    base = dotted(node.value) if isinstance(node, ast.Attribute) else ''
    return base and f'{base}.{node.attr}'


class Module:
    "What a module, or a notebook, defines at its top level, and what each of these mentions."
    def __init__(self, name: str, tree: ast.Module, is_package: bool = False):
        self.name, self.package = name, name if is_package else name.rpartition('.')[0]
        self.parts: dict[str, list[ast.stmt]] = {}
        self.imported: dict[str, tuple[str, str]] = {}  # local name -> module, and a name in it or ''
        for node in ast.walk(tree): self.bind(node)
        for node in tree.body:
            for part in owner(node): self.parts.setdefault(part, []).append(node)

    def bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for a in node.names:
                if a.name.split('.')[0] == LIB: self.imported[a.asname or LIB] = (a.name if a.asname else LIB, '')
        elif isinstance(node, ast.ImportFrom):
            up = self.package.split('.')
            base = '.'.join([*up[:len(up) - node.level + 1], *([node.module] if node.module else [])]) if node.level else node.module
            if base.split('.')[0] != LIB: return
            for a in node.names: self.imported[a.asname or a.name] = (base, a.name)

    def text(self, part: str) -> str: return '\n'.join(map(ast.dump, self.parts[part]))

    def mentions(self, nodes: Iterable[ast.AST], modules: dict[str, Module]) -> set[Symbol]:
        "What these statements name, as symbols"
        found: set[Symbol] = set()
        for node in (n for top in nodes for n in ast.walk(top)):
            if isinstance(node, ast.Name):
                if node.id in self.parts: found.add((self.name, node.id))
                if node.id in self.imported: found |= resolved(*self.imported[node.id], modules)
            elif isinstance(node, ast.Attribute):
                head, _, rest = dotted(node).partition('.')
                if head in self.imported:
                    base, name = self.imported[head]
                    whole = '.'.join(filter(None, [base, name, rest]))
                    found |= resolved(*whole.rpartition('.')[::2], modules)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                for said in NAMED.findall(node.value):
                    module, _, name = said.partition(':')
                    found |= resolved(module, name, modules) if name else resolved(*module.rpartition('.')[::2], modules)
        return found


def resolved(base: str, name: str, modules: dict[str, Module]) -> set[Symbol]:
    "The symbols that `name` of module `base` stands for: one, or all of a module"
    whole = f'{base}.{name}' if name else base
    if whole in modules: return {(whole, '*')}
    if base not in modules: return resolved(*base.rpartition('.')[::2], modules) if '.' in base else set()
    module = modules[base]
    if name in module.parts: return {(base, name)}
    if name in module.imported: return resolved(*module.imported[name], modules)
    lazy = modules[base].lazy if hasattr(modules[base], 'lazy') else {}
    return resolved(lazy[name], name, modules) if name in lazy else {(base, '*')}


def read_modules(files: dict[str, str]) -> dict[str, Module]:
    "All modules of the package: path below the root -> text"
    found = {}
    for path, text in files.items():
        name = '.'.join(Path(path).with_suffix('').parts)
        is_package = path.endswith('/__init__.py')
        name = name.removesuffix('.__init__')
        if name.endswith('_modidx'): continue
        tree = ast.parse(text)
        module = found[name] = Module(name, tree, is_package)
        module.lazy = {}
        for key, names in lazy_table(tree).items():
            up = name.split('.')
            level = len(key) - len(key.lstrip('.'))
            base = '.'.join([*up[:len(up) - level + 1], key.lstrip('.')]) if level else key
            module.lazy |= {n: base for n in names.split()}
    return found


def cells(path: Path) -> tuple[str, ast.Module]:
    "The module that a notebook makes ('' if none), and the syntax tree of all its cells"
    exported, body = '', []
    for c in json.loads(path.read_text(encoding='utf-8'))['cells']:
        source = ''.join(c['source'])
        if c['cell_type'] != 'code': continue
        if m := re.search(r'^#\| default_exp (\S+)', source, re.M): exported = f'{LIB}.{m[1]}'
        body += parse(source).body
    return exported, ast.Module(body, [])


class Graph:
    "Who depends on whom."
    def __init__(self, modules: dict[str, Module]):
        self.modules, self.uses = modules, {}
        for name, module in modules.items():
            for part in module.parts:
                self.uses[name, part] = module.mentions(module.parts[part], modules) - {(name, part)}
                if '' in module.parts and part: self.uses[name, part].add((name, ''))
            self.uses[name, '*'] = {(name, part) for part in module.parts}
        self.notebooks: dict[str, set[Symbol]] = {}
        for path in sorted((ROOT / 'nbs').rglob('*.ipynb')):
            if '.ipynb_checkpoints' in path.parts: continue
            exported, tree = cells(path)
            own = Module('notebook', tree)
            found = own.mentions(tree.body, {**modules, 'notebook': own})
            key = str(path.relative_to(ROOT))
            self.notebooks[key] = {s for s in found if s[0] != 'notebook'}
            if exported in modules: self.notebooks[key].add((exported, '*'))
        self.users: dict[Symbol, set[Symbol]] = {}
        for symbol, used in self.uses.items():
            for u in used: self.users.setdefault(u, set()).add(symbol)

    def above(self, changed: Iterable[Symbol]) -> set[str]:
        "The notebooks that depend on these symbols"
        seen, todo = set(), list(changed)
        while todo:
            symbol = todo.pop()
            if symbol in seen: continue
            seen.add(symbol)
            todo += self.users.get(symbol, ())
        return {path for path, used in self.notebooks.items() if used & seen}


def git(*args: str) -> str:
    return subprocess.run(['git', *args], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def affected(base: str) -> list[str]:
    "The notebooks that the difference to `base` can break"
    names = set(git('diff', '--name-only', base).split('\n')) | set(git('ls-files', '--others', '--exclude-standard').split('\n'))
    files = {str(p.relative_to(ROOT)): p.read_text(encoding='utf-8') for p in sorted((ROOT / LIB).rglob('*.py'))}
    graph = Graph(read_modules(files))
    if names & ALL: return sorted(graph.notebooks)
    found, changed = {n for n in names if n in graph.notebooks}, set()
    for path in (n for n in names if n.startswith(LIB) and n.endswith('.py')):
        name = '.'.join(Path(path).with_suffix('').parts).removesuffix('.__init__')
        now = graph.modules.get(name)
        before = subprocess.run(['git', 'show', f'{base}:{path}'], cwd=ROOT, capture_output=True, text=True)
        was = Module(name, ast.parse(before.stdout)) if not before.returncode else None
        for part in {*(now.parts if now else ()), *(was.parts if was else ())}:
            if part == '__all__': continue
            texts = [m.text(part) if m and part in m.parts else None for m in (now, was)]
            if texts[0] != texts[1]: changed.add((name, part))
    return sorted(found | graph.above(changed))


def median(seconds: Path) -> str:
    "How long a run is for a change of one function, class or constant"
    rows = json.loads(seconds.read_text())
    took = {r['path']: r['seconds'] for r in rows['notebooks']}
    files = {str(p.relative_to(ROOT)): p.read_text(encoding='utf-8') for p in sorted((ROOT / LIB).rglob('*.py'))}
    graph = Graph(read_modules(files))
    symbols = [s for s in graph.uses if s[1] not in ('*', '', '__all__')]
    runs = [sum(took.get(n, 0.) for n in graph.above([s])) / max(1, rows['workers']) for s in symbols]
    many = [sum(took.get(n, 0.) for n in graph.above([(m, '*')] + [(m, p) for p in graph.modules[m].parts])) / max(1, rows['workers'])
            for m in graph.modules]
    return (f'one of {len(symbols)} functions, classes and constants: median {statistics.median(runs):.0f} s, '
            f'three quarters below {statistics.quantiles(runs, n=4)[2]:.0f} s; '
            f'a whole module of {len(many)}: median {statistics.median(many):.0f} s')


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--base', default='HEAD')
    ap.add_argument('--run', action='store_true')
    ap.add_argument('--median', type=Path, metavar='F')
    args = ap.parse_args()
    if args.median: print(median(args.median)); return 0
    found = affected(args.base)
    print(*found, sep='\n') if found else print('no notebook')
    if not args.run or not found: return 0
    glob = '|'.join(re.escape(n) for n in found)
    return subprocess.run(['nbdev-test', '--n-workers', '4', '--path-re', f'(?:{glob})$'], cwd=ROOT).returncode


if __name__ == '__main__': sys.exit(main())
