"""The tour in plain letters, for a terminal, a diff and a reader without pictures: the same on every machine."""

from collections.abc import Mapping
from typing import Any

from lab_engine.kv_pages import PAGE_SLOTS
from widgets.tour_data import shares, step_bytes
from widgets.words import byte_count, percent

Data = Mapping[str, Any]
Step = Mapping[str, Any]

BAR = 24


def tour_text(data: Data, at: int) -> str:
    """The text with the next token in ‹ ›, the pages slot by slot, shares of the bytes, the five best next tokens."""
    step = data["steps"][at]
    return "\n".join([*_text_rows(data, step), "", *_page_rows(step), "", *_byte_rows(step), "", *_next_rows(step)])


def _text_rows(data: Data, step: Step) -> list[str]:
    tokens, nxt = data["tokens"], step["start"] + step["fed"]
    newest = tokens[nxt]["text"].replace("\n", "\\n")
    text = "".join(token["text"] for token in tokens[:nxt]) + f"‹{newest}›"
    return [_row("text" if number == 0 else "", line.rstrip()) for number, line in enumerate(text.split("\n"))]


def _page_rows(step: Step) -> list[str]:
    tokens = step["start"] + step["fed"]
    rows = []
    for page, page_id in enumerate(step["pageTable"]):
        cells = "".join(_slot_letter(step, page * PAGE_SLOTS + slot, tokens) for slot in range(PAGE_SLOTS))
        taken = "  taken now" if page_id in step["taken"] else ""
        rows.append(_row("" if page else "pages", f"{page} → id {page_id:2d}  [{cells}]{taken}"))
    return [*rows, _row("", "# token   ^ written now   . no token")]


def _slot_letter(step: Step, position: int, tokens: int) -> str:
    if position >= tokens:
        return "."
    return "^" if position >= step["start"] else "#"


def _byte_rows(step: Step) -> list[str]:
    read = step_bytes(dict(step))
    rows = [_row("" if row else "bytes", _bar(stage, share)) for row, (stage, share) in enumerate(shares(read).items())]
    return [*rows, _row("", f"of {byte_count(sum(read.values()))}")]


def _next_rows(step: Step) -> list[str]:
    return [_row("" if row else "next", _bar(one["label"], one["share"])) for row, one in enumerate(step["top"])]


def _bar(name: str, share: float) -> str:
    return f"{name:<20.20} {percent(share):>5}  {'=' * round(share * BAR)}".rstrip()


def _row(name: str, rest: str) -> str:
    return f"{name:<7}{rest}".rstrip()
