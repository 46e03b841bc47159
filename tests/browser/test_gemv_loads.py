"""The warp's loads in a browser without a kernel: read in both themes and widths, by mouse and by keyboard."""

import pytest

from tests.browser.shell import outside_the_shell, sentence
from tools.static_page import NARROW, WIDE
from widgets import WarpLoads

FIELDS = WarpLoads.fields
OTHERS = (
    {"pattern": "ring", "k": 18944, "step": 4},
    {"pattern": "ring", "shift": 16},
    {"pattern": "rows", "shift": 16, "k": 18944, "step": 18, "lane": 31, "warp": 7},
    {"pattern": "naive", "shift": 16, "k": 18944, "step": 2367, "lane": 31, "warp": 7},
    {"k": 384, "lane": 12},
)


@pytest.fixture(scope="module")
def loads():
    return WarpLoads()


def state(page):
    return page.evaluate("(names) => Object.fromEntries(names.map((name) => [name, model.get(name)]))", list(FIELDS))


def engine(page):
    """The same state, as the engine has it."""
    return WarpLoads(**{name: value for name, value in state(page).items() if name != "preset"})


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_preset_and_pattern_can_be_read_in_both_themes_and_nothing_jumps(show, low_contrast, loads, width):
    page = show(loads, width=width)
    scenes = [*(WarpLoads(preset=name) for name in loads.presets), *(WarpLoads(**values) for values in OTHERS)]
    heights = set()
    for light in (True, False):
        page.evaluate("(light) => { document.body.dataset.jpThemeLight = String(light); }", light)
        for one in scenes:
            page.evaluate("(values) => model.set(values)", {name: getattr(one, name) for name in FIELDS})
            assert sentence(page) == one.sentence
            assert not low_contrast(page), (one.sentence, light)
            assert not outside_the_shell(page), one.sentence
            heights.add(page.locator(".nl-shell").evaluate("shell => shell.offsetHeight"))
    assert len(heights) == 1


def test_lanes_iterations_and_patterns_by_mouse_and_by_keyboard(show, loads):
    page = show(loads)
    page.locator("rect.hit", has=page.locator("title", has_text="lane 17:")).first.click()
    assert sentence(page).startswith("coalesced, K 3584 · iteration 2 · lane 17: row 5, bytes 10256–10271, group 20")
    page.locator(".nl-pic").focus()
    for key, name, value in [
        ("ArrowRight", "step", 3),
        ("ArrowUp", "lane", 16),
        ("ArrowDown", "lane", 17),
        ("s", "shift", 16),
        ("p", "pattern", "rows"),
        ("w", "warp", 6),
        ("k", "k", 18944),
    ]:
        page.keyboard.press(key)
        assert state(page)[name] == value, key
        assert sentence(page) == engine(page).sentence
    page.get_by_role("button", name="Next pattern").click()
    assert sentence(page).startswith("ring, K 18944, + 16 B · chunk 3 · producer: ")
    page.get_by_role("button", name="Next K").click()
    assert (state(page)["k"], state(page)["step"]) == (384, 0)
    page.evaluate("model.set({pattern: 'coalesced', k: 18944, step: 18})")
    page.get_by_role("button", name="Next K").click()
    assert sentence(page) == engine(page).sentence
    assert state(page)["step"] == 0


def test_the_copied_line_recreates_the_state(show, loads):
    page = show(loads)
    page.get_by_role("radio", name="shifted by 16 B").click()
    page.get_by_role("slider").fill("1")
    page.get_by_role("button", name="Copy as code").click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == 'WarpLoads(preset="shifted by 16 B", step=1)'
    assert eval(copied).sentence == sentence(page)
