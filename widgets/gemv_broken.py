"""Lab 03's picture of a broken GEMV: where y is off, or what a load wastes, and the text that the model then writes."""

import math
from collections.abc import Sequence

from lab_engine.gemv_loads import SECTOR_BYTES, LoadTrace
from lab_engine.gemv_mistakes import GemvError, request, seen_by
from lab_engine.gemv_texts import GemvMistakeTrace
from widgets.evidence import Table
from widgets.playground import Badge
from widgets.still import WIDTH, Still, Surface, Words
from widgets.token_text import LINE, draw_tokens, in_line, text_columns, text_rows
from widgets.words import signed

HEAD, GAP, ROW, BAR = 28, 16, 12, 8
LEFT, TOTAL = 56, 136
HALF = WIDTH // 2
COLUMNS = text_columns(HALF - 16)
SECTOR = 15
MOST_KEY = 40
SEEN = 0.5
"""px: a shorter bar would only colour the axis."""
KEYS = (1.0, 0.5, 0.2, 0.1, 0.05)
"""What the bar of the key may stand for, as a share of the size of y."""

_ASKS = {
    "uncoalesced": "Every number is right, so no comparison finds it. What does a load bring, and what is used of it?",
    "missing_correction": "The bars of a column are about alike: why do some point left, and why has group 3 none?",
    "scale_of_group_0": "Which group is right in every row, and where do the longest bars come from: size or sign?",
    "size_of_group_0": "So it is where all scales are positive. The text reads well: which test would have found this?",
}


def gemv_broken_picture(trace: GemvMistakeTrace) -> Still:
    """Above where y is off (or, for loads that waste, one load of a warp), below the text, right beside wrong."""
    loads = trace.mistake == "uncoalesced"
    top = 2 * (HEAD + SECTOR + GAP) if loads else HEAD + 16 + ROW * len(trace.terms) + 20 + GAP

    def draw(surface: Surface) -> None:
        if loads:
            _draw_load(surface, 0, "Right: a warp takes a row", request("none"), "ca")
            _draw_load(
                surface, HEAD + SECTOR + GAP, "With the mistake: a thread takes a row", request(trace.mistake), "cw"
            )
        else:
            _draw_terms(surface, trace)
        _draw_texts(surface, trace, top)

    rows = max(text_rows(text, COLUMNS) for text in (trace.right, trace.wrong))
    words = Words(
        trace.mistake,
        f"{trace.cause[0].upper()}{trace.cause[1:]}. {_ASKS[trace.mistake]}",
        _state(trace),
        Badge("computed", "tiny-coder, gemv_index.cuh" if loads else "tiny-coder"),
    )
    return Still(words, top + HEAD + LINE * rows, draw, _text(trace))


def _state(trace: GemvMistakeTrace) -> str:
    text = "text right" if trace.departs is None else f"text wrong from new token {trace.departs + 1} on"
    largest, load = max(map(abs, trace.rows)), request(trace.mistake)
    if largest:
        return f"rows of y off by up to {_percent(largest)} · {text}"
    return f"y right · {load.used} of {load.moved} moved bytes used · {text}"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


# Where y is off -------------------------------------------------------------------------------------------------------


def _draw_terms(surface: Surface, trace: GemvMistakeTrace) -> None:
    """A row of y is a line, a group a column, and at the right their sum; a bar is how far that part is off."""
    groups, width = len(trace.terms[0]), _group_width(trace)
    unit = unit_of(trace)
    bottom = HEAD + 16 + ROW * len(trace.terms)
    surface.text(0, HEAD / 2, "How far y is off", "b")
    surface.text(112, HEAD / 2, f"{trace.matrix.removeprefix('model.').removesuffix('.weight')}, first rows", "s mu")
    columns = [(LEFT + width * at, width, f"group {at}") for at in range(groups)]
    for x, w, name in (*columns, (WIDTH - TOTAL, TOTAL, "sum")):
        surface.text(x + w / 2, HEAD + 6, name, "s c" if name == "sum" else "s mu c")
        surface.line(x + w / 2, HEAD + 16, x + w / 2, bottom, "axis")
    surface.line(WIDTH - TOTAL - 6, HEAD, WIDTH - TOTAL - 6, bottom)
    for row, (terms, total) in enumerate(zip(trace.terms, trace.rows, strict=True)):
        y = HEAD + 16 + ROW * row + (ROW - BAR) / 2
        surface.text(LEFT - 8, y + BAR / 2, str(row), "s mu e")
        for (x, w, _), value in zip(columns, terms, strict=True):
            _draw_bar(surface, x + w / 2, y, value * unit, "cw fill")
        _draw_bar(surface, WIDTH - TOTAL / 2, y, total * unit, "cw solid")
    surface.text(LEFT - 8, HEAD + 6, "row", "s mu e")
    key = next(share for share in KEYS if share * unit <= MOST_KEY)
    surface.rect(LEFT, bottom + 6, key * unit, BAR, "cw fill")
    said = f"{_percent(key)} of y's root mean square; right: too large, left: too small"
    surface.text(LEFT + key * unit + 8, bottom + 10, said, "s mu")


def _draw_bar(surface: Surface, middle: float, y: float, length: float, classes: str) -> None:
    """From the middle of a column, right for too large."""
    if abs(length) >= SEEN:
        surface.rect(min(middle, middle + length), y, abs(length), BAR, classes)


def unit_of(trace: GemvMistakeTrace) -> float:
    """px of a bar of 100 %: as long as every group's and every row's stays inside its column."""
    groups, rows = (max(map(abs, values)) for values in (sum(trace.terms, ()), trace.rows))
    return min((_group_width(trace) / 2 - 2) / groups, (TOTAL / 2 - 2) / rows)


def _group_width(trace: GemvMistakeTrace) -> float:
    return (WIDTH - LEFT - TOTAL - 12) / len(trace.terms[0])


# What a load wastes ---------------------------------------------------------------------------------------------------


def _draw_load(surface: Surface, top: float, title: str, load: LoadTrace, hue: str) -> None:
    """Each sector that the first load of a warp moves, filled as far as it is used."""
    surface.text(0, top + HEAD / 2, title, "b")
    said = f"{load.used} of {load.moved} B used, {_percent(load.efficiency, 1).replace('.0', '')}"
    surface.text(WIDTH, top + HEAD / 2, said, "s mu e")
    surface.text(LEFT - 8, top + HEAD + SECTOR / 2, "sectors", "s mu e")
    for at, used in enumerate(used_by_sector(load)):
        x = LEFT + SECTOR * at
        surface.rect(x + 1, top + HEAD, SECTOR - 2, SECTOR, "empty")
        surface.rect(x + 1, top + HEAD, (SECTOR - 2) * used / SECTOR_BYTES, SECTOR, f"{hue} solid")


def used_by_sector(load: LoadTrace) -> list[int]:
    """Bytes that lanes asked for of each sector that the load moves."""
    used = {sector: 0 for wanted in load.requests for sector in wanted.sectors}
    for wanted in load.requests:
        for lane in wanted.loads:
            used[lane.start // SECTOR_BYTES] += lane.size
    return list(used.values())


# The texts ------------------------------------------------------------------------------------------------------------


def _draw_texts(surface: Surface, trace: GemvMistakeTrace, top: float) -> None:
    surface.text(0, top + HEAD / 2, "The text, right", "b")
    surface.text(HALF + 8, top + HEAD / 2, "with the mistake", "b")
    surface.text(WIDTH, top + HEAD / 2, "all right" if trace.departs is None else "box: first wrong token", "s mu e")
    for left, end in ((0, HALF - 8), (HALF + 8, WIDTH)):
        surface.line(left, top + HEAD - 2, end, top + HEAD - 2)
    draw_tokens(surface, trace.right, 0, top + HEAD, COLUMNS)
    draw_tokens(surface, trace.wrong, HALF + 8, top + HEAD, COLUMNS, trace.departs)


# In letters -----------------------------------------------------------------------------------------------------------


def _text(trace: GemvMistakeTrace) -> str:
    texts = [f"right  {in_line(trace.right)}", f"wrong  {in_line(trace.wrong, trace.departs)}"]
    if trace.mistake == "uncoalesced":
        lines = (
            _sectors_line(name, request(mistake)) for name, mistake in (("coalesced", "none"), (trace.mistake,) * 2)
        )
        return "\n".join([*lines, *texts])
    head = "row   " + "".join(f"group {at}".rjust(9) for at in range(len(trace.terms[0]))) + "sum".rjust(9)
    rows = zip(trace.terms, trace.rows, strict=True)
    return "\n".join([head, *(_terms_line(at, (*terms, total)) for at, (terms, total) in enumerate(rows)), *texts])


def _terms_line(row: int, values: Sequence[float]) -> str:
    return f"{row:<6}" + "".join(_cell(value).rjust(9) for value in values)


def _cell(value: float) -> str:
    """Per cent with a sign; 0 is right, 0 % a little off."""
    return signed(f"{100 * value:+.0f} %").replace("+0 ", "0 ").replace("\u22120 ", "0 ") if value else "0"


def _sectors_line(name: str, load: LoadTrace) -> str:
    sectors = used_by_sector(load)
    each = f"{sectors[0]} of {SECTOR_BYTES} B used of each"
    return f"{name:12} {len(sectors)} sectors, {each}: {load.used} of {load.moved} B"


# The table ------------------------------------------------------------------------------------------------------------


def gemv_mistakes_table(errors: Sequence[GemvError]) -> Table:
    """Every mistake: the error of y, the bytes that loads move, and the tests that see it; errors: gemv_errors()."""
    columns = ("mistake", "normal weights", "scales of both signs", "shipped model", "bytes moved", "seen by")
    return Table(
        "What each mistake costs, and which test sees it",
        columns,
        tuple(map(_row, errors)),
        Badge("computed", "256 × 3584 normal weights; all 43 matrices of tiny-coder; 1024 activations of mean 0"),
        "Error of y, |y′ − y| / |y|. Normal weights have positive scales (max|w|/7), then scales of both signs as in "
        "the shipped file; of the shipped model the median, and all matrices in brackets. Bytes moved: of one load, "
        "without a cache. Tests: one group a row; equal scales; x that sums to 0 in each group; several scales.",
    )


def _row(entry: GemvError) -> tuple[str, ...]:
    load = request(entry.mistake)
    low, middle, high = (f"{100 * share:.0f}" for share in entry.shipped)
    shipped = f"{middle} % ({low} to {high})" if any(entry.shipped) else "0"
    errors = (f"{100 * share:.0f} %" if share else "0" for share in (entry.positive, entry.signed))
    times = math.ceil(load.moved / load.used)
    return (entry.mistake, *errors, shipped, f"{times} ×", ", ".join(seen_by(entry.mistake)))
