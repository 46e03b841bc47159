"""Screenshots of every playground, for a person to look at: `python -m tools.shots [FOLDER]` (default shots/, ignored).

Each preset is taken wide, in both themes; the first one also narrow, and in Present at 1280 × 800.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

import widgets
from tools.bootstrap import ROOT
from tools.static_page import NARROW, WIDE, static_page
from widgets.playground import Playground


def playgrounds() -> Iterator[Playground]:
    """One of each playground that the package offers, as it constructs itself."""
    for name in widgets.__all__:
        yield getattr(widgets, name)()


def open_page(browser: Browser, playground: Playground, *, light: bool, width: int) -> Page:
    """A page that shows the playground; its window is as wide as the cell and a margin."""
    page = browser.new_page(viewport={"width": width + 60, "height": 1000})
    page.set_content(static_page(playground, light=light, width=width))
    page.wait_for_selector(".nl-pic svg")
    return page


def shoot(browser: Browser, playground: Playground, folder: Path) -> None:
    """Write all pictures of one playground into the folder."""
    name = type(playground).__name__.lower()
    for number, preset in enumerate(playground.presets):
        playground.preset = preset
        for theme in ("light", "dark"):
            page = open_page(browser, playground, light=theme == "light", width=WIDE)
            page.locator(".nl-shell").screenshot(path=folder / f"{name}-{number}-{theme}.png")
            page.close()
    playground.preset = playground.presets[0]
    page = open_page(browser, playground, light=True, width=NARROW)
    page.locator(".nl-shell").screenshot(path=folder / f"{name}-narrow.png")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.click("[data-do=present]")
    page.screenshot(path=folder / f"{name}-present.png")
    page.close()
    (folder / f"{name}-still.png").write_bytes(playground.png())


def main() -> None:
    """Take all pictures and say where they lie."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "shots")
    folder: Path = parser.parse_args().folder
    browser_path = shutil.which("chromium")
    if browser_path is None:
        sys.exit("shots: chromium is not installed; install the package chromium (Debian: apt-get install chromium)")
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for playground in playgrounds():
            shoot(browser, playground, folder)
        browser.close()
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder}")


if __name__ == "__main__":
    main()
