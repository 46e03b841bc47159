"""One group in a browser without a kernel: read in both themes, dragged by mouse, used by keyboard, at both widths."""

import pytest

from tests.browser.lab_page import open_notebook, run_all, run_code, write_notebook
from tests.browser.shell import outside_the_shell, sentence
from tools.static_page import NARROW, WIDE
from widgets import OneGroup

STEPS = (0, 5, 40, 79, 100)


@pytest.fixture(scope="module")
def group():
    return OneGroup()


def state(page, name):
    return page.evaluate(f"model.get('{name}')")


def saved(page):
    return page.evaluate("window.saved.length")


def box(page, handle, at=0):
    """Where a handle is, in one call: while the picture plays, every frame has new handles."""
    script = "([handle, at]) => document.querySelectorAll(`[data-drag=${handle}]`)[at].getBoundingClientRect().toJSON()"
    return page.evaluate(script, [handle, at])


def middle(area):
    return area["x"] + area["width"] / 2, area["y"] + area["height"] / 2


def press(page, handle, at=0, dx=0, dy=0):
    """Put the mouse down on a handle, dx and dy off its middle; the place."""
    x, y = middle(box(page, handle, at))
    page.mouse.move(x + dx, y + dy)
    page.mouse.down()
    return x + dx, y + dy


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_scene_can_be_read_at_every_clip_and_nothing_jumps(show, low_contrast, group, light, width):
    page = show(group, light=light, width=width)
    heights = set()
    for name in group.presets:
        page.get_by_role("radio", name=name, exact=True).click()
        page.mouse.move(0, 0)
        for step in STEPS:
            page.evaluate(f"model.set({{step: {step}, weight: {127 - step}}})")
            assert not low_contrast(page), (name, step)
            heights.add(page.locator(".nl-shell").evaluate("shell => shell.offsetHeight"))
    assert len(heights) == 1


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_line_is_dragged_up_and_down_and_keeps_the_scene(show, group, width):
    page = show(group, width=width)
    page.evaluate("() => { window.animated = 0; Element.prototype.animate = () => { window.animated += 1; }; }")
    x, y = press(page, "clip", at=1)
    assert state(page, "step") == 100
    seen = []
    for down in range(0, 61, 5):
        page.mouse.move(x, y + down)
        seen.append(state(page, "step"))
    assert seen == sorted(seen, reverse=True)
    assert 25 <= seen[-1] <= 35  # 87.5 px are the whole way to 0
    assert len(set(seen)) > 10
    page.mouse.move(x, y + 20)
    page.mouse.up()
    assert state(page, "step") == seen[4]
    assert sentence(page).startswith(f"clip {seen[4] / 100:.2f} × max · scale 0.0")
    assert state(page, "preset") == "running group"
    assert page.evaluate("window.animated") == 0
    page.mouse.move(x, y + 50)
    assert state(page, "step") == seen[4]


def test_pressing_beside_the_line_s_middle_moves_nothing(show, group):
    page = show(group)
    page.evaluate("model.set({step: 60})")
    before = saved(page)
    press(page, "clip", dy=5)
    page.mouse.up()
    assert (state(page, "step"), saved(page)) == (60, before)


def test_dragging_goes_on_outside_the_picture_and_stops_at_the_ends(show, group):
    page = show(group)
    x, _ = press(page, "clip", at=1)
    page.mouse.move(x + 100, 990)
    assert state(page, "step") == 0
    assert sentence(page).startswith("clip 0.00 × max · scale 0 (0x0000) · error 100.0 %")
    page.mouse.move(x, 1)
    assert state(page, "step") == 100
    page.mouse.up()


def test_a_message_is_sent_for_a_new_state_only(show, group):
    page = show(group)
    x, y = press(page, "curve")
    sent = saved(page)
    for _ in range(5):
        page.mouse.move(x, y + 1)
        page.mouse.move(x, y)
    assert saved(page) == sent
    page.mouse.move(x + 30, y)
    assert saved(page) == sent + 1
    page.mouse.up()


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_curve_is_pressed_and_dragged(show, group, width):
    page = show(group, width=width)
    area = box(page, "curve")
    y = area["y"] + 20
    for part in (0.25, 0.5, 0.87):
        page.mouse.move(area["x"] + 8 + part * (area["width"] - 16), y)
        page.mouse.down()
        assert abs(state(page, "step") - 100 * part) <= 1
    page.mouse.move(area["x"] - 40, y)
    assert state(page, "step") == 0
    page.mouse.up()


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_press_on_a_column_chooses_its_weight_and_a_drag_goes_through_them(show, group, width):
    page = show(group, width=width)
    area = box(page, "weight")
    column = area["width"] / 128
    y = area["y"] + area["height"] - 30
    page.mouse.move(area["x"] + 17.5 * column, y)
    page.mouse.down()
    assert state(page, "weight") == 17
    assert sentence(page).endswith("weight 17: code 0")
    page.mouse.move(area["x"] + 40.5 * column, y)
    assert state(page, "weight") == 40
    page.mouse.up()
    assert state(page, "step") == 100


def test_the_other_mouse_button_drags_nothing(show, group):
    page = show(group)
    x, y = middle(box(page, "curve"))
    page.mouse.move(x, y)
    page.mouse.down(button="right")
    page.mouse.move(x - 30, y)
    page.mouse.up(button="right")
    assert state(page, "step") == 100


def test_keys_move_the_clip_and_choose_a_weight(show, group):
    page = show(group)
    page.locator(".nl-pic").focus()
    for key, name, expected in [
        ("ArrowDown", "step", 99), ("ArrowDown", "step", 98), ("ArrowUp", "step", 99), ("Home", "step", 0),
        ("End", "step", 100), ("ArrowLeft", "weight", 23), ("ArrowRight", "weight", 24), ("ArrowRight", "weight", 25),
    ]:  # fmt: skip
        page.keyboard.press(key)
        assert state(page, name) == expected, key
    assert sentence(page).endswith("weight 25: code −4")
    page.get_by_role("slider").focus()
    page.keyboard.press("ArrowLeft")
    assert (state(page, "step"), state(page, "weight")) == (99, 25)
    page.get_by_role("radio", name="tiny", exact=True).click()
    assert (state(page, "step"), state(page, "weight")) == (100, 24)


def test_after_a_drag_the_keys_go_on_from_there(show, group):
    page = show(group)
    x, y = press(page, "clip", at=1)
    page.mouse.move(x, y + 30)
    page.mouse.up()
    step = state(page, "step")
    page.keyboard.press("ArrowDown")
    assert state(page, "step") == step - 1


def test_the_picture_says_which_keys_it_takes(show, group):
    page = show(group)
    assert page.get_by_label("left and right choose a weight").count() == 1


def test_the_copied_line_holds_scene_clip_and_weight(show, group):
    page = show(group)
    page.evaluate("model.set({preset: 'outlier', step: 12, weight: 99})")
    page.get_by_role("button", name="Copy as code").click()
    page.get_by_role("button", name="Copied").wait_for()
    line = page.evaluate("navigator.clipboard.readText()")
    assert line == OneGroup(preset="outlier", step=12, weight=99).code
    assert eval(line).sentence == sentence(page)


def test_the_line_is_dragged_in_present_too(show, group):
    page = show(group)
    page.set_viewport_size({"width": 1700, "height": 1400})
    page.get_by_role("button", name="Present").click()
    page.wait_for_timeout(200)
    scale = box(page, "clip", at=1)["width"] / 92
    assert scale > 1.3
    x, y = press(page, "clip", at=1)
    page.mouse.move(x, y + 0.5 * 87.5 * scale)
    page.mouse.up()
    assert abs(state(page, "step") - 50) <= 1
    page.keyboard.press("ArrowRight")
    assert (state(page, "preset"), state(page, "step")) == ("signed extreme", 100)


def test_play_passes_through_all_clips_in_seconds_and_a_press_ends_it(show, group):
    page = show(group)
    page.locator(".nl-pic").focus()
    page.keyboard.press("Space")
    page.wait_for_function("model.get('step') >= 30 && model.get('step') < 100", timeout=8000)
    press(page, "weight", dy=40)
    page.mouse.up()
    step = state(page, "step")
    page.wait_for_timeout(400)
    assert state(page, "step") == step


def test_huge_is_refused_in_the_picture_and_fits_one_step_down(show, group):
    page = show(group)
    page.get_by_role("radio", name="huge", exact=True).click()
    words = "refused: largest weight 460000: its scale is over 65504, the largest fp16 number"  # in rows
    assert words.replace(" ", "") in page.locator(".nl-pic").text_content().replace(" ", "")
    page.locator(".nl-pic").focus()
    page.keyboard.press("ArrowDown")
    assert "refused: largest" not in page.locator(".nl-pic").text_content()
    assert "scale 65056 (0x7BF1)" in sentence(page)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_text_leaves_the_shell(show, group, width):
    page = show(group, width=width)
    for name in group.presets:
        page.evaluate(f"model.set({{preset: '{name}', step: 5, weight: 127}})")
        assert not outside_the_shell(page), name


def test_in_jupyterlab_a_drag_moves_python_s_state_and_selects_no_text(lab_page, jupyter_lab):
    page = lab_page
    write_notebook(jupyter_lab, "group.ipynb", ["from widgets import OneGroup", "pg = OneGroup()\npg"])
    open_notebook(page, jupyter_lab, "group.ipynb")
    assert run_all(page) == []
    page.wait_for_selector(".nl-pic svg")
    x, y = press(page, "clip", at=1)
    for down in range(0, 41, 4):
        page.mouse.move(x - down, y + down)
    page.mouse.up()
    shown = sentence(page)
    assert shown.startswith(("clip 0.5", "clip 0.6"))
    page.wait_for_timeout(500)
    assert run_code(page, "print(pg.sentence)") == shown
    assert run_code(page, "print(pg.preset)") == "running group"
    assert page.evaluate("String(getSelection())") == ""
    run_code(page, "pg.weight = 3\npg.step = 79")
    page.wait_for_function("document.querySelector('.nl-state').innerText.startsWith('clip 0.79 ')")
    assert sentence(page).split(" · ")[-1].startswith("weight 3: ")
