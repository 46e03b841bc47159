"""What the base promises for every playground, seen in a browser without a kernel; the tour stands for all."""

import pytest

from tests.browser.shell import outside_the_shell, sentence
from tests.widgets.traces import made_up_trace
from tools.static_page import NARROW, WIDE
from widgets import Tour

LAST = 49


@pytest.fixture(scope="module")
def tour():
    return Tour(made_up_trace())


def step(page):
    return page.evaluate("model.get('step')")


def preset(page):
    return page.evaluate("model.get('preset')")


def focused(page):
    return page.evaluate(
        "document.activeElement.dataset.do ?? document.activeElement.dataset.preset ?? document.activeElement.type "
        "?? document.activeElement.className"
    )


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_all_text_has_contrast_and_size_at_every_preset(show, low_contrast, tour, light, width):
    page = show(tour, light=light, width=width)
    for name in tour.presets:
        page.get_by_role("radio", name=name, exact=True).click()
        page.mouse.move(0, 0)
        assert not low_contrast(page), name


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_nothing_jumps_in_height_over_all_steps_and_presets(show, tour, width):
    page = show(tour, width=width)
    height = page.evaluate("""() => {
        const shell = document.querySelector('.nl-shell');
        const seen = new Set([shell.offsetHeight]);
        for (let step = 0; step < model.get('_trace').steps.length; step += 1) {
            model.set({step, preset: ''});
            seen.add(shell.offsetHeight);
        }
        for (const preset of model.get('_spec').presets) {
            model.set({...preset.values, preset: preset.name});
            seen.add(shell.offsetHeight);
        }
        return [...seen];
    }""")
    assert len(height) == 1


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_text_leaves_the_shell(show, tour, width):
    page = show(tour, width=width)
    assert not outside_the_shell(page)


def test_the_mouse_reaches_presets_stepper_scrubber_and_slots(show, tour):
    page = show(tour)
    page.get_by_role("radio", name="token 55").click()
    assert (step(page), preset(page)) == (LAST, "token 55")
    assert sentence(page) == 'step 49 · token 55 · page 3 → id 12 · slot 7 · bytes 50944–51199 · next " b"'
    page.get_by_role("button", name="previous step").click()
    assert (step(page), preset(page)) == (LAST - 1, "")
    page.get_by_role("button", name="first step").click()
    assert step(page) == 0
    box = page.get_by_role("slider").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert 22 <= step(page) <= 27
    page.locator("rect[data-set]").nth(10).click()
    assert step(page) == 4


def test_tab_reaches_every_control_in_order(show, tour):
    page = show(tour)
    page.locator("body").click(position={"x": 1, "y": 1})
    seen = []
    for _ in range(11):
        page.keyboard.press("Tab")
        seen.append(focused(page))
    steps = ["first", "previous", "play", "next", "last"]
    assert seen[:10] == ["copy", "present", "first token", "nl-pic", *steps, "range"]


def test_the_focus_is_seen(show, tour):
    page = show(tour)
    page.locator("body").click(position={"x": 1, "y": 1})
    for _ in range(10):
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_keys_step_jump_and_play(show, tour):
    page = show(tour)
    page.locator(".nl-pic").focus()
    for key, expected in [("ArrowRight", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("End", LAST), ("Home", 0)]:
        page.keyboard.press(key)
        assert step(page) == expected, key
    page.keyboard.press("Space")
    page.wait_for_function("model.get('step') >= 2")
    assert page.get_by_role("button", name="pause").count() == 1
    page.keyboard.press("Space")
    assert page.get_by_role("button", name="play").count() == 1
    page.get_by_role("slider").focus()
    page.keyboard.press("End")
    assert step(page) == LAST
    page.keyboard.press("ArrowLeft")
    assert step(page) == LAST - 1


def test_arrows_in_the_presets_choose_the_next_and_move_the_focus(show, tour):
    page = show(tour)
    page.get_by_role("radio", name="first token").focus()
    page.keyboard.press("ArrowRight")
    assert (preset(page), focused(page)) == ("token 55", "token 55")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert preset(page) == "where bytes go"
    assert page.get_by_role("radio", name="where bytes go").get_attribute("aria-checked") == "true"


def test_play_shows_a_playhead_in_the_stages_and_ends_at_the_last_step(show, tour):
    page = show(tour)
    page.evaluate(f"model.set({{step: {LAST - 2}, preset: ''}})")
    page.get_by_role("button", name="play").click()
    page.wait_for_selector(".nl-moving line", state="attached")
    page.wait_for_function(f"model.get('step') === {LAST}")
    page.get_by_role("button", name="play").wait_for()
    assert page.locator(".nl-moving *").count() == 0


def test_reduced_motion_jumps_from_step_to_step(show, tour):
    page = show(tour)
    page.emulate_media(reduced_motion="reduce")
    page.evaluate("""() => {
        window.animated = 0;
        Element.prototype.animate = () => { window.animated += 1; };
        new MutationObserver(() => { window.animated += document.querySelectorAll('.nl-moving *').length; })
            .observe(document.querySelector('.nl-pic'), {childList: true, subtree: true});
    }""")
    page.get_by_role("button", name="play").click()
    page.wait_for_function("model.get('step') >= 2")
    page.get_by_role("button", name="next step").click()
    assert page.evaluate("window.animated") == 0
    assert page.evaluate("getComputedStyle(document.querySelector('.nl-btn')).transitionDuration") == "0s"


def test_a_step_glides_but_dragging_does_not(show, tour):
    page = show(tour)
    page.evaluate("() => { window.animated = 0; Element.prototype.animate = () => { window.animated += 1; }; }")
    page.get_by_role("slider").fill("20")
    assert page.evaluate("window.animated") == 0
    page.get_by_role("button", name="next step").click()
    assert page.evaluate("window.animated") > 0


def test_copy_as_code_copies_the_line_that_python_has(show, tour):
    page = show(tour)
    page.get_by_role("slider").fill("40")
    page.get_by_role("button", name="Copy as code").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "Tour(step=40)"
    page.get_by_role("button", name="Copy as code").wait_for()


def test_copy_says_when_it_failed(show, tour):
    page = show(tour)
    page.evaluate("""() => {
        Object.defineProperty(navigator, 'clipboard', {value: {writeText: () => Promise.reject(new Error('no'))}});
        document.execCommand = () => false;
    }""")
    page.get_by_role("button", name="Copy as code").click()
    page.get_by_role("button", name="Copy failed").wait_for()


def test_present_fills_the_window_steps_through_presets_and_returns_the_focus(show, tour):
    page = show(tour)
    place = page.locator(".nl-shell").bounding_box()
    page.get_by_role("button", name="Present").click()
    page.set_viewport_size({"width": 1600, "height": 1000})
    page.wait_for_timeout(100)
    box = page.locator(".nl-shell").bounding_box()
    assert box["width"] > 1300 or box["height"] > 940
    assert abs(box["x"] + box["width"] / 2 - 800) < 2
    assert page.get_by_role("dialog", name="From prompt to token").count() == 1
    page.keyboard.press("ArrowRight")
    assert preset(page) == "token 55"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert preset(page) == "where bytes go"
    page.get_by_role("slider").focus()
    page.keyboard.press("ArrowLeft")
    assert (preset(page), step(page)) == ("", LAST - 1)
    page.keyboard.press("Escape")
    assert focused(page) == "present"
    page.set_viewport_size({"width": 1100, "height": 1000})
    assert page.locator(".nl-shell").bounding_box() == place
    assert page.evaluate("document.querySelectorAll('[inert]').length") == 0


def test_colours_follow_the_theme_in_place(show, low_contrast, tour):
    page = show(tour)
    before = page.evaluate("getComputedStyle(document.querySelector('.nl-shell')).backgroundColor")
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    page.wait_for_timeout(200)
    assert page.evaluate("getComputedStyle(document.querySelector('.nl-shell')).backgroundColor") != before
    assert not low_contrast(page)


def test_hatching_belongs_to_its_own_playground(show, tour):
    page = show(tour)
    page.evaluate("void nanoqwenPlayground.render({model, el: document.getElementById('cell')})")
    fills = page.evaluate(
        "[...document.querySelectorAll('.nl')].map(root => getComputedStyle(root.querySelector('.hatch')).fill)"
    )
    assert len(set(fills)) == 2
    assert all(page.locator(fill.split('"')[1]).count() == 1 for fill in fills)


def test_two_views_of_one_object_stay_together(show, tour):
    page = show(tour)
    page.evaluate("void nanoqwenPlayground.render({model, el: document.getElementById('cell')})")
    page.get_by_role("slider").first.fill("30")
    assert page.get_by_role("slider").nth(1).input_value() == "30"


def test_a_closed_view_leaves_nothing_behind(show, tour):
    page = show(tour)
    page.get_by_role("button", name="Present").click()
    page.evaluate("closeView()")
    assert page.locator(".nl").count() == 0
    assert page.evaluate("[listeners.length, document.querySelectorAll('[inert]').length]") == [0, 0]


def test_screen_readers_get_roles_labels_and_a_live_sentence(show, tour):
    page = show(tour)
    assert page.get_by_role("region", name="From prompt to token").count() == 1
    assert page.get_by_role("radiogroup", name="preset").count() == 1
    assert page.get_by_role("status").inner_text() == sentence(page)
    assert page.get_by_role("status").get_attribute("aria-live") == "polite"
    page.get_by_role("slider").fill("3")
    assert page.get_by_role("slider").get_attribute("aria-valuetext") == "step 3 of 49"
    assert "step 3 · token 9" in page.get_by_role("img").get_attribute("aria-label")


def test_jupyterlab_s_shortcuts_are_suppressed_inside(show, tour):
    page = show(tour)
    page.evaluate("window.leaked = []; document.addEventListener('keydown', (event) => leaked.push(event.key))")
    page.locator(".nl-pic").focus()
    for key in ("a", "b", "x", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert page.evaluate("leaked") == []
    assert page.locator(".nl").get_attribute("data-lm-suppress-shortcuts") == "true"


def test_a_redraw_is_faster_than_a_frame(show, tour):
    """The best of five rounds, because other programs may use the cores."""
    page = show(tour)
    ms = page.evaluate("""() => Math.min(...[0, 1, 2, 3, 4].map((round) => {
        const start = performance.now();
        for (let step = 10 * round; step < 10 * round + 10; step += 1) model.set({step, preset: ''});
        return (performance.now() - start) / 10;
    }))""")
    assert ms < 16
