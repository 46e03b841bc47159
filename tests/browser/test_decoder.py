"""The bug desk in a browser without a kernel: read in both themes, by keyboard, at both widths."""

import pytest

from tests.browser.shell import sentence
from tests.widgets.desk_trace import made_up_desk
from tools.static_page import NARROW, WIDE
from widgets import BugDesk


@pytest.fixture(scope="module")
def desk():
    return BugDesk(made_up_desk())


def shell_height(page):
    return page.locator(".nl-shell").evaluate("shell => shell.offsetHeight")


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_case_can_be_read_and_nothing_jumps(show, low_contrast, desk, light, width):
    page = show(desk, light=light, width=width)
    heights = set()
    for name in desk.presets:
        page.get_by_role("radio", name=name, exact=True).click()
        page.mouse.move(0, 0)
        page.locator(".nl-pic").focus()
        for step in range(3):
            assert not low_contrast(page), (name, step)
            heights.add(shell_height(page))
            page.keyboard.press("ArrowRight")
    assert len(heights) == 1


def test_keys_uncover_logits_and_cause_and_a_new_case_is_covered_again(show, desk):
    page = show(desk)
    page.locator(".nl-pic").focus()
    assert sentence(page) == "case A · departs at new token 0 · 17 token passes, right 17"
    page.keyboard.press("End")
    assert sentence(page).endswith("noise, lab 05")
    assert "the cause of noise" in page.locator(".nl-pic").text_content()
    page.get_by_role("radio", name="case B", exact=True).click()
    assert sentence(page) == "case B · departs at new token 6 · 17 token passes, right 17"
    assert "the cause of" not in page.locator(".nl-pic").text_content()


def test_the_copied_code_recreates_case_and_step(show, desk):
    page = show(desk)
    page.get_by_role("radio", name="case C", exact=True).click()
    page.locator(".nl-pic").focus()
    page.keyboard.press("ArrowRight")
    assert (page.evaluate("model.get('preset')"), page.evaluate("model.get('step')")) == ("case C", 1)
    assert BugDesk(made_up_desk(), preset="case C", step=1).code == 'BugDesk(preset="case C", step=1)'
