"""One layer of the running example, caught from a decoder: what lab 05's tail lens and bug clinic look at.

The right run leaves q, K and V behind; `Layer` attends to them again at any length, right or with a bug. Slots without
a token hold what a former owner of the page left there. A slot's weight is what its output is when V is the unit vector
of that slot, so a weight needs no code of its own. float32 throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab_engine.attention_texts import best_choice, restarted
from lab_engine.decoder import Decoder
from lab_engine.kv_pages import PAGE_SLOTS, pages_for
from lab_engine.paged_attention import PageUpdate, paged_attention
from lab_engine.running_example import RUNNING_EXAMPLE

LAYER = 3
"""Its four heads differ: one has its largest score on the first page, one gives three quarters to a single token."""

MOST_TOKENS = 64
"""The right run ends with four full pages."""


@dataclass(frozen=True)
class RunSpec:
    """One way to compute the row: a bug of paged_attention.BUGS or None, and what it is tried on.

    shift: K gets a component, the same for all tokens, that adds this to every score; softmax does not notice.
    unwritten: slots without a token hold NaN in place of a former owner's tokens. num_splits: workers.
    """

    name: str
    bug: str | None = None
    shift: float = 0.0
    unwritten: bool = False
    num_splits: int = 1

    def without_bug(self) -> RunSpec:
        """What the run is compared with: the same scores and workers, none of the mistakes."""
        return RunSpec("right", shift=self.shift, num_splits=self.num_splits)


@dataclass(frozen=True)
class Seen:
    """An output (heads, head_dim) and what the observer saw on the way."""

    out: Tensor
    updates: Sequence[PageUpdate]


@dataclass(frozen=True)
class Layer:
    """One layer of the right run: q (MOST_TOKENS, heads, head_dim), and K and V (2, kv_heads, pages, 16, head_dim).

    written holds all tokens, before what was there before; table is the page table of MOST_TOKENS tokens.
    """

    q: Tensor
    written: Tensor
    before: Tensor
    table: tuple[int, ...]

    def attend(self, length: int, spec: RunSpec) -> Seen:
        """The row of the newest of `length` tokens, as the run computes it."""
        return self._attend(length, spec, *self._memory(length, spec))

    def weights(self, length: int, spec: RunSpec) -> Seen:
        """The same row with the slots' unit vectors for V: out[head, n] is the weight of slot n of the row's pages.

        Weights sum to 1 or are NaN: a page of another request that is read counts as the row's last page.
        """
        return self._attend(length, spec, self._memory(length, spec)[0], self._unit_v(length))

    def largest_raw(self) -> float:
        """The largest |q . k| of a token and one that it may look at."""
        ratio = self.q.shape[1] // self.written.shape[1]
        k = self.written[0][:, list(self.table)].flatten(1, 2).repeat_interleave(ratio, dim=0)
        return float(torch.einsum("thd,hnd->htn", self.q, k).tril().abs().max())

    def _attend(self, length: int, spec: RunSpec, k: Tensor, v: Tensor) -> Seen:
        updates: list[PageUpdate] = []
        q, table = self.q[length - 1 : length], self.table[: pages_for(length)]
        out, _ = paged_attention(q, k, v, table, length, spec.bug, spec.num_splits, updates.append)
        return Seen(out[0], updates)

    def _memory(self, length: int, spec: RunSpec) -> Tensor:
        """K and V when `length` tokens are in the cache."""
        kv = torch.full_like(self.before, math.nan) if spec.unwritten else self.before.clone()
        for page, page_id in enumerate(self.table[: pages_for(length)]):
            held = min(PAGE_SLOTS, length - PAGE_SLOTS * page)
            kv[:, :, page_id, :held] = self.written[:, :, page_id, :held]
        if spec.shift:
            kv[0] += self._common_part(length, spec.shift)[:, None, None]
        return kv

    def _common_part(self, length: int, shift: float) -> Tensor:
        """What, added to every K of a KV head, makes all its query heads score `shift` more; (kv_heads, head_dim)."""
        q = self.q[length - 1].view(self.written.shape[1], -1, self.q.shape[-1])
        least: Tensor = torch.linalg.pinv(q).sum(dim=-1)  # the shortest vector whose product with each q is 1
        return least * shift * math.sqrt(q.shape[-1])

    def _unit_v(self, length: int) -> Tensor:
        """V planes in which the slot of token n is the unit vector n; pages outside the table count as its last one."""
        logical = torch.full((self.written.shape[2],), pages_for(length) - 1)
        logical[list(self.table)] = torch.arange(len(self.table))
        token = logical[:, None] * PAGE_SLOTS + torch.arange(PAGE_SLOTS)
        unit = torch.nn.functional.one_hot(token, self.q.shape[-1]).float()
        return unit.expand(self.written.shape[1], -1, -1, -1)


def relative_errors(found: Tensor, right: Tensor) -> list[float]:
    """The distance of each head's output from the right one, over the length of that one; may be NaN."""
    errors: list[float] = ((found - right).norm(dim=-1) / right.norm(dim=-1)).tolist()
    return errors


@dataclass(frozen=True)
class RightRun:
    """The running example to MOST_TOKENS tokens: its ids, the margins of those chosen, and what LAYER saw."""

    ids: tuple[int, ...]
    margins: tuple[float, ...]
    layer: Layer


def right_run(decoder: Decoder, memory: Tensor) -> RightRun:
    """Run the right decoder; memory: what the whole cache holds before, and still does when the run begins."""
    margins: list[float] = []
    queries: list[Tensor] = []
    planes, right = decoder.cache.data[LAYER], decoder.attention

    def attend(q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, length: int) -> Tensor:
        if k_pages.data_ptr() == planes.data_ptr():  # an attention is not told its layer; the planes say it
            queries.append(q.clone())
        return right(q, k_pages, v_pages, page_table, length)

    ids = decoder.tokenizer.encode(RUNNING_EXAMPLE.prompt)
    with restarted(decoder, memory):
        decoder.attention = attend
        logits = decoder.prefill(ids)
        while len(ids) < MOST_TOKENS:
            token_id, margin = best_choice(decoder, logits)
            ids.append(token_id)
            margins.append(margin)
            logits = decoder.step(token_id)
        table = tuple(decoder.sequence.page_table)
        written = planes.clone()
    return RightRun(tuple(ids), tuple(margins), Layer(torch.cat(queries), written, memory[LAYER], table))
