"""What 500 requests waste in a paged and in a contiguous cache: a chart over time, and how many fit in one memory."""

from collections.abc import Sequence

from lab_engine.kv_workload import BUDGET_BYTES, StepUse, Workload, final_waste, served_at_once
from widgets.bokeh_chart import BokehChart
from widgets.chart_data import Axis, Chart, Reference, Series
from widgets.evidence import Table
from widgets.playground import Badge
from widgets.still import Words

WINDOW = 50
"""Steps that a point of the chart is the average of."""

CACHES = {"pages of 16": None, "contiguous 2048": 2048, "contiguous 32,768": 32_768}
"""The caches that are compared: tokens that each reserves for a request, None in pages."""


def waste_chart(workload: Workload) -> BokehChart:
    """Bytes that are reserved and hold no token, over time, one line a cache; hover: their share and the requests."""
    shares = ", ".join(f"{workload.waste(contiguous):.2%} ({name})" for name, contiguous in CACHES.items())
    state = f"{len(workload.requests)} requests · {len(workload.steps):,} steps · empty share {shares}"
    ask = "Which cache wastes more than the memory there is? Each grid line is ten times the one below. Hover: shares."
    badge = Badge("simulated", f"the lab's allocator, seeded arrivals, shapes of the 7B; means of {WINDOW} steps")
    budget = Reference(f"memory for a cache, {BUDGET_BYTES / 1e9:g} GB", BUDGET_BYTES / 1e9)
    series = tuple(_series(workload, name, contiguous) for name, contiguous in CACHES.items())
    x, y = Axis("decode step", digits=",.0f"), Axis("reserved but empty, GB", log=True, digits=".3g")
    return BokehChart(Chart(Words("What a cache wastes", ask, state, badge), x, y, series, (budget,), height=320))


def _series(workload: Workload, name: str, contiguous: int | None) -> Series:
    """Stretches without any waste have no place on a logarithmic axis: nobody is served there."""
    found = [(start, steps, workload.wasted_bytes(steps, contiguous)) for start, steps in workload.windows(WINDOW)]
    shown = [(start, steps, wasted) for start, steps, wasted in found if wasted]
    fields = {
        "empty share": tuple(f"{_share(steps, contiguous):.2%}" for _, steps, _ in shown),
        "served at once": tuple(f"{sum(step.running for step in steps) / len(steps):.1f}" for _, steps, _ in shown),
    }
    x, y = tuple(float(start) for start, _, _ in shown), tuple(wasted / 1e9 for _, _, wasted in shown)
    return Series(name, x, y, "line", fields=fields)


def _share(steps: Sequence[StepUse], contiguous: int | None) -> float:
    return 1 - sum(step.tokens for step in steps) / sum(step.slots(contiguous) for step in steps)


def capacity_table(workload: Workload, tokens: int = 512) -> Table:
    """Each cache: its empty share over time and with all requests at their end, and the requests that 76 GB hold.

    tokens: the length of each of these requests.
    """
    rows = tuple(
        (
            name,
            f"{workload.waste(contiguous):.2%}",
            f"{final_waste(workload.requests, contiguous):.2%}",
            f"{served_at_once(tokens, contiguous):,}",
        )
        for name, contiguous in CACHES.items()
    )
    columns = ("cache", "empty over time", "empty at the end", f"requests of {tokens} in {BUDGET_BYTES / 1e9:g} GB")
    badge = Badge("simulated", "the lab's allocator and seeded arrivals; the last column is computed for the 7B")
    note = "Over time answers are half written; at the end every request has all its tokens."
    return Table("What a cache wastes, and what it holds", columns, rows, badge, note)
