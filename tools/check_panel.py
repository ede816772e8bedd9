"""Runs the live panel in JupyterLab and clicks on it, in headless Chromium: python tools/check_panel.py [--shots FOLDER]

Checked: a click on `kill` ends a real process; its lane breaks; the time of the recovery appears and is that of the
ledger; a worker can be added; after `stop` the picture that stays is there, without a widget. No request leaves the
machine, and the console has no error. Needs jupyterlab and playwright, and a Chromium (CHROMIUM names it). Exit code
0 or 1; it ends within two minutes in any case.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from browser import browsing, watched
from elastic_nb.elastic.ledger import Event, Ledger, recoveries
from playwright.sync_api import Page

TRAINER = '''
import time
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset
from elastic_nb.train.trainer import ElasticTrainer

class Nap:
    def on_step_end(self, trainer, step, **rest): time.sleep(.04)

class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    def forward(self, x, y): return F.mse_loss(self.net(x), y)

def trainer(config):
    x = torch.randn(960, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x[:, :2].sum(1, keepdim=True).tanh())
    return ElasticTrainer(Regression(), config, data, callbacks=[Nap()])
'''
CELL = '''from elastic_nb.train.run import run_elastic

run = run_elastic('my_run:trainer', workers=3, background=True, steps=3000, batch_size=64, micro_batches=4,
                  lr=.01, silence=2., stall=120.)
run'''
LIMIT = 60.  # seconds for each wait; an idle machine needs two or three


def notebook() -> dict[str, Any]:
    "One cell, which starts a run and shows its handle"
    cell = dict(cell_type='code', id='panel', metadata={}, outputs=[], execution_count=None, source=CELL)
    kernel = dict(kernelspec=dict(name='python3', display_name='Python 3', language='python'))
    return dict(cells=[cell], metadata=kernel, nbformat=4, nbformat_minor=5)


@contextmanager
def lab(home: Path) -> Iterator[str]:
    "JupyterLab on loopback with settings of its own; the address of its notebook"
    token = secrets.token_hex(16)
    env = os.environ | {name: str(home / name.lower()) for name in
                        ('HOME', 'JUPYTER_CONFIG_DIR', 'JUPYTER_DATA_DIR', 'JUPYTER_RUNTIME_DIR', 'IPYTHONDIR')}
    call = [sys.executable, '-m', 'jupyterlab', '--no-browser', '--ip=127.0.0.1', '--port=0', '--allow-root',
            f'--IdentityProvider.token={token}', f'--ServerApp.root_dir={home / "work"}',
            '--LabApp.extension_manager=readonly',
            '--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate']
    settings = home / 'jupyter_config_dir' / 'labconfig' / 'page_config.json'
    settings.parent.mkdir(parents=True)   # without the question whether we want news
    settings.write_text(json.dumps({'disabledExtensions': {'@jupyterlab/apputils-extension:announcements': True}}))
    with (home / 'lab.log').open('wb') as log:
        server = subprocess.Popen(call, env=env, cwd=home / 'work', stdout=log, stderr=log, start_new_session=True)
    try:
        said = until(lambda: re.search(r'http://127\.0\.0\.1:(\d+)', (home / 'lab.log').read_text()), 'JupyterLab')
        yield f'http://127.0.0.1:{said[1]}/lab/tree/panel.ipynb?token={token}'
    finally:
        server.send_signal(signal.SIGINT)   # twice: the first one asks
        server.send_signal(signal.SIGTERM)
        try: server.wait(15)
        except subprocess.TimeoutExpired: os.killpg(server.pid, signal.SIGKILL)


def until(look: Callable[[], Any], what: str) -> Any:
    "What `look` returns, once that is something. Raises AssertionError"
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if found := look(): return found
        time.sleep(.05)
    raise AssertionError(f'{what}: nothing after {LIMIT:g} s')


def events(out: Path) -> list[Event]:
    "What the ledger has so far"
    if not (out / 'run.db').exists(): return []
    with Ledger(out / 'run.db', create=False) as known: names = known.runs()
    if not names: return []
    with Ledger(out / 'run.db', names[-1], create=False) as ledger: return ledger.events()


def alive(pid: int) -> bool:
    "Whether there is such a process; one that has ended and was not waited for is none"
    try: return Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
    except OSError: return False


def bars(page: Page, slot: int) -> list[int]:
    "The generations in a lane, from left to right; 0 is a worker that starts"
    found = page.locator(f'rect.bar[data-slot="{slot}"]').evaluate_all('all => all.map(r => +r.dataset.gen)')
    return [gen for gen, before in zip(found, [None, *found]) if gen != before]


def recovery(page: Page) -> tuple[str, str, int] | None:
    "The last recovery as the page shows it while it trains: its length, the unit, how many there were; else None"
    said = page.locator('.elastic-rto').first.locator('xpath=..').inner_text()
    found = re.fullmatch(r'last recovery \(RTO\)\s+([\d.]+) (ms|s)\s+(\d+) so far', said)
    return (found[1], found[2], int(found[3])) if found else None


def play(page: Page, out: Path, shot: Callable[[str], None]) -> None:
    "Run the cell, and click. Raises AssertionError"
    page.wait_for_selector('.jp-Notebook .jp-CodeCell', timeout=1000 * LIMIT)
    page.wait_for_selector('text=/Python 3.*[|] Idle/', timeout=1000 * LIMIT)
    page.locator('.jp-CodeCell .cm-content').first.click()
    page.keyboard.press('Shift+Enter')
    page.wait_for_selector('.elastic-state[data-state="training"]', timeout=1000 * LIMIT)
    until(lambda: all(bars(page, slot)[-1:] > [0] for slot in range(3)), 'three lanes')
    time.sleep(2.)   # something to look at
    shot('1-training')
    spawned = [(e.worker, e.data['pid']) for e in events(out) if e.kind == 'spawn']
    name, pid = [(name, pid) for name, pid in spawned if name.startswith('1.')][-1]
    assert alive(pid), f'worker {name} is dead before the click'
    before = max(bars(page, 1))
    page.locator('button[title="SIGKILL for worker 1"]').click()
    until(lambda: not alive(pid), 'the death of a real process')
    until(lambda: max(bars(page, 1), default=0) > before, 'a lane that breaks, and goes on')
    shown, unit, n = until(lambda: recovery(page), 'the RTO of a recovery')
    shot('2-killed')
    known = recoveries(events(out))[:n]
    assert known, 'the page shows a recovery that is not in the ledger'
    seconds = float(shown) / (1000 if unit == 'ms' else 1)
    assert abs(seconds - known[-1]['rto_s']) < (.002 if unit == 'ms' else .06), (shown, unit, n, known)
    page.locator('button[title^="One more"]').click()
    until(lambda: bars(page, 3)[-1:] > [0], 'a fourth worker at work')
    page.locator('button[title="SIGSTOP for worker 0"]').click()
    until(lambda: any(r['rto_s'] for r in recoveries(events(out))[1:]), 'a hung worker is replaced')
    time.sleep(1.)
    shot('3-more')
    print(f"RTO on the page: {shown} {unit}; deaths: {', '.join(r['cause'] for r in recoveries(events(out)))}")
    page.locator('button[title^="Save and leave"]').click()
    stays = '.elastic-panel .elastic-state[data-state="stopped"]'
    until(lambda: page.locator(stays).count(), 'the picture that stays')
    until(lambda: not page.locator('button[title^="SIGKILL"]').count(), 'no buttons')
    shot('4-stopped')
    left = [e.data['pid'] for e in events(out) if e.kind == 'spawn' and alive(e.data['pid'])]
    until(lambda: not any(map(alive, left)), 'no worker is left')


def check(home: Path, shots: Path | None) -> list[str]:
    "What is wrong; empty if nothing is"
    wrong: list[str] = []
    work = home / 'work'
    work.mkdir()
    (work / 'my_run.py').write_text(TRAINER)
    (work / 'panel.ipynb').write_text(json.dumps(notebook()))
    with lab(home) as url, browsing() as browser:
        page, seen = watched(browser, viewport=dict(width=1280, height=900))
        def shot(name: str) -> None:
            if shots: page.screenshot(path=shots / f'{name}.png')
        try:
            page.goto(url, timeout=1000 * LIMIT)
            play(page, work / 'elastic-run', shot)
            seen.check()
        except Exception as e:
            wrong.append(f'{type(e).__name__}: {e}')
            shot('failed')
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--shots', type=Path, help='folder for screenshots')
    shots = parser.parse_args().shots
    if shots: shots.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home: wrong = check(Path(home), shots)
    for line in wrong: print(line)
    print(f'the panel in JupyterLab: {len(wrong)} complaints, {time.monotonic() - start:.0f} s')
    return 1 if wrong else 0


if __name__ == '__main__': sys.exit(main())
