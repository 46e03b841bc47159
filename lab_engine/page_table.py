"""Which page holds a sequence's tokens 16 n … 16 n + 15: one int32 a page, in memory that a kernel reads as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lab_engine.errors import counted, whole_number


class PageTable(Sequence[int]):
    """Logical page -> page id: int32 numbers in one array with room to spare, so that `append` takes constant time.

    Reads as a list of ints does and equals one. A kernel takes `tensor()` as it is.
    """

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __init__(self, page_ids: Iterable[int] = ()) -> None:
        """A table of its own with these ids; who holds them is counted by the pool, not here."""
        ids = [whole_number("page id", page_id) for page_id in page_ids]
        self._count = len(ids)
        self._ids: NDArray[np.int32] = np.array(ids, dtype=np.int32)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, page: int) -> int: ...
    @overload
    def __getitem__(self, page: slice) -> list[int]: ...
    def __getitem__(self, page: int | slice) -> int | list[int]:
        """The id of a logical page, or a list of ids; IndexError and negative numbers as in a list."""
        if isinstance(page, slice):
            ids: list[int] = self.array[page].tolist()
            return ids
        return self._ids.item(self._place(page))

    def __setitem__(self, page: int, page_id: int) -> None:
        self._ids[self._place(page)] = whole_number("page id", page_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self.array.tolist())

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return f"PageTable({list(self)})"

    @property
    def array(self) -> NDArray[np.int32]:
        """The ids, int32 (pages,), not copied."""
        return self._ids[: self._count]

    def tensor(self) -> Tensor:
        """The ids, int32 (pages,), not copied: take it anew for each step.

        Later changes of these pages show until the table grows into another array; later pages do not.
        """
        return torch.from_numpy(self.array)

    def append(self, page_id: int) -> None:
        """One more logical page; a full array moves into one of twice its length."""
        page_id = whole_number("page id", page_id)
        if self._count == len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty(max(8, self._count), dtype=np.int32)])
        self._ids[self._count] = page_id
        self._count += 1

    def truncate(self, num_pages: int) -> list[int]:
        """Keep the first num_pages pages; returns the ids of the others."""
        num_pages = whole_number("num_pages", num_pages)
        cut = self[num_pages:]
        self._count = min(self._count, num_pages)
        return cut

    def _place(self, page: int) -> int:
        place = page + self._count if page < 0 else page
        if not 0 <= place < self._count:
            raise IndexError(f"logical page {page}: the table has {counted(self._count, 'page')}")
        return place
