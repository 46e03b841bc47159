"""Tokens on a grid of letters, as widgets/static/token_text.js lays them out in the browser."""

LETTER = 7.23
"""Px of a 12 px letter of DejaVu Sans Mono."""


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
