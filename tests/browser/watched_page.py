"""A browser page that watches itself: console errors, requests to other machines, and a shot when a test failed."""

import re
from contextlib import contextmanager

from tests.browser.jupyter_lab import ROOT

SHOTS = ROOT / "shots" / "failures"
LOCAL = re.compile(r"^(https?|wss?)://(127\.0\.0\.1|localhost)[:/]|^(data|blob|about):")


@contextmanager
def watched_page(browser, request):
    """A page that ends in an error on a console error or a request to another machine, and leaves a shot on failure."""
    context = browser.new_context(viewport={"width": 1100, "height": 1000}, permissions=["clipboard-read"])
    page = context.new_page()
    page.set_default_timeout(20_000)
    errors, outside, failed = [], [], request.session.testsfailed
    page.on("console", lambda message: errors.append(message.text[:300]) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)[:300]))
    page.on("request", lambda sent: None if LOCAL.match(sent.url) else outside.append(sent.url))
    page.errors = errors
    yield page
    if errors or request.session.testsfailed > failed:
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{re.sub(r'[^a-z0-9]+', '-', request.node.name.lower())}.png")
    context.close()
    assert not outside, f"requests that leave the machine: {outside}"
    assert not errors, f"console errors: {errors}"
