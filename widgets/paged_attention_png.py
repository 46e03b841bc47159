"""The tail lens's PNG: the row, the page under the lens, the error by length and the texts, without the board."""

from collections.abc import Sequence

from lab_engine.kv_pages import PAGE_SLOTS
from widgets.figures import Canvas
from widgets.paged_attention_data import (
    Data,
    Number,
    Step,
    View,
    flat_text,
    held_text,
    is_own,
    leak,
    off_words,
    share_words,
    shares,
    shown,
    token_cell,
    view_of,
)
from widgets.token_text import LETTER, text_columns, text_pieces

MARGIN, LEFT, WIDTH, GAP = 16, 132, 868, 12
SLOT = (WIDTH - LEFT - 3 * GAP) / 64
SCORES, MASK, RIGHT, WRONG, NUMBERS, LENS, ERRORS, TEXTS, HEIGHT = 26, 120, 138, 204, 286, 374, 494, 594, 692
SCORE_TOP, SCORE_HEIGHT, WEIGHTS, BARS, ERROR_TOP = 20, 86, 34, 44, 1.25
CELLS = ("max m", "× rescale", "sum l", "acc/l off by")


def lens_png(data: Data, bug: str, length: int, head: int, step: int) -> bytes:
    """Every part but the board of switches, whose state the picture shows."""
    view = view_of(data, bug, length, head, step)
    canvas = Canvas(WIDTH + 2 * MARGIN, HEIGHT + 2 * MARGIN)
    _heads(canvas, view)
    _scores(canvas, view)
    _mask(canvas, view)
    weights = [shares(view, steps) for steps in (view.right, view.wrong)]
    top = max(float(weight) for one in weights for weight in one if isinstance(weight, float | int))
    _weights(canvas, RIGHT, view, view.right, top, "✓ right", "ink c2")
    if view.run["rows"] is not None:
        _weights(canvas, WRONG, view, view.wrong, top, f"✕ {view.run['label']}", "ink cw")
        canvas.text(MARGIN + 20, MARGIN + WRONG + 28, view.run["cause"], "s mu")
    _numbers(canvas, view)
    _lens(canvas, data, view, weights)
    _errors(canvas, view.run["errors"][head], length)
    _texts(canvas, data, view)
    return canvas.png()


def _page_x(page: int) -> float:
    return MARGIN + LEFT + page * (PAGE_SLOTS * SLOT + GAP)


def _x(slot: int) -> float:
    return _page_x(slot // PAGE_SLOTS) + slot % PAGE_SLOTS * SLOT


def _column(canvas: Canvas, slot: int, top: float, height: float, classes: str) -> None:
    canvas.rect(_x(slot) + 0.5, MARGIN + top, SLOT - 1, max(1, height), classes)


def _heads(canvas: Canvas, view: View) -> None:
    for page in range(4):
        x, wide = _page_x(page), PAGE_SLOTS * SLOT
        who = f"worker {page}" if view.run["workers"] > 1 else f"page {page}"
        read = page <= view.page
        page_id = view.wrong[page].page_id if read else view.table[page]
        name = f"{who} · id {page_id}" if page < view.num_pages else "no page"
        if read and page_id != view.table[page]:
            name += f", not {view.table[page]}"
        canvas.text(x + wide / 2, MARGIN + 8, name, "c b" if page == view.page else "c" if read else "c mu")
        canvas.line(x, MARGIN + 20, x + wide, MARGIN + 20, "sel" if page == view.page else "axis")


def _scores(canvas: Canvas, view: View) -> None:
    found = [[*step.scores, step.m] for steps in (view.wrong, view.right) for step in steps]
    numbers = [value for row in found for value in row if isinstance(value, float | int)]
    low, high = min(0, *numbers), max(0, *numbers)

    def y(value: float) -> float:
        return SCORES + SCORE_TOP + (high - value) / ((high - low) or 1) * (SCORE_HEIGHT - 6 - SCORE_TOP)

    canvas.text(MARGIN, MARGIN + SCORES + 30, "score")
    canvas.text(MARGIN, MARGIN + SCORES + 46, "q·k / √128", "s mu")
    for value in (low, 0, high):
        if value == 0 or abs(y(value) - y(0)) > 14:
            canvas.line(
                MARGIN + LEFT, MARGIN + y(value), MARGIN + WIDTH, MARGIN + y(value), "rule" if value else "axis"
            )
            canvas.text(MARGIN + LEFT - 8, MARGIN + y(value), shown(value, 2), "e s mu")
    for page, (wrong, right) in enumerate(zip(view.wrong, view.right, strict=True)):
        for slot, (score, plain) in enumerate(zip(wrong.scores, right.scores, strict=True)):
            at = PAGE_SLOTS * page + slot
            if score is None or isinstance(score, str):
                _column(canvas, at, SCORES, SCORE_HEIGHT, "hatch" if score is plain is None else "cw fill")
                continue
            top, bottom = sorted((y(score), y(0)))
            _column(canvas, at, top, bottom - top, "c4 solid" if _same(score, plain) else "cw fill")
        if isinstance(wrong.m, float | int):
            height = MARGIN + y(wrong.m)
            canvas.line(_page_x(page), height, _page_x(page) + PAGE_SLOTS * SLOT, height, "sel")
            if page == view.page:
                canvas.text(
                    _page_x(page) + PAGE_SLOTS * SLOT - 2, height - 9, f"max m {shown(wrong.m)}", "e s b ink ca"
                )


def _same(score: float, right: Number) -> bool:
    return isinstance(right, float | int) and abs(right - score) < 0.006 * max(1, abs(right))


def _mask(canvas: Canvas, view: View) -> None:
    canvas.text(MARGIN, MARGIN + MASK + 6, "mask")
    for page in range(view.num_pages):
        valid = min(PAGE_SLOTS, view.length - PAGE_SLOTS * page)
        canvas.rect(_page_x(page), MARGIN + MASK, valid * SLOT, 12, "c4 fill")
        if valid < PAGE_SLOTS:
            canvas.rect(_page_x(page) + valid * SLOT, MARGIN + MASK, (PAGE_SLOTS - valid) * SLOT, 12, "hatch")


def _weights(canvas: Canvas, y: int, view: View, steps: Sequence[Step], top: float, name: str, hue: str) -> None:
    wrong = steps is view.wrong and view.run["rows"] is not None
    base = y + (42 if wrong else 24) + WEIGHTS
    share = leak(view, steps)
    words = f"{share_words(share)} of the weight leaks to slots that are not its own"
    if share == "NaN":
        words = "every weight is NaN"
    if wrong or not view.last:
        words += f" · {'output' if view.last else 'so far'} {off_words(steps[-1].off)}"
    canvas.text(MARGIN, MARGIN + y + 12, name, f"b {hue}")
    canvas.text(MARGIN + WIDTH, MARGIN + y + 12, words, f"e {hue} b" if wrong else "e")
    canvas.text(MARGIN, MARGIN + base - 12, "weight")
    canvas.text(MARGIN + LEFT - 8, MARGIN + base - WEIGHTS + 4, share_words(top), "e s mu")
    for height, classes in ((base, "axis"), (base - WEIGHTS, "rule")):
        canvas.line(MARGIN + LEFT, MARGIN + height, MARGIN + WIDTH, MARGIN + height, classes)
    for slot, weight in enumerate(shares(view, steps)):
        if isinstance(weight, str) or weight is None:
            _column(canvas, slot, base - WEIGHTS, WEIGHTS, "cw fill")
        elif weight > 0:
            high = WEIGHTS * weight / top
            _column(canvas, slot, base - high, high, "c4 solid" if is_own(view, slot, steps) else "cw fill")


def _numbers(canvas: Canvas, view: View) -> None:
    both, wide = view.run["rows"] is not None, PAGE_SLOTS * SLOT
    for row, name in enumerate(CELLS):
        canvas.text(MARGIN, MARGIN + NUMBERS + 22 + 16 * row, name)
    for page, (right, wrong) in enumerate(zip(view.right, view.wrong, strict=True)):
        if both:
            canvas.text(_page_x(page) + wide / 4, MARGIN + NUMBERS + 4, "right", "c s mu")
            canvas.text(_page_x(page) + 3 * wide / 4, MARGIN + NUMBERS + 4, "bug", "c s mu")
        combined = view.run["workers"] > 1 and view.last and page == view.num_pages - 1
        for row, (a, b) in enumerate(zip(_cells(right, combined), _cells(wrong, combined), strict=True)):
            y = MARGIN + NUMBERS + 22 + 16 * row
            canvas.text(_page_x(page) + wide * (0.25 if both else 0.5), y, a, "c s m")
            if both:
                canvas.text(_page_x(page) + 3 * wide / 4, y, b, "c s m mu" if a == b else "c s m b ink cw")


def _cells(step: Step, combined: bool) -> tuple[str, ...]:
    """combined: the last of several workers shows how far off all of them are together."""
    off = ("all: " if combined else "") + off_words(step.off).replace("off ", "").replace("right", "0 %")
    return shown(step.m), shown(step.rescale) if step.rescale else "–", shown(step.l), off


def _lens(canvas: Canvas, data: Data, view: View, weights: Sequence[Sequence[Number]]) -> None:
    cell, x0, y0 = (WIDTH - LEFT) / PAGE_SLOTS, MARGIN + LEFT, MARGIN + LENS
    canvas.text(MARGIN, y0 + 10, f"page {view.page}", "b ink ca")
    lower = "weight, no bug" if view.run["rows"] is None else "with the bug"
    for row, name in enumerate(("holds", "weight, right", lower)):
        canvas.text(MARGIN, y0 + 27 + 17 * row, name, "s")
    for slot in range(PAGE_SLOTS):
        at, x = PAGE_SLOTS * view.page + slot, x0 + slot * cell
        canvas.rect(x, y0 + 18, cell, 18, "c4 fill" if is_own(view, at, view.wrong) else "empty")
        canvas.text(x + cell / 2, y0 + 27, token_cell(held_text(data, view, slot))[:6], "c s")
        for row, one in enumerate(weights):
            canvas.text(x + cell / 2, y0 + 44 + 17 * row, share_words(one[at], 1).replace(" %", ""), "c s")
    canvas.rect(x0, y0 + 18, WIDTH - LEFT, 53, "sel")
    valid = min(PAGE_SLOTS, view.length - PAGE_SLOTS * view.page)
    canvas.text(x0, y0 + 84, f"{valid} of {PAGE_SLOTS} slots valid. Weights in %.", "s mu")


def _errors(canvas: Canvas, errors: Sequence[Number], length: int) -> None:
    bottom = ERRORS + 28 + BARS
    canvas.text(MARGIN, MARGIN + ERRORS + 8, "Error of the output, had the text ended there", "b")
    canvas.text(MARGIN, MARGIN + bottom + 14, "context", "s mu")
    for share in (0, 1):
        y = MARGIN + bottom - BARS * share / ERROR_TOP
        canvas.line(MARGIN + LEFT, y, MARGIN + WIDTH, y, "rule" if share else "axis")
        canvas.text(MARGIN + LEFT - 8, y, share_words(share), "e s mu")
    for at, error in enumerate(errors):
        if isinstance(error, str) or error is None:
            _column(canvas, at, bottom - BARS, BARS, "cw fill")
            continue
        high = BARS * min(ERROR_TOP, error) / ERROR_TOP
        _column(canvas, at, bottom - max(2, high), max(2, high), "cw solid" if error >= 1e-5 else "c2 solid")
    for shown_length in (1, 16, 32, 48, 64):
        if abs(shown_length - length) > 2:
            canvas.text(_x(shown_length - 1) + SLOT / 2, MARGIN + bottom + 14, str(shown_length), "c s mu")
    canvas.rect(_x(length - 1) - 1, MARGIN + bottom - BARS - 2, SLOT + 2, BARS + 4, "sel")
    canvas.text(_x(length - 1) + SLOT / 2, MARGIN + bottom + 14, str(length), "c s b ink ca")


def _texts(canvas: Canvas, data: Data, view: View) -> None:
    canvas.text(
        MARGIN, MARGIN + TEXTS + 8, "What the model writes" if view.run["modelHas"] else "Without such K it writes", "b"
    )
    right = data["runs"]["right"]
    runs = [("right", right), ("with the bug", view.run)] if view.run["rows"] is not None else [("right", right)]
    for number, (name, run) in enumerate(runs):
        y = MARGIN + TEXTS + 28 + number * 36
        wrong = len(run["text"]) if run["departs"] is None else run["departs"]
        canvas.text(MARGIN, y, name)
        for token, row, column, string in text_pieces(flat_text(run["text"]), text_columns(WIDTH - LEFT)):
            x = MARGIN + LEFT + column * LETTER
            canvas.text(x, y + 16 * row, string, "m ink cw" if token >= wrong else "m")
