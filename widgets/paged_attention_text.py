"""The tail lens in letters: both rows of weights, what every page did, the error by length, both texts."""

from collections.abc import Sequence

from lab_engine.kv_pages import PAGE_SLOTS
from widgets.paged_attention_data import Data, Number, View, flat_text, is_own, off_words, shares, shown, view_of

LEVELS = ".:-=+*%@"
"""A weight or an error by its height, an eighth of the scale a letter; a blank is 0, N is NaN."""


def lens_text(data: Data, bug: str, length: int, head: int, step: int) -> str:
    """Pages are groups of 16 letters; _ is a slot without a token of this sequence."""
    view = view_of(data, bug, length, head, step)
    right, wrong = shares(view, view.right), shares(view, view.wrong)
    top = max(float(w) for w in right if not isinstance(w, str) and w is not None)
    own = "".join("#" if is_own(view, slot, view.wrong) else "_" for slot in range(len(wrong)))
    errors = view.run["errors"][head]
    return "\n".join([
        f"tokens  {_grouped(own)}",
        f"right   {_grouped(_letters(right, top))}",
        f"wrong   {_grouped(_letters(wrong, top))}",
        "",
        *_page_rows(view),
        "",
        f"error   {_grouped(_letters(errors, 1.0))}   by length 1 to {len(errors)}",
        *_text_rows(data, view),
    ])  # fmt: skip


def _grouped(letters: str) -> str:
    return "|".join(letters[at : at + PAGE_SLOTS] for at in range(0, len(letters), PAGE_SLOTS))


def _letters(values: Sequence[Number], top: float) -> str:
    return "".join(_letter(value, top) for value in values)


def _letter(value: Number, top: float) -> str:
    if isinstance(value, str) or value is None:
        return "N"
    part = value / top
    return " " if part < 0.005 else LEVELS[min(len(LEVELS) - 1, int(part * len(LEVELS)))]


def _page_rows(view: View) -> list[str]:
    rows = ["page  id     max m   rescale     sum l   so far"]
    for page, step in enumerate(view.wrong):
        numbers = (step.m, step.rescale, step.l)
        cells = " ".join(f"{shown(value):>9}" for value in numbers)
        rows.append(f"{page:>4} {step.page_id:>3} {cells}   {off_words(step.off)}")
    return rows


def _text_rows(data: Data, view: View) -> list[str]:
    rows = []
    for name, run in (("right", data["runs"]["right"]), ("wrong", view.run)):
        line = "".join(flat_text(run["text"]))
        rows += [f"{name if at == 0 else '':<8}{line[at : at + 68]}".rstrip() for at in range(0, len(line), 68)]
    return ["", *rows]
