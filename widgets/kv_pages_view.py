"""What the page playground shows of a history at one step: the chosen slot, who holds a page, how full the pool is."""

from collections.abc import Sequence
from dataclasses import dataclass

from lab_engine.bench.models import QWEN_7B
from lab_engine.kv_pages import PAGE_SLOTS, element_address
from lab_engine.kv_trace import Frame, Holder

HEAD_DIM, ELEMENT_BYTES = 128, 2
"""Of the shipped model, whose plane 0 the addresses lie in."""
SLOT_BYTES = HEAD_DIM * ELEMENT_BYTES
TOKEN_BYTES = QWEN_7B.num_layers * 2 * QWEN_7B.num_kv_heads * QWEN_7B.head_dim * ELEMENT_BYTES
"""What one token takes in the 7B, K and V of all layers."""
MAX_TOKENS = QWEN_7B.max_positions
"""What a contiguous cache of the 7B reserves for every sequence."""
ROWS = "ABCDEFGH"
"""The names that the picture has a row for."""


@dataclass(frozen=True)
class Place:
    """A slot of a sequence: logical page, page id, slot; filled: it holds a token, the one of this number."""

    token: int
    page: int
    page_id: int
    slot: int
    filled: bool
    first_byte: int


@dataclass(frozen=True)
class PageHolder:
    """A sequence that holds a page id: as which logical page, and with how many tokens in it."""

    name: str
    page: int
    valid: int


@dataclass(frozen=True)
class Scene:
    """A step of a history: its frame, the chosen sequence ("" for none), its table if it is alive, the chosen slot."""

    frame: Frame
    step: int
    steps: int
    name: str
    one: Holder | None
    place: Place | None


def scene_at(frames: Sequence[Frame], step: int, sequence: str, token: int) -> Scene:
    """The scene of a state; sequence "" is the one that the last action was about, token -1 the newest."""
    step = min(step, len(frames) - 1)
    frame = frames[step]
    name = sequence or _last_subject(frames[: step + 1])
    one = next((one for one in frame.sequences if one.name == name), None)
    return Scene(frame, step, len(frames), name, one, _place(one, token, len(frame.ref_counts)))


def _last_subject(frames: Sequence[Frame]) -> str:
    for frame in reversed(frames):
        if frame.subject and frame.action and frame.action.kind != "evict":
            return frame.subject
    return ""


def _place(one: Holder | None, token: int, num_pages: int) -> Place | None:
    if one is None or not one.page_table:
        return None
    token = one.length - 1 if token < 0 else min(token, len(one.page_table) * PAGE_SLOTS - 1)
    page, slot = divmod(token, PAGE_SLOTS)
    page_id = one.page_table[page]
    first = element_address(0, num_pages, page_id, slot, 0, HEAD_DIM, ELEMENT_BYTES)
    return Place(token, page, page_id, slot, token < one.length, first)


def valid_slots(one: Holder, page: int) -> int:
    """Slots of a logical page that hold a token of this sequence."""
    return min(PAGE_SLOTS, one.length - page * PAGE_SLOTS)


def holders(frame: Frame, page_id: int) -> list[PageHolder]:
    """The sequences that hold an id, by name."""
    held = ((one, one.page_table.index(page_id)) for one in frame.sequences if page_id in one.page_table)
    return [PageHolder(one.name, page, valid_slots(one, page)) for one, page in held]


@dataclass(frozen=True)
class Usage:
    """How full the pool is. longest_run: neighbouring free ids; empty_slots: of used pages; tokens: of all tables."""

    used: int
    free: int
    longest_run: int
    empty_slots: int
    sequences: int
    tokens: int


def usage(frame: Frame) -> Usage:
    """Counted from the frame's tables and reference counts."""
    counts, run, longest = frame.ref_counts, 0, 0
    for count in counts:
        run = 0 if count else run + 1
        longest = max(longest, run)
    valid = [max(one.valid for one in holders(frame, page_id)) for page_id, count in enumerate(counts) if count]
    tokens = sum(one.length for one in frame.sequences)
    empty = len(valid) * PAGE_SLOTS - sum(valid)
    return Usage(len(valid), counts.count(0), longest, empty, len(frame.sequences), tokens)
