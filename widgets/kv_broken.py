"""Lab 04's picture of a broken cache: what two texts should be, what they became, and the slots that tell why."""

from lab_engine.kv_mistakes import BrokenText, KVMistakeTrace
from lab_engine.kv_turns import PageState, Write
from widgets.playground import Badge
from widgets.still import WIDTH, Still, Surface, Words
from widgets.token_text import LINE, draw_tokens, in_line, text_columns, text_rows
from widgets.words import token_label

HALF = WIDTH // 2
COLUMNS = text_columns(HALF - 16)
HEAD, GAP = 28, 16
SLOTS_X, SLOT, ROW = 160, 25, 26
HUES = {"A": "c1", "B": "c2", "AB": "c4"}
_ASKS = {
    "floor_pages": "The prompts fill whole pages, so the first new token is right. What can the next not see?",
    "double_free": "Find the words of one text in the other. Why is the count 1?",
    "shared_half_page": "Compare the two texts at the right: whose text is it?",
}


def kv_broken_picture(trace: KVMistakeTrace) -> Still:
    """Both texts, right beside wrong, above the pages at the moment of the first wrong token."""
    texts_end = sum(_text_height(text) for text in trace.texts)
    height = texts_end + HEAD + ROW * len(trace.pages) + 48

    def draw(surface: Surface) -> None:
        top = 0
        for text in trace.texts:
            _draw_text(surface, text, top)
            top += _text_height(text)
        _draw_pages(surface, trace, top)

    words = Words(
        trace.mistake,
        f"{trace.cause[0].upper()}{trace.cause[1:]}. {_ASKS[trace.mistake]}",
        " · ".join([*map(_departure, trace.texts), *_finding(trace)]),
        Badge("computed", "tiny-coder"),
    )
    return Still(words, height, draw, _text(trace))


def _departure(text: BrokenText) -> str:
    return (
        f"{text.name} is right" if text.departs is None else f"{text.name} wrong from new token {text.departs + 1} on"
    )


def _finding(trace: KVMistakeTrace) -> list[str]:
    """What the pages say."""
    if any(text.read < text.length for text in trace.texts):
        return [f"{text.name}: {text.read} of {text.length} tokens read" for text in trace.texts]
    page_id = trace.overwritten[-1][0]
    count = next(page.count for page in trace.pages if page.page_id == page_id)
    found = [f"page {page_id}: two owners, count {count}, {len(trace.overwritten)} slots written twice"]
    return [*found, "both write the same text"] if trace.same_text else found


# The texts ----------------------------------------------------------------------------------------------------------


def _text_height(text: BrokenText) -> int:
    rows = max(text_rows(one, COLUMNS) for one in (text.right, text.wrong))
    return HEAD + LINE * rows + GAP


def _draw_text(surface: Surface, text: BrokenText, top: float) -> None:
    begins = text.fed or text.prompt.rstrip().splitlines()[-1].strip()
    surface.text(0, top + HEAD / 2, f"{text.name}, right", "b")
    surface.text(64, top + HEAD / 2, f"after {token_label(begins)}", "s mu")
    surface.text(HALF + 8, top + HEAD / 2, f"{text.name}, with the mistake", "b")
    surface.text(WIDTH, top + HEAD / 2, "all right" if text.departs is None else "box: first wrong token", "s mu e")
    surface.line(0, top + HEAD - 2, HALF - 8, top + HEAD - 2)
    surface.line(HALF + 8, top + HEAD - 2, WIDTH, top + HEAD - 2)
    draw_tokens(surface, text.right, 0, top + HEAD, COLUMNS)
    draw_tokens(surface, text.wrong, HALF + 8, top + HEAD, COLUMNS, text.departs)


# The pages ----------------------------------------------------------------------------------------------------------


def _draw_pages(surface: Surface, trace: KVMistakeTrace, top: float) -> None:
    surface.text(0, top + HEAD / 2, "The pages", "b")
    surface.text(80, top + HEAD / 2, f"when each has {trace.moment + 1} new tokens, the last one not fed yet", "s mu")
    unread = _unread(trace)
    for row, page in enumerate(trace.pages):
        y = top + HEAD + ROW * row
        surface.text(0, y + SLOT / 2, f"id {page.page_id}", "b")
        surface.text(48, y + SLOT / 2, f"count {page.count} · {', '.join(page.holders)}", "s mu")
        for slot, writes in enumerate(page.slots):
            _draw_slot(surface, SLOTS_X + SLOT * slot, y, writes, (page.page_id, slot) in unread)
    bottom = top + HEAD + ROW * len(trace.pages)
    surface.text(SLOTS_X - 8, bottom + 10, "slot", "s mu e")
    for slot in range(16):
        surface.text(SLOTS_X + SLOT * (slot + 0.5), bottom + 10, str(slot), "s mu c")
    _draw_slot(
        surface, SLOTS_X, bottom + 20, (Write("A", 0, ""), Write("B", 0, ""))[: 1 if unread else 2], bool(unread)
    )
    said = "never read" if unread else "the second wrote over the first"
    surface.text(SLOTS_X + SLOT + 8, bottom + 32, said, "s")
    if len(trace.pages) > 1 and not unread:
        _draw_slot(surface, SLOTS_X + 240, bottom + 20, (Write("AB", 0, ""),), False)
        surface.text(SLOTS_X + SLOT + 248, bottom + 32, "the common prompt", "s")


def _draw_slot(surface: Surface, x: float, y: float, writes: tuple[Write, ...], unread: bool) -> None:
    """A slot in the hue of its writer, or in that of what is wrong: two wrote it, or nobody reads it."""
    if not writes:
        surface.rect(x + 1, y + 1, SLOT - 2, SLOT - 4, "empty")
        return
    hue = "cw" if unread or len(writes) > 1 else HUES[writes[-1].sequence]
    surface.rect(x + 1, y + 1, SLOT - 2, SLOT - 4, f"{hue} fill")
    letters = "›".join(write.sequence for write in writes)
    surface.text(x + SLOT / 2, y + SLOT / 2 - 1, letters, f"s c {hue} ink")


def _unread(trace: KVMistakeTrace) -> set[tuple[int, int]]:
    """(page id, slot) of every token that attention does not read."""
    return {
        (text.page_table[token // 16], token % 16) for text in trace.texts for token in range(text.read, text.length)
    }


# In letters ---------------------------------------------------------------------------------------------------------


def _text(trace: KVMistakeTrace) -> str:
    lines = []
    for text in trace.texts:
        lines += [f"{text.name} right  {in_line(text.right)}", f"  wrong  {in_line(text.wrong, text.departs)}"]
    unread = _unread(trace)
    lines += [_page_line(page, unread) for page in trace.pages]
    star = "never read" if unread else "written twice, the letter is the last writer's"
    return "\n".join([*lines, f"* {star}; |: the first wrong token begins"])


def _page_line(page: PageState, unread: set[tuple[int, int]]) -> str:
    slots = (
        (writes[-1].sequence[-1] if writes else ".")
        + ("*" if len(writes) > 1 or (page.page_id, slot) in unread else "")
        for slot, writes in enumerate(page.slots)
    )
    return f"id {page.page_id:2} · count {page.count} · {' '.join(page.holders):3}  " + "".join(f"{s:3}" for s in slots)
