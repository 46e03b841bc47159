"""Every lab in a real JupyterLab: all cells run, every playground moves by key, both themes can be read."""

import pytest

from tests.browser.jupyter_lab import ROOT
from tests.browser.lab_page import open_notebook, run_all, use_theme

LABS = sorted(path.name for path in (ROOT / "labs").glob("*.ipynb"))


@pytest.mark.parametrize("name", LABS)
def test_lab_runs_and_its_playgrounds_move_and_can_be_read(lab_page, jupyter_lab, low_contrast, name):
    page = lab_page
    open_notebook(page, jupyter_lab, name)
    assert run_all(page) == []
    moving = page.locator(".nl-shell:has(.nl-stepper)")
    for at in range(moving.count()):
        shell = moving.nth(at)
        shell.locator(".nl-pic svg").wait_for()
        height = shell.bounding_box()["height"]
        shell.locator(".nl-pic").focus()
        page.keyboard.press("End")
        last = shell.locator(".nl-state").inner_text()
        page.keyboard.press("ArrowLeft")
        assert shell.locator(".nl-state").inner_text() != last
        assert shell.bounding_box()["height"] == height
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        use_theme(page, theme)
        for at in range(page.locator(".nl-shell").count()):
            assert not low_contrast(page, at), theme
