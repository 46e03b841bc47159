"""The browser kit: Chromium, a watched page, a JupyterLab, and a page that shows a playground without a kernel."""

import os
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.jupyter_lab import JupyterLab
from tests.browser.lab_page import settle
from tests.browser.watched_page import open_page, watched
from tools.static_page import WIDE, static_page

CONTRAST = (Path(__file__).parent / "contrast.js").read_text()


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium; without it the tests skip with a line that says so, and fail under CI."""
    path = shutil.which("chromium")
    if path is None:
        missing = "chromium is not installed: the playgrounds are not tested in a browser"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def blank_page(browser):
    """One page for all playgrounds without a kernel: a new one would cost each test a third of a second."""
    with open_page(browser) as page:
        yield page


@pytest.fixture
def page(blank_page, request):
    """The page as if it were new, watched for one test."""
    blank_page.unroute_all()
    blank_page.goto("about:blank")
    blank_page.emulate_media(reduced_motion="null")
    blank_page.set_viewport_size({"width": 1100, "height": 1000})
    blank_page.mouse.up()
    blank_page.mouse.move(0, 0)
    with watched(blank_page, request) as page:
        yield page


@pytest.fixture(scope="session")
def jupyter_lab(browser, tmp_path_factory):
    """A running JupyterLab; the browser comes first, so that nothing is started where it is missing."""
    lab = JupyterLab(tmp_path_factory.mktemp("jupyter"))
    yield lab
    lab.close()


@pytest.fixture(scope="session")
def lab_tab(browser):
    """One page that loads JupyterLab."""
    with open_page(browser) as page:
        yield page


@pytest.fixture
def lab_page(lab_tab, request):
    """The page for one test that opens a notebook; after a failure the next test loads JupyterLab anew."""
    with watched(lab_tab, request) as page:
        yield page
        page.evaluate("() => { window.jupyterapp?.shell.currentWidget?.sessionContext?.shutdown(); }")


@pytest.fixture
def show(page):
    """show(playground, light=True, width=WIDE) opens it without a kernel and returns the page."""

    def opened(playground, *, light=True, width=WIDE):
        html = static_page(playground, light=light, width=width)
        page.route("http://localhost/", lambda route: route.fulfill(body=html, content_type="text/html"))
        page.goto("http://localhost/")
        page.wait_for_selector(".nl-pic svg")
        return page

    return opened


@pytest.fixture
def low_contrast():
    """low_contrast(page, at=0) lists the texts of a playground with less than 4.5:1, or smaller than 11 px."""

    def found(page, at=0):
        settle(page)
        texts = page.locator(".nl-shell").nth(at).evaluate(CONTRAST)
        assert len(texts) > 3
        return [one for one in texts if one["ratio"] < 4.5 or one["size"] < 11]

    return found
