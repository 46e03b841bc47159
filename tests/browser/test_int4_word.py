"""The word in a browser: read in both themes and widths, by mouse and by keyboard, and set from a kernel."""

import pytest

from tests.browser.lab_page import open_notebook, run_all, run_code, write_notebook
from tests.browser.shell import sentence
from tools.static_page import NARROW, WIDE
from widgets import WordUnpack


@pytest.fixture(scope="module")
def word():
    return WordUnpack()


def shows(page, text):
    return text in page.locator(".nl-pic").text_content()


def go_to(page, method, step):
    page.evaluate(f"model.set({{method: '{method}', step: {step}, preset: ''}})")


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_preset_and_kind_of_step_can_be_read(show, low_contrast, word, light, width):
    page = show(word, light=light, width=width)
    for name in word.presets:
        page.get_by_role("radio", name=name, exact=True).click()
        page.mouse.move(0, 0)
        assert not low_contrast(page), name
    for method, step in [
        ("shift_mask", 3),
        ("shift_mask", 34),
        ("lop3", 7),
        ("prmt", 3),
        ("prmt", 6),
        ("prmt_bit3", 14),
    ]:
        go_to(page, method, step)
        assert not low_contrast(page), (method, step)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_nothing_jumps_and_nothing_leaves_the_shell_at_any_step_of_any_method(show, word, width):
    page = show(word, width=width)
    heights, outside = page.evaluate("""() => {
        const shell = document.querySelector('.nl-shell');
        const box = shell.getBoundingClientRect();
        const [heights, outside] = [new Set(), new Set()];
        const look = () => {
            heights.add(shell.offsetHeight);
            shell.querySelectorAll('*').forEach((element) => {
                const own = element.getBoundingClientRect();
                const inside = own.left > box.left - 1 && own.right < box.right + 1;
                if (own.width && !inside) outside.add(element.outerHTML.slice(0, 80));
            });
        };
        for (const preset of model.get('_spec').presets) {
            model.set({...preset.values, preset: preset.name});
            look();
        }
        for (const [method, {steps}] of Object.entries(model.get('_trace').methods)) {
            for (let step = 0; step < steps.length; step += 1) {
                model.set({method, step, preset: ''});
                look();
            }
        }
        return [[...heights], [...outside]];
    }""")
    assert len(heights) == 1
    assert not outside


@pytest.mark.parametrize(("width", "most"), [(WIDE, 640), (NARROW, 760)])
def test_the_shell_fits_into_a_notebook_on_a_small_screen_and_the_presets_into_their_rows(show, word, width, most):
    page = show(word, width=width)
    assert page.locator(".nl-shell").bounding_box()["height"] <= most
    rows = {chip.bounding_box()["y"] for chip in page.get_by_role("radio").all()}
    assert len(rows) == (1 if width == WIDE else 2)
    assert page.locator(".nl-ask").bounding_box()["height"] == (20 if width == WIDE else 40)


def test_mouse_chooses_presets_steps_and_jumps_to_the_instruction_that_finishes_a_weight(show, word):
    page = show(word)
    page.get_by_role("radio", name="lop3: unshifted pair").click()
    assert sentence(page) == "lop3, 2 of 9 · 0xF4B7AD81 & 0x00F000F0 | 0x64006400 = 0x64B06480 · w2 1152, w3 1200"
    page.get_by_role("button", name="next step").click()
    assert sentence(page) == "lop3, 3 of 9 · 0xF4B7AD81 >> 8 = 0x00F4B7AD"
    page.locator("rect[data-set]").nth(2).click()  # w2
    assert sentence(page) == "lop3, 7 of 9 · 0x64B06480 × 1/16 − 72 = 0x42000000 · w2 0, w3 3"
    assert page.evaluate("[model.get('preset'), model.get('step')]") == ["lop3: unshifted pair", 7]
    page.get_by_role("radio", name="mistake: bit 3 left in").click()
    page.get_by_role("button", name="last step").click()
    assert sentence(page).endswith("4 of 8 right · 14 / 8 = 1.75 a weight")
    assert shows(page, "✕ 4 wrong")


def test_keys_go_through_the_instructions_and_the_count_keeps_its_width(show, word):
    page = show(word)
    page.locator(".nl-pic").focus()
    assert sentence(page).startswith("shift_mask, 0 of 34 · linear 0xFA4DB871")
    track = page.locator(".nl-scrub")
    width = track.bounding_box()["width"]
    for key, start in [
        ("ArrowRight", "shift_mask, 1 of 34"),
        ("End", "shift_mask, 34 of 34"),
        ("ArrowLeft", "shift_mask, 33 of 34"),
    ]:
        page.keyboard.press(key)
        assert sentence(page).startswith(start)
        assert abs(track.bounding_box()["width"] - width) < 0.5
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    page.wait_for_function("model.get('step') >= 2")
    page.keyboard.press("Space")
    page.get_by_role("radio", name="two orders").focus()
    for name in ("lop3: unshifted pair", "lop3: shifted by 8", "prmt"):
        page.keyboard.press("ArrowRight")
        assert page.evaluate("model.get('preset')") == name
    assert shows(page, "prmt.b32 negative, 0xc5c6c7c8, 0xbcc0c2c4, select")


def test_the_mask_s_band_glides_to_the_next_mask(show, word):
    page = show(word)
    go_to(page, "lop3", 1)
    page.evaluate(
        "() => { window.glided = []; Element.prototype.animate = function () { glided.push(this.dataset.key); }; }"
    )
    page.get_by_role("button", name="next step").click()
    assert page.evaluate("glided") == ["band 0", "band 1"]


def test_the_copied_code_recreates_word_method_and_step(show, word):
    page = show(word)
    page.get_by_role("radio", name="prmt").click()
    page.get_by_role("button", name="next step").click()
    page.get_by_role("button", name="Copy as code").click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == 'WordUnpack(preset="prmt", word="0xFA4DB871", step=5)'
    assert eval(copied, {"WordUnpack": WordUnpack}).sentence == sentence(page)


def test_a_word_from_python_is_drawn_when_it_comes(show, word):
    page = show(word)
    page.get_by_role("radio", name="lop3: shifted by 8").click()
    other = WordUnpack(word=0x12345678)
    page.evaluate("([word, trace]) => model.set({word, _trace: trace})", [other.word, other._trace])
    other.preset = "lop3: shifted by 8"
    assert sentence(page) == other.sentence
    assert shows(page, "fp16 1028 = 1024 + 4")


@pytest.mark.parametrize("light", [True, False])
def test_presenting_keeps_the_picture_whole(show, low_contrast, word, light):
    page = show(word, light=light)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("button", name="Present").click()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("model.get('preset')") == "lop3: unshifted pair"
    page.wait_for_timeout(200)
    box = page.locator(".nl-shell").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 800
    assert not low_contrast(page)


def test_a_learner_s_word_and_method_reach_the_picture_from_the_kernel(lab_page, jupyter_lab):
    page = lab_page
    write_notebook(jupyter_lab, "word.ipynb", ["from widgets import WordUnpack", "pg = WordUnpack()\npg", "other = 1"])
    open_notebook(page, jupyter_lab, "word.ipynb")
    assert run_all(page) == []
    page.wait_for_selector(".nl-pic svg")
    page.get_by_role("radio", name="lop3: unshifted pair").click()
    run_code(page, "pg.word = 0x12345678")
    page.wait_for_function("document.querySelector('.nl-state').innerText.endsWith('w2 1120, w3 1104')")
    assert run_code(page, "print(pg.preset, pg.step, pg.word)") == "lop3: unshifted pair 2 0x12345678"
    run_code(page, "pg.codes = [7] * 8\npg.method = 'prmt'\npg.step = 15")
    page.wait_for_function("document.querySelector('.nl-state').innerText.includes('8 of 8 right')")
    assert page.get_by_role("radio", checked=True).count() == 0
    assert run_code(page, "print(repr(pg).splitlines()[0])") == sentence(page)
    assert run_code(page, "pg.word = 1 << 32").startswith("TraitError: word is 4294967296, expected 32 bits")
