"""A real browser for our checks: headless Chromium, every request and every complaint of it written down.

    with browsing() as browser:
        page, seen = watched(browser, viewport=dict(width=390, height=844))
        page.goto('http://127.0.0.1:8000')
        seen.check()
"""
from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--no-first-run',
         '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage',
         '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost']
HERE = {'127.0.0.1', 'localhost'}


def chromium() -> str:
    "The browser's program; CHROMIUM names another one. Without one the check fails: it is never skipped."
    names = os.environ.get('CHROMIUM'), 'chromium', 'chromium-browser', 'google-chrome'
    found = next((at for name in names if name and (at := shutil.which(name))), None)
    if found is None: raise SystemExit('there is no Chromium: apt-get install chromium, or set CHROMIUM')
    return found


@contextmanager
def browsing() -> Iterator[Any]:
    "In the block, a headless Chromium"
    from playwright.sync_api import sync_playwright
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium(), headless=True, args=FLAGS)
        try: yield browser
        finally: browser.close()


@dataclass
class Seen:
    "What a page has asked for, and what it has complained of"
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def elsewhere(self) -> list[str]:
        "Requests that would have left this machine"
        return [url for url in self.requests if urlsplit(url).scheme not in ('data', 'blob', 'about')
                and urlsplit(url).hostname not in HERE]

    def check(self, harmless: Callable[[str], bool] = lambda error: False) -> None:
        "Raises AssertionError if a request has left the machine, or a page has complained"
        assert self.requests, 'the page has asked for nothing: this would prove nothing'
        assert not self.elsewhere(), f'requests to elsewhere: {self.elsewhere()}'
        bad = [error for error in self.errors if not harmless(error)]
        assert not bad, f'complaints of the page: {bad}'


def watched(browser: Any, **options: Any) -> tuple[Any, Seen]:
    "A new page in a context of its own (`options`: of new_context), and what it does"
    context, seen = browser.new_context(**options), Seen()
    context.on('request', lambda request: seen.requests.append(request.url))
    context.on('websocket', lambda socket: seen.requests.append(socket.url))
    context.on('console', lambda said: said.type == 'error' and seen.errors.append(said.text))
    context.on('weberror', lambda error: seen.errors.append(str(error.error)))
    return context.new_page(), seen
