"""Does the chart still render what it did? A change of a template shows as a diff of manifests.

    python tools/golden.py           compare with tools/golden; print the diffs; exit code 1 if there is one
    python tools/golden.py --write   write what is rendered now: read the diff of git, and commit it with the template

A `.yaml` holds one backend with three nodes. Other settings of a backend are a `.diff` against that, so they stay small.
"""
from __future__ import annotations

import difflib
import sys
from pathlib import Path

import yaml

from elastic_nb.deploy.chart import validate_chart

GOLDEN = Path(__file__).resolve().parent / 'golden'
NODES = ['deploymentImage=registry.example/me/train:1', 'nodes=3', 'elastic.maxNodes=3']
OUTSIDE = ['etcd.enabled=false', 'elastic.etcd.externalEndpoint=a:2379,b:2379', 'elastic.etcd.protocol=https',
           'elastic.etcd.tlsSecret=tls', 'elastic.etcd.clientCert=true', 'elastic.etcd.user=me', 'secrets.existing=mine']
BARE = ['storage.enabled=false', 'etcd.replicaCount=1', 'etcd.storageGb=0', 'shmGb=0', 'gpuCount=0', 'probes=false',
        'networkPolicy.enabled=false', 'spread=none', 'diloco.device=cpu']
SHARED = ['storage.accessMode=ReadWriteMany', 'diloco.optimMethod=exact', 'priorityClassName=high',
          'tolerations=[{key: gpu, effect: NoSchedule}]', 'nodeSelector={gpu: a100}', 'networkPolicy.egress=false']
WAYS = {'job': [], 'job_outside': OUTSIDE, 'job_bare': BARE, 'job_shared': SHARED,
        'jobset': ['backend=jobset'], 'jobset_shared': ['backend=jobset', *SHARED],
        'volcano': ['backend=volcano', 'queue=night'], 'volcano_shared': ['backend=volcano', *SHARED]}


def rendered() -> dict[str, str]:
    "Name of a file -> its text"
    plain: dict[str, str] = {}
    files: dict[str, str] = {}
    for name, sets in WAYS.items():
        found = validate_chart(sets=[*NODES, *sets], versions=())[2]
        found.sort(key=lambda o: (o['kind'], o['metadata']['name']))
        text, backend = yaml.safe_dump_all(found, width=110), name.partition('_')[0]
        if name == backend: plain[name] = files[f'{name}.yaml'] = text
        else: files[f'{name}.diff'] = changes(plain[backend], text, backend, name)
    return files


def changes(old: str, new: str, old_name: str, new_name: str) -> str:
    "The lines in which two texts differ, with two lines around them"
    return ''.join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), old_name, new_name, n=2))


def main() -> None:
    made = rendered()
    if '--write' in sys.argv:
        GOLDEN.mkdir(exist_ok=True)
        for path in GOLDEN.iterdir(): path.unlink()
        for name, text in made.items(): (GOLDEN / name).write_text(text, encoding='utf-8')
        return
    kept = {p.name: p.read_text(encoding='utf-8') for p in GOLDEN.iterdir()}
    names = sorted({*made, *kept}, key=lambda n: (n.endswith('.diff'), n))   # whole files first
    wrong = [changes(kept.get(n, ''), made.get(n, ''), f'golden/{n}', 'rendered now') for n in names]
    print(''.join(wrong) or f'{len(made)} renderings are as they were')
    if any(wrong): sys.exit(1)


if __name__ == '__main__': main()
