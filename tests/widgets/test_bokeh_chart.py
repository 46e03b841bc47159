"""Charts to hover and zoom: what they refuse, their text, their PNG, and the figure that the browser gets."""

import math
from dataclasses import replace

import numpy as np
import pytest
from bokeh.models.annotations import Label, LabelSet
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_engine.errors import NanoqwenError
from widgets.bokeh_chart import BokehChart
from widgets.bundle import STATIC, style
from widgets.chart_data import DASHES, HUES, MARKERS, TEXT_ROWS, Axis, Chart, Reference, Series
from widgets.chart_png import chart_in, chart_png
from widgets.figures import PNG_SCALE, png_size
from widgets.playground import Badge
from widgets.still import Words

WORDS = Words("Waste", "How much holds nothing?", "16 wastes least", Badge("computed", "counted"))
MEASURED = replace(WORDS, badge=Badge("measured", "this machine"))
SIZES = Axis("page size", categories=("8", "16", "32"))
WASTE = Axis("waste, %", digits=".1f")
SHORT = Series("short", ("8", "16", "32"), (5.0, 7.0, 19.5), "bars")
LONG = Series("long", ("8", "32"), (2.0, 9.25), "bars", fields={"tokens": ("100", "<200>")})
POINTS = Series("kernels", (0.5, 2.0), (1700.0, 6100.0), labels=("decode", "prefill"))
ROOF = Series("roof", (0.1, 10.0, 100.0), (480.0, 48000.0, 48000.0), "line")


def bars(words=WORDS, **changes):
    return replace(Chart(words, SIZES, WASTE, (SHORT, LONG), (Reference("contiguous", 30.0),)), **changes)


def roofline():
    return Chart(WORDS, Axis("FLOP a byte", log=True), Axis("GFLOP/s", log=True), (ROOF, POINTS))


# Text


def test_the_text_is_the_data_as_a_table_with_references_state_and_badge():
    assert repr(BokehChart(bars())).splitlines() == [
        "Waste · waste, %",
        "  page size  short  long",
        "          8    5.0   2.0",
        "         16    7.0     –",
        "         32   19.5   9.2",
        "contiguous: 30.0",
        "16 wastes least",
        "computed: counted",
    ]


def test_labels_stand_in_the_text_and_numbers_go_upwards():
    assert repr(BokehChart(roofline())).splitlines()[1:4] == [
        "  FLOP a byte    roof  kernels",
        "          0.1     480  –",
        "          0.5       –  1,700 decode",
    ]


def test_several_points_of_a_category_share_a_cell_in_their_order():
    series = Series("layers", ("8", "16", "8"), (1.0, 2.0, 3.0))
    assert repr(BokehChart(bars(series=(series,)))).splitlines()[2] == "          8  1.0  3.0"


def test_a_long_text_leaves_out_its_middle_and_says_how_many():
    series = Series("s", tuple(map(float, range(100))), (1.0,) * 100, "line")
    rows = BokehChart(Chart(WORDS, Axis("x"), Axis("y"), (series,))).__repr__().splitlines()[2:-2]
    assert len(rows) == TEXT_ROWS + 1
    assert rows[-2].split() == ["…", "76", "more"]
    assert rows[-1].split() == ["99", "1"]


def test_measured_numbers_are_in_the_picture_and_never_in_the_text():
    one, other = (BokehChart(bars(MEASURED, series=(replace(SHORT, y=(y, 7.0, 19.5)),))) for y in (5.0, 6.0))
    assert repr(one) == repr(other)
    assert "19" not in repr(one)
    assert one.png() != other.png()


# PNG


@pytest.mark.parametrize("chart", [bars(), roofline()], ids=["bars", "roofline"])
def test_the_same_chart_draws_the_same_bytes(chart):
    assert chart_png(chart) == chart_png(replace(chart))
    assert BokehChart(chart).png() == chart_png(chart)


@pytest.mark.parametrize("kind", ["points", "line", "path", "bars"])
def test_a_moved_point_is_seen_in_the_picture(kind):
    one, other = (bars(series=(replace(SHORT, kind=kind, y=(5.0, y, 19.5)),)) for y in (7.0, 9.0))
    assert chart_png(one) != chart_png(other)


def test_the_picture_of_measured_numbers_can_be_drawn_again_from_itself():
    chart = bars(MEASURED)
    png = chart_png(chart)
    assert chart_in(png) == chart
    assert chart_png(chart_in(png)) == png


def test_a_picture_of_computed_numbers_must_be_computed_again():
    assert chart_in(chart_png(bars())) is None


def test_the_picture_is_as_high_as_the_chart_and_its_key():
    _, height = png_size(chart_png(bars(height=320)))
    assert height == (320 + 24) * PNG_SCALE


# Places


def test_bars_stand_side_by_side_and_do_not_touch_the_next_category():
    chart = bars()
    assert chart.bar_width == pytest.approx(0.4)
    assert chart.places[0] == pytest.approx((-0.2, 0.8, 1.8))
    assert chart.places[1] == pytest.approx((0.2, 2.2))


def test_points_of_one_category_stand_in_a_row_with_equal_steps():
    many = Series("s", ("8", "8", "8", "32"), (1.0, 2.0, 3.0, 4.0))
    assert bars(series=(many,)).places[0] == pytest.approx((-0.8 / 3, 0.0, 0.8 / 3, 2.0))


def test_bars_over_numbers_are_as_wide_as_the_smallest_gap_allows():
    series = Series("s", (10.0, 12.0, 20.0), (1.0, 2.0, 3.0), "bars")
    chart = Chart(WORDS, Axis("x"), Axis("y"), (series,))
    assert chart.bar_width == pytest.approx(1.6)
    assert chart.x_range[0] < 10 - 0.8 < 20 + 0.8 < chart.x_range[1]


def test_bars_stand_on_zero_and_an_axis_with_zero_shows_it():
    assert bars().y_range[0] == 0
    points = Chart(WORDS, Axis("x"), Axis("y", zero=True), (Series("s", (1.0, 2.0), (5.0, 6.0)),))
    assert points.y_range[0] < 0 < points.y_range[1]


def test_an_axis_shows_a_part_at_first_and_its_edge_names_the_marks_beyond():
    far = Series("far", (0.1, 9.0), (3.0, 7.0))
    chart = Chart(WORDS, Axis("x", shown=(0.5, 3.0)), Axis("y", digits=".1f"), (POINTS, far))
    assert chart.x_range == (0.5, 3.0)
    assert chart.beyond == ((1, 3.0, "← far: 3.0 at 0.1", False), (1, 7.0, "far: 7.0 at 9 →", True))
    assert sorted((one.text, one.x) for one in models(chart, Label)) == sorted(
        [("← far: 3.0 at 0.1", 0.5), ("far: 7.0 at 9 →", 3.0)]
    )
    assert chart_png(chart) != chart_png(replace(chart, series=(POINTS,), y=replace(chart.y, zero=True)))
    assert replace(chart, x=Axis("x")).beyond == ()


@pytest.mark.parametrize(("side", "right", "up"), [("right", 1, 0), ("above", 1, 1), ("below", -1, -1)])
def test_labels_stand_at_their_side_of_the_marks(side, right, up):
    chart = replace(roofline(), series=(ROOF, replace(POINTS, side=side)))
    (labels,) = models(chart, LabelSet)
    assert (np.sign(labels.x_offset), np.sign(labels.y_offset)) == (right, up)
    assert (chart.y_range[1] > roofline().y_range[1]) == (side != "right")  # room for the highest label
    assert labels.text_align == ("left" if right > 0 else "right")
    assert chart_png(chart) != chart_png(replace(chart, series=(ROOF, replace(POINTS, labels=()))))


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8), st.booleans(), st.booleans())
def test_every_point_lies_inside_what_is_shown(values, log, zero):
    axis = Axis("v", log=log, zero=zero)
    chart = Chart(WORDS, axis, axis, (Series("s", tuple(values), tuple(values)),))
    for value in values:
        assert 0 < axis.share(value, chart.x_range) < 1
        assert 0 < axis.share(value, chart.y_range) < 1


# Refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"series": ()}, r"found series \[\], expected 1 to 6 of different names"),
        ({"series": (SHORT, SHORT)}, r"found series \['short', 'short'\], expected 1 to 6"),
        ({"series": (Series("s", (), ()),)}, "series 's': found no point, expected at least one"),
        ({"series": (Series("s", ("8",), (1.0, 2.0)),)}, "series 's': found 2 y and 1 of x, expected as many"),
        ({"series": (Series("s", ("8",), (1.0,), labels=("a", "b")),)}, "found 1 y and 2 of labels"),
        ({"series": (Series("s", ("8",), (1.0,), fields={"ms": ()}),)}, "found 1 y and 0 of ms"),
        ({"series": (Series("s", ("64",), (1.0,)),)}, "found x = '64', expected one of 8, 16, 32"),
        ({"series": (Series("s", ("8",), (math.nan,)),)}, "found y = nan, expected a finite number$"),
        ({"references": (Reference("limit", math.inf),)}, "reference 'limit': found y = inf, expected a finite number"),
        ({"x": Axis("x")}, "series 'short': found x = '8', expected a finite number"),
        (
            {"y": Axis("y", log=True), "series": (replace(SHORT, y=(1.0, 0.0, 2.0)),)},
            "found y = 0.0, expected a finite number over 0 on a logarithmic axis",
        ),
        (
            {"x": Axis("x", log=True), "series": (replace(SHORT, x=(1.0, 2.0, 3.0)),)},
            "found bars on a logarithmic x axis, expected points, line or path",
        ),
    ],
)
def test_wrong_data_is_refused_with_the_name_of_the_series(changes, message):
    with pytest.raises(NanoqwenError, match=f"^chart 'Waste'.*{message}"):
        bars(**changes)


# The browser's part


def models(chart, kind):
    return list(BokehChart(chart).figure.select({"type": kind}))


def test_each_series_looks_different_without_colour():
    looks = set(zip(HUES, MARKERS, strict=True)), set(zip(HUES, DASHES, strict=True))
    assert [len(look) for look in looks] == [len(HUES)] * 2
    assert len(set(MARKERS)) == len(HUES)


def test_every_colour_of_the_figure_is_a_token_of_the_style_sheet():
    tokens = {token for model in BokehChart(roofline()).figure.references() for _, token in model.tags}
    assert {"--nl-c1", "--nl-c2", "--nl-c2-ink", "--nl-muted", "--nl-line", "--nl-rule"} == tokens
    assert all(f"{token}:" in style() for token in tokens)


def test_the_hover_text_is_escaped_and_holds_every_field():
    from bokeh.models import ColumnDataSource

    tips = next(source.data["tip"] for source in models(bars(), ColumnDataSource) if len(source.data["tip"]) == 2)
    assert tips[1] == "<b>long</b><br>page size: 32<br>waste, %: 9.2<br>tokens: &lt;200&gt;"


def test_every_point_has_its_series_place_and_sentence():
    points = BokehChart(roofline())._spec["points"]
    assert len(points) == 5
    assert points[3] == {
        "series": 1,
        "x": 0.5,
        "y": 1700.0,
        "said": "kernels · decode · FLOP a byte: 0.5 · GFLOP/s: 1,700",
    }


def test_words_from_outside_cannot_become_markup():
    words = Words("a <b>", 'x "y"', "c & d", Badge("quoted", "<i>"))
    shell = BokehChart(bars(words))._spec["shell"]
    assert "a &lt;b&gt;" in shell
    assert "c &amp; d" in shell
    assert "<i>" not in shell


def test_a_bundle_holds_text_and_picture_and_no_html_that_nbval_would_compare():
    data, metadata = BokehChart(bars())._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png", "application/vnd.jupyter.widget-view+json"}
    assert data["text/plain"] == bars().text()
    assert metadata["image/png"] == {"width": 720, "height": 304}


def test_bokeh_s_script_is_sent_once_for_all_charts_and_never_fetched():
    one, other = BokehChart(bars()), BokehChart(roofline())
    assert one._library is other._library
    assert "Bokeh" in one._library.script
    assert "<script" not in one._spec["shell"]
    assert "://" not in (STATIC / "bokeh_chart.js").read_text()
