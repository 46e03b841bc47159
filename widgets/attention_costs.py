"""Why the cache and its pages exist: bytes that a step moves, bytes that are kept, and how time grows with the text."""

from collections.abc import Sequence

from lab_engine.attention_costs import CONTEXTS, MEASURED, WAYS, StepCost, Way, step_cost, time_attention
from lab_engine.config import ModelConfig
from lab_engine.kv_pages import PAGE_SLOTS
from widgets.bokeh_chart import BokehChart
from widgets.chart_data import Axis, Chart, Series
from widgets.evidence import Table
from widgets.live_table import LiveTable
from widgets.machine import HERE
from widgets.playground import Badge
from widgets.still import Words
from widgets.words import percent

COUNTED = Badge("computed", "counted from the shapes, 16-bit K and V")
_SHOWN = 2048
"""The context that the sentence below the chart is about."""


def moved_chart(config: ModelConfig, model: str) -> BokehChart:
    """Bytes of K, V and page tables that attention moves in one decode step, against the context."""
    costs = {way: [step_cost(config, context, way) for context in _contexts(config)] for way in WAYS}
    at = {way: next(cost for cost in found if cost.context == _SHOWN) for way, found in costs.items()}
    more = at["pages"].moved / at["contiguous"].moved - 1
    state = (
        f"{model} · at {_SHOWN:,} tokens: no cache {_bytes(at['no cache'].moved)} a step, "
        f"a cache {_bytes(at['contiguous'].moved)} · pages move {percent(more, 3)} more"
    )
    ask = "Both scales are logarithmic. Which line is twice as steep, and why do the other two lie on each other?"
    words = Words("Bytes that attention moves in a step", ask, state, COUNTED)
    x, y = Axis("tokens in the context", log=True, digits=",d"), Axis("bytes a step", log=True, digits=".4g")
    return BokehChart(Chart(words, x, y, tuple(_series(way, found) for way, found in costs.items()), height=300))


def _series(way: Way, costs: Sequence[StepCost]) -> Series:
    fields = {
        "bytes": tuple(_bytes(cost.moved) for cost in costs),
        "tokens through the layers": tuple(f"{cost.token_passes:,}" for cost in costs),
        "kept": tuple(_bytes(cost.stored) for cost in costs),
        "of it table": tuple(_bytes(cost.table) for cost in costs),
    }
    contexts, moved = tuple(cost.context for cost in costs), tuple(float(cost.moved) for cost in costs)
    return Series(way, contexts, moved, "path", fields=fields)


def stored_table(config: ModelConfig, model: str) -> Table:
    """What one text keeps, and how much of it no token uses."""
    rows = []
    for context in _contexts(config):
        block, pages = step_cost(config, context, "contiguous"), step_cost(config, context, "pages")
        used = block.read  # a step reads every token once
        unused = percent(1 - used / block.stored, 1)
        table = f"{pages.table // config.num_layers:,} B"
        rows.append((f"{context:,}", _bytes(used), _bytes(block.stored), unused, _bytes(pages.stored), table))
    columns = ("tokens", "K and V", "contiguous", "of it unused", "pages", "of it table")
    note = (
        f"Contiguous: room for {config.max_positions:,} tokens from the start. Pages: none unused at multiples of "
        f"{PAGE_SLOTS}, at most {PAGE_SLOTS - 1} slots of one page at any other length."
    )
    return Table(f"What one text keeps, {model}", columns, tuple(rows), COUNTED, note)


def time_table(config: ModelConfig) -> LiveTable:
    """A prompt's attention against a step's on this machine, in one layer of these shapes."""
    times = time_attention(config)
    rows = [(f"{one.tokens:,}", f"{1e3 * one.prefill:.2f} ms", f"{1e6 * one.step:,.0f} µs") for one in times]
    first, last = times[0], times[-1]
    factor = last.tokens // first.tokens
    rows.append(("last ÷ first", f"{last.prefill / first.prefill:.1f}", f"{last.step / first.step:.1f}"))
    columns = ("tokens", "prompt of so many", "one step after them")
    note = f"{factor} times the tokens: a square would be {factor**2}, a straight line {factor}."
    text = f"Attention's time here, {MEASURED[0]} to {MEASURED[-1]:,} tokens: in the picture"
    return LiveTable(Table("Attention's time on this machine", columns, tuple(rows), HERE, note), text)


def _contexts(config: ModelConfig) -> tuple[int, ...]:
    return tuple(context for context in CONTEXTS if context <= config.max_positions)


def _bytes(count: float) -> str:
    """A number of bytes in B, kB, MB, GB or TB, with three digits."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count < 999.5 * size else f"{count / size:.0f} {unit}"
    return f"{count:.0f} B"
