"""A chart as a PNG: the same data, ranges, marks and labels as in the browser, on a Canvas.

A chart of measured numbers also lies inside its PNG as text, so a test can draw a committed one again and compare.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from matplotlib.ticker import LogLocator, MaxNLocator

from widgets.chart_data import DASHES, HUES, LABEL, MARKERS, Axis, Chart, Reference, Series, label_place
from widgets.figures import Canvas, data_in_png, png_with_data, text_width
from widgets.playground import Badge
from widgets.still import Words

WIDTH = 720
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 12, 44
ROW = 24
MARK = 5
"""px of a marker's radius."""
TICKS = 8
KEY = "nanoqwen-lab chart"

_CORNERS = {
    "circle": tuple((math.cos(math.tau * at / 24), math.sin(math.tau * at / 24)) for at in range(24)),
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle": ((-1.0, 0.6), (1.0, 0.6), (0.0, -1.15)),
    "diamond": ((-0.85, 0.0), (0.0, -1.25), (0.85, 0.0), (0.0, 1.25)),
    "inverted_triangle": ((-1.0, -0.6), (1.0, -0.6), (0.0, 1.15)),
    "hex": tuple((math.cos(math.tau * at / 6), math.sin(math.tau * at / 6)) for at in range(6)),
}


def corners(series: int, x: float, y: float) -> list[tuple[float, float]]:
    """The marker of the series of this number around x, y, in px."""
    return [(x + MARK * right, y + MARK * down) for right, down in _CORNERS[MARKERS[series]]]


@dataclass(frozen=True)
class _Frame:
    """Turns data into px from the top left."""

    chart: Chart
    top: float

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * self.chart.x.share(value, self.chart.x_range)

    def y(self, value: float) -> float:
        height = self.chart.height - TOP - BOTTOM
        return self.top + TOP + height * (1 - self.chart.y.share(value, self.chart.y_range))

    @property
    def floor(self) -> float:
        return self.y(self.chart.y_range[0])


def chart_png(chart: Chart) -> bytes:
    """Key, axes, references, series and labels; the data as text beside measured ones."""
    places, top = _key_places(chart)
    canvas = Canvas(WIDTH, round(top) + chart.height)
    for (name, draw), (x, y) in zip(_key(chart), places, strict=True):
        draw(canvas, x, y)
        canvas.text(x + 28 if name != chart.y.name else x, y, name, "mu s" if name == chart.y.name else "s")
    frame = _Frame(chart, top)
    _draw_axes(canvas, frame)
    for reference in chart.references:
        canvas.line(LEFT, frame.y(reference.y), WIDTH - RIGHT, frame.y(reference.y), "axis dash")
    for number, series in enumerate(chart.series):
        _draw_series(canvas, frame, number, series)
    for number, y, text, at_right in chart.beyond:
        x = WIDTH - RIGHT - LABEL if at_right else LEFT + LABEL
        canvas.text(x, frame.y(y) - LABEL, text, f"s ink {HUES[number]} {'e' if at_right else ''}")
    return png_with_data(canvas.png(), KEY, asdict(chart)) if chart.words.badge.kind == "measured" else canvas.png()


def chart_in(png: bytes) -> Chart | None:
    """The chart of measured numbers that a PNG was drawn from; None for any other PNG."""
    data = data_in_png(png, KEY)
    if data is None:
        return None
    words = Words(**{**data["words"], "badge": Badge(**data["words"]["badge"])})
    series = tuple(Series(**_tuples(one)) for one in data["series"])
    references = tuple(Reference(**one) for one in data["references"])
    x, y = (Axis(**_tuples(data[axis])) for axis in "xy")
    return Chart(words, x, y, series, references, data["height"])


def _tuples(value: dict[str, Any]) -> dict[str, Any]:
    """JSON's lists as the tuples they were."""
    turned = {name: _tuples(one) if isinstance(one, dict) else one for name, one in value.items()}
    return {name: tuple(one) if isinstance(one, list) else one for name, one in turned.items()}


Draw = Callable[[Canvas, float, float], None]


def _key(chart: Chart) -> Iterator[tuple[str, Draw]]:
    """What stands above the chart: the name of y, then every series and reference with its mark."""
    yield chart.y.name, lambda *_: None
    if len(chart.series) + len(chart.references) > 1:
        for number, series in enumerate(chart.series):
            yield series.name, _series_key(number, series)
        for name in chart.reference_names:
            yield name, lambda canvas, x, y: canvas.line(x, y, x + 20, y, "axis dash")


def _series_key(number: int, series: Series) -> Draw:
    def draw(canvas: Canvas, x: float, y: float) -> None:
        hue = HUES[number]
        if series.kind == "bars":
            canvas.rect(x + 4, y - 6, 12, 12, f"{hue} fill")
        if series.kind in ("line", "path"):
            canvas.path([(x, y), (x + 20, y)], hue, DASHES[number])
        if series.kind in ("points", "path"):
            canvas.polygon(corners(number, x + 10, y), f"{hue} solid")

    return draw


def _key_places(chart: Chart) -> tuple[list[tuple[float, float]], float]:
    """Where the key's parts begin, and the height of its rows."""
    places, x, y = [], 0.0, ROW / 2
    for name, _ in _key(chart):
        width = text_width(name, "s") + 28
        if x and x + width > WIDTH:
            x, y = 0.0, y + ROW
        places.append((x, y))
        x += width + 16
    return places, y + ROW / 2


def _draw_axes(canvas: Canvas, frame: _Frame) -> None:
    chart, floor = frame.chart, frame.floor
    for value, name in _ticks(chart.y, chart.y_range):
        canvas.line(LEFT, frame.y(value), WIDTH - RIGHT, frame.y(value))
        canvas.text(LEFT - 8, frame.y(value), name, "s mu e")
    canvas.line(LEFT, floor, WIDTH - RIGHT, floor, "axis")
    for value, name in _ticks(chart.x, chart.x_range):
        canvas.line(frame.x(value), floor, frame.x(value), floor + 5, "axis")
        canvas.text(frame.x(value), floor + 14, name, "s mu c")
    canvas.text((LEFT + WIDTH - RIGHT) / 2, floor + 34, chart.x.name, "s mu c")


def _ticks(axis: Axis, shown: tuple[float, float]) -> list[tuple[float, str]]:
    if axis.categories:
        return [(float(place), name) for place, name in enumerate(axis.categories)]
    locator = LogLocator(numticks=TICKS) if axis.log else MaxNLocator(TICKS, steps=[1, 2, 5, 10])
    values = [float(value) for value in locator.tick_values(*shown)]
    return [(value, f"{value:g}".replace("-", "−")) for value in values if shown[0] <= value <= shown[1]]


def _draw_series(canvas: Canvas, frame: _Frame, number: int, series: Series) -> None:
    chart, hue = frame.chart, HUES[number]
    (low, high), places = chart.x_range, chart.places[number]
    inside = [at for at, x in enumerate(places) if low <= x <= high]
    marks = [(frame.x(places[at]), frame.y(series.y[at])) for at in inside]
    if series.kind in ("line", "path") and len(marks) > 1:
        canvas.path(marks, hue, DASHES[number])
    if series.kind == "bars":
        _draw_bars(canvas, frame, marks, hue)
    if series.kind in ("points", "path"):
        for x, y in marks:
            canvas.polygon(corners(number, x, y), f"{hue} solid")
    right, down = label_place(series)
    for (x, y), at in zip(marks, inside if series.labels else (), strict=False):
        canvas.text(x + right, y + down, series.labels[at], f"s ink {hue} {'' if right > 0 else 'e'}")


def _draw_bars(canvas: Canvas, frame: _Frame, marks: Sequence[tuple[float, float]], hue: str) -> None:
    chart = frame.chart
    zero = frame.floor if chart.y.log else frame.y(0.0)
    width = frame.x(chart.bar_width) - frame.x(0.0)
    for x, y in marks:
        left, right = x - width / 2, x + width / 2
        canvas.polygon([(left, zero), (left, y), (right, y), (right, zero)], f"{hue} fill")
