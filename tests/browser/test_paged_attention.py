"""The tail lens in a browser without a kernel: read in both themes, by mouse and by keyboard, at both widths."""

import pytest

from tests.browser.shell import outside_the_shell, sentence
from tests.widgets.lens_trace import made_up_lens, states
from tools.static_page import NARROW, WIDE
from widgets import TailLens


@pytest.fixture(scope="module")
def lens():
    return TailLens(made_up_lens())


def state(page):
    return page.evaluate("[model.get('bug'), model.get('length'), model.get('head'), model.get('step')]")


def press(page, *keys):
    page.locator(".nl-pic").focus()
    for key in keys:
        page.keyboard.press(key)


def click(page, text):
    """Click on what a person sees as this text in the picture."""
    box = page.locator(".nl-pic svg text", has_text=text).first.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_bug_can_be_read_at_every_length_and_nothing_jumps(show, low_contrast, lens, light, width):
    page = show(lens, light=light, width=width)
    heights = set()
    for one in states(made_up_lens()):
        page.evaluate("values => model.set(values)", one)
        heights.add(page.locator(".nl-shell").evaluate("shell => shell.offsetHeight"))
        if one["length"] in (17, 48, 56):
            assert not low_contrast(page), one
    assert len(heights) == 1
    assert not outside_the_shell(page)


def test_switches_contexts_and_heads_are_chosen_by_mouse(show, lens):
    page = show(lens)
    assert state(page) == ["no_tail_mask", 56, 1, 3]
    click(page, "stale page")
    assert state(page) == ["stale_page", 56, 1, 3]
    click(page, "17")
    assert state(page) == ["stale_page", 17, 1, 1]
    assert "id 0, not 9" in page.locator(".nl-pic").text_content()
    assert sentence(page).startswith("stale page · 17 tokens, head 1 · page 1 → id 0, 1 valid")
    click(page, "page 0 · id 5")
    assert state(page) == ["stale_page", 17, 1, 0]


def test_the_error_by_length_is_dragged_to_the_nearest_context(show, lens):
    page = show(lens)
    box = page.locator("[data-drag=length]").bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.99, y)
    page.mouse.down()
    seen = []
    for part in range(99, 0, -7):
        page.mouse.move(box["x"] + box["width"] * part / 100, y)
        seen.append(state(page)[1])
    page.mouse.up()
    assert seen == sorted(seen, reverse=True)
    assert {56, 33, 16} <= set(seen)
    assert state(page)[3] == 0  # the tail of 16 tokens


def test_the_keyboard_reaches_bug_context_head_and_page(show, lens):
    page = show(lens)
    press(page, "ArrowDown")
    assert state(page)[0] == "mask_to_zero"
    press(page, "ArrowUp", "ArrowUp")
    assert state(page)[0] == "right"
    press(page, "h", "-", "-")
    assert state(page)[1:] == [48, 2, 2]
    press(page, "Home")
    assert state(page)[3] == 0
    press(page, "ArrowRight")
    assert state(page)[3] == 1
    press(page, "End", "+")
    assert state(page)[1:] == [49, 2, 3]


def test_playing_reads_page_after_page_up_to_the_tail(show, lens):
    page = show(lens)
    press(page, "Home")
    assert page.locator(".nl-pic svg .wait").count() > 0
    press(page, "Space")
    page.wait_for_function("model.get('step') === 3")
    assert page.locator(".nl-pic svg .wait").count() == 0


def test_a_bug_chosen_by_hand_keeps_the_scene_and_a_scene_sets_all(show, lens):
    page = show(lens)
    press(page, "ArrowDown", "h")
    assert page.evaluate("model.get('preset')") == "no mask"
    page.get_by_role("radio", name="empty split", exact=True).click()
    assert state(page) == ["empty_split", 48, 1, 2]
    assert "worker 3: no page" in page.locator(".nl-pic").text_content()
    assert "every weight is NaN" in page.locator(".nl-pic").text_content()


def test_the_lens_shows_whose_tokens_the_empty_slots_hold(show, lens):
    page = show(lens)
    titles = page.locator(".nl-pic svg rect title").all_text_contents()
    assert len([title for title in titles if title.endswith("of a former owner")]) == 8
    page.get_by_role("radio", name="NaN in V", exact=True).click()
    titles = page.locator(".nl-pic svg rect title").all_text_contents()
    assert len([title for title in titles if title.endswith("holds NaN")]) == 8
