"""A table of what only this machine, now, can say: times, versions, devices, progress.

Its text/plain is the same everywhere and says where the numbers are: in the picture. The numbers also lie inside the
PNG as text, so a test can draw a committed one again and compare.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import ipywidgets

from widgets.evidence import STYLE, Table, badge_text, cell_text
from widgets.figures import Canvas, data_in_png, png_with_data, text_width
from widgets.playground import Badge
from widgets.still import mimebundle

ROW, PADDING, GAP = 24, 16, 24
KEY = "nanoqwen-lab table"


class LiveTable(ipywidgets.HTML):  # type: ignore[misc]
    """A Table whose cells may differ from run to run; `text` is the text/plain, and must not."""

    def __init__(self, table: Table, text: str) -> None:
        self.table, self._text = table, text
        super().__init__(value=f'<style>{STYLE}</style><div class="nl">{table.card()}</div>')

    def __repr__(self) -> str:
        return self._text

    def png(self) -> bytes:
        """The table as a picture that carries its cells as JSON."""
        return png_with_data(_draw(self.table), KEY, asdict(self.table))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return mimebundle(self, repr(self), self.png())


def table_in(png: bytes) -> Table | None:
    """The table that a LiveTable's PNG was drawn from; None for any other PNG."""
    data = data_in_png(png, KEY)
    if data is None:
        return None
    rows = tuple(tuple(Badge(**cell) if isinstance(cell, dict) else cell for cell in row) for row in data["rows"])
    badge = Badge(**data["badge"]) if data["badge"] else None
    return Table(data["title"], tuple(data["columns"]), rows, badge, data["note"])


def _draw(table: Table) -> bytes:
    grid = [table.columns, *(tuple(map(cell_text, row)) for row in table.rows)] if table.rows else []
    widths = [max(text_width(cell) for cell in column) for column in zip(*grid, strict=True)]
    feet = [line for line in (table.note, badge_text(table.badge) if table.badge else "") if line]
    inner = max(
        sum(widths) + GAP * (len(widths) - 1), *(text_width(line, "s") for line in feet), text_width(table.title)
    )
    canvas = Canvas(round(inner) + 2 * PADDING, ROW * (len(grid) + 1 + len(feet)) + PADDING)
    canvas.text(PADDING, ROW / 2 + 8, table.title, "b")
    for row, cells in enumerate(grid):
        _draw_row(canvas, cells, widths, table.numeric, row)
    for row, line in enumerate(feet, start=len(grid)):
        canvas.text(PADDING, ROW * (row + 1.5) + 8, line, "s mu")
    return canvas.png()


def _draw_row(canvas: Canvas, cells: Sequence[str], widths: list[float], numeric: Sequence[bool], row: int) -> None:
    x, y = float(PADDING), ROW * (row + 1.5) + 8
    if row:
        canvas.line(PADDING, y - ROW / 2, canvas.width - PADDING, y - ROW / 2)
    for cell, width, right in zip(cells, widths, numeric, strict=True):
        muted = "" if row else " mu"
        canvas.text(x + width if right else x, y, cell, ("e" if right else "") + muted)
        x += width + GAP
