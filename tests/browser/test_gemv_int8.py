"""FP16 against INT8 in a browser without a kernel: both themes, both widths, mouse and keyboard."""

import pytest

from tests.browser.shell import outside_the_shell, sentence
from tests.lab_engine.int8_recording import int8_recording
from tools.static_page import NARROW, WIDE
from widgets.gemv_int8 import Int8Times


@pytest.fixture(scope="module")
def times():
    return Int8Times(int8_recording())


def engine(page):
    """The same state in Python."""
    state = {name: page.evaluate(f"model.get('{name}')") for name in ("stage", "launch")}
    return Int8Times(int8_recording(), **state)


@pytest.mark.parametrize(("light", "width"), [(True, WIDE), (False, NARROW)])
def test_every_preset_can_be_read_and_nothing_jumps(show, low_contrast, times, light, width):
    page = show(times, light=light, width=width)
    heights = set()
    for preset in times.presets:
        page.get_by_role("radio", name=preset, exact=True).click()
        page.mouse.move(0, 0)
        assert not low_contrast(page), preset
        assert not outside_the_shell(page), preset
        heights.add(page.locator(".nl-shell").evaluate("shell => shell.offsetHeight"))
    assert len(heights) == 1


def test_mouse_and_keys_change_launch_and_stage_without_a_kernel(show, times):
    page = show(times)
    box = page.locator("[data-drag=launch]").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60, steps=4)
    page.mouse.up()
    assert page.evaluate("model.get('launch')") == pytest.approx(3.0, abs=0.03)
    assert sentence(page) == engine(page).sentence
    page.locator(".nl-pic").focus()
    for key in ("Home", "PageUp", "ArrowRight", "ArrowUp", "l"):
        page.keyboard.press(key)
        assert sentence(page) == engine(page).sentence
    assert page.evaluate("[model.get('stage'), model.get('launch')]") == ["lm_head", 0.75]
    page.get_by_role("button", name="Stage", exact=True).click()
    assert sentence(page).startswith("token · launch 0.750 µs")
