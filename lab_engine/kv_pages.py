"""The paged KV cache: the past of every sequence, in pages of 16 tokens.

The pool is one tensor [layer, K or V, kv_head, page id, slot, head_dim]; one [layer, K or V, kv_head] is a plane.
A page id names the same page in every plane, so handing out an id takes one page in each of them.
A sequence owns a page table (logical page number -> page id) and a length. Slots without a token are undefined
memory: nothing may read them (tests fill them with NaN).

    tokens 1 15 16 17 31 32 33 56      ids 1 1 1 2 2 2 3 4      valid slots of the tail 1 15 16 1 15 16 1 8
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lab_engine.config import ModelConfig
from lab_engine.errors import NanoqwenError, OutOfPages

PAGE_SLOTS = 16


def pages_for(num_tokens: int) -> int:
    """Pages that num_tokens tokens (the current one included) need: the ceiling of num_tokens / 16.

    >>> [pages_for(n) for n in (0, 1, 15, 16, 17, 32, 33)]
    [0, 1, 1, 1, 2, 2, 3]
    """
    return -(-num_tokens // PAGE_SLOTS)


class PagePool:
    """Hands out page ids and counts their owners. free + used == num_pages, always."""

    def __init__(self, num_pages: int, free_order: Iterable[int] | None = None) -> None:
        """A pool of ids 0 … num_pages - 1, handed out in free_order (default ascending)."""
        self.num_pages = _checked_count(num_pages)
        order = list(range(num_pages) if free_order is None else free_order)
        if sorted(order) != list(range(num_pages)):
            raise NanoqwenError(f"free_order: expected each id from 0 to {num_pages - 1} once, found {order[:20]}")
        self._free = order[::-1]
        self._owners = [0] * num_pages

    @property
    def num_free(self) -> int:
        """Ids that nobody owns."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Ids with at least one owner."""
        return self.num_pages - len(self._free)

    def owners(self, page_id: int) -> int:
        """How many sequences hold this id."""
        return self._owners[self._checked(page_id)]

    def take(self) -> int:
        """The next free id, now with one owner; OutOfPages where none is left."""
        if not self._free:
            raise OutOfPages(f"page pool: all {self.num_pages} pages are in use; end a sequence or make a larger pool")
        page_id = self._free.pop()
        self._owners[page_id] = 1
        return page_id

    def share(self, page_id: int) -> None:
        """Give an id that is in use one more owner."""
        if not self.owners(page_id):
            raise NanoqwenError(f"page id {page_id}: is free, so it cannot be shared")
        self._owners[page_id] += 1

    def release(self, page_id: int) -> None:
        """Take one owner away; the last one returns the id to the free list. A free id is refused (double free)."""
        if not self.owners(page_id):
            raise NanoqwenError(f"page id {page_id}: is free already (double free)")
        self._owners[page_id] -= 1
        if not self._owners[page_id]:
            self._free.append(page_id)

    def _checked(self, page_id: int) -> int:
        if not 0 <= page_id < self.num_pages:
            raise NanoqwenError(f"page id {page_id}: expected 0 to {self.num_pages - 1}")
        return page_id


@dataclass
class Sequence:
    """The page table of one sequence and its length in tokens; made by KVCache.new_sequence."""

    page_table: list[int] = field(default_factory=list)
    length: int = 0
    freed: bool = False

    def locate(self, token: int) -> tuple[int, int]:
        """(page id, slot) of a token; NanoqwenError outside 0 … length - 1."""
        if not 0 <= token < self.length:
            raise NanoqwenError(f"token {token}: expected 0 to {self.length - 1}")
        page, slot = divmod(token, PAGE_SLOTS)
        return self.page_table[page], slot


class KVCache:
    """The pool tensor and its bookkeeping; any number of sequences share it.

    data: dtype (num_layers, 2, num_kv_heads, num_pages, 16, head_dim), index 0 of the second is K, 1 is V.
    Its memory is undefined until a token is written.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_pages: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        free_order: Iterable[int] | None = None,
    ) -> None:
        """Reserve num_pages pages of every plane; an operating system commits them as they are written."""
        shape = (config.num_layers, 2, config.num_kv_heads, _checked_count(num_pages), PAGE_SLOTS, config.head_dim)
        try:
            self.data = torch.empty(shape, dtype=dtype, device=device)
        except (RuntimeError, TypeError):  # TypeError: a size beyond 64 bits
            raise OutOfPages(f"page pool: no memory for {num_pages} pages; give a smaller num_pages") from None
        self.pool = PagePool(num_pages, free_order)

    @property
    def num_planes(self) -> int:
        """num_layers * 2 * num_kv_heads: pages of memory that one id names."""
        return self.data.shape[0] * self.data.shape[1] * self.data.shape[2]

    @property
    def page_bytes(self) -> int:
        """Bytes of one page of one plane: 4096 at head_dim 128 in 16 bits."""
        return PAGE_SLOTS * self.data.shape[-1] * self.data.element_size()

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one token takes in all planes: 57,344 for the 7B."""
        return self.num_planes * self.page_bytes // PAGE_SLOTS

    def new_sequence(self) -> Sequence:
        """A sequence with no tokens and no pages."""
        return Sequence()

    def grow(self, sequence: Sequence, num_tokens: int) -> list[int]:
        """Make room for num_tokens more tokens and count them; returns the page ids that were taken.

        A shared tail page is copied first (copy on write). OutOfPages leaves the sequence as it was.
        """
        self._check_alive(sequence)
        if num_tokens < 0:
            raise NanoqwenError(f"num_tokens: found {num_tokens}, expected 0 or more")
        copies_tail = num_tokens > 0 and self._shares_tail(sequence)
        missing = pages_for(sequence.length + num_tokens) - len(sequence.page_table)
        if missing + copies_tail > self.pool.num_free:
            raise OutOfPages(
                f"page pool: {missing + copies_tail} pages needed, {self.pool.num_free} of {self.pool.num_pages} "
                "are free; end a sequence or make a larger pool"
            )
        taken = []
        if copies_tail:
            taken.append(self._copy_tail(sequence))
        for _ in range(missing):
            taken.append(self.pool.take())
            sequence.page_table.append(taken[-1])
        sequence.length += num_tokens
        return taken

    def room(self, sequence: Sequence) -> int:
        """Tokens that `grow` can still take, by the free pages."""
        pages = len(sequence.page_table) + self.pool.num_free - self._shares_tail(sequence)
        return max(0, pages * PAGE_SLOTS - sequence.length)

    def fork(self, sequence: Sequence) -> Sequence:
        """A second sequence with the same past; all its pages are shared until one of the two writes."""
        self._check_alive(sequence)
        for page_id in sequence.page_table:
            self.pool.share(page_id)
        return Sequence(list(sequence.page_table), sequence.length)

    def free(self, sequence: Sequence) -> None:
        """Return the pages of a sequence; a second call is refused."""
        self._check_alive(sequence)
        for page_id in sequence.page_table:
            self.pool.release(page_id)
        sequence.page_table, sequence.length, sequence.freed = [], 0, True

    def slots(self, sequence: Sequence, start: int, count: int) -> Tensor:
        """Flat slot numbers page_id * 16 + slot of tokens start … start + count - 1; int64 (count,)."""
        if not 0 <= start <= start + count <= sequence.length:
            raise NanoqwenError(f"tokens {start} to {start + count - 1}: expected 0 to {sequence.length - 1}")
        tokens = range(start, start + count)
        flat = [sequence.page_table[t // PAGE_SLOTS] * PAGE_SLOTS + t % PAGE_SLOTS for t in tokens]
        return torch.tensor(flat, dtype=torch.int64, device=self.data.device)

    def _shares_tail(self, sequence: Sequence) -> bool:
        """Whether the next token falls into a half-filled page that has another owner."""
        return sequence.length % PAGE_SLOTS > 0 and self.pool.owners(sequence.page_table[-1]) > 1

    def _copy_tail(self, sequence: Sequence) -> int:
        shared = sequence.page_table[-1]
        page_id = self.pool.take()
        self.data[:, :, :, page_id] = self.data[:, :, :, shared]
        self.pool.release(shared)
        sequence.page_table[-1] = page_id
        return page_id

    def _check_alive(self, sequence: Sequence) -> None:
        if sequence.freed:
            raise NanoqwenError("sequence: was freed already; make a new one")


def _checked_count(num_pages: int) -> int:
    if not isinstance(num_pages, int) or num_pages < 1:
        raise NanoqwenError(f"num_pages: found {num_pages!r}, expected a whole number, 1 or more")
    return num_pages
