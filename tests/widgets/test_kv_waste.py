"""The chart of wasted memory shows the engine's numbers and no others."""

import pytest

from lab_engine.kv_workload import Request, arrivals, serve
from widgets.kv_waste import WINDOW, capacity_table, waste_chart

TOKEN = 57_344


@pytest.fixture(scope="module")
def workload():
    return serve(arrivals())


def test_two_requests_by_hand():
    """20 tokens in steps 0 to 49, 12 of 32 slots empty at first; nobody in the next 50 steps; then 16 in one step."""
    chart = waste_chart(serve((Request(0, 20, 1), Request(100, 15, 1)))).chart
    pages, short, _ = chart.series
    assert pages.x == short.x == (0.0, 100.0)
    assert pages.y == pytest.approx((12 * TOKEN / 50e9, 1 * TOKEN / 1e9))
    assert short.y == pytest.approx((2028 * TOKEN / 50e9, 2033 * TOKEN / 1e9))
    assert pages.fields["empty share"] == ("37.50%", "6.25%")
    assert pages.fields["served at once"] == ("0.0", "1.0")


def test_the_chart_says_the_shares_of_the_whole_trace(workload):
    assert repr(waste_chart(workload)).splitlines()[-3:] == [
        "memory for a cache, 76 GB: 76",
        "500 requests · 6,560 steps · "
        "empty share 0.85% (pages of 16), 57.18% (contiguous 2048), 97.32% (contiguous 32,768)",
        "simulated: the lab's allocator, seeded arrivals, shapes of the 7B; means of 50 steps",
    ]


def test_contiguous_caches_of_32768_waste_more_than_the_memory_and_pages_a_thousandth_of_it(workload):
    """What the chart asks, and that no step with somebody in it is missing."""
    pages, short, long = (series.y for series in waste_chart(workload).chart.series)
    assert max(pages) < 0.076 / 2
    assert max(short) < 76 < max(long)
    assert len(pages) == len(long) == -(-len(workload.steps) // WINDOW)


def test_the_table_of_what_fits(workload):
    assert [row[1:] for row in capacity_table(workload).rows] == [
        ("0.85%", "0.74%", "2,588"),
        ("57.18%", "51.02%", "647"),
        ("97.32%", "96.94%", "40"),
    ]
    assert capacity_table(workload, 2048).rows[0][-1] == "647"
