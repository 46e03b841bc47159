"""The page playground in words and letters: the state sentence, what an action did, the counters, a small picture."""

import textwrap
from collections.abc import Iterator, Sequence

from lab_engine.kv_pages import PAGE_SLOTS
from lab_engine.kv_trace import Frame
from widgets.kv_pages_view import MAX_TOKENS, SLOT_BYTES, TOKEN_BYTES, Scene, holders, usage
from widgets.words import percent, significant

FILLED, EMPTY = "#", "."


def memory(count: int) -> str:
    """Bytes in units of 1024: `896 KiB`, `1.75 GiB`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{significant(count / size)} {unit}"
    return f"{count} B"


def ids_words(page_ids: Sequence[int]) -> str:
    """`id 5`, `ids 5, 9, 2`."""
    return f"id{'s' if len(page_ids) > 1 else ''} {', '.join(map(str, page_ids))}"


def kv_sentence(scene: Scene) -> str:
    """`A · token 55 · page 3 → id 12 · slot 7 · bytes 50944–51199`; what was refused, in the engine's words."""
    frame, place = scene.frame, scene.place
    if frame.error:
        return f"{frame.action} · refused: {frame.error}"
    if place:
        token = f"token {place.token}" if place.filled else "no token"
        where = f"page {place.page} → id {place.page_id} · slot {place.slot}"
        return f"{scene.name} · {token} · {where} · bytes {place.first_byte}–{place.first_byte + SLOT_BYTES - 1}"
    free = f"{len(frame.free_ids)} of {len(frame.ref_counts)} ids free"
    return " · ".join([scene.name or "no sequence", *([no_place_words(scene)] if scene.name else []), free])


def no_place_words(scene: Scene) -> str:
    """Why a chosen sequence has no slot to show."""
    if scene.one:
        return "no token yet"
    return "freed" if scene.name in scene.frame.freed else "not made yet"


def event_words(frame: Frame) -> tuple[str, str]:
    """The action and what it did: `append B`, `copied id 9 to id 2, because A holds it too`."""
    action = frame.action
    if action is None:
        return "before the first action", f"every page is free; the next one is id {frame.free_ids[0]}"
    if frame.error:
        return str(action), f"refused: {frame.error}"
    return str(action), _effect(frame)


def _effect(frame: Frame) -> str:
    kind = frame.action.kind if frame.action else ""
    table = frame.table(frame.subject)
    if kind == "new":
        return f"{frame.subject} has no token and no page"
    if kind == "fork":
        return f"{frame.subject} shares {ids_words(table)}; nothing is copied" if table else f"{frame.subject} is empty"
    if kind == "append":
        return _append_words(frame)
    returned = f"{ids_words(frame.returned)} returned" if frame.returned else "no id returned"
    return f"{frame.subject}, the oldest: {returned}" if kind == "evict" else returned


def _append_words(frame: Frame) -> str:
    copies = [f"copied id {old} to id {new}, since others hold it" for old, new in frame.copied]
    taken = frame.taken[len(copies) :]
    return "; ".join([*copies, *([f"took {ids_words(taken)}"] if taken else [])]) or "no id taken: the tail has room"


def counters(frame: Frame) -> list[tuple[str, str, str]]:
    """Label, value and note of the four counters; bytes are the 7B's."""
    now, total, each = usage(frame), len(frame.ref_counts), MAX_TOKENS * TOKEN_BYTES
    share = now.empty_slots / (now.used * PAGE_SLOTS) if now.used else 0
    filled = percent(now.tokens / (now.sequences * MAX_TOKENS) if now.sequences else 0, 1)
    reserved = f"{now.sequences} × {memory(each)} = {memory(now.sequences * each)}"
    return [
        ("used ids", f"{now.used} of {total}", _in_the_7b(now.used * PAGE_SLOTS)),
        ("free ids", str(now.free), f"longest run {now.longest_run}"),
        ("empty slots in tails", f"{now.empty_slots} ({percent(share, 1)})", _in_the_7b(now.empty_slots)),
        (f"contiguous, {MAX_TOKENS:,} tokens each", reserved, f"{filled} filled, the rest wasted"),
    ]


def _in_the_7b(slots: int) -> str:
    return f"{memory(slots * TOKEN_BYTES)} in the 7B"


def kv_text(scene: Scene) -> str:
    """The action, the page tables, every used page with its slots, the counters."""
    action, effect = event_words(scene.frame)
    return "\n".join([
        *textwrap.wrap(f"action {scene.step} of {scene.steps - 1}: {action}: {effect}", 88),
        "", *_table_rows(scene), "", *_pool_rows(scene.frame), "",
        *(f"{label:<32}{value:<25}{note}" for label, value, note in counters(scene.frame)),
    ])  # fmt: skip


def _table_rows(scene: Scene) -> Iterator[str]:
    yield "   tokens  page ids"
    for one in scene.frame.sequences:
        mark = ">" if one.name == scene.name else " "
        yield f"{mark}{one.name} {one.length:>6}  {' '.join(map(str, one.page_table))}".rstrip()


def _pool_rows(frame: Frame) -> Iterator[str]:
    yield "   id  slots             held by"
    for page_id, count in enumerate(frame.ref_counts):
        held = holders(frame, page_id)
        valid = max((one.valid for one in held), default=0)
        if count:
            names = f"{' '.join(one.name for one in held)} as page {held[0].page}"
            yield f"   {page_id:>2}  {FILLED * valid + EMPTY * (PAGE_SLOTS - valid)}  {names}"
    shown = " ".join(map(str, frame.free_ids))
    yield f"free, next first: {shown or 'none'}"
