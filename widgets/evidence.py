"""Where a number comes from, and tables that say so: badges, and tables of plain strings in the look of the course.

A table is text/html and text/plain, both made of its strings alone, so nbval compares every figure in it. What differs
from machine to machine belongs into a LiveTable (`widgets/live_table.py`).
"""

import html
import re
from dataclasses import dataclass

from widgets.playground import Badge

WORDS = {
    "quoted": "quoted",
    "computed": "computed",
    "simulated": "simulated",
    "measured": "measured here",
    "recorded": "recorded on H200",
}
SIGNS = {
    "quoted": "M2 4h3v3.5c0 1.5-1 2.5-2.5 2.5M7.5 4h3v3.5c0 1.5-1 2.5-2.5 2.5",
    "computed": "M2 4.5h8M2 8h8",
    "simulated": "M1 6c1.5-4.5 3.5-4.5 5 0s3.5 4.5 5 0",
    "measured": "M1 4h10v5H1zM3.5 4v2.5M6 4v2.5M8.5 4v2.5",
    "recorded": "M6 1.5a4.5 4.5 0 1 0 .01 0zM6 5a1 1 0 1 0 .01 0z",
}
"""The badge's word and its sign, a path of 12 × 12 px; the same as in widgets/static/shell.js."""

STYLE = """
.nl{--nl-muted:#595959;--nl-line:#858585;--nl-rule:var(--jp-border-color2,#e0e0e0);
--nl-text:var(--jp-ui-font-color1,#212121);--nl-ui:var(--jp-ui-font-family,system-ui,sans-serif);
--nl-mono:var(--jp-code-font-family,"DejaVu Sans Mono",monospace);
color:var(--nl-text);font:400 13px/20px var(--nl-ui);font-variant-numeric:tabular-nums;text-align:left}
[data-jp-theme-light="false"] .nl{--nl-muted:#b4b4b4;--nl-line:#8a8a8a}
.nl .nl-badge{display:inline-flex;align-items:center;gap:6px;font:400 11px/16px var(--nl-ui);color:var(--nl-text);
border:1px solid var(--nl-line);border-radius:2px;height:24px;padding:0 8px;white-space:nowrap}
.nl .nl-badge svg{fill:none;stroke:currentColor;stroke-width:1.5}
.nl .nl-source{font:400 12px/16px var(--nl-ui);color:var(--nl-muted);margin-left:4px}
.nl .nl-card{border:1px solid var(--nl-rule);border-radius:2px;padding:12px 16px;overflow-x:auto}
.nl .nl-card p{margin:0;font:400 13px/20px var(--nl-ui)}
.nl .nl-card p.t{font-weight:600}.nl .nl-card p.n{color:var(--nl-muted);margin-top:8px}
.nl .nl-card table{border-collapse:collapse;margin:8px 0 0;table-layout:auto;font:400 13px/20px var(--nl-ui)}
.nl .nl-card tbody tr:nth-child(n),.nl .nl-card tbody tr:hover{background:none}
.nl .nl-card th,.nl .nl-card td{padding:4px 16px 4px 0;text-align:left;vertical-align:top;max-width:none;
border:0;border-top:1px solid var(--nl-rule);color:var(--nl-text);white-space:normal}
.nl .nl-card thead th{font:400 12px/16px var(--nl-ui);color:var(--nl-muted);border-top:0;vertical-align:bottom}
.nl .nl-card th.r,.nl .nl-card td.r{text-align:right}
.nl .nl-card td.r{white-space:nowrap}
""".strip()


def badge_html(badge: Badge) -> str:
    """The badge as HTML, its source beside it."""
    sign = f'<svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true"><path d="{SIGNS[badge.kind]}"/></svg>'
    source = f'<span class="nl-source">{html.escape(badge.source)}</span>'
    return f'<span class="nl-badge">{sign}{WORDS[badge.kind]}</span> {source}'


def badge_text(badge: Badge) -> str:
    """The badge in letters: `computed: bytes ÷ bandwidth`."""
    return f"{WORDS[badge.kind]}: {badge.source}"


Cell = str | Badge

_NUMBER = re.compile(r"[<≤≥≈−–\d][\d.,  %×−–]*( [a-zµ]?[A-Za-z]{1,2})?")


@dataclass(frozen=True, repr=False)
class Table:
    """A titled table of strings; a cell may be a Badge. `badge` holds for all rows, `note` says what to look at.

    Columns whose cells are all numbers stand at the right. Without rows only title, note and badge are shown.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    badge: Badge | None = None
    note: str = ""

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(f"table {self.title!r}: expected {len(self.columns)} cells in a row, found {wrong[0]}")

    def __repr__(self) -> str:
        grid = [self.columns, *(tuple(map(cell_text, row)) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
        lines = ["  ".join(map(_padded, row, widths, self.numeric)).rstrip() for row in grid]
        rest = [badge_text(self.badge)] if self.badge else []
        shown = ["  " + line for line in lines] if self.rows else []
        return "\n".join([self.title, *shown, *([self.note] if self.note else []), *rest])

    def _repr_html_(self) -> str:
        return f'<style>{STYLE}</style><div class="nl">{self.card()}</div>'

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers only."""
        return tuple(
            all(not isinstance(row[column], Badge) and _NUMBER.fullmatch(str(row[column])) for row in self.rows)
            for column in range(len(self.columns))
        )

    def card(self) -> str:
        """The table without the style sheet."""
        sides = [' class="r"' if right else "" for right in self.numeric]
        head = "".join(f"<th{side}>{html.escape(name)}</th>" for name, side in zip(self.columns, sides, strict=True))
        rows = [zip(map(_cell_html, row), sides, strict=True) for row in self.rows]
        body = "".join(f"<tr>{''.join(f'<td{side}>{cell}</td>' for cell, side in row)}</tr>" for row in rows)
        note = f'<p class="n">{html.escape(self.note)}</p>' if self.note else ""
        badge = f'<p class="n">{badge_html(self.badge)}</p>' if self.badge else ""
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if self.rows else ""
        return f'<div class="nl-card"><p class="t">{html.escape(self.title)}</p>{table}{note}{badge}</div>'


def cell_text(cell: Cell) -> str:
    """A cell in letters."""
    return badge_text(cell) if isinstance(cell, Badge) else cell


def _cell_html(cell: Cell) -> str:
    return badge_html(cell) if isinstance(cell, Badge) else html.escape(cell)


def _padded(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)
