"""Lab 01's picture of what a mistake does to a group: how many steps every weight moves."""

from collections.abc import Sequence

from lab_engine.int4_mistakes import INT4_MISTAKES, MisreadGroup
from widgets.playground import Badge
from widgets.still import WIDTH, Still, Surface, Words
from widgets.words import signed

ROW, TITLE, MOST_STEPS = 76, 20, 15
BAR = WIDTH / 128


def misread_picture(groups: Sequence[MisreadGroup], source: str) -> Still:
    """One row a mistake; a bar is a weight, up or down by the steps that it moves; source: which group it is.

    Weights whose own nibble was overrun by a neighbour's sign are solid, all others tinted.
    """

    def draw(surface: Surface) -> None:
        for at, group in enumerate(groups):
            _draw_row(surface, group, ROW * at)

    moved = [f"{group.mistake} moves {sum(map(bool, steps_of(group)))}" for group in groups]
    state = f"{len(groups[0].codes)} weights · {' · '.join(moved)}"
    ask = "A bar is a weight: how many steps does it move? Solid: a neighbour's sign bits overran its nibble."
    words = Words("What each mistake does to a group", ask, state, Badge("computed", source))
    return Still(words, ROW * len(groups), draw, "\n".join(map(_line, groups)))


def steps_of(group: MisreadGroup) -> list[int]:
    """How many levels each weight moves."""
    return [read - code for read, code in zip(group.read, group.codes, strict=True)]


def _draw_row(surface: Surface, group: MisreadGroup, top: float) -> None:
    zero = top + TITLE + (ROW - TITLE) / 2
    unit = (ROW - TITLE - 8) / 2 / MOST_STEPS
    surface.text(0, top + TITLE / 2, group.mistake, "b")
    surface.text(128, top + TITLE / 2, INT4_MISTAKES[group.mistake], "s mu")
    surface.text(WIDTH, top + TITLE / 2, _range(group), "s mu e")
    surface.line(0, zero, WIDTH, zero, "axis")
    for at, (steps, smeared) in enumerate(zip(steps_of(group), group.smeared, strict=True)):
        height = max(3, abs(steps) * unit)
        if steps:
            y = zero - height if steps > 0 else zero
            surface.rect(BAR * at + 0.5, y, BAR - 1, height, "cw solid" if smeared else "cw fill")


def _range(group: MisreadGroup) -> str:
    steps = steps_of(group)
    low, high = (signed(f"{step:+d}") for step in (min(steps), max(steps)))
    return f"{low} to {high} steps" if low != high else f"all by {low}"


def _line(group: MisreadGroup) -> str:
    moved, overrun = sum(map(bool, steps_of(group))), sum(group.smeared)
    more = f", {overrun} nibbles overrun" if overrun else ""
    return f"{group.mistake:13} {moved:3} of {len(group.codes)} weights move, {_range(group)}{more}"
