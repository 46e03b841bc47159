"""What a checker answers: one frozen record that prints as text and draws itself as HTML.

A verdict holds plain strings and numbers only, no tensor and no exception, so that it can be kept, compared and tested.
Both forms depend on nothing but the record (no time, no path, no progress): a notebook's committed output stays true.
"""

import html
import re
from dataclasses import dataclass
from typing import Literal

from lab_engine.checks.verdict_style import COLOUR, SIGN, STYLE

Status = Literal["not started", "passed", "failed"]


@dataclass(frozen=True)
class Row:
    """One line of the failing case: a label, its values as text, and a note at the right (a whole word, a range).

    Without values the note has the line for itself.
    """

    label: str
    values: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, repr=False)
class Verdict:
    """The answer of one check.

    passed of total cases were right before the first wrong one, which `case` names. given, expected and yours are that
    case as small numbers; differ holds the columns in which yours is not expected. message says in words what went
    wrong (an exception, a wrong type), hint what to think about. cases names everything that was tried.
    """

    exercise: str
    status: Status
    passed: int
    total: int
    cases: str = ""
    case: str = ""
    message: str = ""
    given: tuple[Row, ...] = ()
    expected: Row | None = None
    yours: Row | None = None
    differ: tuple[int, ...] = ()
    hint: str = ""

    @property
    def rows(self) -> tuple[Row, ...]:
        """given, expected, yours: the table from top to bottom."""
        return (*self.given, *(row for row in (self.expected, self.yours) if row is not None))

    def __repr__(self) -> str:
        head, tail = _headline(self)
        parts = [f"{head} ({tail})" if self.status == "not started" else f"{head} {tail}"]
        if self.case:
            parts.append(f"  case: {self.case}")
        if self.message:
            parts.append("  " + self.message)
        parts += _text_table(self)
        if self.hint:
            parts.append("  Hint: " + self.hint)
        return "\n".join(parts).replace("`", "")

    def _repr_html_(self) -> str:
        head, tail = _headline(self)
        body = f'<p><span class="v">{_inline(head)}</span> <span class="n">{_inline(tail)}</span></p>'
        if self.case:
            body += f'<p><span class="n">case:</span> {_inline(self.case)}</p>'
        if self.message:
            body += f"<p>{_inline(self.message)}</p>"
        body += _html_table(self)
        if self.hint:
            body += f'<p class="nl-hint"><b>Hint</b> {_inline(self.hint)}</p>'
        card = f'<div class="nl-verdict {COLOUR[self.status]}" role="status">{SIGN[self.status]}<div>{body}</div></div>'
        return f'<style>{STYLE}</style><div class="nl">{card}</div>'


def _headline(verdict: Verdict) -> tuple[str, str]:
    name = verdict.exercise
    if verdict.status == "not started":
        return f"{name}: not started yet", f"write the body of `{name}`, then run the cell again"
    if verdict.status == "passed":
        return f"{name}: passed", f"{verdict.passed} of {verdict.total} cases: {verdict.cases}"
    if not verdict.case:
        return f"{name}: failed", "before the first case"
    before = f", after {verdict.passed} that passed" if verdict.passed else ""
    return f"{name}: failed", f"on case {verdict.passed + 1} of {verdict.total}{before}"


def _text_table(verdict: Verdict) -> list[str]:
    rows = verdict.rows
    if not rows:
        return []
    columns = max(len(row.values) for row in rows)
    label = max(len(row.label) for row in rows)
    widths = [max(len(row.values[i]) for row in rows if i < len(row.values)) for i in range(columns)]
    lines = [f"    {row.label:<{label}}  {_values_and_note(row, widths)}".rstrip() for row in rows]
    if verdict.differ:
        marks = tuple("^" * widths[i] if i in verdict.differ else "" for i in range(columns))
        lines.append(f"    {'':<{label}}  {_cells(marks, widths)}".rstrip())
    return lines


def _values_and_note(row: Row, widths: list[int]) -> str:
    return f"{_cells(row.values, widths)}  {row.note}" if row.values else row.note


def _cells(values: tuple[str, ...], widths: list[int]) -> str:
    padded = values + ("",) * (len(widths) - len(values))
    return "  ".join(f"{value:>{width}}" for value, width in zip(padded, widths, strict=True))


def _html_table(verdict: Verdict) -> str:
    rows = verdict.rows
    if not rows:
        return ""
    columns = max(len(row.values) for row in rows)
    notes = any(row.note for row in rows if row.values)
    lines = []
    for row in rows:
        if not row.values:
            cell = f'<td class="line" colspan="{columns + notes}">{html.escape(row.note)}</td>'
            lines.append(f'<tr><th scope="row">{html.escape(row.label)}</th>{cell}</tr>')
            continue
        cells = ""
        for column in range(columns):
            bad = ' class="bad"' if row is verdict.yours and column in verdict.differ else ""
            value = row.values[column] if column < len(row.values) else ""
            cells += f"<td{bad}>{html.escape(value)}</td>"
        note = f'<td class="w">{html.escape(row.note)}</td>' if notes else ""
        lines.append(f'<tr><th scope="row">{html.escape(row.label)}</th>{cells}{note}</tr>')
    return f"<table><tbody>{''.join(lines)}</tbody></table>"


def _inline(text: str) -> str:
    """Escape text for HTML and draw `code` as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
