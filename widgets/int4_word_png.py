"""The word's PNG: the picture of int4_word.js on a wide page, drawn by matplotlib from the same data."""

from collections.abc import Mapping
from typing import Any

from widgets.figures import Canvas, Dash
from widgets.words import hex_word, signed

Data = Mapping[str, Any]

MARGIN, WIDTH, LEFT, BIT, CELL, ROW, PITCH = 16, 868, 128, 19, 76, 24, 32
NIBBLES, TEXT, ROWS, RESULT, NOTES, UNPACKED = 72, 148, 180, 288, 316, 380
HUES = {"k": "c4", "m": "ca", "x": "cw", ".": "c4"}


def word_png(data: Data, name: str, at: int) -> bytes:
    """Step `at` of the method `name`; every step and method has the same size."""
    method = data["methods"][name]
    step = method["steps"][at]
    canvas = Canvas(WIDTH + 2 * MARGIN, UNPACKED + 36 + 2 * MARGIN)
    _weights(canvas, data, data["orders"][method["layout"]])
    _words(canvas, step, at, len(method["steps"]) - 1)
    _operands(canvas, step)
    _bits(canvas, MARGIN + RESULT, step["result"], "b")
    _changed(canvas, step["changed"])
    for note in step["notes"]:
        _note(canvas, note)
    _unpacked(canvas, method, at)
    return canvas.png()


def _words(canvas: Canvas, step: Data, at: int, count: int) -> None:
    """The instruction, why it is there, and how many are spent."""
    canvas.text(MARGIN, MARGIN + TEXT, step["text"], "m b" if at else "b")
    canvas.text(MARGIN, MARGIN + TEXT + 17, step["why"], "mu")
    canvas.text(MARGIN + WIDTH, MARGIN + TEXT, _spent(at, count), "e b" if at == count else "e mu")


def _operands(canvas: Canvas, step: Data) -> None:
    """Right above the result, or at the top where wires lead down from them."""
    at_top = "table" in step or step["wires"]
    rows = ROWS if at_top else ROWS + PITCH * (3 - len(step["rows"]))
    for high, low in step["bands"]:
        x = _bit(high) - 3
        canvas.rect(x, MARGIN + rows - 4, _bit(low) + BIT + 3 - x, RESULT + ROW + 8 - rows, "ca fill")
    for start, end, letter in step["wires"]:
        _wire(canvas, _middle(start), ROWS + ROW, _middle(end), RESULT, _hue(letter))
    if "table" in step:
        _lookup(canvas, step)
    for number, row in enumerate(step["rows"]):
        _bits(canvas, MARGIN + rows + PITCH * number, row, "")


def _nibble(place: int) -> int:
    return MARGIN + LEFT + (7 - place) * (CELL + 4) + (4 if place < 4 else 0)


def _middle(place: int) -> float:
    return _nibble(place) + CELL / 2


def _bit(place: int) -> int:
    return _nibble(place // 4) + (3 - place % 4) * BIT


def _wire(canvas: Canvas, x1: float, y1: float, x2: float, y2: float, hue: str, dash: Dash = "solid") -> None:
    canvas.path([(x1, MARGIN + y1), (x2, MARGIN + y2)], hue, dash)


def _hue(letter: str | int) -> str:
    return HUES.get(str(letter)) or f"c{int(letter) // 2 + 1}"


def _weights(canvas: Canvas, data: Data, order: list[int]) -> None:
    for place, weight in enumerate(order):
        _wire(canvas, _middle(weight), 40, _middle(place), NIBBLES, _hue(weight))
        code = data["codes"][weight]
        for column, y, height, value in (
            (weight, 0, 40, signed(code)),
            (place, NIBBLES, 36, f"{code + 8:X}"),
        ):
            canvas.rect(_nibble(column), MARGIN + y, CELL, height, f"{_hue(weight)} fill")
            canvas.text(_nibble(column) + 5, MARGIN + y + 9, f"w{weight}", "s mu")
            canvas.text(_middle(column), MARGIN + y + height / 2 + 2, value, "c b big")
        canvas.text(_middle(place), MARGIN + NIBBLES + 46, f"nibble {place}", "c s mu")
    canvas.text(MARGIN, MARGIN + 20, "weight, q", "mu")
    canvas.text(MARGIN, MARGIN + NIBBLES + 18, "nibble, n = q + 8", "mu")


def _bits(canvas: Canvas, y: float, row: Data, classes: str) -> None:
    canvas.text(MARGIN, y + ROW / 2, row["label"], classes)
    if not row["fill"]:
        return
    for place, letter in zip(range(31, -1, -1), row["fill"], strict=True):
        plain = letter in ".-"
        if not plain:
            canvas.rect(_bit(place), y, BIT, ROW, f"{_hue(letter)} fill")
        if letter != "-":
            canvas.text(
                _bit(place) + BIT / 2, y + ROW / 2, str(row["value"] >> place & 1), "c m mu" if plain else "c m b"
            )
    for nibble in range(8):
        canvas.rect(_nibble(nibble), y, CELL, ROW, "hatch" if row["fill"][31 - 4 * nibble] == "-" else "empty")
    canvas.text(MARGIN + WIDTH, y + ROW / 2, hex_word(row["value"]), f"e m {classes or 'mu'}")


def _changed(canvas: Canvas, changed: int) -> None:
    """Lines under the bits that differ from the first operand."""
    bottom, right = MARGIN + RESULT + ROW, MARGIN + WIDTH
    for place in range(32):
        if changed >> place & 1:
            canvas.line(_bit(place) + 3, bottom - 3, _bit(place) + BIT - 3, bottom - 3, "sel")
    if changed:
        canvas.line(right - 72, bottom + 16, right - 56, bottom + 16, "sel")
        canvas.text(right, bottom + 16, "changed", "e s mu")


def _spent(at: int, count: int) -> str:
    if at == count:
        return f"{count} / 8 = {count / 8:g} instructions a weight"
    return f"{at} instruction{'s' if at > 1 else ''} so far" if at else ""


def _lookup(canvas: Canvas, step: Data) -> None:
    table = (ROWS + ROW + RESULT) / 2 - 18
    top, height = MARGIN + table, 36
    for place, pick in enumerate(step["picks"]):
        hue = _hue(pick["owner"])
        dash: Dash = "dashed" if pick["sign"] else "solid"
        _wire(canvas, _middle(place), ROWS + ROW, _middle(pick["byte"]), table, hue, dash)
        end = (_bit(8 * place + 7) + _bit(8 * place) + BIT) / 2
        _wire(canvas, _middle(pick["byte"]), table + height, end, RESULT, hue, dash)
    for place, byte in enumerate(step["table"]):
        owner = next((pick["owner"] for pick in step["picks"] if pick["byte"] == place), None)
        hue = "empty" if owner is None else f"{_hue(owner)} fill"
        canvas.rect(_nibble(place), top, CELL, height, hue)
        canvas.text(_nibble(place) + 5, top + 9, f"byte {place}", "s mu")
        canvas.text(_nibble(place) + CELL - 5, top + 9, byte["value"], "e s mu")
        canvas.text(_middle(place), top + 25, byte["hex"], "c m mu" if owner is None else "c m b")
    canvas.text(MARGIN, top + 10, "table of 8 bytes")
    canvas.text(MARGIN, top + 26, " | ".join(step["tableNames"]), "s mu")


def _note(canvas: Canvas, note: Data) -> None:
    first, last, y = note["from"], note["to"], MARGIN + NOTES + 2
    parts = [(first, last, "")]
    if note["fields"]:
        parts = [(first, first, "s"), (first - 1, first - 5, "exponent"), (first - 6, last, "mantissa")]
    for high, low, name in parts:
        left, right = _bit(high) + 1.5, _bit(low) + BIT - 1.5
        canvas.line(left, y + 4, right, y + 4, "axis")
        canvas.text((left + right) / 2, y + 14, name, "c s mu")
    middle = (_bit(first) + _bit(last) + BIT) / 2
    look = {"cw": "ink cw b"}.get(note["look"], note["look"])
    canvas.text(middle, y + (34 if note["fields"] else 16), note["text"], f"c {look}")
    canvas.text(middle, y + 50, note["more"], "c s mu")


def _unpacked(canvas: Canvas, method: Data, at: int) -> None:
    y = MARGIN + UNPACKED
    ready = [value["right"] for value, done in zip(method["unpacked"], method["done"], strict=True) if done <= at]
    for weight, value in enumerate(method["unpacked"]):
        if method["done"][weight] > at:
            canvas.rect(_nibble(weight), y, CELL, 28, "empty dash")
            continue
        hue = _hue(weight) if value["right"] else "cw"
        canvas.rect(_nibble(weight), y, CELL, 28, f"{hue} fill")
        canvas.text(_nibble(weight) + 5, y + 8, f"w{weight}", "s mu")
        canvas.text(_middle(weight), y + 15, value["text"], "c b" if value["right"] else "c b ink cw")
    canvas.text(MARGIN, y + 14, "unpacked, fp16", "mu")
    if not all(ready):
        canvas.text(MARGIN + WIDTH, y + 14, f"✕ {ready.count(False)} wrong", "e b ink cw")
    else:
        done = len(ready) == len(method["done"])
        canvas.text(
            MARGIN + WIDTH, y + 14, f"{'✓ ' if done else ''}{len(ready)} of 8", "e b ink c2" if done else "e mu"
        )
