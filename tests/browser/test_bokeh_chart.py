"""A Bokeh chart in a real JupyterLab: seen, hovered, stepped through, zoomed, in both themes, without a kernel too."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.browser.lab_page import open_notebook, run_all, run_code, use_theme, write_notebook
from tests.browser.watched_page import watched_page

CHART = """
from widgets.bokeh_chart import BokehChart
from widgets.chart_data import Axis, Chart, Reference, Series
from widgets.playground import Badge
from widgets.still import Words

words = Words("Waste", "Where is it largest?", "2 series", Badge("computed", "made up"))
pages = Series("pages", (1.0, 2.0, 4.0), (10.0, 20.0, 40.0), "path", ("a", "b", "c"), fields={"ms": ("5", "6", "7")})
plain = Series("plain", (1.0, 3.0), (35.0, 30.0))
chart = BokehChart(Chart(words, Axis("size"), Axis("waste, %"), (pages, plain), (Reference("limit", 45.0),)))
chart
"""
BARS = """
small = Series("small", ("8", "16"), (3.0, 5.0), "bars")
BokehChart(Chart(words, Axis("page", categories=("8", "16")), Axis("waste, %"), (small,)))
"""
WIDTHS = (
    "from widgets.charts import error_bars\nerror_bars('t', 'ask', [1.0])",
    "from widgets.evidence import Table\ntable = Table('t', ('a',), (('1',),), Badge('computed', 'made up'))\ntable",
    "from widgets.live_table import LiveTable\nLiveTable(table, 't')",
    "from lab_engine.checks import exercises\nexercises('01_int4')['pack_words'].check(lambda q, layout: q)",
)
WITHOUT_TABLES = """document.querySelectorAll('style').forEach((style) => {
    if (style.textContent.includes('.nl-card p.t')) style.remove();
})"""
COLOURS = {True: ("#b97e00", "#008a64"), False: ("#e69f00", "#1fb58a")}
HELPERS = """() => {
    window.plots = () => Bokeh.index.roots.filter(view => view.model.type === 'Figure');
    window.plot = (chart) => plots().find(view => document.querySelectorAll('.nl-chart')[chart].contains(view.el));
    window.marks = (chart, renderer) => {
        const {data} = plot(chart).model.renderers[renderer].data_source;
        const {left, top} = plot(chart).canvas.events_el.getBoundingClientRect();
        const {x_scale, y_scale} = plot(chart).frame;
        return Array.from(data.x, (x, at) => [left + x_scale.compute(x), top + y_scale.compute(data.y[at])]);
    };
    window.inks = () => [...plot(0).model.references()].flatMap(model => (model.tags ?? [])
        .filter(([name]) => name.includes('text')).map(([name]) => model[name].value ?? model[name]));
    window.shown = () => plot(0).model.x_range.end - plot(0).model.x_range.start;
    window.focused = () => {
        let element = document.activeElement;
        while (element.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
        return element.title;
    };
}"""


@pytest.fixture(scope="module")
def opened(browser, jupyter_lab, request):
    with watched_page(browser, request) as page:
        write_notebook(jupyter_lab, "charts.ipynb", [CHART, BARS])
        open_notebook(page, jupyter_lab, "charts.ipynb")
        assert run_all(page) == []
        page.locator(".nl-chart >> nth=1 >> canvas").first.wait_for()
        page.evaluate(HELPERS)
        yield page


@pytest.fixture
def lab(opened):
    """The page with the first chart in view and nothing focused or hovered."""
    repaint(opened, "JupyterLab Light")
    opened.evaluate("document.activeElement.blur()")
    opened.mouse.move(2, 2)
    opened.locator(".nl-shell").first.scroll_into_view_if_needed()
    opened.wait_for_timeout(200)
    return opened


def repaint(page, theme):
    """Switch the theme and leave Bokeh the time to paint its canvas."""
    use_theme(page, theme)
    page.wait_for_timeout(400)


def places(page, chart=0, renderer=1):
    """Where the marks of a renderer lie in the window, in px."""
    return page.evaluate("([chart, renderer]) => marks(chart, renderer)", [chart, renderer])


def tooltips(page):
    return page.locator(".bk-tooltip-content").all_inner_texts()


def pixel(page, x, y):
    image = Image.open(io.BytesIO(page.screenshot(clip={"x": x - 1, "y": y - 1, "width": 3, "height": 3})))
    return "#" + "".join(f"{int(part):02x}" for part in np.array(image)[1, 1, :3])


def luminance(colour):
    parts = [float(part) / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def parsed(colour, below=(0, 0, 0)):
    """#rrggbb or rgb(a) as three numbers over what lies below."""
    if colour.startswith("#"):
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        return [int(digits[at : at + 2], 16) for at in (0, 2, 4)]
    *rgb, alpha = [float(part) for part in [*colour[colour.index("(") + 1 : -1].split(","), "1"][:4]]
    return [alpha * one + (1 - alpha) * other for one, other in zip(rgb, below, strict=True)]


def contrast(ink, paper):
    paper = parsed(paper)
    high, low = sorted((luminance(parsed(ink, paper)), luminance(paper)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_tables_live_tables_stills_verdicts_and_charts_have_one_width_and_a_badge_looks_alike(
    browser, jupyter_lab, request
):
    with watched_page(browser, request) as page:
        write_notebook(jupyter_lab, "widths.ipynb", [CHART, *WIDTHS])
        open_notebook(page, jupyter_lab, "widths.ipynb")
        assert run_all(page) == []
        page.locator(".nl-verdict").wait_for()
        page.locator(".nl-card >> nth=1").wait_for()
        boxes = [part.bounding_box() for part in page.locator(".nl-shell, .nl-card, .nl-verdict").all()]
        assert len(boxes) == 5
        assert len({(box["x"], box["width"]) for box in boxes}) == 1
        look = "all => all.map(one => { const {font, color} = getComputedStyle(one); return font + color; })"
        with_table = page.locator(".nl-source").evaluate_all(look)
        page.evaluate(WITHOUT_TABLES)
        assert page.locator(".nl-shell .nl-source").evaluate_all(look) == with_table[:2]
        assert len(set(with_table)) == 1


def test_hovering_a_point_shows_its_numbers(lab):
    x, y = places(lab)[1]
    lab.mouse.move(x, y)
    lab.locator(".bk-Tooltip").wait_for()
    assert [text.split("\n") for text in tooltips(lab)] == [["pages · b", "size: 2", "waste, %: 20", "ms: 6"]]
    lab.mouse.move(2, 2)
    lab.locator(".bk-Tooltip").wait_for(state="detached")


def test_hovering_a_bar_shows_its_numbers(lab):
    lab.locator(".nl-shell").nth(1).scroll_into_view_if_needed()
    x, y = places(lab, chart=1, renderer=0)[1]
    lab.mouse.move(x, y + 20)
    lab.locator(".bk-Tooltip").wait_for()
    assert tooltips(lab) == ["small\npage: 16\nwaste, %: 5"]


def test_the_chart_follows_the_theme_in_place(lab, low_contrast):
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        repaint(lab, theme)
        light = "Light" in theme
        assert [pixel(lab, *places(lab, renderer=at)[0]) for at in (1, 2)] == list(COLOURS[light])
        colours = lab.evaluate("inks()")
        paper = lab.locator(".nl-shell").first.evaluate("shell => getComputedStyle(shell).backgroundColor")
        assert len(colours) >= 5
        assert all(contrast(colour, paper) >= 4.5 for colour in colours)
        assert not low_contrast(lab)


def test_the_hover_text_can_be_read_in_both_themes(lab):
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        repaint(lab, theme)
        lab.mouse.move(*places(lab)[2])
        lab.locator(".bk-Tooltip").wait_for()
        tip = "tip => { const style = getComputedStyle(tip); return [style.color, style.backgroundColor]; }"
        ink, paper = lab.locator(".bk-Tooltip").evaluate(tip)
        assert contrast(ink, paper) >= 4.5
        lab.mouse.move(2, 2)


def test_arrow_keys_go_from_point_to_point_and_say_what_they_show(lab):
    figure, said = lab.locator(".nl-chart").first, lab.locator(".nl-shell").first.locator("[role=status]")
    height = lab.locator(".nl-shell").first.bounding_box()["height"]
    assert figure.get_attribute("aria-label") == (
        "chart of waste, % against size; left and right go from point to point, up and down from series to series"
    )
    figure.focus()
    assert figure.evaluate("el => getComputedStyle(el).outlineStyle") == "solid"
    for key, text in [
        ("ArrowRight", "pages · a · size: 1 · waste, %: 10 · ms: 5"),
        ("ArrowRight", "pages · b · size: 2 · waste, %: 20 · ms: 6"),
        ("ArrowDown", "plain · size: 1 · waste, %: 35"),
        ("End", "plain · size: 3 · waste, %: 30"),
    ]:
        lab.keyboard.press(key)
        assert said.inner_text() == text
        assert [tip.replace("\n", " · ") for tip in tooltips(lab)] == [text]
        assert lab.locator(".nl-shell").first.bounding_box()["height"] == height
    lab.keyboard.press("Escape")
    assert (said.inner_text(), tooltips(lab)) == ("", [])


def test_keys_keep_to_the_points_that_a_zoom_shows(lab):
    said = lab.locator(".nl-shell").first.locator("[role=status]")
    lab.evaluate("Object.assign(plot(0).model.x_range, {start: 1.5, end: 4.15})")
    lab.locator(".nl-chart").first.focus()
    for key, start in [("ArrowRight", "pages · b"), ("ArrowLeft", "pages · b"), ("ArrowDown", "plain · size: 3")]:
        lab.keyboard.press(key)
        assert said.inner_text().startswith(start)
        assert len(tooltips(lab)) == 1
    lab.evaluate("plot(0).reset()")


def test_leaving_the_chart_leaves_the_point(lab):
    lab.locator(".nl-chart").first.focus()
    lab.keyboard.press("ArrowRight")
    assert len(tooltips(lab)) == 1
    lab.evaluate("document.activeElement.blur()")
    assert tooltips(lab) == []


def test_jupyterlab_s_keys_do_not_act_on_the_cell(lab):
    lab.locator(".nl-chart").first.focus()
    for key in ("a", "b", "x", "d", "d"):
        lab.keyboard.press(key)
    assert lab.locator(".jp-CodeCell").count() == 2


def test_tab_and_enter_zoom_and_reset(lab):
    before = lab.evaluate("shown()")
    lab.locator(".nl-chart").first.focus()
    for name, zoomed in (("Zoom In", True), ("Reset", False)):
        for _ in range(8):
            lab.keyboard.press("Tab")
            if lab.evaluate("focused()") == name:
                break
        lab.keyboard.press("Enter")
        lab.wait_for_timeout(100)
        assert (lab.evaluate("shown()") < before) == zoomed, name
    assert lab.evaluate("shown()") == pytest.approx(before)


def test_dragging_zooms_into_a_box_and_tells_the_kernel_nothing(lab):
    run_code(lab, "seen = []; chart._figure.on_msg(lambda *message: seen.append(message))")
    box = lab.locator(".nl-chart canvas").first.bounding_box()
    lab.mouse.move(box["x"] + 200, box["y"] + 60)
    lab.mouse.down()
    lab.mouse.move(box["x"] + 300, box["y"] + 160, steps=5)
    lab.mouse.up()
    lab.wait_for_timeout(200)
    assert lab.evaluate("shown()") < 2
    assert run_code(lab, "print(len(seen))") == "0"
    lab.evaluate("plot(0).reset()")


def test_python_can_change_what_is_shown(lab):
    run_code(lab, "chart.figure.x_range.end = 8")
    lab.wait_for_function("plot(0).model.x_range.end === 8")
    run_code(lab, "chart.figure.x_range.end = 4.15")
    lab.wait_for_function("plot(0).model.x_range.end === 4.15")


def test_a_cell_that_runs_again_leaves_one_chart_and_loads_bokeh_once(lab):
    lab.evaluate("window.first = Bokeh")
    assert run_all(lab) == []
    lab.wait_for_function(
        "plot(0) && plot(1) && plots().length === 2 && document.querySelectorAll('.nl-chart').length === 2"
    )
    assert lab.evaluate("window.first === Bokeh")


def test_the_chart_goes_on_working_when_the_kernel_is_gone(lab):
    """The last test here: it takes the kernel away."""
    lab.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    lab.wait_for_timeout(500)
    repaint(lab, "JupyterLab Dark")
    assert pixel(lab, *places(lab)[0]) == COLOURS[False][0]
    lab.mouse.move(*places(lab)[1])
    lab.locator(".bk-Tooltip").wait_for()
    lab.mouse.move(2, 2)
