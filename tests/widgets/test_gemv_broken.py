"""The picture of a broken GEMV: the engine's errors, loads and texts, and no others."""

import re

import pytest

from lab_engine.gemv_mistakes import GEMV_MISTAKES, GemvError, request
from lab_engine.gemv_texts import trace_gemv_mistake
from widgets.gemv_broken import BAR, LEFT, SEEN, gemv_broken_picture, gemv_mistakes_table, unit_of, used_by_sector
from widgets.still import WIDTH, Svg


@pytest.fixture(scope="module")
def traces():
    return {name: trace_gemv_mistake(name) for name in GEMV_MISTAKES}


def drawn(trace, kind):
    """The elements of a kind as their attributes and text."""
    svg = Svg()
    gemv_broken_picture(trace)._draw(svg)
    found = [element for element in svg.elements if element.startswith(f"<{kind} ")]
    return [dict(re.findall(r'([\w]+)="([^"]*)"', one)) | {"text": re.sub("<[^>]*>", "", one)} for one in found]


def bars(trace, classes):
    """All bars of a class, without the key and the box of a token."""
    rects = [one for one in drawn(trace, "rect") if one["class"] == classes and float(one["height"]) == BAR]
    return [one for one in rects if float(one["x"]) != LEFT]


NUMERIC = [name for name in GEMV_MISTAKES if name != "uncoalesced"]


@pytest.mark.parametrize("name", NUMERIC)
def test_every_group_that_is_off_has_one_bar_as_long_as_it_says(traces, name):
    trace = traces[name]
    unit = unit_of(trace)
    wanted = [abs(value) * unit for row in trace.terms for value in row if abs(value) * unit >= SEEN]
    found = [float(one["width"]) for one in bars(trace, "cw fill")]
    assert found == pytest.approx(wanted, abs=0.06)
    sums = [abs(total) * unit for total in trace.rows if abs(total) * unit >= SEEN]
    assert [float(one["width"]) for one in bars(trace, "cw solid")] == pytest.approx(sums, abs=0.06)


@pytest.mark.parametrize("name", NUMERIC)
def test_a_bar_begins_or_ends_on_the_axis_of_its_column_and_stays_inside(traces, name):
    axes = {
        float(one["x1"]) for one in drawn(traces[name], "line") if one["class"] == "axis" and one["x1"] == one["x2"]
    }
    assert len(axes) == 8
    for one in bars(traces[name], "cw fill") + bars(traces[name], "cw solid"):
        left, width = float(one["x"]), float(one["width"])
        assert min(abs(end - axis) for end in (left, left + width) for axis in axes) < 0.11
        assert left > LEFT - 1
        assert left + width <= WIDTH


def test_the_key_is_as_long_as_it_says(traces):
    for name, share in (("missing_correction", 1.0), ("scale_of_group_0", 1.0), ("size_of_group_0", 0.2)):
        (key,) = [one for one in drawn(traces[name], "rect") if float(one["x"]) == LEFT]
        assert float(key["width"]) == pytest.approx(share * unit_of(traces[name]), abs=0.06)
        assert any(one["text"].startswith(f"{100 * share:.0f} % of y") for one in drawn(traces[name], "text"))


def test_sectors_are_filled_as_far_as_they_are_used(traces):
    trace = traces["uncoalesced"]
    rects = drawn(trace, "rect")
    sectors = [one for one in rects if one["class"] == "empty"]
    filled = [float(one["width"]) for one in rects if one["class"].endswith("solid")]
    whole = float(sectors[0]["width"])
    assert len(sectors) == 16 + 32
    assert filled == pytest.approx([whole] * 16 + [whole / 8] * 32, abs=0.06)
    assert used_by_sector(request("uncoalesced")) == [4] * 32
    assert sum(used_by_sector(request("none"))) == request("none").used == 512


def test_the_state_says_how_far_y_is_off_and_from_where_the_text_is_wrong(traces):
    states = [repr(gemv_broken_picture(traces[name])).splitlines()[-2] for name in GEMV_MISTAKES]
    assert states == [
        "y right · 128 of 1024 moved bytes used · text right",
        "rows of y off by up to 393 % · text wrong from new token 2 on",
        "rows of y off by up to 247 % · text wrong from new token 1 on",
        "rows of y off by up to 43 % · text wrong from new token 2 on",
    ]


def test_the_text_holds_the_errors_and_both_texts(traces):
    lines = repr(gemv_broken_picture(traces["scale_of_group_0"])).splitlines()
    assert lines[2].split() == "row group 0 group 1 group 2 group 3 group 4 group 5 group 6 sum".split()
    assert lines[3].split() == "0 0 0 % −87 % −148 % +2 % −1 % −13 % −247 %".split()
    assert len(lines[3:19]) == 16
    assert lines[19].startswith("right      def __init__(self, *args")
    assert lines[20].startswith("wrong  |<|fim_suffix|>_CHECK")
    uncoalesced = repr(gemv_broken_picture(traces["uncoalesced"])).splitlines()
    assert uncoalesced[3] == "uncoalesced  32 sectors, 4 of 32 B used of each: 128 of 1024 B"
    assert uncoalesced[4].removeprefix("right") == uncoalesced[5].removeprefix("wrong")


def test_the_first_wrong_token_has_a_box_and_a_right_text_none(traces):
    boxes = {
        name: [one for one in drawn(traces[name], "rect") if float(one["height"]) == 16 and one["class"] == "cw fill"]
        for name in GEMV_MISTAKES
    }
    assert [len(found) for found in boxes.values()] == [0, 1, 1, 1]


def test_the_png_is_the_same_each_time(traces):
    trace = traces["size_of_group_0"]
    assert gemv_broken_picture(trace).png() == gemv_broken_picture(trace).png()


def test_the_table_says_error_bytes_and_who_sees_it():
    errors = (
        GemvError("uncoalesced", 0.0, 0.0, (0.0, 0.0, 0.0)),
        GemvError("scale_of_group_0", 0.2022, 1.409, (1.09, 1.17, 1.329)),
    )
    first, second = gemv_mistakes_table(errors).rows
    assert first == ("uncoalesced", "0", "0", "0", "8 ×", "count of sectors")
    assert second == (
        "scale_of_group_0",
        "20 %",
        "141 %",
        "117 % (109 to 133)",
        "1 ×",
        "x that sums to 0, several scales",
    )
