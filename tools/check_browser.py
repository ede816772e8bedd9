"""Does the dashboard do what it promises, in a real browser, beside a run that is being trained by real processes?

    python tools/check_browser.py                 exit code 1 and a traceback if not
    python tools/check_browser.py --shots DIR     also save pictures of the pages there
"""
from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from browser import browsing, watched

from elastic_nb.elastic.control_socket import send_command
from elastic_nb.elastic.ledger import Ledger
from elastic_nb.simulate.job_queue import JobQueue
from elastic_nb.testing.injection_payloads import PAYLOADS

TRAIN = """
import sys
from elastic_nb.demo import demo_config
from elastic_nb.train.run import run_elastic
config = demo_config(steps=100_000, text=[sys.argv[2]], width=32, layers=2, heads=2, length=32,
                     memory_snapshot_interval=50, checkpoint_interval=500,
                     silence=5., stall=120.)   # a page that is redrawn late still sees a hang that lasts
run_elastic('elastic_nb.demo:trainer', config, workers=3, out=sys.argv[1], tell=lambda event: None)
"""
SECRET = 'a-secret-of-this-check'
KILL = dict(method='POST', body='{"do": "kill", "worker": "0"}', headers={'content-type': 'application/json'})
EVIL = """<!doctype html><title>another page</title>
<form id="f" method="post" action="{at}" enctype="text/plain"><input name='{{"do": "kill", "worker": "0", "x":"'
value='"}}'></form><iframe name="nowhere"></iframe>
<script>
const send = options => fetch('{at}', {{method: 'POST', body: '{{"do": "kill", "worker": "0"}}', ...options}})
  .then(() => 'sent', () => 'refused')
window.done = (async () => [
  await send({{headers: {{'content-type': 'application/json'}}}}), await send({{mode: 'no-cors'}}),
  await fetch('{read}').then(() => 'read', () => 'refused'), (f.target = 'nowhere', f.submit(), 'posted')])()
</script>"""


# ---- what runs beside the browser ----------------------------------------------------------------
@contextmanager
def program(*args: Any, **environ: str) -> Iterator[subprocess.Popen]:
    "In the block, a process; it is ended in the end"
    env = {k: v for k, v in os.environ.items() if k != 'ELASTIC_NB_TOKEN'} | environ
    p = subprocess.Popen([*map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    try: yield p
    finally:
        if p.poll() is None: p.terminate()
        try: p.wait(30)
        except subprocess.TimeoutExpired: p.kill()


@contextmanager
def served(folder: Path, *options: str, **environ: str) -> Iterator[str]:
    "In the block, `elastic-nb serve`; its URL"
    command = [sys.executable, '-c', 'from elastic_nb.cli import main; main()', 'serve', folder, '--port', 0]
    with program(*command, *options, **environ) as p:
        said = p.stdout.readline()
        found = re.search(r'http://[\d.]+:\d+', said)
        assert found, said + p.stdout.read()
        yield found[0]


def call(url: str, path: str, method: str = 'GET', body: str | None = None, headers: dict | None = None) -> Any:
    "Status, and the answer"
    line = HTTPConnection(url.removeprefix('http://'), timeout=20)
    line.request(method, path, body, headers or {})
    answer = line.getresponse()
    text = answer.read().decode()
    return answer.status, json.loads(text) if text.startswith('{') else text


def until(true: Callable[[], Any], seconds: float = 60) -> Any:
    "What `true` returns, as soon as it is true. Raises AssertionError if it does not become so"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := true(): return found
        time.sleep(.1)
    raise AssertionError(f'not within {seconds} s: {true.__code__.co_names}')


def dead(pid: int) -> bool:
    "Is there no such process, or only what is left of it?"
    try: return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] in 'ZX'
    except OSError: return True


# ---- the checks ----------------------------------------------------------------------------------
def watch_it_heal(browser: Any, url: str, out: Path, shot: Callable[[Any, str], None]) -> None:
    "A click kills a process, the lane breaks and heals, the RTO appears; so do a hang and an added worker"
    page, seen = watched(browser, viewport=dict(width=1200, height=900))
    page.goto(url)
    page.click('a[href^="/run/"]')
    step = page.locator('.tiles b').first
    first = until(lambda: int(step.inner_text().split()[0]) > 0 and int(step.inner_text().split()[0]))
    until(lambda: int(step.inner_text().split()[0]) > first + 5)   # live: it updates itself
    run = page.url.rpartition('/')[2]
    def told() -> dict[str, Any]: return call(url, f'/api/runs/{run}')[1]
    assert told()['state'] == 'running'
    pid = next(w['pid'] for w in told()['workers'] if w['name'] == '1.0')
    assert not dead(pid)
    assert page.locator('#recoveries li').count() == 0

    page.click('[data-kill="1.0"]')
    until(lambda: dead(pid), 20)
    page.wait_for_selector('path[data-dead="1.0"]', state='attached', timeout=30_000)   # the lane breaks ...
    page.wait_for_selector('rect.bar[data-worker="1.1"]', state='attached', timeout=60_000)   # ... and heals
    rto = page.wait_for_selector('#recoveries .rto', timeout=30_000).inner_text()
    row = told()['recoveries'][0]
    assert re.fullmatch(r'\d+ ms|\d+\.\d s', rto) and row['cause'] == 'SIGKILL', (rto, row)
    shown = f"{round(row['rto_s'] * 1000)} ms" if row['rto_s'] < 1 else f"{row['rto_s']:.1f} s"
    assert rto == shown == page.locator('#rto b').inner_text(), (rto, shown)
    at_step = int(step.inner_text().split()[0])
    until(lambda: int(step.inner_text().split()[0]) > at_step + 5)
    shot(page, 'killed')

    page.click('[data-hang="2.0"]')
    page.wait_for_selector('rect.stopped[data-worker="2.0"]', state='attached', timeout=30_000)
    page.wait_for_selector('#rto.open', timeout=30_000)   # the counter runs ...
    shot(page, 'hung')
    until(lambda: page.locator('#recoveries .rto').count() == 2, 90)   # ... and stops
    page.click('[data-add]')
    page.wait_for_selector('rect.bar[data-worker="3.0"]', state='attached', timeout=60_000)
    until(lambda: told()['world'] == 4, 60)
    shot(page, 'added')
    seen.check()
    faults = [e.data.get('fault') for e in Ledger(out / 'run.db', told()['run'], create=False).events('fault')]
    assert faults == ['kill', 'hang'], faults
    print(f'a click killed process {pid}; without progress for {rto}; {len(seen.requests)} requests, all to here')


def refusals(browser: Any, url: str, guarded: str, run: str, faults: Callable[[], int]) -> None:
    "Who may not kill: without the flag, from another page, with a foreign name, without the token"
    before, do = faults(), f'/api/runs/{run}/do'
    page, seen = watched(browser)
    page.goto(f'{guarded}/run/{run}')
    page.wait_for_selector('#lanes')
    assert page.locator('#break, [data-kill]').count() == 0
    seen.check()
    said = {
        'without the flag': call(guarded, do, **KILL),
        'another origin': call(url, do, **KILL | dict(headers=KILL['headers'] | dict(origin='http://127.0.0.1:1'))),
        'a foreign name': call(url, do, **KILL | dict(headers=KILL['headers'] | dict(host='evil.example'))),
        'to look at, by a foreign name': call(url, '/api/runs', headers=dict(host='evil.example:80'))}
    print({k: (status, text['error']) for k, (status, text) in said.items()})
    assert [status for status, _ in said.values()] == [403, 403, 421, 421], said

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header('content-type', 'text/html')
            self.end_headers()
            self.wfile.write(EVIL.format(at=url + do, read=url + '/api/runs').encode())
        def log_message(self, *args: Any) -> None: pass

    other = ThreadingHTTPServer(('127.0.0.1', 0), Evil)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    page, seen = watched(browser)
    sent, answers = [], []
    page.context.on('request', lambda r: r.method == 'POST' and sent.append(r.url))
    page.context.on('response', lambda r: r.url.startswith(url) and answers.append(r.status))
    page.goto(f'http://127.0.0.1:{other.server_port}')
    outcome = page.evaluate('window.done')
    page.wait_for_timeout(1000)
    other.shutdown()
    other.server_close()
    assert outcome == ['refused', 'refused', 'refused', 'posted'] and len(sent) >= 2, (outcome, sent)
    assert not {*answers} & {200, 409}, answers
    assert faults() == before, 'somebody was killed'
    print('another page in the browser:', outcome, answers)


def token(browser: Any, folder: Path, run: str, faults: Callable[[], int]) -> None:
    "Without the token nothing, with it everything"
    before = faults()
    with served(folder, '--allow-kill', ELASTIC_NB_TOKEN=SECRET) as url:
        assert call(url, f'/api/runs/{run}/do', **KILL)[0] == 401 and call(url, '/api/runs')[0] == 401
        page, seen = watched(browser)
        page.goto(f'{url}/run/{run}')
        assert page.url == url + '/login', page.url
        for text, path in (('a wrong one that is long', '/wrong'), (SECRET, '/')):
            page.fill('#token', text)
            page.click('button')
            page.wait_for_url(url + path)
        page.click(f'a[href="/run/{run}"]')
        page.wait_for_selector('[data-kill]')
        assert SECRET not in page.url and SECRET not in page.evaluate('document.cookie')
        seen.check()
        assert faults() == before, 'somebody was killed'
        page.click('[data-kill]')
        until(lambda: faults() == before + 1)
    with program(sys.executable, '-c', 'from elastic_nb.cli import main; main()', 'serve', folder, '--port', 0,
                 '--host', '0.0.0.0') as p:
        said, code = p.stdout.read(), p.wait(60)
    assert code == 2 and 'ELASTIC_NB_TOKEN' in said, (code, said)
    print('with a token:', said.strip())


def hostile(browser: Any, folder: Path) -> None:
    "Names and texts that are scripts stay texts"
    for n, text in enumerate(PAYLOADS.values()):
        name = text.replace('\ud800', '?').replace('\x00', '?')
        with Ledger(folder / 'run.db', name) as ledger:
            ledger.append('spawn', worker=f'{n}.0', pid=text)
            ledger.append('generation', gen=1, roster=[name, f'{n}.0'], lost=[name], joined=[], reason=text)
            ledger.append('commit', worker=f'{n}.0', gen=1, step=0, loss=1., lr=.1, batch=1)
            ledger.append('checkpoint', worker=name, gen=1, step=0, tier=text, saved=text, durable=1., blocking=0.)
            ledger.append('death', worker=name, cause=text)
            ledger.append('run_end', ok=False, error=text)
    with served(folder) as url:
        page, seen = watched(browser, viewport=dict(width=390, height=844))
        page.goto(url)
        page.wait_for_selector('table')
        runs = call(url, '/api/runs')[1]['runs']
        assert len(runs) == len(PAYLOADS) == page.locator('a[href^="/run/"]').count()
        for row in runs:
            page.goto(f"{url}/run/{row['id']}")
            page.wait_for_selector('#lanes')
            assert page.evaluate('window.PWNED') is None, row
            wide = page.evaluate('document.documentElement.scrollWidth')
            assert wide <= 390, f"the page of {row['run'][:50]!r} is {wide} pixels wide on a phone"
            for name in ('script', 'img', 'iframe', 'form'):
                assert page.locator(f'main {name}').count() == 0, (name, row)
        seen.check()
    print(f'{len(runs)} hostile names, on a phone: none got through')


def queue(browser: Any, folder: Path) -> None:
    "A controller's queue appears beside the runs, updates itself, and shows hostile plan names as text"
    jobs = JobQueue(folder / 'jobs.db')
    plan = 'workers: [{name: a}]\ntasks: [{id: t}]\n'
    hostile = next(iter(PAYLOADS.values())).replace('\ud800', '?').replace('\x00', '?')
    for name in ('first.yaml', hostile): jobs.submit(plan, name)
    with served(folder) as url:
        page, seen = watched(browser, viewport=dict(width=390, height=844))
        page.goto(url)
        page.wait_for_selector('h2:has-text("Queue jobs.db")')
        def states() -> list[str]:
            return [text.split()[-1] for text in page.locator('#part-queues .state').all_inner_texts()]
        assert states() == ['queued', 'queued'], states()
        jobs.next_job()
        until(lambda: sorted(states()) == ['queued', 'running'], 20)   # live: it updates itself
        jobs.execute("UPDATE jobs SET state='done'")
        until(lambda: states() == ['done', 'done'], 20)
        assert page.evaluate('window.PWNED') is None and hostile.strip() in page.locator('#part-queues').inner_text()
        for name in ('script', 'img', 'iframe', 'form'): assert page.locator(f'#part-queues {name}').count() == 0, name
        wide = page.evaluate('document.documentElement.scrollWidth')
        assert wide <= 390, f"the page with a queue is {wide} pixels wide on a phone"
        seen.check()
    print('a queue: two jobs from queued to done')


def pictures(browser: Any, url: str, run: str, shots: Path) -> None:
    "Desktop and phone, light and dark"
    for size, (width, height) in dict(desktop=(1200, 900), phone=(390, 844)).items():
        for scheme in ('light', 'dark'):
            page, seen = watched(browser, viewport=dict(width=width, height=height), color_scheme=scheme)
            for path, name in (('/', 'list'), (f'/run/{run}', 'run')):
                page.goto(url + path)
                page.wait_for_selector('table')
                page.screenshot(path=str(shots / f'{name}-{size}-{scheme}.png'), full_page=True)
            seen.check()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--shots', type=Path, help='a folder for pictures')
    shots = parser.parse_args().shots
    def shot(page: Any, name: str) -> None:
        if shots: page.screenshot(path=str(shots / f'{name}.png'), full_page=True)
    if shots: shots.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        out, evil, jobs, text = home / 'runs' / 'live', home / 'evil', home / 'jobs', home / 'text.txt'
        for made in (out, evil, jobs): made.mkdir(parents=True)
        text.write_text('To kill a worker is easy; to change the result is not. ' * 500)
        with (program(sys.executable, '-c', TRAIN, out, text) as trains, served(out.parent, '--allow-kill') as url,
              served(out.parent) as guarded, browsing() as browser):
            rows = until(lambda: trains.poll() is None and [
                row for row in call(url, '/api/runs')[1]['runs'] if (row.get('step') or 0) > 3], 120)
            run, name = rows[0]['id'], rows[0]['run']
            def faults() -> int: return len(Ledger(out / 'run.db', name, create=False).events('fault'))
            watch_it_heal(browser, url, out, shot)
            refusals(browser, url, guarded, run, faults)
            token(browser, out.parent, run, faults)
            send_command(out, 'stop')
            until(lambda: trains.poll() is not None, 60)
            state = until(lambda: (s := call(url, f'/api/runs/{run}')[1]['state']) != 'running' and s)
            if shots: pictures(browser, url, run, shots)
            hostile(browser, evil)
            queue(browser, jobs)
        print(f'the run is {state}; the browser was content')


if __name__ == '__main__': main()
