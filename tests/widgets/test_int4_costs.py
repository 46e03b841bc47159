"""The two charts of what INT4 costs show the engine's numbers and no others."""

import re

import pytest

from lab_engine.int4_costs import MATRICES, MatrixError, Variant, load_costs
from widgets.int4_costs import cost_chart, error_chart

FOUND = [(0, "q", 0.117), (1, "q", 0.119), (0, "down", 0.121), (None, "embed", 0.118)]
PLAIN = tuple(MatrixError(*one) for one in FOUND)
SEARCH = tuple(MatrixError(one.layer, one.matrix, one.error - 0.02) for one in PLAIN)


@pytest.fixture(scope="module")
def errors():
    return error_chart(
        {Variant(4, "absmax7"): PLAIN, Variant(4, "search"): SEARCH},
        {Variant(4, "absmax7"): 0.1174, Variant(4, "search"): 0.0976},
    )


def test_the_error_chart_has_a_point_for_every_matrix_and_names_the_worst(errors):
    assert repr(errors).splitlines() == [
        "Error by matrix and layer · relative error, %",
        "  matrix    INT4 max/7  INT4 search",
        "  q       11.70  11.90   9.70  9.90",
        "  down           12.10        10.10",
        "  embed          11.80         9.80",
        "normal weights, INT4 max/7: 11.74",
        "normal weights, INT4 search: 9.76",
        "4 matrices · largest error 12.1%, layer 0 down",
        "computed: the matrices of tiny-coder, in float64",
    ]


def test_layers_stand_from_left_to_right_and_the_hover_text_names_them(errors):
    first, second = errors.chart.places[0][:2]
    assert first < 0 < second
    assert errors.chart.x.categories == (*MATRICES, "embed")
    said = [point["said"] for point in errors._spec["points"]]
    assert said[1] == "INT4 max/7 · matrix: q · relative error, %: 11.90 · layer: 1"
    assert said[3].endswith("layer: shared")


def test_the_worst_matrix_may_be_the_embedding():
    chart = error_chart({Variant(4, "search"): (MatrixError(0, "q", 0.1), MatrixError(None, "embed", 0.2))})
    assert "largest error 20.0%, embed" in repr(chart)
    assert "normal weights" not in repr(chart)


def test_the_cost_chart_has_every_row_of_the_table():
    costs, chart = load_costs(), cost_chart(load_costs())
    points = {(point["x"], point["y"]) for point in chart._spec["points"]}
    assert points == {(cost.bytes_per_weight, cost.mean_kl) for cost in costs.rows}
    shipped = next(cost for cost in costs.rows if (cost.variant.method, cost.variant.group) == ("search", 128))
    assert chart.chart.words.state == (
        f"shipped: search, group 128 · 0.515625 bytes a weight · KL {shipped.mean_kl:.4f}"
    )
    assert re.split(r"\s{2,}", repr(chart).splitlines()[1].strip()) == [
        "bytes a weight",
        "INT4 max/7",
        "INT4 search",
        "INT8",
    ]


def test_both_charts_call_a_method_by_the_same_name(errors):
    variants = dict.fromkeys(Variant(cost.variant.bits, cost.variant.method) for cost in load_costs().rows)
    every = error_chart(dict.fromkeys(variants, PLAIN)).chart
    assert [series.name for series in every.series] == [series.name for series in cost_chart(load_costs()).chart.series]


def test_the_cost_chart_s_labels_are_group_sizes_and_its_hover_text_has_all_costs():
    chart = cost_chart(load_costs()).chart
    assert [series.labels for series in chart.series] == [("32", "64", "128", "row")] * 2 + [("128",)]
    names = [name for name, _ in chart.lines(chart.series[0], 0)]
    assert names[2:] == ["relative error", "bits per byte", "same top token"]
    assert chart.words.ask.endswith(" Hover: bits per byte; the original has 0.8011.")
    assert dict(chart.lines(chart.series[1], 2))["bits per byte"] == "0.8446, original 0.8011"


def test_the_cost_chart_shows_int4_wide_and_names_int8_at_its_edge():
    chart = cost_chart(load_costs()).chart
    low, high = chart.x_range
    small = [x for series in chart.series[:2] for x in series.x]
    assert low < min(small) < max(small) < high < 0.6
    assert (max(small) - min(small)) / (high - low) > 0.7
    assert chart.beyond == ((2, chart.series[2].y[0], "INT8: 0.0007 at 1.015625 →", True),)
