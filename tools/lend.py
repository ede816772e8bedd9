"""Let another environment use packages of this one, by links: to install torch again would take minutes.

    python tools/lend.py SITE_PACKAGES NAME [PINS]

SITE_PACKAGES belongs to the other environment. It gets what the package NAME requires, and NAME itself unless that is
this project; but nothing that the file PINS names: of that it has versions of its own.
"""
import sys
from importlib.metadata import distribution
from pathlib import Path

from lint_notebooks import settings
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def required(name: str, own: set[str], seen: set[str]) -> set[str]:
    "`name` and all it requires, without the packages in `own`; adds to `seen`"
    seen.add(name)
    for text in distribution(name).requires or []:
        need = Requirement(text)
        other = canonicalize_name(need.name)
        if other in own | seen or need.marker and not need.marker.evaluate({'extra': ''}): continue
        required(other, own, seen)
    return seen


def lend(target: Path, name: str, pins: list[str]) -> None:
    "Link `name` and what it requires, but for the packages in `pins`, into the folder `target`"
    own = {canonicalize_name(Requirement(line).name) for line in pins if line and not line.startswith('#')}
    names = required(name, own, set()) - {settings()['lib_name']}
    for name in sorted(names):
        dist = distribution(name)
        for top in {file.parts[0] for file in dist.files or []} - {'..', '__pycache__'}:
            link = target / top
            if not link.exists(): link.symlink_to(Path(str(dist.locate_file(top))).resolve())
    print('lent:', *sorted(names))


if __name__ == '__main__':
    pins = Path(sys.argv[3]).read_text(encoding='utf-8').splitlines() if sys.argv[3:] else []
    lend(Path(sys.argv[1]), sys.argv[2], pins)
