"""What the shipped model writes when its attention has a bug, in every layer: the texts of lab 05's tail lens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from lab_engine.decoder import Attention, Decoder
from lab_engine.running_example import RUNNING_EXAMPLE

AFTER_DEPARTURE = 16
"""A wrong text ends so many tokens from its first wrong one on, or where the right one does."""

AFTER_NAN = 4
"""A text of NaN logits ends after so many tokens: each is token 0."""

SAFE_MARGIN = 0.02
"""A text ends before a choice whose two best logits are nearer than this: another machine might choose the other."""


@dataclass(frozen=True)
class WrittenText:
    """What the model writes after the prompt: token texts, the first that is not the right one, the least margin."""

    token_texts: tuple[str, ...]
    departs: int | None
    least_margin: float


@contextmanager
def restarted(decoder: Decoder, memory: Tensor | float) -> Iterator[None]:
    """The cache as it was before the running request, which gets the same page ids again."""
    attention, observer = decoder.attention, decoder.observer
    decoder.cache.truncate(decoder.sequence, 0)
    decoder.cache.data[:] = memory
    try:
        yield
    finally:
        decoder.attention, decoder.observer = attention, observer


def write_text(decoder: Decoder, memory: Tensor | float, attention: Attention, right: Sequence[int]) -> WrittenText:
    """The running prompt continued greedily with this attention; `right` holds the ids of the right text.

    memory: what all slots of the cache hold before: a tensor of its shape, or one number.
    """
    ids: list[int] = []
    margins = []
    with restarted(decoder, memory):
        decoder.attention = attention
        logits = decoder.prefill(decoder.tokenizer.encode(RUNNING_EXAMPLE.prompt))
        while True:
            token_id, margin = best_choice(decoder, logits)
            if margin < SAFE_MARGIN:
                break
            ids.append(token_id)
            margins.append(margin)
            if len(ids) >= _end(ids, margins, right):
                break
            logits = decoder.step(token_id)
    texts = tuple(decoder.tokenizer.token_text(token_id) for token_id in ids)
    return WrittenText(texts, _departure(ids, right), min(margins))


def best_choice(decoder: Decoder, logits: Tensor) -> tuple[int, float]:
    """The id with the largest logit and the gap to the next; NaN gives token 0, as on a GPU, and is no close call."""
    known = logits[: decoder.tokenizer.vocab_size]
    if known.isnan().any():
        return 0, math.inf
    best = known.topk(2)
    return int(best.indices[0]), float(best.values[0] - best.values[1])


def _end(ids: Sequence[int], margins: Sequence[float], right: Sequence[int]) -> int:
    """Tokens that the text may have, as far as one knows by now."""
    departs = _departure(ids, right)
    if departs is None:
        return len(right)
    return min(len(right), departs + (AFTER_NAN if math.isinf(margins[departs]) else AFTER_DEPARTURE))


def _departure(ids: Sequence[int], right: Sequence[int]) -> int | None:
    return next((at for at, (a, b) in enumerate(zip(ids, right, strict=False)) if a != b), None)
