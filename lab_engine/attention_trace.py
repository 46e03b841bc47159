"""One row of attention, page by page, right and with every bug: the data that lab 05's tail lens draws.

q, K and V are those of the shipped model on the running example, in one layer. Slots without a token hold what a former
owner of the page left there. Every number comes out of paged_attention.py, by way of attention_layer.py. The texts are
written by the whole model, with the bug in all layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab_engine.attention_bugs import BUGS
from lab_engine.attention_layer import LAYER, MOST_TOKENS, Layer, RunSpec, Seen, relative_errors, right_run
from lab_engine.attention_texts import WrittenText, write_text
from lab_engine.decoder import Decoder
from lab_engine.kv_pages import PAGE_SLOTS
from lab_engine.mistakes import FORMER_OWNER, attention_with
from lab_engine.running_example import RUNNING_EXAMPLE, running_decoder
from lab_engine.threads import one_thread_of_two

LENGTHS = (16, 17, 33, 48, 49, 56)
"""Contexts that are shown slot by slot; errors are there for 1 … MOST_TOKENS."""

FORMER_TOKENS = 96
"""What the former owner wrote fills six pages: the running table's four, and two that it never gets."""

TEXT_TOKENS = 32
"""New tokens of the right text: long enough to be chosen with 17 and with 33 tokens in the cache, one on a new page."""

WORKERS = 4

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
    workers); after the last page those of the output itself. off: how far the output so far is from the right output of
    all pages, over that one's norm. NaN and infinities are numbers here.
    """

    worker: int
    page: int
    page_id: int
    scores: tuple[float, ...]
    m: float
    rescale: float
    l: float
    weights: tuple[float, ...]
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
    with one_thread_of_two(), torch.inference_mode():
        return _traced(running_decoder(), specs)


def _traced(decoder: Decoder, specs: Sequence[RunSpec]) -> LensTrace:
    tokenizer = decoder.tokenizer
    former_ids = (tokenizer.encode(FORMER_OWNER) * FORMER_TOKENS)[:FORMER_TOKENS]
    decoder.prefill(former_ids)
    former_table, memory = tuple(decoder.sequence.page_table), decoder.cache.data.clone()
    run = right_run(decoder, memory)
    prompt = len(tokenizer.encode(RUNNING_EXAMPLE.prompt))
    right = run.ids[prompt : prompt + TEXT_TOKENS]
    right_text = WrittenText(tuple(map(tokenizer.token_text, right)), None, min(run.margins[:TEXT_TOKENS]))
    rights = {plain: _computed(run.layer, plain) for plain in {spec.without_bug() for spec in specs}}
    written = [_text(spec, decoder, memory, right) if spec.bug else right_text for spec in specs]
    texts = [tokenizer.token_text(token_id) for token_id in former_ids]
    starts = range(0, FORMER_TOKENS, PAGE_SLOTS)
    return LensTrace(
        layer=LAYER,
        num_heads=run.layer.q.shape[1],
        token_texts=tuple(tokenizer.token_text(token_id) for token_id in run.ids),
        prompt_tokens=prompt,
        page_table=run.layer.table,
        former={page_id: tuple(texts[at : at + PAGE_SLOTS]) for page_id, at in zip(former_table, starts, strict=True)},
        runs=tuple(
            _run_trace(spec, run.layer, rights[spec.without_bug()], text)
            for spec, text in zip(specs, written, strict=True)
        ),
        largest_raw=run.layer.largest_raw(),
    )


@dataclass(frozen=True)
class _Computed:
    """The outputs (heads, head_dim) at 1 … MOST_TOKENS tokens, and the rows at LENGTHS."""

    outs: tuple[Tensor, ...]
    rows: tuple[Rows, ...]


def _computed(layer: Layer, spec: RunSpec, right: Sequence[Tensor] | None = None) -> _Computed:
    """One run; right: the outputs that it is compared with, its own if there are none."""
    seen = [layer.attend(length, spec) for length in range(1, MOST_TOKENS + 1)]
    outs = tuple(one.out for one in seen)
    right = right or outs
    rows = (_rows(seen[length - 1], layer.weights(length, spec), right[length - 1], spec) for length in LENGTHS)
    return _Computed(outs, tuple(rows))


def _run_trace(spec: RunSpec, layer: Layer, right: _Computed, text: WrittenText | None) -> RunTrace:
    run = right if spec == spec.without_bug() else _computed(layer, spec, right.outs)
    return RunTrace(
        spec=spec,
        cause=BUGS[spec.bug] if spec.bug else "",
        rows=run.rows,
        right_rows=right.rows,
        errors=tuple(zip(*map(relative_errors, run.outs, right.outs), strict=True)),
        text=text,
    )


def _rows(seen: Seen, shares: Seen, right: Tensor, spec: RunSpec) -> Rows:
    """The pages of every head's row; shares: the same row's weights."""
    return tuple(_head_steps(head, right[head], seen, shares, spec) for head in range(len(right)))


def _head_steps(head: int, right: Tensor, seen: Seen, shares: Seen, spec: RunSpec) -> tuple[PageStep, ...]:
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
    attention = attention_with(spec.bug, spec.num_splits)
    return write_text(decoder, math.nan if spec.unwritten else memory, attention, right)
