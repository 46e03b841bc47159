"""One row of attention, page by page, right and with every bug: the data that lab 05's tail lens draws.

q, K and V are those of the shipped model on the running example, in one layer. Slots without a token hold what a former
owner of the page left there. Every number comes out of paged_attention.py; a slot's weight is what its output is when V
is the unit vector of that slot. The texts are written by the whole model, with the bug in all layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab_engine.attention_bugs import BUGS
from lab_engine.attention_texts import WrittenText, best_choice, restarted, write_text
from lab_engine.decoder import Decoder
from lab_engine.kv_pages import PAGE_SLOTS, pages_for
from lab_engine.mistakes import FORMER_OWNER
from lab_engine.paged_attention import PageUpdate, paged_attention
from lab_engine.running_example import RUNNING_EXAMPLE, running_decoder
from lab_engine.threads import one_thread_of_two

LAYER = 3
"""Its four heads differ: one has its largest score on the first page, one gives three quarters to a single token."""

LENGTHS = (16, 17, 33, 48, 49, 56)
"""Contexts that are shown slot by slot; errors are there for 1 … MOST_TOKENS."""

MOST_TOKENS = 64
FORMER_TOKENS = 96
"""What the former owner wrote fills six pages: the running table's four, and two that it never gets."""

TEXT_TOKENS = 40
"""New tokens of the right text: it crosses two page boundaries."""

WORKERS = 4


@dataclass(frozen=True)
class RunSpec:
    """One way to compute the row: a bug of paged_attention.py or None, and what it is tried on.

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


LOW, HIGH = -12.0, 76_800 / math.sqrt(128)
"""Shifts: every true score below 0; a raw q . k beyond fp16, as 30 and 20 in each of 128 dimensions give it."""

RUNS = (
    RunSpec("right"),
    RunSpec("no_tail_mask", "no_tail_mask"),
    RunSpec("mask_to_zero", "mask_to_zero"),
    RunSpec("mask_to_zero_low", "mask_to_zero", shift=LOW),
    RunSpec("nan_in_v", "nan_in_v", unwritten=True),
    RunSpec("stale_page", "stale_page"),
    RunSpec("no_rescale", "no_rescale"),
    RunSpec("head_modulo", "head_modulo"),
    RunSpec("length_minus_one", "length_minus_one"),
    RunSpec("fp16_scores", "fp16_scores"),
    RunSpec("fp16_scores_high", "fp16_scores", shift=HIGH),
    RunSpec("empty_split", "empty_split", num_splits=WORKERS),
)
"""The right run and the nine bugs; two of them also with a shift, since this model's scores forgive them."""


@dataclass(frozen=True)
class PageStep:
    """What one head has after one page of one worker.

    scores: the 16 slots' as they enter the softmax. m, rescale, l: running maximum, the factor that the old sums got,
    running sum. weights: the share of each slot in the output so far, of all pages up to this one (0 for pages of other
    workers); after the last page those of the output itself. norm: |output so far|; off: its distance from the right
    output of all pages, over that one's norm. NaN and infinities are numbers here.
    """

    worker: int
    page: int
    page_id: int
    scores: tuple[float, ...]
    m: float
    rescale: float
    l: float
    weights: tuple[float, ...]
    norm: float
    off: float


Rows = tuple[tuple[PageStep, ...], ...]
"""The pages of each head's row."""


@dataclass(frozen=True)
class RunTrace:
    """One run. right_rows are those that it is compared with: the same q, K, V and workers without the bug.

    rows[length][head] are the pages of a row, for LENGTHS; errors[head][n - 1] is |wrong - right| / |right| of the
    output at a context of n tokens. text is None where the shipped model has no such K.
    """

    spec: RunSpec
    cause: str
    rows: tuple[Rows, ...]
    right_rows: tuple[Rows, ...]
    errors: tuple[tuple[float, ...], ...]
    text: WrittenText | None


@dataclass(frozen=True)
class LensTrace:
    """The running example under the lens. former[page_id] holds the texts of the 16 tokens that a page held before.

    largest_raw: the largest |q . k| of the layer before it is scaled; fp16 ends at 65,504.
    """

    layer: int
    num_heads: int
    token_texts: tuple[str, ...]
    prompt_tokens: int
    page_table: tuple[int, ...]
    former: dict[int, tuple[str, ...]]
    runs: tuple[RunTrace, ...]
    largest_raw: float


def trace_lens(specs: Sequence[RunSpec] = RUNS) -> LensTrace:
    """Compute every run on the running example and the shipped model; the same everywhere, to float32 rounding."""
    with one_thread_of_two():
        return _traced(running_decoder(), specs)


def _traced(decoder: Decoder, specs: Sequence[RunSpec]) -> LensTrace:
    tokenizer = decoder.tokenizer
    former_ids = (tokenizer.encode(FORMER_OWNER) * FORMER_TOKENS)[:FORMER_TOKENS]
    decoder.prefill(former_ids)
    former_table, memory = tuple(decoder.sequence.page_table), decoder.cache.data.clone()
    ids, margins, layer = _running_layer(decoder, memory)
    prompt = len(tokenizer.encode(RUNNING_EXAMPLE.prompt))
    right = ids[prompt : prompt + TEXT_TOKENS]
    right_text = WrittenText(tuple(map(tokenizer.token_text, right)), None, min(margins[:TEXT_TOKENS]))
    rights = {plain: _right(layer, plain) for plain in {spec.without_bug() for spec in specs}}
    written = [_text(spec, decoder, memory, right) if spec.bug else right_text for spec in specs]
    texts = [tokenizer.token_text(token_id) for token_id in former_ids]
    starts = range(0, FORMER_TOKENS, PAGE_SLOTS)
    return LensTrace(
        layer=LAYER,
        num_heads=layer.q.shape[1],
        token_texts=tuple(tokenizer.token_text(token_id) for token_id in ids),
        prompt_tokens=prompt,
        page_table=layer.table,
        former={page_id: tuple(texts[at : at + PAGE_SLOTS]) for page_id, at in zip(former_table, starts, strict=True)},
        runs=tuple(
            _run_trace(spec, layer, rights[spec.without_bug()], text) for spec, text in zip(specs, written, strict=True)
        ),
        largest_raw=layer.largest_raw(),
    )


@dataclass(frozen=True)
class _Layer:
    """One layer of the right run: q (MOST_TOKENS, heads, head_dim), and K and V (2, kv_heads, pages, 16, head_dim).

    written holds all tokens, before what was there before; table is the page table of MOST_TOKENS tokens.
    """

    q: Tensor
    written: Tensor
    before: Tensor
    table: tuple[int, ...]

    def memory(self, length: int, spec: RunSpec) -> Tensor:
        """K and V when `length` tokens are in the cache."""
        num_pages = self.written.shape[2]
        token = torch.full((num_pages, PAGE_SLOTS), MOST_TOKENS)
        token[list(self.table)] = torch.arange(MOST_TOKENS).view(-1, PAGE_SLOTS)
        before = torch.full_like(self.before, math.nan) if spec.unwritten else self.before
        kv = torch.where((token < length)[:, :, None], self.written, before)
        kv[0] += self._common_part(length, spec.shift)[:, None, None]
        return kv

    def _common_part(self, length: int, shift: float) -> Tensor:
        """What, added to every K of a KV head, makes all its query heads score `shift` more; (kv_heads, head_dim)."""
        q = self.q[length - 1].view(self.written.shape[1], -1, self.q.shape[-1])
        least: Tensor = torch.linalg.pinv(q).sum(dim=-1)  # the shortest vector whose product with each q is 1
        return least * shift * math.sqrt(q.shape[-1])

    def attend(self, length: int, spec: RunSpec, v: Tensor | None = None) -> _Seen:
        """The row of the newest of `length` tokens; v replaces the V planes."""
        k, own_v = self.memory(length, spec)
        updates: list[PageUpdate] = []
        out, _ = paged_attention(
            self.q[length - 1 : length],
            k,
            own_v if v is None else v,
            self.table[: pages_for(length)],
            length,
            spec.bug,
            spec.num_splits,
            updates.append,
        )
        return _Seen(out[0], updates)

    def unit_v(self, length: int) -> Tensor:
        """V planes in which the slot of token n is the unit vector n; pages outside the table count as its last one."""
        pages, slots = self.written.shape[2], PAGE_SLOTS
        logical = torch.full((pages,), pages_for(length) - 1)
        logical[list(self.table)] = torch.arange(len(self.table))
        token = logical[:, None] * slots + torch.arange(slots)
        unit = torch.nn.functional.one_hot(token, self.q.shape[-1]).float()
        return unit.expand(self.written.shape[1], -1, -1, -1)

    def largest_raw(self) -> float:
        """The largest |q . k| of a token and one that it may look at."""
        k = (
            self.written[0][:, list(self.table)]
            .flatten(1, 2)
            .repeat_interleave(self.q.shape[1] // self.written.shape[1], dim=0)
        )
        raw = torch.einsum("thd,hnd->htn", self.q, k)
        return float(raw.tril().abs().max())


@dataclass(frozen=True)
class _Seen:
    """An output (heads, head_dim) and what the observer saw on the way."""

    out: Tensor
    updates: list[PageUpdate]


def _running_layer(decoder: Decoder, memory: Tensor) -> tuple[list[int], list[float], _Layer]:
    """The right run to MOST_TOKENS tokens: its ids, the margins of those chosen, and what LAYER saw."""
    margins: list[float] = []
    queries: list[Tensor] = []
    current = 0

    def observe(stage: str, layer: int | None, _: Tensor) -> None:
        nonlocal current
        current = layer if stage == "qkv" and layer is not None else current

    def attend(q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, length: int) -> Tensor:
        if current == LAYER:
            queries.append(q.clone())
        return paged_attention(q, k_pages, v_pages, page_table, length)[0]

    ids = decoder.tokenizer.encode(RUNNING_EXAMPLE.prompt)
    with restarted(decoder, memory):
        decoder.observer, decoder.attention = observe, attend
        logits = decoder.prefill(ids)
        while len(ids) < MOST_TOKENS:
            token_id, margin = best_choice(decoder, logits)
            ids.append(token_id)
            margins.append(margin)
            logits = decoder.step(ids[-1])
        table = tuple(decoder.sequence.page_table)
        written = decoder.cache.data[LAYER].clone()
    return ids, margins, _Layer(torch.cat(queries), written, memory[LAYER], table)


@dataclass(frozen=True)
class _Right:
    """What the runs of one kind are compared with: the outputs (heads, head_dim) at 1 … MOST_TOKENS, and the rows."""

    outs: tuple[Tensor, ...]
    rows: tuple[Rows, ...]


def _right(layer: _Layer, plain: RunSpec) -> _Right:
    outs = tuple(layer.attend(length, plain).out for length in range(1, MOST_TOKENS + 1))
    return _Right(outs, tuple(_rows(layer, length, plain, outs[length - 1]) for length in LENGTHS))


def _run_trace(spec: RunSpec, layer: _Layer, right: _Right, text: WrittenText | None) -> RunTrace:
    return RunTrace(
        spec=spec,
        cause=BUGS[spec.bug] if spec.bug else "",
        rows=tuple(_rows(layer, length, spec, right.outs[length - 1]) for length in LENGTHS),
        right_rows=right.rows,
        errors=tuple(
            zip(*(_off(layer.attend(at + 1, spec).out, out) for at, out in enumerate(right.outs)), strict=True)
        ),
        text=text,
    )


def _off(found: Tensor, right: Tensor) -> list[float]:
    """The distance of each head's output from the right one, over the length of that one."""
    off: list[float] = ((found - right).norm(dim=-1) / right.norm(dim=-1)).tolist()
    return off


def _rows(layer: _Layer, length: int, spec: RunSpec, right: Tensor) -> Rows:
    """The pages of every head's row."""
    seen, shares = layer.attend(length, spec), layer.attend(length, spec, layer.unit_v(length))
    return tuple(_head_steps(head, right[head], seen, shares, spec) for head in range(len(right)))


def _head_steps(head: int, right: Tensor, seen: _Seen, shares: _Seen, spec: RunSpec) -> tuple[PageStep, ...]:
    steps = []
    maxima = [-math.inf] * spec.num_splits
    for update, share in zip(seen.updates, shares.updates, strict=True):
        m, l = float(update.m[head, 0]), float(update.l[head, 0])
        last = update is seen.updates[-1]
        out = seen.out[head] if last else update.acc[head, 0] / l
        weights = shares.out[head] if last else share.acc[head, 0] / l
        steps.append(
            PageStep(
                worker=update.split,
                page=update.page,
                page_id=update.page_id,
                scores=tuple(update.scores[head, 0].tolist()),
                m=m,
                rescale=_rescale(maxima[update.split], m, spec.bug),
                l=l,
                weights=tuple(weights[: PAGE_SLOTS * (update.page + 1)].tolist()),
                norm=float(out.norm()),
                off=float((out - right).norm() / right.norm()),
            )
        )
        maxima[update.split] = m
    return tuple(steps)


def _rescale(before: float, after: float, bug: str | None) -> float:
    """The factor that the old sums got; 0 on a worker's first page, where there are none."""
    if before == -math.inf:
        return 0.0
    return 1.0 if bug == "no_rescale" else math.exp(before - after) if math.isfinite(after) else math.nan


def _text(spec: RunSpec, decoder: Decoder, memory: Tensor, right: Sequence[int]) -> WrittenText | None:
    """What the model writes with the bug; nothing where it does not have such K."""
    if spec.shift:
        return None

    def attend(q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, length: int) -> Tensor:
        return paged_attention(q, k_pages, v_pages, page_table, length, spec.bug, spec.num_splits)[0]

    return write_text(decoder, math.nan if spec.unwritten else memory, attend, right)
