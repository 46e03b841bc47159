"""The two charts of what INT4 costs: the error of every matrix, and the logits for group sizes and INT8."""

from collections.abc import Mapping, Sequence
from typing import Literal

from lab_engine.int4_costs import MATRICES, Cost, Costs, MatrixError, Variant
from widgets.bokeh_chart import BokehChart
from widgets.chart_data import Axis, Chart, Reference, Series
from widgets.playground import Badge
from widgets.still import Words

_METHODS = {"absmax7": "INT4 max/7", "absmax8": "INT4 max/8", "search": "INT4 search", "absmax127": "INT8"}


def error_chart(
    errors: Mapping[Variant, Sequence[MatrixError]], normal: Mapping[Variant, float] | None = None
) -> BokehChart:
    """The relative error of every matrix, from layer 0 at the left to the last at the right.

    errors: what int4_costs.matrix_errors returned for each variant, of different methods; normal: the error of normal
    weights for some of them.
    """
    series = tuple(_error_series(_METHODS[variant.method], found) for variant, found in errors.items())
    references = tuple(
        Reference(f"normal weights, {_METHODS[variant.method]}", 100 * error)
        for variant, error in (normal or {}).items()
    )
    worst = max((one for found in errors.values() for one in found), key=lambda one: one.error)
    place = "embed" if worst.layer is None else f"layer {worst.layer} {worst.matrix}"
    state = f"{len(next(iter(errors.values())))} matrices · largest error {worst.error:.1%}, {place}"
    ask = "Which matrix is hardest to round? In each column the layers stand from left to right, from 0 on."
    badge = Badge("computed", "the matrices of tiny-coder, in float64")
    x, y = Axis("matrix", categories=(*MATRICES, "embed")), Axis("relative error, %", digits=".2f")
    return BokehChart(Chart(Words("Error by matrix and layer", ask, state, badge), x, y, series, references))


def _error_series(name: str, errors: Sequence[MatrixError]) -> Series:
    layers = tuple("shared" if one.layer is None else str(one.layer) for one in errors)
    values = tuple(100 * one.error for one in errors)
    return Series(name, tuple(one.matrix for one in errors), values, fields={"layer": layers})


def cost_chart(costs: Costs) -> BokehChart:
    """Logit KL against bytes a weight: a path of group sizes for each INT4 method; INT8 lies beyond the right edge."""
    methods = dict.fromkeys(cost.variant.method for cost in costs.rows)
    series = tuple(
        _cost_series(_METHODS[method], [cost for cost in costs.rows if cost.variant.method == method], costs.baseline)
        for method in methods
    )
    shipped = next(cost for cost in costs.rows if cost.variant.method == "search" and cost.variant.group == 128)
    state = f"shipped: search, group 128 · {shipped.bytes_per_weight:g} bytes a weight · KL {shipped.mean_kl:.4f}"
    ask = "What buys more: smaller groups or a better scale? Labels: the weights that share a scale."
    ask += f" Hover: bits per byte; the original has {costs.baseline:.4f}."
    words = Words("What a weight's bytes buy", ask, state, Badge("computed", costs.badge_source))
    small = [cost.bytes_per_weight for cost in costs.rows if cost.variant.bits == 4]
    margin = 0.15 * (max(small) - min(small))
    x = Axis("bytes a weight", digits=".7g", shown=(min(small) - margin, max(small) + margin))
    y = Axis("logit KL, nats a token", digits=".4f", zero=True)
    return BokehChart(Chart(words, x, y, series, height=320))


def _cost_series(name: str, costs: Sequence[Cost], baseline: float) -> Series:
    sizes = tuple("row" if cost.variant.group is None else str(cost.variant.group) for cost in costs)
    fields = {
        "relative error": tuple(f"{cost.relative_error:.2%}" for cost in costs),
        "bits per byte": tuple(f"{cost.bits_per_byte:.4f}, original {baseline:.4f}" for cost in costs),
        "same top token": tuple(f"{cost.top1_agreement:.1%}" for cost in costs),
    }
    x, y = tuple(cost.bytes_per_weight for cost in costs), tuple(cost.mean_kl for cost in costs)
    kind: Literal["path", "points"] = "path" if len(costs) > 1 else "points"
    return Series(name, x, y, kind, sizes, "above" if name == _METHODS["absmax7"] else "below", fields)
