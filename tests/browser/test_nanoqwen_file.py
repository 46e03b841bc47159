"""The file map in a browser: zoomed by mouse and by keyboard, read in both themes and widths, with a real kernel."""

import pytest

from tests.browser.lab_page import open_notebook, run_all, run_code, write_notebook
from tests.browser.shell import outside_the_shell, sentence
from tools.static_page import NARROW, WIDE
from widgets import FileMap

GATE = "model.layers.0.mlp.gate_proj.weight"
PATH = {"section": GATE, "row": 21, "group": 1, "byte": 6}
PLACES = [
    *({**PATH, "level": level} for level in ("file", "section", "row", "group", "byte")),
    {"section": "model.layers.0.mlp.down_proj.scales", "row": 383, "group": 0, "level": "section"},
    {"section": "tokenizer", "row": 122689, "group": 0, "level": "section"},
    {"section": "model.norm.weight", "row": 5, "group": 0, "level": "section"},
    {"section": "header", "row": 14, "group": 0, "level": "section"},
    {"section": "header", "row": 0, "group": 0, "level": "file"},
]


@pytest.fixture(scope="module")
def file_map():
    return FileMap()


def state(page, *names):
    return page.evaluate("(names) => names.map((name) => model.get(name))", list(names))


def go(page, place):
    page.evaluate("(values) => model.set({preset: '', ...values})", place)


def focus(page):
    page.locator(".nl-pic").focus()


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_level_and_preset_can_be_read_and_nothing_jumps(show, low_contrast, file_map, light, width):
    page = show(file_map, light=light, width=width)
    heights = set()
    for name in file_map.presets:
        page.get_by_role("radio", name=name, exact=True).click()
        page.mouse.move(0, 0)
        assert not low_contrast(page), name
        heights.add(page.locator(".nl-shell").evaluate("shell => shell.offsetHeight"))
    for place in PLACES:
        go(page, place)
        assert not low_contrast(page), place
        heights.add(page.locator(".nl-shell").evaluate("shell => shell.offsetHeight"))
    assert len(heights) == 1


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_text_leaves_the_shell(show, file_map, width):
    page = show(file_map, width=width)
    for place in PLACES:
        go(page, place)
        assert not outside_the_shell(page), place


def test_keys_zoom_in_step_and_zoom_out(show, file_map):
    page = show(file_map)
    go(page, {**PATH, "level": "file"})
    focus(page)
    for level in ("section", "row", "group", "byte", "byte"):
        page.keyboard.press("Enter")
        assert state(page, "level") == [level]
    assert sentence(page).startswith("row 21 · group 1 · byte 6 = 0x4C · weight 137: 4 × scale = −0.1025 ·")
    page.keyboard.press("ArrowRight")
    assert state(page, "byte", "row") == [7, 21]
    page.keyboard.press("Backspace")
    page.keyboard.press("Home")
    assert state(page, "level", "byte") == ["group", 0]
    page.keyboard.press("Backspace")
    page.keyboard.press("End")
    assert state(page, "level", "group") == ["row", 2]
    page.keyboard.press("Backspace")
    page.keyboard.press("ArrowLeft")
    assert state(page, "level", "row") == ["section", 20]
    page.keyboard.press("Backspace")
    page.keyboard.press("ArrowRight")
    assert state(page, "level", "section") == ["file", GATE.replace("weight", "scales")]
    page.keyboard.press("Backspace")
    assert state(page, "level") == ["file"]


def test_the_way_from_a_part_of_the_header_leads_to_row_0(show, file_map):
    page = show(file_map)
    page.get_by_role("radio", name="padding").click()
    focus(page)
    for key in ("Backspace", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert sentence(page).startswith("model.embed_tokens.weight · row 0 ·")


def test_the_map_fits_into_a_notebook_of_a_small_screen(show, file_map):
    """JupyterLab leaves about 645 px of a window of 1366 × 768."""
    assert show(file_map).locator(".nl-shell").evaluate("shell => shell.offsetHeight") <= 640


def test_a_section_without_weights_opens_and_goes_no_deeper(show, file_map):
    page = show(file_map)
    page.get_by_role("radio", name="a whole step").click()
    focus(page)
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert state(page, "level", "preset") == ["section", ""]
    page.keyboard.press("End")
    assert sentence(page) == 'tokenizer · byte 122689 · byte 6,192,961 · page 1,511 · 0x7D "}"'


def click(page, title):
    """Click on the left end of the mark with this tooltip."""
    mark = page.locator("rect[data-set]", has=page.locator("title", has_text=title)).first
    mark.click(position={"x": 3, "y": 6})


def test_a_click_chooses_and_another_zooms_in(show, file_map):
    page = show(file_map)
    page.get_by_role("radio", name="row across two pages").click()
    click(page, "row 43")
    assert state(page, "level", "row", "preset") == ["section", 43, ""]
    click(page, "row 43")
    assert state(page, "level", "row") == ["row", 43]
    page.locator("svg text[data-set]", has_text="group 2").click()
    assert state(page, "level", "group") == ["row", 2]
    click(page, "group 2")
    assert state(page, "level", "group") == ["group", 2]
    click(page, "weight 260, byte 1")
    assert state(page, "level", "byte") == ["group", 1]
    click(page, "weight 260, byte 1")
    assert state(page, "level", "byte") == ["byte", 1]
    click(page, "layer 3: bytes")
    assert state(page, "level", "section") == ["file", "model.layers.3.input_layernorm.weight"]
    click(page, "layer 3: bytes")
    assert state(page, "level", "section") == ["section", "model.layers.3.input_layernorm.weight"]


def test_the_path_leads_out_and_in(show, file_map):
    page = show(file_map)
    page.get_by_role("radio", name="nibbles and scales").click()
    page.get_by_text("layer 0 mlp.gate_proj.weight", exact=True).click()
    assert state(page, "level", "row") == ["section", 5]
    page.get_by_text("byte 0", exact=True).click()
    assert state(page, "level") == ["byte"]
    page.get_by_text("file", exact=True).click()
    assert state(page, "level", "section") == ["file", GATE]


def test_the_scrubber_runs_along_the_siblings(show, file_map):
    page = show(file_map)
    page.get_by_role("radio", name="row across two pages").click()
    slider = page.get_by_role("slider")
    assert (slider.get_attribute("max"), slider.input_value()) == ("895", "21")
    slider.fill("42")
    assert state(page, "row", "preset") == [42, ""]
    assert "2 pages 286" not in sentence(page)
    assert sentence(page).endswith("2 pages 285–286")
    assert slider.get_attribute("aria-valuetext").replace("\u2007", "") == "row 42 of 0–895"


def test_play_walks_through_the_bytes(show, file_map):
    page = show(file_map)
    go(page, {**PATH, "level": "group", "byte": 60})
    page.get_by_role("button", name="play").click()
    page.wait_for_function("model.get('byte') === 63")
    page.get_by_role("button", name="play").wait_for()


def test_present_has_keys_for_presets_and_for_zooming(show, file_map):
    page = show(file_map)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("button", name="Present").click()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert state(page, "preset", "level") == ["row across two pages", "section"]
    page.keyboard.press("Enter")
    assert state(page, "preset", "level") == ["", "row"]
    page.keyboard.press("Backspace")
    assert state(page, "level") == ["section"]
    box = page.locator(".nl-shell").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 801
    page.keyboard.press("Escape")
    assert page.locator(".nl-stage").count() == 0


def test_copied_code_recreates_the_place(show, file_map):
    page = show(file_map)
    go(page, {**PATH, "level": "group"})
    page.get_by_role("button", name="Copy as code").click()
    page.get_by_role("button", name="Copied").wait_for()
    line = page.evaluate("navigator.clipboard.readText()")
    assert eval(line).place == FileMap(**PATH, level="group").place


def test_screen_readers_hear_the_keys_and_the_place(show, file_map):
    page = show(file_map)
    assert "Enter zooms in" in page.locator(".nl-pic").get_attribute("aria-label")
    assert sentence(page) in page.get_by_role("img").get_attribute("aria-label")


def test_a_redraw_is_faster_than_a_frame(show, file_map):
    """The best of five rounds at each level, because other programs may use the cores."""
    page = show(file_map)
    for place in PLACES[:5]:
        ms = page.evaluate(
            """(place) => Math.min(...[0, 1, 2, 3, 4].map((round) => {
                const start = performance.now();
                for (let at = 0; at < 10; at += 1) model.set({...place, preset: '', byte: 6 * round + at});
                return (performance.now() - start) / 10;
            }))""",
            place,
        )
        assert ms < 16, place["level"]


def test_a_kernel_sends_the_bytes_once_and_moves_the_map(lab_page, jupyter_lab):
    page = lab_page
    write_notebook(jupyter_lab, "map.ipynb", ["from widgets import FileMap", "pg = FileMap(); pg"])
    open_notebook(page, jupyter_lab, "map.ipynb")
    assert run_all(page) == []
    page.locator(".nl-pic svg").wait_for()
    assert sentence(page) == "header · header length · bytes 12–15 · page 0 · 16,626"
    run_code(page, f"pg.section = '{GATE}'; pg.row = 21; pg.group = 1; pg.byte = 6; pg.level = 'byte'")
    page.wait_for_function(
        "document.querySelector('.nl-state').innerText.startsWith('row 21 · group 1 · byte 6 = 0x4C')"
    )
    page.locator(".nl-pic").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(500)
    assert run_code(page, "print(pg.byte, pg.step, pg.level)") == "7 7 byte"
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    page.keyboard.press("End")
    page.wait_for_timeout(500)
    assert run_code(page, "print(pg.group, pg.step, pg.level)") == "2 2 row"
