"""The bug clinic's ten symptoms as one numbered picture: curves, attention rows and texts, and no cause."""

import math
from collections.abc import Sequence

from lab_engine.attention_clinic import Curve, Row, Symptom, Text, symptoms
from lab_engine.kv_pages import PAGE_SLOTS
from widgets.playground import Badge
from widgets.still import WIDTH, Still, Surface, Words
from widgets.token_text import LETTER, text_columns, text_pieces

GAP, HEAD, LEFT = 20, 24, 72
CELL = (WIDTH - LEFT) / 64
LANE, LANE_GAP = 20, 6
BARS, ROW_FOOT = 40, 18
LINE = 18
DECADES = 4
"""A curve's bars are logarithmic: 10⁻⁴ is the line, 1 and more are full height."""
_KINDS = {
    "curve": "error of the four heads' outputs, at 1 to 64 tokens in the cache",
    "row": "weights of one head's row",
    "text": "two texts, each right and as it was written",
}


def clinic_picture() -> Still:
    """All ten symptoms, in about three seconds."""
    shown = symptoms()
    heights = [_height(symptom) for symptom in shown]

    def draw(surface: Surface) -> None:
        top = 0.0
        for symptom, height in zip(shown, heights, strict=True):
            _draw(surface, symptom, top)
            top += height

    kinds = [symptom.kind for symptom in shown]
    counts = " · ".join(f"{kinds.count(kind)} {kind}s" for kind in dict.fromkeys(kinds))
    ask = "Ten symptoms, six causes. Where is each of them right? Curves: no bar is no error; "
    ask += "a quarter of the height is a factor of ten."
    words = Words("Bug clinic", ask, f"{len(shown)} symptoms · {counts}", Badge("computed", "tiny-coder, one bug each"))
    return Still(words, sum(heights), draw, "\n\n".join(map(_text, shown)))


def _height(symptom: Symptom) -> int:
    match symptom.shown:
        case Curve(errors):
            body = len(errors) * (LANE + LANE_GAP) + ROW_FOOT
        case Row():
            body = 2 * (BARS + LANE_GAP) + ROW_FOOT
        case texts:
            body = sum(_text_height(text) for text in texts)
    return HEAD + body + GAP


def _draw(surface: Surface, symptom: Symptom, top: float) -> None:
    surface.text(0, top + HEAD / 2, str(symptom.number), "big b")
    surface.line(0, top, WIDTH, top, "rule")
    surface.text(32, top + HEAD / 2, _caption(symptom), "s mu")
    match symptom.shown:
        case Curve():
            _draw_curve(surface, symptom.shown, top + HEAD)
        case Row():
            _draw_row(surface, symptom.shown, top + HEAD)
        case texts:
            for text in texts:
                _draw_text(surface, text, top + HEAD)
                top += _text_height(text)


def _caption(symptom: Symptom) -> str:
    if isinstance(symptom.shown, Row):
        row = symptom.shown
        return f"{_KINDS['row']}: how token {row.length - 1}, the newest of {row.length}, looks at the slots"
    return _KINDS[symptom.kind]


# Curves and rows ----------------------------------------------------------------------------------------------------


def _draw_curve(surface: Surface, curve: Curve, top: float) -> None:
    for head, errors in enumerate(curve.errors):
        bottom = top + (LANE + LANE_GAP) * head + LANE
        surface.text(LEFT - 8, bottom - LANE / 2, f"head {head}", "s mu e")
        surface.line(LEFT, bottom, WIDTH, bottom, "axis")
        for at, error in enumerate(errors):
            if error:
                height = LANE * min(1.0, 1 + math.log10(error) / DECADES)
                surface.rect(LEFT + CELL * at + 1, bottom - height, CELL - 2, height, "cw solid")
    _draw_scale(surface, top + (LANE + LANE_GAP) * len(curve.errors), 64, first=1, name="tokens")


def _draw_row(surface: Surface, row: Row, top: float) -> None:
    largest = max(*row.right, *row.wrong)
    for at, (name, weights) in enumerate((("right", row.right), ("with a bug", row.wrong))):
        bottom = top + (BARS + LANE_GAP) * at + BARS
        surface.text(LEFT - 8, bottom - BARS / 2, name, "s mu e")
        surface.line(LEFT, bottom, WIDTH, bottom, "axis")
        width = (WIDTH - LEFT) / len(weights)
        for slot, weight in enumerate(weights):
            height = BARS * weight / largest
            if height >= 0.5:
                classes = "c3 solid" if name == "right" else "cw solid"
                surface.rect(LEFT + width * slot + 1, bottom - height, width - 2, height, classes)
    _draw_scale(surface, top + 2 * (BARS + LANE_GAP), len(row.right), first=0, name="slot")


def _draw_scale(surface: Surface, top: float, count: int, first: int, name: str) -> None:
    """Numbers below the first and last place of every page."""
    width = (WIDTH - LEFT) / count
    surface.text(LEFT - 8, top + 6, name, "s mu e")
    last = (*range(PAGE_SLOTS, count + 1, PAGE_SLOTS),)
    for number in (*(one if first else one - 1 for one in last), *((1,) if first else (0,))):
        surface.text(min(LEFT + width * (number - first + 0.5), WIDTH - 7), top + 6, str(number), "s mu c")


# Texts --------------------------------------------------------------------------------------------------------------


def _pieces(token_texts: Sequence[str]) -> list[tuple[int, int, int, str]]:
    return text_pieces(list(token_texts), text_columns(WIDTH - LEFT))


def _rows(token_texts: Sequence[str]) -> int:
    return _pieces(token_texts)[-1][1] + 1


def _text_height(text: Text) -> int:
    return LINE * (1 + _rows(text.right) + _rows(text.wrong)) + 8


def _draw_text(surface: Surface, text: Text, top: float) -> None:
    surface.text(LEFT, top + LINE / 2, _before(text), "s mu")
    top += LINE
    for name, token_texts, departs in (("right", text.right, None), ("with a bug", text.wrong, text.departs)):
        surface.text(LEFT - 8, top + LINE / 2, name, "s mu e")
        for token, row, column, string in _pieces(token_texts):
            _draw_piece(surface, LEFT + LETTER * column, top + LINE * (row + 0.5), string, departs, token)
        top += LINE * _rows(token_texts)


def _draw_piece(surface: Surface, x: float, y: float, string: str, departs: int | None, token: int) -> None:
    """A token; from the first wrong one on it is underlined, and that one has a box."""
    shown, wrong = string.lstrip(" "), departs is not None and token >= departs
    indent = LETTER * (len(string) - len(shown))
    if token == departs:
        surface.rect(x, y - 8, LETTER * len(string), 16, "cw fill")
    elif wrong and shown:
        surface.line(x + indent, y + 8, x + LETTER * len(string), y + 8, "axis")
    if shown:
        surface.text(x + indent, y, shown, "m cw ink" if wrong else "m")


def _before(text: Text) -> str:
    end = text.prompt.rstrip().splitlines()[-1].strip()
    place = "" if text.departs is None else f" · first wrong with {text.prompt_tokens + text.departs} in the cache"
    return f"prompt of {text.prompt_tokens} tokens, “…{end[-20:]}”{place}"


# In letters ---------------------------------------------------------------------------------------------------------


def _text(symptom: Symptom) -> str:
    lines = [f"{symptom.number}  {_caption(symptom)}"]
    match symptom.shown:
        case Curve(errors):
            lines += [f"   head {head}  {''.join(map(_letter, one))}" for head, one in enumerate(errors)]
            lines += ["           " + "".join(f"{end:>16}" for end in range(16, 65, 16)) + "   # wrong  . right"]
        case Row(_, _, right, wrong):
            for name, weights in (("right", right), ("with a bug", wrong)):
                lines += [f"   {name:10}  page {at}  {one}" for at, one in enumerate(_percents(weights))]
            lines.append("               in % of the weight")
        case texts:
            for text in texts:
                wrong_text = ["|" * (at == text.departs) + one for at, one in enumerate(text.wrong)]
                lines += [f"   {_before(text)}"]
                lines += [f"   right       {''.join(text.right)}".replace("\n", "↵")]
                lines += [f"   with a bug  {''.join(wrong_text)}".replace("\n", "↵")]
    return "\n".join(lines)


def _letter(error: float) -> str:
    return "#" if error else "."


def _percents(weights: Sequence[float]) -> list[str]:
    """Whole percents, a line a page."""
    pages = [weights[at : at + PAGE_SLOTS] for at in range(0, len(weights), PAGE_SLOTS)]
    return ["".join(f"{100 * weight:3.0f}" for weight in page) for page in pages]
