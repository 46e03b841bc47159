"""The word in plain letters: weights, nibbles, bits, and the weights unpacked so far. The same on every machine."""

from collections.abc import Iterable, Mapping
from typing import Any

from widgets.words import hex_word

Data = Mapping[str, Any]
ASCII = str.maketrans({"−": "-", "×": "x", "≠": "is not"})
LABEL, WIDTH = 16, 40


def word_text(data: Data, name: str, at: int) -> str:
    """The picture at step `at` of the method `name`, bit 31 at the left."""
    method = data["methods"][name]
    step, order, codes = method["steps"][at], data["orders"][method["layout"]], data["codes"]
    rows = [
        _row("weight", _cells(f"w{weight}" for weight in range(8))),
        _row("q", _cells(str(code) for code in codes)),
        _row("nibble of", _cells(f"w{weight}" for weight in order)),
        _row("n = q + 8", _cells(f"{codes[weight] + 8:X}" for weight in order), method["word"]),
        "",
        step["text"],
        *(_bits(row) for row in step["rows"]),
        *_table_rows(step),
        _bits(step["result"]),
        *_note_rows(step["notes"]),
        "",
        _row("unpacked", _cells(_unpacked(method, weight, at) for weight in range(8))),
    ]
    return "\n".join(rows).translate(ASCII)


def _unpacked(method: Data, weight: int, at: int) -> str:
    value = method["unpacked"][weight]
    return "." if method["done"][weight] > at else value["text"] + ("" if value["right"] else "!")


def _cells(cells: Iterable[str]) -> str:
    """Eight cells in the columns of the nibbles, the first at the right."""
    columns = [f"{cell:^4}" for cell in cells][::-1]
    return f"{' '.join(columns[:4])}  {' '.join(columns[4:])}"


def _bits(row: Data) -> str:
    if not row["fill"]:
        return _row(row["label"], "")
    bits = f"{row['value']:032b}"[16 if row["fill"][0] == "-" else 0 :].rjust(32)
    return _row(row["label"], _cells(bits[at : at + 4] for at in range(28, -4, -4)), hex_word(row["value"]))


def _table_rows(step: Data) -> list[str]:
    if "table" not in step:
        return []
    picks = [f"{'sign of ' if pick['sign'] else 'byte '}{pick['byte']}" for pick in step["picks"]]
    return [
        _row("table, byte", _cells(str(place) for place in range(8))),
        _row("", _cells(byte["hex"] for byte in step["table"])),
        _row("picks", _wide(picks[::-1], 9)),
    ]


def _note_rows(notes: list[Data]) -> list[str]:
    if not notes:
        return []
    if len(notes) == 8:
        return [_row("", _cells(note["text"] for note in notes))]
    ordered = sorted(notes, key=lambda note: -note["to"])
    room = {1: WIDTH, 2: 19, 4: 9}[len(notes)]
    return [_row("", _wide([note[key] for note in ordered], room)) for key in ("text", "more") if notes[0][key]]


def _wide(cells: list[str], room: int) -> str:
    middle = len(cells) // 2
    columns = [f"{cell:^{room}}" for cell in cells]
    return f"{' '.join(columns[:middle])}  {' '.join(columns[middle:])}" if middle else columns[0]


def _row(label: str, rest: str, end: str = "") -> str:
    return f"{label:<{LABEL}}{rest:<{WIDTH}}  {end}".rstrip()
