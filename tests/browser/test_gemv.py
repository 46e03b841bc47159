"""The roofline in a browser without a kernel: dragged, chosen by mouse and by key, read in both themes and widths."""

import pytest

from tests.browser.shell import outside_the_shell, sentence
from tests.lab_engine.gemv_recording import gemv_recording
from tools.static_page import NARROW, WIDE
from widgets.gemv import Roofline


@pytest.fixture(scope="module")
def roofline():
    return Roofline(gemv_recording())


def state(page, name):
    return page.evaluate(f"model.get('{name}')")


def test_the_point_is_dragged_and_the_sentence_says_what_it_hits(show, roofline):
    page = show(roofline)
    area = page.locator("[data-drag=ops]").bounding_box()
    page.mouse.move(area["x"] + area["width"] - 2, area["y"] + 200)
    page.mouse.down()
    assert state(page, "ops") < 0.26
    assert "limit edge: 3.8" in sentence(page)
    page.mouse.move(area["x"] - 30, area["y"] + 200)
    page.mouse.up()
    assert state(page, "ops") == 8
    assert "limit unpacking" in sentence(page)
    assert state(page, "preset") == "o alone"


def test_choices_kernels_and_batch_answer_to_mouse_and_keys(show, roofline):
    page = show(roofline)
    page.locator('rect[data-set*="RTX 4090"]').last.click()
    assert sentence(page).startswith("o on RTX 4090")
    page.locator(".nl-pic").focus()
    for key, name, value in [
        ("g", "gpu", "H200"), ("s", "stage", "gate_up"), ("b", "bits", 8), ("b", "bits", 16), ("b", "bits", 4),
        ("r", "group", 256), ("r", "group", 32), ("r", "group", 64), ("r", "group", 128), ("a", "activation", "int8"),
        ("e", "edge", 5.2), ("PageUp", "batch", 2), ("PageDown", "batch", 1), ("ArrowDown", "rung", "naive"),
        ("ArrowDown", "rung", "coalesced"), ("ArrowLeft", "rung", ""),
    ]:  # fmt: skip
        page.keyboard.press(key)
        assert state(page, name) == value, key
    page.locator('rect[data-set*="mma"]').last.click()
    assert sentence(page).startswith("7 mma: gate_up on H200")
    page.get_by_role("slider").focus()
    page.keyboard.press("End")
    assert state(page, "batch") == 256
    assert "limit multiplying" in sentence(page)


@pytest.mark.parametrize(("light", "width"), [(True, WIDE), (False, NARROW)])
def test_every_preset_can_be_read_and_nothing_jumps(show, low_contrast, roofline, light, width):
    page = show(roofline, light=light, width=width)
    heights = set()
    for name in roofline.presets:
        page.evaluate(f"model.set({{...model.get('_spec').presets.find((one) => one.name === '{name}').values}})")
        page.evaluate(f"model.set({{preset: '{name}'}})")
        assert not low_contrast(page), name
        assert not outside_the_shell(page), name
        heights.add(page.locator(".nl-shell").evaluate("shell => shell.offsetHeight"))
    assert len(heights) == 1
