"""The paged KV cache: the past of every sequence, in pages of 16 tokens.

The pool is one tensor [layer, K or V, kv_head, page id, slot, head_dim]; one [layer, K or V, kv_head] is a plane.
A page id names the same page in every plane, so handing out an id takes one page in each of them.
A sequence owns a page table (logical page number -> page id) and a length. Slots without a token are undefined
memory: nothing may read them (tests fill them with NaN).

    tokens 1 15 16 17 31 32 33 56      ids 1 1 1 2 2 2 3 4      valid slots of the tail 1 15 16 1 15 16 1 8
"""

from __future__ import annotations

import collections.abc
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from lab_engine.config import ModelConfig
from lab_engine.errors import NanoqwenError, OutOfPages, counted, whole_number
from lab_engine.page_table import PageTable

__all__ = ["PAGE_SLOTS", "KVCache", "PagePool", "PageTable", "Sequence", "element_address", "pages_for"]

PAGE_SLOTS = 16


def pages_for(num_tokens: int) -> int:
    """Pages that num_tokens tokens (the current one included) need: the ceiling of num_tokens / 16.

    >>> [pages_for(n) for n in (0, 1, 15, 16, 17, 32, 33)]
    [0, 1, 1, 1, 2, 2, 3]
    """
    return -(-num_tokens // PAGE_SLOTS)


def element_address(
    plane: int, num_pages: int, page_id: int, slot: int, dim: int, head_dim: int, element_bytes: int = 2
) -> int:
    """Where an element lies: its first byte, counted from the beginning of a pool of num_pages pages.

    plane = (layer * 2 + (0 for K, 1 for V)) * num_kv_heads + kv_head. NanoqwenError for what lies outside its range.

    >>> element_address(0, 16, 12, 7, 0, 128)
    50944
    """
    num_pages, head_dim = whole_number("num_pages", num_pages, 1), whole_number("head_dim", head_dim, 1)
    page = whole_number("plane", plane) * num_pages + whole_number("page id", page_id, most=num_pages - 1)
    row = page * PAGE_SLOTS + whole_number("slot", slot, most=PAGE_SLOTS - 1)
    element = row * head_dim + whole_number("dim", dim, most=head_dim - 1)
    return element * whole_number("element_bytes", element_bytes, 1)


class PagePool:
    """Hands out page ids and counts who holds them. free + used == num_pages, always."""

    def __init__(self, num_pages: int, free_order: Iterable[int] | None = None, bytes_per_id: int = 0) -> None:
        """A pool of ids 0 … num_pages - 1, handed out in free_order (default ascending).

        bytes_per_id: memory that one id names, in all planes together; 0 where no memory stands behind the ids.
        """
        self.num_pages = whole_number("num_pages", num_pages, 1)
        self.bytes_per_id = whole_number("bytes_per_id", bytes_per_id)
        ids = range(self.num_pages)
        order = list(ids) if free_order is None else [whole_number("free_order", page_id) for page_id in free_order]
        if sorted(order) != list(ids):
            raise NanoqwenError(f"free_order: expected each id from 0 to {ids[-1]} once, found {order[:20]}")
        self._free = order[::-1]
        self._ref_counts = [0] * self.num_pages

    @property
    def num_free(self) -> int:
        """Ids that nobody holds."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Ids that somebody holds."""
        return self.num_pages - len(self._free)

    @property
    def num_bytes(self) -> int:
        """Memory of the whole pool."""
        return self.num_pages * self.bytes_per_id

    @property
    def free_ids(self) -> tuple[int, ...]:
        """The free list: the id that the next `take` returns stands first."""
        return tuple(self._free[::-1])

    def ref_count(self, page_id: int) -> int:
        """How many tables hold this id; 0 means free."""
        return self._ref_counts[self._checked(page_id)]

    def take(self) -> int:
        """The next free id, now held once; OutOfPages where none is left."""
        if not self._free:
            raise OutOfPages(f"page pool: all {self.num_pages} pages are in use; end a sequence or make a larger pool")
        page_id = self._free.pop()
        self._ref_counts[page_id] = 1
        return page_id

    def share(self, page_id: int) -> None:
        """Count one more holder of an id that is in use."""
        page_id = self._checked(page_id)
        if not self._ref_counts[page_id]:
            raise NanoqwenError(f"page id {page_id}: is free, so it cannot be shared")
        self._ref_counts[page_id] += 1

    def release(self, page_id: int) -> None:
        """Count one holder less; the last one returns the id to the free list. A free id is refused (double free)."""
        page_id = self._checked(page_id)
        if not self._ref_counts[page_id]:
            raise NanoqwenError(f"page id {page_id}: is free already (double free)")
        self._ref_counts[page_id] -= 1
        if not self._ref_counts[page_id]:
            self._free.append(page_id)

    def _checked(self, page_id: int) -> int:
        return whole_number("page id", page_id, most=self.num_pages - 1)


@dataclass(eq=False)
class Sequence:
    """The page table of one sequence and its length in tokens; made by KVCache.new_sequence."""

    page_table: PageTable = field(default_factory=PageTable)
    length: int = 0
    freed: bool = False

    def locate(self, token: int) -> tuple[int, int]:
        """(page id, slot) of a token; NanoqwenError outside 0 … length - 1."""
        page, slot = divmod(whole_number("token", token, most=self.length - 1), PAGE_SLOTS)
        return self.page_table[page], slot


class KVCache:
    """The pool tensor and its bookkeeping; any number of sequences share it.

    data: dtype (num_layers, 2, num_kv_heads, num_pages, 16, head_dim), index 0 of the second is K, 1 is V.
    Its memory is undefined until a token is written. Device "meta" keeps the books and holds no memory.
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
        num_pages = whole_number("num_pages", num_pages, 1)
        shape = (config.num_layers, 2, config.num_kv_heads, num_pages, PAGE_SLOTS, config.head_dim)
        try:
            self.data = torch.empty(shape, dtype=dtype, device=device)
        except (RuntimeError, TypeError):  # TypeError: a size beyond 64 bits
            raise OutOfPages(f"page pool: no memory for {num_pages} pages; give a smaller num_pages") from None
        self.pool = PagePool(num_pages, free_order, self.num_planes * self.page_bytes)

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

    def append(self, sequence: Sequence, num_tokens: int = 1) -> list[int]:
        """Make room for num_tokens more tokens and count them; returns the page ids that were taken.

        A shared tail page is copied first (copy on write). OutOfPages leaves the sequence as it was.
        """
        self._check_alive(sequence)
        num_tokens = whole_number("num_tokens", num_tokens)
        self._check_free(self.pages_needed(sequence, num_tokens))
        taken = self._copy_tails([sequence]) if num_tokens and self._shares_tail(sequence) else []
        sequence.length += num_tokens
        while len(sequence.page_table) < pages_for(sequence.length):
            taken.append(self.pool.take())
            sequence.page_table.append(taken[-1])
        return taken

    def append_each(self, sequences: collections.abc.Sequence[Sequence]) -> Tensor:
        """One more token for each of several different sequences: a decode step of a batch, all or nothing.

        Returns the flat slots page_id * 16 + slot of the new tokens, int64 (n,), on the cache's device. Shared tails
        are copied first. OutOfPages leaves every sequence as it was.
        """
        if len(set(sequences)) < len(sequences):
            raise NanoqwenError("append_each: a sequence stands there twice, expected different ones")
        for sequence in sequences:
            self._check_alive(sequence)
        full = [sequence for sequence in sequences if sequence.length % PAGE_SLOTS == 0]
        sharing = [sequence for sequence in sequences if self._shares_tail(sequence)]
        self._check_free(len(full) + self._num_copies(sharing))
        self._copy_tails(sharing)
        for sequence in full:
            sequence.page_table.append(self.pool.take())
        flat = [sequence.page_table[-1] * PAGE_SLOTS + sequence.length % PAGE_SLOTS for sequence in sequences]
        for sequence in sequences:
            sequence.length += 1
        return torch.tensor(flat, dtype=torch.int64, device=self.data.device)

    def tables(self, sequences: collections.abc.Sequence[Sequence]) -> tuple[Tensor, Tensor]:
        """What a batched kernel takes: page tables int32 (n, most pages), padded with 0, and lengths int32 (n,)."""
        for sequence in sequences:
            self._check_alive(sequence)
        lengths = [sequence.length for sequence in sequences]
        padded = np.zeros((len(lengths), pages_for(max(lengths, default=0))), dtype=np.int32)
        for row, sequence in zip(padded, sequences, strict=True):
            row[: len(sequence.page_table)] = sequence.page_table.array
        device = self.data.device
        return torch.from_numpy(padded).to(device), torch.tensor(lengths, dtype=torch.int32, device=device)

    def pages_needed(self, sequence: Sequence, num_tokens: int = 1) -> int:
        """Free pages that `append` takes, the copy of a shared tail included."""
        self._check_alive(sequence)
        num_tokens = whole_number("num_tokens", num_tokens)
        copies_tail = num_tokens > 0 and self._shares_tail(sequence)
        return pages_for(sequence.length + num_tokens) - len(sequence.page_table) + copies_tail

    def room(self, sequence: Sequence, num_free: int | None = None) -> int:
        """Tokens that `append` can still take, by the free pages of the pool, or if there were num_free of them."""
        self._check_alive(sequence)
        free = self.pool.num_free if num_free is None else whole_number("num_free", num_free)
        pages = len(sequence.page_table) + free - self._shares_tail(sequence)
        return max(0, pages * PAGE_SLOTS - sequence.length)

    def fork(self, sequence: Sequence) -> Sequence:
        """A second sequence with the same past; all its pages are shared until one of the two writes."""
        self._check_alive(sequence)
        for page_id in sequence.page_table:
            self.pool.share(page_id)
        return Sequence(PageTable(sequence.page_table), sequence.length)

    def truncate(self, sequence: Sequence, length: int) -> None:
        """Forget the tokens from `length` on, as after guesses that were wrong; pages left empty are released.

        They are released last page first, so that the next append takes the same ids in the same order. A tail that
        others hold stays as it is: the next append copies it.
        """
        self._check_alive(sequence)
        length = whole_number("length", length, most=sequence.length)
        for page_id in reversed(sequence.page_table.truncate(pages_for(length))):
            self.pool.release(page_id)
        sequence.length = length

    def free(self, sequence: Sequence) -> None:
        """Return the pages of a sequence; a second call is refused."""
        self._check_alive(sequence)
        for page_id in sequence.page_table:
            self.pool.release(page_id)
        sequence.page_table, sequence.length, sequence.freed = PageTable(), 0, True

    def slots(self, sequence: Sequence, start: int, count: int) -> Tensor:
        """Flat slot numbers page_id * 16 + slot of tokens start … start + count - 1; int64 (count,)."""
        self._check_alive(sequence)
        start = whole_number("start", start, most=sequence.length)
        count = whole_number("count", count, most=sequence.length - start)
        pages, slots = np.divmod(np.arange(start, start + count), PAGE_SLOTS)
        flat = sequence.page_table.array[pages].astype(np.int64) * PAGE_SLOTS + slots
        return torch.from_numpy(flat).to(self.data.device)

    def _shares_tail(self, sequence: Sequence) -> bool:
        """Whether the next token falls into a half-filled page that somebody else holds too."""
        return sequence.length % PAGE_SLOTS > 0 and self.pool.ref_count(sequence.page_table[-1]) > 1

    def _num_copies(self, sharing: Iterable[Sequence]) -> int:
        """Copies that these sequences need; where all holders of a page are among them, the last one keeps it."""
        holders = Counter(sequence.page_table[-1] for sequence in sharing)
        return sum(min(count, self.pool.ref_count(page_id) - 1) for page_id, count in holders.items())

    def _copy_tails(self, sharing: Iterable[Sequence]) -> list[int]:
        """Give each of these sequences a tail of its own; returns the ids of the copies."""
        shared, copies = [], []
        for sequence in sharing:
            page_id = sequence.page_table[-1]
            if self.pool.ref_count(page_id) > 1:  # else the others have just left it
                copies.append(self.pool.take())
                shared.append(page_id)
                self.pool.release(page_id)
                sequence.page_table[-1] = copies[-1]
        if copies:
            self.data[:, :, :, copies] = self.data[:, :, :, shared]
        return copies

    def _check_free(self, needed: int) -> None:
        if needed > self.pool.num_free:
            raise OutOfPages(
                f"page pool: {counted(needed, 'page')} needed, {self.pool.num_free} of {self.pool.num_pages} are free; "
                "end a sequence or make a larger pool"
            )

    def _check_alive(self, sequence: Sequence) -> None:
        if sequence.freed:
            raise NanoqwenError("sequence: was freed already; make a new one")
