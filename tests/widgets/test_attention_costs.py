"""The chart and tables of what the past costs show the engine's numbers and no others."""

import pytest

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.attention_costs import CONTEXTS, WAYS, step_cost
from lab_engine.bench.models import QWEN_7B
from lab_engine.nanoqwen_file import NanoqwenFile
from widgets.attention_costs import moved_chart, stored_table, time_table
from widgets.live_table import table_in

SHIPPED = NanoqwenFile(data_path(SHIPPED_MODEL)).config


def test_the_chart_has_a_point_for_every_context_and_way():
    chart = moved_chart(QWEN_7B, "7B")
    points = {(point["series"], point["x"], point["y"]) for point in chart._spec["points"]}
    assert points == {
        (number, context, step_cost(QWEN_7B, context, way).moved)
        for number, way in enumerate(WAYS)
        for context in CONTEXTS
    }
    assert chart.chart.words.state == (
        "7B · at 2,048 tokens: no cache 120 GB a step, a cache 117 MB · pages move 0.012 % more"
    )


def test_hovering_tells_passes_and_what_is_kept():
    chart = moved_chart(QWEN_7B, "7B").chart
    at_2048 = CONTEXTS.index(2048)
    assert dict(chart.lines(chart.series[0], at_2048))["tokens through the layers"] == "2,048"
    pages = dict(chart.lines(chart.series[2], at_2048))
    assert (pages["bytes"], pages["of it table"]) == ("118 MB", "14.3 kB")


def test_contexts_end_at_the_model_s_positions():
    assert len(stored_table(QWEN_7B, "7B").rows) == 9
    assert [row[0] for row in stored_table(SHIPPED, "tiny-coder").rows] == ["128", "256", "512", "1,024", "2,048"]
    assert moved_chart(SHIPPED, "tiny-coder").chart.series[0].x[-1] == 2048


def test_the_table_says_what_is_kept_and_what_of_it_is_unused():
    rows = {row[0]: row for row in stored_table(QWEN_7B, "7B").rows}
    assert rows["2,048"] == ("2,048", "117 MB", "1.88 GB", "93.8 %", "117 MB", "512 B")
    assert rows["32,768"][3] == "0 %"


def test_the_times_are_in_the_picture_alone_and_the_text_is_constant():
    table = time_table(SHIPPED)
    assert repr(table) == "Attention's time here, 256 to 2,048 tokens: in the picture"
    assert table_in(table.png()) == table.table
    assert [row[0] for row in table.table.rows] == ["256", "512", "1,024", "2,048", "last ÷ first"]
    assert table.table.note == "8 times the tokens: a square would be 64, a straight line 8."


@pytest.mark.parametrize("make", [lambda: moved_chart(QWEN_7B, "7B"), lambda: stored_table(QWEN_7B, "7B")])
def test_what_is_computed_prints_the_same_each_time(make):
    assert repr(make()) == repr(make())
