"""Charts of a few numbers in the look of the course: bars over a scale of powers of ten."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lab_engine.bug_desk import ROUNDING
from lab_engine.kv_pages import PAGE_SLOTS
from widgets.playground import Badge
from widgets.still import WIDTH, Still, Surface, Words

LEFT, TOP, HEIGHT, RIGHT = 56, 24, 120, 8


@dataclass(frozen=True)
class Bars:
    """values over x = first, first + 1, …, on a logarithmic scale that starts at `floor`.

    x values in `labelled` are written below; y_name names the scale at its top, x_name the other one.
    """

    values: tuple[float, ...]
    first: int
    labelled: tuple[int, ...]
    floor: float
    x_name: str
    y_name: str

    @property
    def decades(self) -> int:
        """Powers of ten that the scale shows, at least one."""
        return max(1, math.ceil(math.log10(max(*self.values, self.floor) / self.floor) - 1e-9))

    def y(self, value: float) -> float:
        """px from the top; values below the floor lie on the axis."""
        above = math.log10(max(value, self.floor) / self.floor)
        return TOP + HEIGHT - HEIGHT * above / self.decades


def log_bars(words: Words, bars: Bars, text: str) -> Still:
    """A bar for each value in the colour of what is wrong; a value up to the floor is a flat green mark."""

    def draw(surface: Surface) -> None:
        _draw_scale(surface, bars)
        width = (WIDTH - LEFT - RIGHT) / len(bars.values)
        for at, value in enumerate(bars.values):
            _draw_bar(surface, bars, LEFT + at * width, width, value)
            if bars.first + at in bars.labelled:
                middle = LEFT + (at + 0.5) * width
                surface.line(middle, TOP + HEIGHT, middle, TOP + HEIGHT + 6, "axis")
                surface.text(middle, TOP + HEIGHT + 14, str(bars.first + at), "s c")

    return Still(words, TOP + HEIGHT + 40, draw, text)


def _draw_scale(surface: Surface, bars: Bars) -> None:
    surface.text(0, 8, bars.y_name, "s mu")
    surface.text(WIDTH - RIGHT, TOP + HEIGHT + 30, bars.x_name, "s mu e")
    for decade in range(bars.decades + 1):
        value = bars.floor * 10**decade
        surface.line(LEFT, bars.y(value), WIDTH - RIGHT, bars.y(value), "rule" if decade else "axis")
        surface.text(LEFT - 8, bars.y(value), f"{value:g}", "s mu e")


def _draw_bar(surface: Surface, bars: Bars, x: float, width: float, value: float) -> None:
    bottom = TOP + HEIGHT
    if value > bars.floor:
        surface.rect(x + 1, bars.y(value), width - 2, bottom - bars.y(value), "cw fill")
    else:
        surface.rect(x + 1, bottom - 3, width - 2, 3, "c2 solid")


def error_bars(title: str, ask: str, errors: Sequence[float], first: int = 1) -> Still:
    """The errors of logits at first, first + 1, … tokens; what rounding explains counts as none.

    Its text is the same on every machine: it says at which lengths there is an error, not how large.
    """
    last = first + len(errors) - 1
    wrong = [first + at for at, error in enumerate(errors) if error > ROUNDING]
    right = [length for length in range(first, last + 1) if length not in wrong]
    shown = ", ".join(map(str, right[:8])) + (", …" if len(right) > 8 else "") if right else "none"
    state = f"wrong at {len(wrong)} of {len(errors)} lengths · right at {shown}"
    labelled = tuple(length for length in range(first, last + 1) if length % PAGE_SLOTS == 0)
    bars = Bars(tuple(errors), first, labelled, ROUNDING, "tokens in the cache", "|logit − right logit|")
    rows = [
        f"{start:4d}  " + _letters(start, min(start + PAGE_SLOTS - 1, last), wrong)
        for start in range(first, last + 1, PAGE_SLOTS)
    ]
    badge = Badge("computed", "the engine's own decoder in float32")
    return log_bars(Words(title, ask, state, badge), bars, "\n".join([*rows, "      # error   . none"]))


def _letters(start: int, end: int, wrong: Sequence[int]) -> str:
    return "".join("#" if length in wrong else "." for length in range(start, end + 1))
