"""What a history of actions does to the paged KV cache: tables, counts and the free list after each of them.

A history is a line of text, "new; append A 20; fork A; append B", or its Actions. It runs on a real KVCache whose
tokens are numbers, so that a copied page holds what was copied. Sequences are named A, B, C, …; `new` and `fork` give
the first letter that no living sequence has. A refused action changes nothing and leaves the engine's own words.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch

from lab_engine import kv_pages
from lab_engine.config import ModelConfig
from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import KVCache

Kind = Literal["new", "append", "fork", "truncate", "free", "evict"]

NAMES = string.ascii_uppercase
TINY = ModelConfig(128, 128, 1, 2, 1, 64, 256, 512, 1e4, 1e-6, tie_embeddings=True)
"""One layer with one KV head: two planes, the least that a cache has."""
_FORMS = "new, append A 15, fork A, truncate A 8, free A or evict"
_FORM = re.compile(
    r"(new|evict)|(fork|free) ([A-Z])|(append) ([A-Z])(?: ([0-9]{1,6}))?|(truncate) ([A-Z]) ([0-9]{1,6})"
)


@dataclass(frozen=True)
class Action:
    """One step of a history. `count`: the tokens of `append`, the length that `truncate` leaves.

    `evict` frees the oldest living sequence, by when it was made.
    """

    kind: Kind
    sequence: str = ""
    count: int = 0

    def __str__(self) -> str:
        count = [str(self.count)] if self.kind == "truncate" or (self.kind == "append" and self.count != 1) else []
        return " ".join([self.kind, *([self.sequence] if self.sequence else []), *count])


@dataclass(frozen=True)
class Holder:
    """A living sequence: its name, its length in tokens, its page table."""

    name: str
    length: int
    page_table: tuple[int, ...]


@dataclass(frozen=True)
class Frame:
    """The cache after an action; `action` is None before the first one.

    sequences: the living ones, by name; freed: names that were alive and are not. ref_counts: of every page id.
    free_ids: the free list, next one first. What the action did: subject, the sequence that it made, changed, freed or
    was refused for; taken, the ids it took; copied, (from, to) of its copy on write; returned, the ids that became
    free, in that order; error, the engine's words where it was refused, else "".
    """

    action: Action | None
    sequences: tuple[Holder, ...]
    freed: tuple[str, ...]
    ref_counts: tuple[int, ...]
    free_ids: tuple[int, ...]
    subject: str = ""
    taken: tuple[int, ...] = ()
    copied: tuple[tuple[int, int], ...] = ()
    returned: tuple[int, ...] = ()
    error: str = ""

    def table(self, name: str) -> tuple[int, ...]:
        """The page table of a living sequence, () for any other name."""
        return next((one.page_table for one in self.sequences if one.name == name), ())


def parse_actions(text: str) -> tuple[Action, ...]:
    """The actions of a line; NanoqwenError names the one that cannot be read.

    >>> [str(action) for action in parse_actions("new; append A 20; fork A; append B 1")]
    ['new', 'append A 20', 'fork A', 'append B']
    """
    parts = [" ".join(part.split()) for part in text.split(";")]
    return tuple(_parse(part, number) for number, part in enumerate(parts if parts != [""] else [], 1))


def _parse(part: str, number: int) -> Action:
    form = _FORM.fullmatch(part)
    if form is None:
        raise NanoqwenError(f'actions: number {number} is "{part}", expected {_FORMS}')
    kind, name, count = (*(group for group in form.groups() if group), "", "")[:3]
    return Action(cast(Kind, kind), name, int(count) if count else int(kind == "append"))


def trace_history(actions: Sequence[Action], num_pages: int, page_order: Iterable[int]) -> tuple[Frame, ...]:
    """The cache before the first action and after each of them: len(actions) + 1 frames."""
    history = History(num_pages, page_order)
    return (history.frame(None), *(history.play(action) for action in actions))


class History:
    """A real cache, its sequences by name in the order in which they were made, and how many tokens were written."""

    def __init__(self, num_pages: int, page_order: Iterable[int]) -> None:
        """An empty pool that hands out its ids in page_order; NanoqwenError where that is no order of them."""
        self.cache = KVCache(TINY, num_pages, torch.float32, free_order=page_order)
        self.sequences: dict[str, kv_pages.Sequence] = {}
        self.written = 0

    def play(self, action: Action) -> Frame:
        """Run an action and say what it did."""
        before = self.frame(action)
        try:
            subject = self._subject(action)
            taken = self._run(action, subject)
        except NanoqwenError as error:
            return replace(before, subject=action.sequence, error=str(error))
        after = self.frame(action)
        old, new = before.table(subject), after.table(subject)
        return replace(
            after,
            subject=subject,
            taken=tuple(taken),
            copied=tuple(pair for pair in zip(old, new, strict=False) if pair[0] != pair[1]),
            returned=tuple(page_id for page_id in reversed(after.free_ids) if before.ref_counts[page_id]),
        )

    def frame(self, action: Action | None) -> Frame:
        """The cache as it is."""
        pool, named = self.cache.pool, sorted(self.sequences.items())
        return Frame(
            action=action,
            sequences=tuple(Holder(name, one.length, tuple(one.page_table)) for name, one in named if not one.freed),
            freed=tuple(name for name, one in named if one.freed),
            ref_counts=tuple(pool.ref_count(page_id) for page_id in range(pool.num_pages)),
            free_ids=pool.free_ids,
        )

    def _subject(self, action: Action) -> str:
        if action.kind == "evict":
            return self._oldest()
        return self._free_name() if action.kind in ("new", "fork") else action.sequence

    def _run(self, action: Action, subject: str) -> list[int]:
        """The ids that the action took."""
        if action.kind == "new":
            self._add(subject, self.cache.new_sequence())
        elif action.kind == "fork":
            self._add(subject, self.cache.fork(self._named(action.sequence)))
        elif action.kind == "append":
            return self._append(self._named(subject), action.count)
        elif action.kind == "truncate":
            self.cache.truncate(self._named(subject), action.count)
        else:
            self.cache.free(self._named(subject))
        return []

    def _append(self, sequence: kv_pages.Sequence, count: int) -> list[int]:
        """Take the room and write a number of its own into every new token, as a decoder writes K and V."""
        taken = self.cache.append(sequence, count)
        slots = self.cache.slots(sequence, sequence.length - count, count)
        flat = self.cache.data.view(self.cache.num_planes, -1, TINY.head_dim)
        flat[:, slots] = torch.arange(self.written, self.written + count, dtype=flat.dtype)[:, None]
        self.written += count
        return taken

    def _add(self, name: str, sequence: kv_pages.Sequence) -> None:
        self.sequences.pop(name, None)  # a letter that is given again is the youngest
        self.sequences[name] = sequence

    def _free_name(self) -> str:
        name = next((name for name in NAMES if not self._is_alive(name)), None)
        if name is None:
            raise NanoqwenError(f"sequence: {len(NAMES)} are alive, one for each letter; free one first")
        return name

    def _named(self, name: str) -> kv_pages.Sequence:
        if name not in self.sequences:
            raise NanoqwenError(f"sequence {name}: does not exist; make it with new or fork")
        return self.sequences[name]

    def _oldest(self) -> str:
        oldest = next(filter(self._is_alive, self.sequences), None)
        if oldest is None:
            raise NanoqwenError("evict: no sequence is alive; make one with new")
        return oldest

    def _is_alive(self, name: str) -> bool:
        return name in self.sequences and not self.sequences[name].freed
