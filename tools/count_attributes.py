"""Count the attributes of each class's instances, those of its bases included; none may have more than `MOST`.

    python tools/count_attributes.py           the check
    python tools/count_attributes.py --list    the classes with the most attributes
    python tools/count_attributes.py --lower   write lower counts into tools/attributes.json
    python tools/count_attributes.py --self-test    planted classes fail it

It reads the exported modules: what a method, a `@patch` included, assigns to its first argument, the fields of a
dataclass, cached properties. Bases of other libraries are not read. The lesson of a large class also counts at run
time, with `len(vars(x))`. `tools/attributes.json` has the classes that are still above the limit: a count there may
only fall, and no class may be added.
"""
from __future__ import annotations

import ast
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COUNTS = ROOT / 'tools' / 'attributes.json'
MOST = 25  # attributes of an instance
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Class:
    "A class as its module defines it: its own attributes, and the names of its bases"
    bases: list[str] = field(default_factory=list)
    own: set[str] = field(default_factory=set)


def last_name(node: ast.expr) -> str:
    "The last name of `a.b.C[int]`: C"
    if isinstance(node, ast.Subscript | ast.Call): return last_name(node.value if isinstance(node, ast.Subscript) else node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ''


def assigned(method: Function) -> Iterator[str]:
    "The attributes that a method assigns to its first argument"
    first = (method.args.posonlyargs + method.args.args)[:1]
    for node in ast.walk(method) if first else ():
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) \
                and isinstance(node.value, ast.Name) and node.value.id == first[0].arg: yield node.attr


def fields(cls: ast.ClassDef) -> Iterator[str]:
    "The fields of a dataclass that its instances keep, and cached properties"
    kept = any(last_name(d) == 'dataclass' for d in cls.decorator_list)
    for node in cls.body:
        if kept and isinstance(node, ast.AnnAssign) and last_name(node.annotation) not in ('ClassVar', 'InitVar') \
                and isinstance(node.target, ast.Name): yield node.target.id
        if isinstance(node, Function) and any(last_name(d) == 'cached_property' for d in node.decorator_list): yield node.name


def classes(root: Path) -> dict[str, Class]:
    "All classes of the modules in `root`, by module and name"
    found: dict[str, Class] = {}
    for path in sorted(root.rglob('*.py')):
        module = path.relative_to(root).as_posix().removesuffix('.py')
        tree = ast.parse(path.read_text(encoding='utf-8'))
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef): continue
            known = found[f'{module}:{node.name}'] = Class([last_name(b) for b in node.bases], {*fields(node)})
            for method in node.body:
                if isinstance(method, Function): known.own |= {*assigned(method)}
        for node in tree.body:   # patches: the class may be of another module
            if not isinstance(node, Function) or not any(last_name(d) == 'patch' for d in node.decorator_list): continue
            first = node.args.args[0].annotation if node.args.args else None
            for name in keys(found, last_name(first) if first else '', module): found[name].own |= {*assigned(node)}
    return found


def keys(found: dict[str, Class], name: str, module: str) -> list[str]:
    "The class `name` as `module` sees it: its own, else any other one of this name"
    own = f'{module}:{name}'
    return [own] if own in found else [key for key in found if key.split(':')[1] == name][:1]


def attributes(found: dict[str, Class], key: str, seen: frozenset[str] = frozenset()) -> set[str]:
    "All attributes of an instance"
    if key in seen: return set()
    bases = [base for name in found[key].bases for base in keys(found, name, key.split(':')[0])]
    return found[key].own.union(*(attributes(found, base, seen | {key}) for base in bases))


def counts(root: Path) -> dict[str, int]:
    "Attributes by class, the most first"
    found = classes(root)
    return dict(sorted(((key, len(attributes(found, key))) for key in found), key=lambda item: (-item[1], item[0])))


def refused(found: dict[str, int], most: dict[str, int]) -> list[str]:
    "What fails the check"
    return [f'{key}: {n} attributes on an instance, {most.get(key, MOST)} may be; cut it by concern'
            for key, n in found.items() if n > most.get(key, MOST)]


def lowered(found: dict[str, int], most: dict[str, int]) -> dict[str, int]:
    "The counts, where they have fallen; without classes that are within the limit"
    return {key: min(n, found[key]) for key, n in sorted(most.items()) if found.get(key, 0) > MOST}


PLANTED = f"""
class Base:
    def __init__(self): self.a, self.b = 1, 2
class Large(Base):
    shared = 1
    def fill(self):
        {'; '.join(f'self.x{n} = {n}' for n in range(MOST - 3))}
        for self.c in (1, 2): other.d = local = 3
@dataclass
class Point:
    x: int
    y: int = 0
    kind: ClassVar[str] = ''
    given: InitVar[int] = 0
    @cached_property
    def norm(self): return 1
"""


def self_test() -> int:
    "A planted class fails the check; one attribute less does not"
    with tempfile.TemporaryDirectory() as box:
        root = Path(box)
        (root / 'a.py').write_text(PLANTED)
        assert counts(root) == {'a:Large': MOST, 'a:Point': 3, 'a:Base': 2}, counts(root)
        assert refused(counts(root), {}) == []
        (root / 'b.py').write_text('from .a import Large\n@patch\ndef more(self: Large): self.late = 1\n')
        found = counts(root)
    assert found['a:Large'] == MOST + 1 and len(refused(found, {})) == 1, found
    assert refused(found, {'a:Large': MOST + 1}) == [] and lowered(found, {'a:Large': 99, 'a:Base': 30}) == {'a:Large': MOST + 1}
    print('a planted class with too many attributes is found')
    return 0


def main(args: list[str]) -> int:
    "The command line"
    if args == ['--self-test']: return self_test()
    most: dict[str, int] = json.loads(COUNTS.read_text())
    found = counts(ROOT / 'elastic_nb')
    if args == ['--lower']: COUNTS.write_text(json.dumps(lowered(found, most), indent=1) + '\n')
    if args == ['--list']: print(*(f'{n:3} {key}' for key, n in found.items() if n > MOST - 8), sep='\n')
    said = refused(found, most)
    print(*said, f'{sum(n > MOST for n in found.values())} of {len(found)} classes have more than {MOST} attributes', sep='\n')
    return bool(said)


if __name__ == '__main__': sys.exit(main(sys.argv[1:]))
