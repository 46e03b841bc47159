"""The page playground in a browser without a kernel: both themes, both widths, mouse and keyboard."""

import pytest

from tests.browser.lab_page import open_notebook, run_all, run_code, write_notebook
from tests.browser.shell import outside_the_shell, sentence
from tests.widgets.kv_data import BUSY, EIGHT
from tools.static_page import NARROW, WIDE
from widgets import KVPages

FIELDS = KVPages.fields


@pytest.fixture(scope="module")
def pages():
    return KVPages()


@pytest.fixture(scope="module")
def running():
    return KVPages(preset="running sequence")


def state(page):
    return {name: page.evaluate(f"model.get('{name}')") for name in FIELDS}


def engine(page):
    """The same state, replayed by the engine."""
    return KVPages(**{name: value for name, value in state(page).items() if name != "preset" or value})


def tool(page, name):
    return page.get_by_role("toolbar").get_by_role("button", name=name, exact=True)


def picture(page):
    return page.locator(".nl-pic").text_content()


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_preset_can_be_read_at_every_step_and_nothing_jumps(show, low_contrast, pages, light, width):
    page = show(pages, light=light, width=width)
    heights, histories = set(), [KVPages(preset=name) for name in pages.presets]
    for one in (*histories, KVPages(actions=BUSY), KVPages(actions=EIGHT)):
        values = {name: getattr(one, name) for name in FIELDS}
        for step in {0, one.step, one.step_count() - 3, one.step_count() - 1}:
            page.evaluate("values => model.set(values)", values | {"step": step})
            page.mouse.move(0, 0)
            assert not low_contrast(page), (one.preset, step)
            assert not outside_the_shell(page), (one.preset, step)
            heights.add(page.locator(".nl-shell").evaluate("shell => shell.offsetHeight"))
    assert len(heights) == 1


def test_buttons_act_without_a_kernel_and_leave_what_the_engine_leaves(show, pages):
    page = show(pages)
    page.get_by_role("radio", name="two forks at 20", exact=True).click()
    for name in (
        "Add token",
        "Fork",
        "Add 16",
        "New sequence",
        "Add token",
        "Evict oldest",
        "Truncate",
        "Free",
        "Free",
    ):
        tool(page, name).click()
        assert sentence(page) == engine(page).sentence, name
    assert "sequence: was freed already; make a new one" in picture(page)
    assert state(page)["actions"].startswith("new; append A 20; fork A; append B; fork B; append C 16; new; append D; ")
    tool(page, "Undo").click()
    assert "was freed already" not in picture(page)
    assert page.evaluate("window.saved.length") > 9


def test_a_full_pool_refuses_in_the_engine_s_words_and_changes_nothing_else(show, pages):
    page = show(pages)
    page.get_by_role("radio", name="full pool", exact=True).click()
    tool(page, "Add token").click()
    before = page.locator(".nl-pic").inner_text()
    assert "refused" not in before
    tool(page, "Add token").click()
    words = engine(page).scene.frame.error
    assert words.startswith("page pool: 1 page needed")
    assert words in picture(page)
    assert sentence(page) == f"append D · refused: {words}"


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_click_on_a_slot_of_the_lens_and_of_the_pool_chooses_it(show, running, width):
    page = show(running, width=width)
    spots = page.locator(".nl-pic rect.hit")
    titles = spots.locator("title")
    words = "A · token 53 · page 3 → id 12 · slot 5 · bytes 50432–50687"
    found = [at for at, title in enumerate(titles.all_text_contents()) if title == words]
    assert len(found) == 2  # in the pool and under the lens
    for at in found:
        page.evaluate("model.set({token: 48})")
        spots.nth(at).click()
        assert sentence(page) == words
    tool(page, "Truncate").click()
    assert state(page)["actions"] == "new; append A 56; truncate A 53"


def test_a_click_on_a_row_and_on_a_cell_chooses_sequence_and_page(show, pages):
    page = show(pages)
    page.get_by_role("radio", name="shared prefix of 40", exact=True).click()
    page.locator("rect.hit", has=page.locator("title", has_text="choose B")).click()
    assert sentence(page).startswith("B · token 39 · page 2 → id 2 ")
    page.locator("rect.hit", has=page.locator("title", has_text="page 1 of C")).click()
    assert sentence(page).startswith("C · token 16 · page 1 → id 9 · slot 0 ")
    page.locator("rect.hit", has=page.locator("title", has_text="id 5: page 0 of A, B, C, D")).click(
        position={"x": 10, "y": 20}
    )
    assert sentence(page).startswith("C · token 0 · page 0 → id 5 · slot 0 ")


def test_all_of_it_by_keyboard(show, pages):
    page = show(pages)
    page.get_by_role("radio", name="running sequence", exact=True).click()
    page.locator(".nl-pic").focus()
    for keys, begins in [
        ("a", "A · token 56 ·"), ("p", "A · token 72 · page 4 → id 7 · slot 8 ·"), ("f", "B · token 72 ·"),
        ("a", "B · token 73 · page 4 → id 0 ·"), ("ArrowUp", "A · token 72 ·"), (",", "A · token 71 ·"),
        ("PageUp", "A · token 55 · page 3 → id 12 ·"), (".", "A · token 56 ·"), ("t", "A · token 55 ·"),
        ("n", "C · no token yet ·"), ("ArrowUp", "B · token 73 ·"), ("x", "B · freed ·"), ("e", "B · freed ·"),
        ("u", "B · freed ·"), ("u", "B · token 73 ·"),
    ]:  # fmt: skip
        page.keyboard.press(keys)
        assert sentence(page).startswith(begins), keys
        assert sentence(page) == engine(page).sentence
    page.keyboard.press("ArrowLeft")
    assert state(page)["step"] == 8 - 1
    page.keyboard.press("Home")
    assert sentence(page).endswith("16 of 16 ids free")
    page.keyboard.press("End")
    assert state(page)["step"] == len(state(page)["actions"].split("; "))


def test_tab_reaches_every_button_and_enter_presses_it(show, running):
    page = show(running)
    page.locator(".nl-pic").focus()
    for name in ("New sequence", "Add token", "Add 16", "Fork"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.querySelector('span').textContent") == name
    page.keyboard.press("Enter")
    page.keyboard.press("a")  # letters go on working there, and the button keeps the focus
    assert state(page)["actions"] == "new; append A 56; fork A; append B"
    assert page.evaluate("document.activeElement.querySelector('span').textContent") == "Fork"


def test_a_button_that_cannot_act_says_why_and_does_nothing(show, running):
    page = show(running)
    page.evaluate("model.set({actions: '', step: 0})")
    button = tool(page, "Add token")
    assert button.get_attribute("aria-disabled") == "true"
    assert button.get_attribute("title") == "make a sequence first"
    button.click(force=True)
    assert state(page)["actions"] == ""
    tool(page, "New sequence").click()
    assert button.get_attribute("aria-disabled") == "false"


def test_play_replays_the_history_and_an_earlier_action_gives_up_the_rest(show, pages):
    page = show(pages)
    page.get_by_role("radio", name="shared prefix of 40", exact=True).click()
    page.get_by_role("button", name="first step").click()
    page.get_by_role("button", name="play", exact=True).click()
    page.wait_for_function("model.get('step') === 3", timeout=8000)
    tool(page, "Add token").click()
    assert state(page)["actions"] == "new; append A 40; fork A; append B"
    page.wait_for_timeout(900)
    assert state(page)["step"] == 4


def test_the_copied_line_recreates_the_history(show, pages):
    page = show(pages)
    page.get_by_role("radio", name="two forks at 20", exact=True).click()
    tool(page, "Add 16").click()
    page.get_by_role("button", name="Copy as code").click()
    page.get_by_role("button", name="Copied").wait_for()
    line = page.evaluate("navigator.clipboard.readText()")
    assert line == engine(page).code
    assert eval(line).sentence == sentence(page)


def test_present_goes_through_the_presets_and_keeps_the_letters(show, pages):
    page = show(pages)
    page.get_by_role("button", name="Present").click()
    page.keyboard.press("ArrowRight")
    assert state(page)["preset"] == "running sequence"
    page.keyboard.press("a")
    assert sentence(page).startswith("A · token 56 ·")
    page.keyboard.press("Escape")


def test_in_jupyterlab_a_click_reaches_python_and_goes_on_when_the_kernel_is_dead(lab_page, jupyter_lab):
    page = lab_page
    write_notebook(jupyter_lab, "pages.ipynb", ["from widgets import KVPages", "pg = KVPages()\npg"])
    open_notebook(page, jupyter_lab, "pages.ipynb")
    assert run_all(page) == []
    page.wait_for_selector(".nl-pic svg")
    page.get_by_role("radio", name="two forks at 20", exact=True).click()
    tool(page, "Add token").click()
    page.locator(".nl-pic").focus()
    page.keyboard.press("f")
    shown = sentence(page)
    assert shown.startswith("C · token 20 ·")
    page.wait_for_timeout(500)
    assert run_code(page, "print(pg.sentence)") == shown
    assert run_code(page, "print(pg.actions)") == "new; append A 20; fork A; append B; fork B"
    run_code(page, 'pg.actions = "new; append A 33"\npg.token = 17')
    page.wait_for_function("document.querySelector('.nl-state').innerText.startsWith('A · token 17 ')")
    page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel")
    tool(page, "Fork").click()
    assert sentence(page).startswith("B · token 32 ·")
    # ipywidgets logs each message that it can't send any more; nothing else may be wrong
    page.errors[:] = [error for error in page.errors if "Could not send widget sync message" not in error]
