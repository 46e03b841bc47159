"""The tour in a real JupyterLab, by mouse and keyboard, with a kernel that is idle, busy and dead."""

import pytest

from tests.browser.lab_page import open_notebook, run_all, run_code, use_theme, write_notebook
from tests.browser.watched_page import watched_page

CELLS = ["from widgets import Tour", "pg = Tour()\npg", "other = 1"]


@pytest.fixture(scope="module")
def opened(browser, jupyter_lab, request):
    """A notebook whose playground is on view; one for all tests, because a kernel takes its time to start."""
    with watched_page(browser, request) as page:
        write_notebook(jupyter_lab, "tour.ipynb", CELLS)
        open_notebook(page, jupyter_lab, "tour.ipynb")
        assert run_all(page) == []
        page.wait_for_selector(".nl-pic svg")
        yield page


@pytest.fixture
def lab(opened):
    """The page at the first preset."""
    run_code(opened, "pg.preset = 'first token'")
    opened.wait_for_function("document.querySelector('.nl-state').innerText.startsWith('prefill ')")
    return opened


def state(page):
    return page.locator(".nl-state").inner_text()


def last(page):
    return int(page.get_by_role("slider").get_attribute("max"))


def drag(page, stops=30):
    """Drag the scrubber's thumb from its place to the right end in many small moves."""
    page.get_by_role("slider").scroll_into_view_if_needed()
    box = page.get_by_role("slider").bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 6, y)
    page.mouse.down()
    for stop in range(stops + 1):
        page.mouse.move(box["x"] + 6 + (box["width"] - 12) * stop / stops, y)
    page.mouse.up()


def test_mouse_keyboard_and_python_move_the_same_state(lab):
    lab.get_by_role("radio", name="token 55").click()
    assert state(lab).startswith(f"step {last(lab)} · token 55 · page 3 → id 12 · slot 7 · bytes 50944–51199 · next")
    assert run_code(lab, "print(pg.preset, pg.step)") == f"token 55 {last(lab)}"
    lab.locator(".nl-pic").focus()
    lab.keyboard.press("ArrowLeft")
    assert run_code(lab, "print(repr(pg.preset), pg.step)") == f"'' {last(lab) - 1}"
    run_code(lab, "seen = []\npg.observe(lambda change: seen.append(change['new']), 'step')\npg.step = 40")
    lab.wait_for_function("document.querySelector('.nl-state').innerText.startsWith('step 40 ')")
    run_code(lab, "pg.preset = 'first token'")
    lab.wait_for_function("document.querySelector('.nl-state').innerText.startsWith('prefill ')")
    assert run_code(lab, "print(seen)") == "[40, 0]"


def test_the_notebook_s_shortcuts_stay_out(lab):
    cells = lab.locator(".jp-Cell").count()
    lab.locator(".nl-pic").focus()
    for key in ("a", "b", "x", "d", "d", "ArrowDown", "m", "Enter"):
        lab.keyboard.press(key)
    assert lab.locator(".jp-Cell").count() == cells
    assert lab.locator(".nl-pic").evaluate("figure => document.activeElement === figure")


def test_jupyterlab_s_own_button_styles_do_not_win(lab):
    style = "(element) => { const {borderRadius, height} = getComputedStyle(element); return [borderRadius, height]; }"
    assert lab.locator(".nl-chip").first.evaluate(style) == ["14px", "28px"]
    assert lab.locator(".nl-step").first.evaluate(style) == ["2px", "32px"]


def test_the_theme_changes_in_place_with_contrast_in_both(lab, low_contrast):
    lab.get_by_role("radio", name="48 → 49").click()
    lab.mouse.move(0, 0)
    before, colours = state(lab), []
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        use_theme(lab, theme)
        assert not low_contrast(lab), theme
        colours.append(lab.evaluate("getComputedStyle(document.querySelector('.nl-shell')).backgroundColor"))
    assert colours[0] != colours[1]
    assert state(lab) == before


def test_dragging_over_a_busy_kernel_sends_one_message_and_the_last_state_wins(lab):
    lab.evaluate("""() => {
        const {kernel} = window.jupyterapp.shell.currentWidget.sessionContext.session;
        window.sentMessages = 0;
        kernel.anyMessage.connect((_, {msg, direction}) => {
            if (direction === 'send' && msg.header.msg_type === 'comm_msg') window.sentMessages += 1;
        });
    }""")
    run_code(lab, "import time; time.sleep(4)", wait=False)
    drag(lab)
    assert state(lab).startswith(f"step {last(lab)} ")
    assert lab.evaluate("window.sentMessages") == 1
    lab.wait_for_function("window.sentMessages >= 2")
    assert run_code(lab, "print(pg.step)") == str(last(lab))
    assert lab.evaluate("window.sentMessages") == 2


def test_present_covers_jupyterlab_and_comes_back(lab):
    lab.get_by_role("button", name="Present").click()
    lab.wait_for_timeout(200)
    covered = lab.evaluate("document.elementFromPoint(5, 5).closest('.nl-stage') !== null")
    assert covered
    lab.keyboard.press("ArrowRight")
    assert state(lab).startswith(f"step {last(lab)} ")
    lab.keyboard.press("Escape")
    assert lab.locator(".jp-OutputArea .nl-shell").count() == 1
    assert lab.evaluate("document.activeElement.dataset.do") == "present"


def test_a_cell_that_is_run_again_shows_one_picture(lab):
    assert run_all(lab) == []
    lab.wait_for_selector(".nl-pic svg")
    assert lab.locator(".nl-shell").count() == 1
    assert lab.evaluate("document.querySelectorAll('.nl-stage, [inert]').length") == 0


def test_the_picture_goes_on_when_the_kernel_is_gone(lab):
    """The last test: the kernel does not come back."""
    lab.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    lab.wait_for_function("!window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel")
    drag(lab)
    assert state(lab).startswith(f"step {last(lab)} ")
    lab.get_by_role("radio", name="first token").click()
    assert state(lab).startswith("prefill ")
    lab.get_by_role("button", name="play").click()
    lab.wait_for_function("document.querySelector('.nl-state').innerText.startsWith('step 2 ')")
    # ipywidgets logs each message that it can't send any more; nothing else may be wrong
    lab.errors[:] = [error for error in lab.errors if "Could not send widget sync message" not in error]
