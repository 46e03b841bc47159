"""What a chart shows, as small frozen data: axes, series, references. Bokeh, matplotlib and the text all read this."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from lab_engine.errors import NanoqwenError
from widgets.evidence import Table, badge_text
from widgets.figures import Dash
from widgets.still import Words
from widgets.words import signed

HUES = ("c1", "c2", "c3", "c4", "c4", "c4")
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex")
DASHES: tuple[Dash, ...] = ("solid", "dashed", "dotted", "dashdot", "solid", "dashed")
"""The look of the first to the sixth series: there are four hues, so a shape or a dash tells them apart too."""

LABEL = 9
"""px from a mark to its label."""

HEIGHT = 280
TEXT_ROWS = 24
PAD = 0.05
"""The share of its values' span that an axis shows more at each end; twice that beside labels."""
SPREAD = 0.8
"""The share of a category, or of the gap between two bars, that marks stand on."""


@dataclass(frozen=True)
class Axis:
    """name with its unit. digits: format of a value in texts. zero: a linear y axis shows 0 too.

    categories: x are these names, at 0, 1, …; several points of a series at one name stand side by side, in order.
    shown: the part of a linear or logarithmic x axis that is seen at first; an edge names the marks that lie beyond.
    """

    name: str
    log: bool = False
    digits: str = ",.5g"
    zero: bool = False
    categories: tuple[str, ...] = ()
    shown: tuple[float, float] | None = None

    def holds(self, value: float | str) -> bool:
        """Whether a value has a place on the axis."""
        if self.categories or isinstance(value, str):
            return value in self.categories
        return math.isfinite(value) and (value > 0 or not self.log)

    @property
    def expected(self) -> str:
        """What an error says that values must be."""
        if self.categories:
            return f"one of {', '.join(self.categories)}"
        return "a finite number over 0 on a logarithmic axis" if self.log else "a finite number"

    def said(self, value: float | str) -> str:
        """A value as people read it."""
        return value if isinstance(value, str) else signed(format(value, self.digits))

    def share(self, value: float, shown: tuple[float, float]) -> float:
        """Where a value lies: 0 at the beginning of what is shown, 1 at its end."""
        low, high, at = (math.log(one) for one in (*shown, value)) if self.log else (*shown, value)
        return (at - low) / (high - low)


@dataclass(frozen=True)
class Series:
    """y over x. points: marks; line: a line alone; path: marks joined by a line; bars: from 0, or from the log floor.

    labels stand at the right of the marks, or above right or below left, where a falling path leaves room.
    fields are further lines of the hover text: name -> one text a point.
    """

    name: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    kind: Literal["points", "line", "path", "bars"] = "points"
    labels: tuple[str, ...] = ()
    side: Literal["right", "above", "below"] = "right"
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def label_place(series: Series) -> tuple[int, int]:
    """Where a label begins, or ends at the left, and its middle: px to the right of its mark, and down."""
    return {"right": (LABEL, 0), "above": (4, -LABEL - 3), "below": (-4, LABEL + 3)}[series.side]


@dataclass(frozen=True)
class Reference:
    """A dashed horizontal line that something is compared with; lines of one name share a place in the key."""

    name: str
    y: float


@dataclass(frozen=True)
class Chart:
    """Everything that a BokehChart shows. Raises NanoqwenError that names the series and what is wrong with it.

    Chart(Words("Roofline", "Which kernel is left of the ridge?", "2 kernels", badge),
          x=Axis("FLOP a byte", log=True), y=Axis("GFLOP/s", log=True),
          series=(Series("roof", (0.1, 10, 100), (480, 48000, 48000), "line"),
                  Series("kernels", (0.5, 2.0), (1700, 6100), labels=("decode", "prefill"))))
    """

    words: Words
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    references: tuple[Reference, ...] = ()
    height: int = HEIGHT

    def __post_init__(self) -> None:
        names = [series.name for series in self.series]
        if not 1 <= len(names) <= len(HUES) or len(set(names)) < len(names):
            raise NanoqwenError(f"{self._named}: found series {names}, expected 1 to {len(HUES)} of different names")
        for series in self.series:
            self._check(series)
        for one in self.references:
            self._check_values(f"{self._named}, reference {one.name!r}", self.y, "y", (one.y,))

    @property
    def reference_names(self) -> list[str]:
        """Every name of a reference once."""
        return list(dict.fromkeys(one.name for one in self.references))

    @property
    def _named(self) -> str:
        return f"chart {self.words.title!r}"

    def _check(self, series: Series) -> None:
        where, count = f"{self._named}, series {series.name!r}", len(series.y)
        columns = {"x": series.x, **({"labels": series.labels} if series.labels else {}), **series.fields}
        if wrong := [name for name, column in columns.items() if len(column) != count]:
            raise NanoqwenError(
                f"{where}: found {count} y and {len(columns[wrong[0]])} of {wrong[0]}, expected as many"
            )
        if not count:
            raise NanoqwenError(f"{where}: found no point, expected at least one")
        self._check_values(where, self.x, "x", series.x)
        self._check_values(where, self.y, "y", series.y)
        if series.kind == "bars" and self.x.log:
            raise NanoqwenError(f"{where}: found bars on a logarithmic x axis, expected points, line or path")

    @staticmethod
    def _check_values(where: str, axis: Axis, name: str, values: Sequence[float | str]) -> None:
        bad = [value for value in values if not axis.holds(value)]
        if bad:
            raise NanoqwenError(f"{where}: found {name} = {bad[0]!r}, expected {axis.expected}")

    # Places ---------------------------------------------------------------------------------------------------------

    @cached_property
    def places(self) -> tuple[tuple[float, ...], ...]:
        """x of every mark, a tuple a series: categories as numbers, spread; bars of several series side by side."""
        bars = [series.name for series in self.series if series.kind == "bars"]
        shifts = [
            (bars.index(series.name) - (len(bars) - 1) / 2) * self.bar_width if series.name in bars else 0.0
            for series in self.series
        ]
        return tuple(
            tuple(x + shift for x in (self._spread(series) if self.x.categories else map(float, series.x)))
            for series, shift in zip(self.series, shifts, strict=True)
        )

    def _spread(self, series: Series) -> list[float]:
        """The points at one category side by side, in their order, as far apart as in the fullest category."""
        counts = Counter(series.x)
        step = SPREAD / max(max(Counter(one.x).values()) for one in self.series)
        seen = Counter[float | str]()
        found = []
        for x in series.x:
            found.append(self.x.categories.index(str(x)) + (seen[x] - (counts[x] - 1) / 2) * step)
            seen[x] += 1
        return found

    @property
    def bar_width(self) -> float:
        """Width of one bar in x."""
        bars = [series for series in self.series if series.kind == "bars"]
        xs = sorted({float(x) for series in bars for x in series.x}) if not self.x.categories else []
        gap = min((right - left for left, right in itertools.pairwise(xs)), default=1.0)
        return SPREAD * gap / max(1, len(bars))

    @property
    def x_range(self) -> tuple[float, float]:
        """What the x axis shows at first."""
        if self.x.categories:
            return -0.5, len(self.x.categories) - 0.5
        if self.x.shown:
            return self.x.shown
        wide = self.bar_width if any(series.kind == "bars" for series in self.series) else 0.0
        places = [x for series in self.places for x in series]
        room = 2 * PAD if any(series.labels for series in self.series) else PAD
        return _padded([min(places) - wide / 2, max(places) + wide / 2], self.x, room)

    @property
    def y_range(self) -> tuple[float, float]:
        """What the y axis shows at first; bars stand on 0 where the axis is linear."""
        values = [*(y for series in self.series for y in series.y), *(one.y for one in self.references)]
        on_bars = any(series.kind == "bars" for series in self.series)
        shown = [*values, 0.0] if (on_bars or self.y.zero) and not self.y.log else values
        raised = any(series.labels and series.side != "right" for series in self.series)
        low, high = _padded(shown, self.y, 2 * PAD if raised else PAD)
        return (0.0 if on_bars and min(shown) == 0 else low), high

    @property
    def beyond(self) -> tuple[tuple[int, float, str, bool], ...]:
        """The marks that x_range leaves out: number of the series, y, what the edge says, whether at the right."""
        low, high = self.x_range
        return tuple(
            (number, series.y[at], f"{name} →" if x > high else f"← {name}", x > high)
            for number, series in enumerate(self.series)
            for at, x in enumerate(self.places[number])
            if not low <= x <= high
            for name in [f"{series.name}: {self.y.said(series.y[at])} at {self.x.said(series.x[at])}"]
        )

    # Words ----------------------------------------------------------------------------------------------------------

    def lines(self, series: Series, at: int) -> tuple[tuple[str, str], ...]:
        """What the hover text of a point says: (name, value)."""
        axes = ((self.x.name, self.x.said(series.x[at])), (self.y.name, self.y.said(series.y[at])))
        return (*axes, *((name, column[at]) for name, column in series.fields.items()))

    def said(self, series: Series, at: int) -> str:
        """A point in one sentence."""
        label = [series.labels[at]] if series.labels and series.labels[at] else []
        return " · ".join([series.name, *label, *(f"{name}: {value}" for name, value in self.lines(series, at))])

    def text(self) -> str:
        """The data as a table in letters. Measured numbers differ from run to run, so they stay in the picture."""
        words = self.words
        if words.badge.kind == "measured":
            note = "The numbers are those of this machine: look at the picture."
            return "\n".join([words.title, note, badge_text(words.badge)])
        columns = (self.x.name, *(series.name for series in self.series))
        rows = [(self.x.said(x), *(self._cell(series, x) for series in self.series)) for x in self._rows()]
        if len(rows) > TEXT_ROWS:
            more = f"… {len(rows) - TEXT_ROWS} more"
            rows = [*rows[: TEXT_ROWS - 1], (more, *("" for _ in self.series)), rows[-1]]
        references = [f"{name}: {self._referred(name)}" for name in self.reference_names]
        note = "\n".join([*references, words.state])
        return repr(Table(f"{words.title} · {self.y.name}", columns, tuple(rows), words.badge, note))

    def _rows(self) -> list[float | str]:
        """Every x once: categories in their order, numbers upwards."""
        found = {x for series in self.series for x in series.x}
        if self.x.categories:
            return [name for name in self.x.categories if name in found]
        return sorted(found, key=float)

    def _referred(self, name: str) -> str:
        return ", ".join(self.y.said(one.y) for one in self.references if one.name == name)

    def _cell(self, series: Series, x: float | str) -> str:
        here = [at for at, place in enumerate(series.x) if place == x]
        label = [f" {series.labels[at]}" if series.labels else "" for at in range(len(series.y))]
        return "  ".join(self.y.said(series.y[at]) + label[at] for at in here) or "–"


def _padded(values: list[float], axis: Axis, share: float = PAD) -> tuple[float, float]:
    """The smallest and largest value, and a share of what lies between more at both ends."""
    low, high = min(values), max(values)
    if axis.log:
        factor = (high / low) ** share if high > low else 2.0
        return low / factor, high * factor
    pad = share * (high - low) or 0.5
    return low - pad, high + pad
