"""Attention of one new token over a long past in pages, on a CPU: gather the pages, then scaled_dot_product_attention.

Four things make it fast, and none of them is seen in the result:

- The pages are gathered into memory that is used again. Fresh memory costs a page fault for each 4 KiB, which takes
  longer than reading them.
- Keys may stand in any order, so pages are read in ascending order: neighbours in the pool one after the other.
- An index over the pages of all planes together copies whole pages, on all threads. Without it a page is copied in
  as many pieces as there are KV heads, on one thread.
- The query heads of a group are rows over their KV head, so that K and V are read once. PyTorch multiplies an even
  number of rows faster than the odd number below it: a group of seven gets an eighth row of zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from lab_engine.kv_pages import pages_for


class StepAttention:
    """Attention of one token at a time; keeps memory for K and V of one layer, which grows with the longest sequence.

    Not for two threads at once: they would gather into the same memory.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        """dtype: that of q and of the pages."""
        self._memory = torch.empty(2, 0, dtype=dtype)

    def __call__(self, q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, length: int) -> Tensor:
        """As Backend.paged_attention with T = 1: (1, num_q_heads, head_dim)."""
        num_kv_heads, _, _, head_dim = k_pages.shape
        k, v = (kv[None, :, :length] for kv in self._gather(k_pages, v_pages, page_table[: pages_for(length)]))
        rows = q.view(1, num_kv_heads, -1, head_dim)
        ratio = rows.shape[2]
        if ratio % 2:
            rows = F.pad(rows, (0, 0, 0, 1))
        return F.scaled_dot_product_attention(rows, k, v)[:, :, :ratio].reshape(1, -1, head_dim)

    def _gather(self, k_pages: Tensor, v_pages: Tensor, page_table: Tensor) -> Tensor:
        """K and V of the table's pages: (2, num_kv_heads, 16 * pages, head_dim); the tail stays last, to be cut off."""
        num_kv_heads, num_pages, _, head_dim = k_pages.shape
        planes = torch.arange(0, num_kv_heads * num_pages, num_pages, dtype=page_table.dtype)
        ids = (planes[:, None] + torch.cat([page_table[:-1].sort().values, page_table[-1:]])).flatten()
        numel = len(ids) * k_pages[0, 0].numel()
        if self._memory.shape[1] < numel:
            with torch.inference_mode(False):  # memory made in inference mode could not be written outside of it
                self._memory = torch.empty(2, 2 * numel, dtype=self._memory.dtype)
        for pages, memory in zip((k_pages, v_pages), self._memory, strict=True):
            torch.index_select(pages.flatten(0, 1), 0, ids, out=memory[:numel].view(len(ids), -1, head_dim))
        return self._memory[:, :numel].view(2, num_kv_heads, -1, head_dim)
