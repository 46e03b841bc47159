"""A browser page that watches itself: console errors, requests to other machines, and a shot when a test failed."""

import re
from contextlib import contextmanager

from tests.browser.jupyter_lab import ROOT

SHOTS = ROOT / "shots" / "failures"
LOCAL = re.compile(r"^(https?|wss?)://(127\.0\.0\.1|localhost)[:/]|^(data|blob|about):")


@contextmanager
def open_page(browser):
    """A page that notes console errors in `errors` and requests to other machines in `outside`."""
    context = browser.new_context(viewport={"width": 1100, "height": 1000}, permissions=["clipboard-read"])
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.errors, page.outside = errors, outside = [], []
    page.on("console", lambda message: errors.append(message.text[:300]) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)[:300]))
    page.on("request", lambda sent: None if LOCAL.match(sent.url) else outside.append(sent.url))
    yield page
    context.close()


@contextmanager
def watched(page, request):
    """Ends in an error on what the page noted meanwhile; leaves a shot then, and an empty page where a test failed."""
    failed = request.session.testsfailed
    yield page
    (errors, outside), page.errors[:], page.outside[:] = (list(page.errors), list(page.outside)), [], []
    if errors or request.session.testsfailed > failed:
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{re.sub(r'[^a-z0-9]+', '-', request.node.name.lower())}.png")
        page.goto("about:blank")
        page.errors.clear()
    assert not outside, f"requests that leave the machine: {outside}"
    assert not errors, f"console errors: {errors}"


@contextmanager
def watched_page(browser, request):
    """A page of one's own, watched."""
    with open_page(browser) as page, watched(page, request):
        yield page
