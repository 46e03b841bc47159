"""Charts of a few numbers in the look of the course: bars over a scale of powers of ten."""

import math
from dataclasses import dataclass

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
