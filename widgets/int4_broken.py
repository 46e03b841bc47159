"""Lab 01's picture of what a mistake does to a group: how many steps every weight moves."""

from collections.abc import Sequence

from lab_engine.int4_mistakes import INT4_MISTAKES, MisreadGroup
from widgets.playground import Badge
from widgets.still import WIDTH, Still, Surface, Words
from widgets.words import signed

KEY, TITLE, BARS, GAP, FOOT = 28, 20, 92, 12, 20
ROW = TITLE + BARS + GAP
LEFT = 48
MOST_STEPS = 15
UNIT = BARS / 2 / MOST_STEPS
MARKED = (8, 0, -8)
"""The steps that have a line: without the + 8, codes move by as many."""
NAMED = (0, 32, 64, 96, 127)
OVERRUN, MOVED = "cw solid", "c4 fill"


def misread_picture(groups: Sequence[MisreadGroup], source: str) -> Still:
    """One row a mistake; a bar is a weight, up or down by the steps that it moves; source: which group it is.

    Weights whose own nibble was overrun by a neighbour's sign are solid, all others hollow.
    """

    def draw(surface: Surface) -> None:
        _draw_key(surface)
        for at, group in enumerate(groups):
            _draw_row(surface, group, KEY + ROW * at)
        _draw_numbers(surface, KEY + ROW * len(groups) - GAP, len(groups[0].codes))

    moved = [f"{group.mistake} moves {sum(map(bool, steps_of(group)))}" for group in groups]
    state = f"{len(groups[0].codes)} weights · {' · '.join(moved)}"
    ask = "A bar is a weight: how many steps does it move, up or down? No bar: it stays."
    words = Words("What each mistake does to a group", ask, state, Badge("computed", source))
    return Still(words, KEY + ROW * len(groups) - GAP + FOOT, draw, "\n".join(map(_line, groups)))


def steps_of(group: MisreadGroup) -> list[int]:
    """How many levels each weight moves."""
    return [read - code for read, code in zip(group.read, group.codes, strict=True)]


def _draw_key(surface: Surface) -> None:
    for x, classes, said in (
        (LEFT, OVERRUN, "a neighbour's sign bits overran its nibble"),
        (LEFT + 280, MOVED, "moved in another way"),
    ):
        surface.rect(x, 3, 10, 10, classes)
        surface.text(x + 18, 8, said, "s")


def _draw_row(surface: Surface, group: MisreadGroup, top: float) -> None:
    zero, steps = top + TITLE + BARS / 2, steps_of(group)
    surface.text(0, top + TITLE / 2, group.mistake, "b")
    surface.text(112, top + TITLE / 2, INT4_MISTAKES[group.mistake], "s mu")
    surface.text(WIDTH, top + TITLE / 2, _range(group), "s mu e")
    for step in MARKED:
        surface.line(LEFT, zero - step * UNIT, WIDTH, zero - step * UNIT, "rule" if step else "axis")
        surface.text(LEFT - 8, zero - step * UNIT, signed(f"{step:+d}") if step else "0", "s mu e")
    width = (WIDTH - LEFT) / len(steps)
    for at, (step, overrun) in enumerate(zip(steps, group.smeared, strict=True)):
        if step:
            bar = LEFT + width * at + 0.5, min(zero, zero - step * UNIT), width - 1, abs(step) * UNIT
            surface.rect(*bar, OVERRUN if overrun else MOVED)


def _draw_numbers(surface: Surface, top: float, count: int) -> None:
    """Which weight stands where, below the last row."""
    width = (WIDTH - LEFT) / count
    surface.text(LEFT - 8, top + FOOT / 2 + 2, "weight", "s mu e")
    for at in NAMED:
        middle = LEFT + width * (at + 0.5)
        surface.line(middle, top, middle, top + 4, "axis")
        surface.text(min(middle, WIDTH - 11), top + FOOT / 2 + 2, str(at), "s mu c")


def _range(group: MisreadGroup) -> str:
    steps = steps_of(group)
    low, high = (signed(f"{step:+d}") for step in (min(steps), max(steps)))
    return f"{low} to {high} steps" if low != high else f"all by {low}"


def _line(group: MisreadGroup) -> str:
    moved, overrun = sum(map(bool, steps_of(group))), sum(group.smeared)
    more = f", {overrun} nibbles overrun" if overrun else ""
    return f"{group.mistake:13} {moved:3} of {len(group.codes)} weights move, {_range(group)}{more}"
