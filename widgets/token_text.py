"""Tokens on a grid of letters, as widgets/static/token_text.js lays them out in the browser."""

from collections.abc import Sequence

from widgets.still import Surface

LETTER = 7.23
"""Px of a 12 px letter of DejaVu Sans Mono."""

LINE = 18
"""Px from one row of letters to the next."""


def text_columns(width: int) -> int:
    """Letters in a row of `width` px, with room for a ↵ at its end."""
    return int(width / LETTER) - 1


def text_pieces(texts: list[str], columns: int) -> list[tuple[int, int, int, str]]:
    """(token, row, column, string) of every piece.

    A token that fits into a row stays whole; a newline is shown as ↵, in one letter's room beyond the last column if
    need be, and ends its row.
    """
    pieces: list[tuple[int, int, int, str]] = []
    row = column = 0
    for token, string in enumerate(texts):
        first = len(string.split("\n")[0])
        if column + first > columns >= first:
            row, column = row + 1, 0
        fresh = True
        for letter in string:
            if column >= columns and letter != "\n":
                row, column, fresh = row + 1, 0, True
            shown = "↵" if letter == "\n" else letter if letter.isprintable() else " "
            if fresh:
                pieces.append((token, row, column, shown))
            else:
                pieces[-1] = (*pieces[-1][:3], pieces[-1][3] + shown)
            row, column, fresh = (row + 1, 0, True) if letter == "\n" else (row, column + 1, False)
    return pieces


def text_rows(texts: Sequence[str], columns: int) -> int:
    """Rows that the tokens take."""
    return text_pieces(list(texts), columns)[-1][1] + 1


def draw_tokens(
    surface: Surface, texts: Sequence[str], left: float, top: float, columns: int, departs: int | None = None
) -> None:
    """Letters on a grid; the token `departs` has a box, the ones after it are underlined."""
    for token, row, column, string in text_pieces(list(texts), columns):
        x, y, width = left + LETTER * column, top + LINE * row + LINE / 2, LETTER * len(string)
        wrong = departs is not None and token >= departs
        if token == departs:
            surface.rect(x, y - 8, width, 16, "cw fill")
        shown = string.lstrip(" ")
        indent = LETTER * (len(string) - len(shown))
        if wrong and token != departs and shown:
            surface.line(x + indent, y + 8, x + width, y + 8, "axis")
        if shown:
            surface.text(x + indent, y, shown, "m cw ink" if wrong else "m mu" if shown == "↵" else "m")


def in_line(texts: Sequence[str], departs: int | None = None) -> str:
    """All tokens in one line, a bar before the token `departs`."""
    marked = ["|" * (at == departs) + text for at, text in enumerate(texts)]
    return "".join(marked).replace("\n", "↵")
