"""What quantization costs, measured on text: logit KL divergence and bits per byte.

Both compare next-token distributions: KL against those of the unquantized weights, bits per byte against the text
itself. Rounding errors of the weights matter only through these two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from lab_engine.errors import NanoqwenError
from lab_engine.reference import reference_logits
from lab_engine.tokenizer import Tokenizer
from lab_engine.weights import DenseSource, WeightSource


@dataclass(frozen=True)
class Quality:
    """mean_kl: nats a token of KL(baseline || this); bits_per_byte of the text; top1_agreement: 0 to 1."""

    mean_kl: float
    bits_per_byte: float
    top1_agreement: float


def windows(tokenizer: Tokenizer, text: str, length: int = 512) -> Iterator[list[int]]:
    """The ids of a text in runs of at most `length` that do not overlap; a last run of one token is dropped."""
    ids = tokenizer.encode(text)
    for start in range(0, len(ids), length):
        run = ids[start : start + length]
        if len(run) > 1:
            yield run


def measure(source: WeightSource, baseline: WeightSource, tokenizer: Tokenizer, text: str) -> Quality:
    """Run a text through both sources in float32 (reference.py) and compare; the first token of a window is free.

    Raises NanoqwenError for a text of fewer than two tokens.
    """
    source, baseline = DenseSource(source), DenseSource(baseline)
    kl = nats = agree = 0.0
    tokens = num_bytes = 0
    for ids in windows(tokenizer, text):
        log_p = reference_logits(baseline, ids)[:-1].log_softmax(dim=-1)
        log_q = reference_logits(source, ids)[:-1].log_softmax(dim=-1)
        kl += float((log_p.exp() * (log_p - log_q)).sum())
        nats -= float(log_q.gather(1, torch.tensor(ids[1:])[:, None]).sum())
        agree += float(log_p.argmax(dim=-1).eq(log_q.argmax(dim=-1)).sum())
        tokens += len(ids) - 1
        num_bytes += len(tokenizer.decode(ids[1:]).encode())
    if not tokens:
        raise NanoqwenError(
            f"text: found {len(text)} characters, expected two tokens at least: one to predict the other"
        )
    return Quality(kl / tokens, nats / math.log(2) / num_bytes, agree / tokens)
