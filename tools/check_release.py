"""Can this be released? Prints one line per complaint; exit code 1 if there is any.

    python tools/check_release.py                 the workflows
    python tools/check_release.py DIST [DIST2]    and the files built in DIST; the wheel in DIST2 is the same
    python tools/check_release.py --tag v1.2.3    and that the tag is the version, and CHANGELOG.md describes it
    python tools/check_release.py --self-test     does each rule for workflows notice what it forbids?
"""
from __future__ import annotations

import argparse
import copy
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from lint_notebooks import ROOT, settings
from packaging.errors import ExceptionGroup  # Python 3.10 has none
from packaging.metadata import Metadata
from write_stubs import reordered

PINNED = re.compile(r'[\w.-]+/[\w./-]+@v\d+\.\d+\.\d+')
Workflows = dict[str, dict[str, Any]]


# ---- workflows -----------------------------------------------------------------------------------
def workflows(root: Path = ROOT) -> Workflows:
    "The workflows by file name; the key `on` is 'on' again, which YAML 1.1 reads as true"
    found = {p.name: yaml.safe_load(p.read_text(encoding='utf-8'))
             for p in sorted((root / '.github' / 'workflows').glob('*.y*ml'))}
    return {name: {'on' if k is True else k: v for k, v in w.items()} for name, w in found.items()}


def runs(job: dict[str, Any], what: str) -> bool:
    "Does a step of the job run, or use, something with `what` in it?"
    return any(what in step.get('run', step.get('uses', '')) for step in job.get('steps', []))


def check_job(name: str, job: dict[str, Any]) -> Iterator[str]:
    "Complaints about one job: versions, limits, rights"
    for used in [job.get('uses', ''), *(s.get('uses', '') for s in job.get('steps', []))]:
        if used and not used.startswith('./') and not PINNED.fullmatch(used):
            yield f'{name}: {used} must be pinned to a full version, @v1.2.3'
    if 'steps' in job and 'timeout-minutes' not in job: yield f'{name}: has no time limit'
    rights, wanted = job.get('permissions', {}), {}
    if runs(job, 'pypi-publish'): wanted = {'id-token': 'write'}
    if runs(job, 'deploy-pages'): wanted = {'pages': 'write', 'id-token': 'write'}
    if runs(job, 'gh release'): wanted = {'contents': 'write'}
    if rights != wanted: yield f'{name}: has the rights {rights}, needs {wanted}'
    if runs(job, 'pypi-publish') and job.get('environment') != 'pypi':
        yield f'{name}: publish in environment pypi'


def check_security(folder: Path) -> list[str]:
    "What zizmor complains of, without the network: credentials that stay, injections, dangerous triggers ..."
    done = subprocess.run(['zizmor', '--offline', '--quiet', '--no-progress', '--format=json-v1',
                           '--config', ROOT / '.github/zizmor.yml', folder], capture_output=True, text=True)
    if done.returncode and not done.stdout: return [f'zizmor: {done.stderr}']
    return [f"{f['ident']}: {f['desc']}" for f in json.loads(done.stdout)]


def check_workflows(found: Workflows) -> Iterator[str]:
    "Complaints about all workflows, and about the way from a tag to PyPI"
    for name, flow in found.items():
        if flow.get('permissions') != {'contents': 'read'}:
            yield f'{name}: permissions must be contents: read'
        for job_name, job in flow['jobs'].items(): yield from check_job(f'{name}: {job_name}', job)
    ci, release = found.get('ci.yml', {}), found.get('release.yml', {})
    if not any(runs(j, '.ci/run') for j in ci.get('jobs', {}).values()):
        yield 'ci.yml: nothing runs .ci/run'
    if release.get('on') != {'push': {'tags': ['v*']}}:
        yield 'release.yml: must run on tags v*, and on nothing else'
    jobs = release.get('jobs', {})
    again = './.github/workflows/ci.yml'
    tests = {n for n, j in jobs.items() if runs(j, '.ci/run') or j.get('uses') == again}
    for name, job in jobs.items():
        if runs(job, 'pypi-publish') and (len(tests) < 2 or not tests <= {*job.get('needs', [])}):
            yield f'release.yml: {name} must wait for ci.yml and for the build that runs .ci/run'
        if runs(job, 'pypi-publish') and 'slow' not in job.get('needs', []):
            yield f'release.yml: {name} must wait for the slow cells'
    if jobs.get('slow', {}).get('uses') != './.github/workflows/slow.yml': yield 'release.yml: no slow cell runs'
    yield from check_slow(found.get('slow.yml', {}))
    if not any(runs(j, 'check_release.py --tag') for j in jobs.values()):
        yield 'release.yml: nobody compares the tag'


def check_slow(flow: dict[str, Any]) -> Iterator[str]:
    "Complaints about the workflow of the slow cells: each night, all shards"
    if not flow.get('on', {}).get('schedule'): yield 'slow.yml: must run each night'
    job = flow.get('jobs', {}).get('slow', {})
    shards = job.get('strategy', {}).get('matrix', {}).get('shard', [])
    if not runs(job, '.ci/slow --shard') or shards != [f'{n}/{len(shards)}' for n in range(1, len(shards) + 1)]:
        yield f'slow.yml: .ci/slow must run each shard, not {shards}'
    if job.get('timeout-minutes', 0) > 60: yield 'slow.yml: a shard may take 60 minutes'


# ---- the version ---------------------------------------------------------------------------------
def check_tag(tag: str, version: str, changelog: str) -> Iterator[str]:
    "Complaints about a tag: it must be the version of settings.ini, and have a section in the changelog"
    if tag != f'v{version}': yield f'the tag is {tag}, settings.ini says {version}'
    if f'## {version}' not in changelog.splitlines(): yield f'CHANGELOG.md has no section "## {version}"'


# ---- built files ---------------------------------------------------------------------------------
def wheel_files(wheel: Path) -> dict[str, bytes]:
    "Name -> content"
    with zipfile.ZipFile(wheel) as z: return {n: z.read(n) for n in z.namelist()}


def check_metadata(what: str, raw: bytes, cfg: dict[str, str], title: str) -> Iterator[str]:
    "Complaints about METADATA or PKG-INFO, as the standard and settings.ini have it"
    try: meta = Metadata.from_email(raw, validate=True)
    except ExceptionGroup as e:
        yield from (f'{what}: {x}' for x in e.exceptions)
        return
    got = (meta.name, str(meta.version), str(meta.requires_python), meta.license_expression,
           meta.description_content_type)
    want = (cfg['lib_name'], cfg['version'], f">={cfg['min_python']}", 'Apache-2.0', 'text/markdown')
    if got != want: yield f'{what}: {got}, not {want}'
    text = meta.description or ''
    if f'\n{title}\n' not in text: yield f'{what}: the description is not README.md'
    for m in re.finditer(r'\]\((?!https?:|#)(.*?)\)', text): yield f'{what}: leads nowhere on PyPI: {m[1]}'


def check_dist(dist: Path, root: Path, cfg: dict[str, str]) -> Iterator[str]:
    "Complaints about the sdist (is it the whole repository?) and the wheel (the whole package, and no more?)"
    base, lib = f"{cfg['lib_name'].replace('-', '_')}-{cfg['version']}", cfg['lib_path']
    sdist, wheel = dist / f'{base}.tar.gz', dist / f'{base}-py3-none-any.whl'
    if sorted(dist.iterdir()) != sorted([sdist, wheel]):
        yield f'{dist}: {sorted(p.name for p in dist.iterdir())}, not {[wheel.name, sdist.name]}'
        return
    readme = (root / 'README.md').read_text(encoding='utf-8').splitlines()
    title = next(line for line in readme if line.startswith('# '))
    listed = subprocess.run(['git', 'ls-files'], cwd=root, capture_output=True, text=True, check=True).stdout
    tracked = {*listed.splitlines()}
    with tarfile.open(sdist) as t:
        names = {m.name.removeprefix(base + '/') for m in t if m.isfile()}
        yield from check_metadata(sdist.name, t.extractfile(f'{base}/PKG-INFO').read(), cfg, title)
    for name in sorted(tracked - names): yield f'{sdist.name}: {name} is missing'
    made = {n for n in names if n in ('PKG-INFO', 'setup.cfg') or '.egg-info/' in n}
    for name in sorted(names - tracked - made): yield f'{sdist.name}: {name} is not in the repository'
    files, info = wheel_files(wheel), f'{base}.dist-info/'
    package = {n for n in tracked if n.startswith(lib + '/')} - {f'{lib}/_modidx.py'}  # for nbdev's tools alone
    package |= {n[:-3] + '.pyi' for n in package if n.endswith('.py') and reordered((root / n).read_text('utf-8'))}
    for name in sorted({n for n in files if not n.startswith(info)} ^ package):
        yield f"{wheel.name}: {name} is {'not in the repository' if name in files else 'missing'}"
    yield from check_metadata(wheel.name, files[info + 'METADATA'], cfg, title)
    if f'{lib}/py.typed' not in files: yield f'{wheel.name}: py.typed is missing, so type checkers see no annotations'
    if info + 'licenses/LICENSE' not in files: yield f'{wheel.name}: the LICENSE is missing'
    commands = files[info + 'entry_points.txt'].decode().replace(' ', '')
    if cfg['console_scripts'] not in commands: yield f'{wheel.name}: no command'


def check_same(dist: Path, other: Path) -> Iterator[str]:
    "The wheel that was built from the sdist holds what the one from the repository holds"
    a, b = (wheel_files(next(d.glob('*.whl'))) for d in (dist, other))
    for name in sorted(n for n in {*a, *b} if a.get(n) != b.get(n)): yield f'{name} differs in the two wheels'


# ---- everything ----------------------------------------------------------------------------------
def change(path: str, value: Any) -> Callable[[Workflows], None]:
    "Set one value, by its dotted path (after the file name), in the workflows; None removes it"
    def do(found: Workflows) -> None:
        file, *keys, last = path.split('/')
        at: Any = found[file]
        for key in keys: at = at[int(key) if key.isdigit() else key]
        if value is None: del at[last]
        else: at[last] = value
    return do


BREAKS: list[tuple[Callable[[Workflows], None], str]] = [
    (change('ci.yml/jobs/ci/steps/0/uses', 'actions/checkout@v6'), 'full version'),
    (change('ci.yml/permissions', None), 'contents: read'),
    (change('ci.yml/jobs/ci/timeout-minutes', None), 'time limit'),
    (change('ci.yml/jobs/ci/permissions', {'contents': 'write'}), 'has the rights'),
    (change('ci.yml/jobs/ci/steps/2/run', 'true'), 'runs .ci/run'),
    (change('release.yml/on', {'push': {'branches': ['main']}}), 'tags v*'),
    (change('release.yml/jobs/pypi/needs', ['build']), 'must wait'),
    (change('release.yml/jobs/pypi/environment', None), 'environment pypi'),
    (change('release.yml/jobs/pypi/permissions', {'contents': 'write'}), 'has the rights'),
    (change('release.yml/jobs/build/steps/3/run', 'true'), 'compares the tag'),
    (change('release.yml/jobs/slow', None), 'no slow cell'),
    (change('release.yml/jobs/pypi/needs', ['ci', 'build']), 'wait for the slow'),
    (change('slow.yml/on', {'workflow_call': None}), 'each night'),
    (change('slow.yml/jobs/slow/strategy/matrix/shard', ['1/4', '2/4', '4/4']), 'each shard'),
    (change('slow.yml/jobs/slow/timeout-minutes', 90), '60 minutes'),
]


INSECURE: list[tuple[Callable[[Workflows], None], str]] = [
    (change('ci.yml/jobs/ci/steps/0/with', {}), 'artipacked'),
    (change('ci.yml/on', {'pull_request_target': None}), 'dangerous-triggers'),
    (change('ci.yml/jobs/ci/steps/2/run', 'echo ${{ github.head_ref }}'), 'template-injection'),
]


def self_test() -> list[str]:
    "What goes unnoticed, or is noticed without a cause"
    sound, wrong = workflows(), []
    for do, want in INSECURE:
        broken = copy.deepcopy(sound)
        do(broken)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, '.github', 'workflows')
            place.mkdir(parents=True)
            for name, flow in broken.items(): (place / name).write_text(yaml.safe_dump(flow), encoding='utf-8')
            said = check_security(Path(folder))
        if not any(line.startswith(want) for line in said): wrong.append(f'no complaint of {want!r}: {said}')
    for do, want in BREAKS:
        broken = copy.deepcopy(sound)
        do(broken)
        found = [*check_workflows(broken)]
        if not any(want in line for line in found): wrong.append(f'no complaint of {want!r}: {found}')
    if [*check_tag('v1.0', '1.0', '## 1.0\n')]: wrong.append('a right tag is complained of')
    if len([*check_tag('v1.0', '1.1', '## 1.0\n')]) != 2: wrong.append('a wrong tag passes')
    return wrong


def main() -> int:
    "The command line"
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('dist', nargs='*', type=Path, help='folder of the built files; folder of a second wheel')
    ap.add_argument('--tag', help='the tag of the release')
    ap.add_argument('--self-test', action='store_true', help='see that the rules notice what they forbid')
    args = ap.parse_args()
    cfg, wrong = settings(), [*check_workflows(workflows()), *check_security(ROOT / '.github')]
    if args.self_test: wrong += self_test()
    changes = (ROOT / 'CHANGELOG.md').read_text(encoding='utf-8')
    if args.tag: wrong += check_tag(args.tag, cfg['version'], changes)
    if args.dist: wrong += check_dist(args.dist[0], ROOT, cfg)
    if len(args.dist) > 1: wrong += check_same(*args.dist)
    print('\n'.join(wrong) or f"{cfg['lib_name']} {cfg['version']}: as it should be")
    return 1 if wrong else 0


if __name__ == '__main__': sys.exit(main())
