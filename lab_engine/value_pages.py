"""A page pool whose slots hold any Python value: small enough to watch what an append to a shared page does.

The bookkeeping is that of the engine: `PagePool` hands out and counts the ids, `Sequence` holds table and length.
What breaks it: two sequences that write into one page. `KVCache` does the same with K and V of every plane.
"""

from __future__ import annotations

from collections.abc import Iterable

from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import PAGE_SLOTS, PagePool, PageTable, Sequence

EMPTY = "·"
"""What a slot holds that was never written."""


class ValuePool(PagePool):
    """Pages of 16 slots, each with one Python value. A page keeps its values when its id becomes free, as memory does.

    >>> pool, sequence = ValuePool(4, free_order=(2, 0, 3, 1)), Sequence()
    >>> sequence.page_table.append(pool.take())
    >>> pool.write(2, 0, "a")
    >>> sequence.length = 1
    >>> pool.values(sequence)
    ['a']
    """

    def __init__(self, num_pages: int, free_order: Iterable[int] | None = None) -> None:
        """A pool of ids 0 … num_pages - 1, handed out in free_order (default ascending)."""
        super().__init__(num_pages, free_order)
        self._pages: list[list[object]] = [[EMPTY] * PAGE_SLOTS for _ in range(num_pages)]

    def write(self, page_id: int, slot: int, value: object) -> None:
        """Put a value into one slot of a page; NanoqwenError for a free page, and for a slot outside 0 … 15."""
        self._check_used(page_id)
        self._pages[page_id][_checked_slot(slot)] = value

    def copy(self, source_id: int, target_id: int) -> None:
        """All 16 slots of the source into the target; NanoqwenError unless both ids are in use. Counts stay."""
        self._check_used(source_id)
        self._check_used(target_id)
        self._pages[target_id] = list(self._pages[source_id])

    def read(self, page_id: int, slot: int) -> object:
        """What a slot holds; EMPTY if nothing was ever written there."""
        self.ref_count(page_id)
        return self._pages[page_id][_checked_slot(slot)]

    def values(self, sequence: Sequence) -> list[object]:
        """The values of a sequence in the order of its tokens, read through its page table."""
        return [self.read(*sequence.locate(token)) for token in range(sequence.length)]

    def fork(self, sequence: Sequence) -> Sequence:
        """A second sequence with the same past: it copies the table, not the pages, and each id counts one more."""
        for page_id in sequence.page_table:
            self.share(page_id)
        return Sequence(PageTable(sequence.page_table), sequence.length)

    def free(self, sequence: Sequence) -> None:
        """Release the pages of a sequence and leave it without tokens."""
        for page_id in sequence.page_table:
            self.release(page_id)
        sequence.page_table, sequence.length = PageTable(), 0

    def _check_used(self, page_id: int) -> None:
        if not self.ref_count(page_id):
            raise NanoqwenError(f"page id {page_id}: is free; `take` it before its slots are used")


def _checked_slot(slot: int) -> int:
    if not 0 <= slot < PAGE_SLOTS:
        raise NanoqwenError(f"slot {slot}: expected 0 to {PAGE_SLOTS - 1}")
    return slot
