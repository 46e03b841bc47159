"""What the past costs attention: bytes stored and moved in one decode step, and how its time grows with the context.

    no cache     K and V of the whole text are computed again in every step, and each row reads its past
    contiguous   one block for the longest text that may come; a step writes one token and reads all of them
    pages        whole pages of 16 tokens, and a table of 4 bytes a page that every layer reads

Bytes are K and V in 16 bits, in all layers, counted from shapes. Weights are left out: they are the same for all three.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch

from lab_engine.backends.torch import TorchBackend
from lab_engine.config import ModelConfig
from lab_engine.decoder_trace import KV_BYTES
from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import PAGE_SLOTS, pages_for

Way = Literal["no cache", "contiguous", "pages"]
WAYS: tuple[Way, ...] = ("no cache", "contiguous", "pages")
CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
TABLE_BYTES = 4
"""Bytes of a page id in the table."""


@dataclass(frozen=True)
class StepCost:
    """One decode step at a context of so many tokens, the current one included.

    token_passes: tokens that run through the layers. stored: bytes that are kept for this text between steps, reserved
    ones included. read, written: bytes of K, V and page table that attention moves; table: those of the table alone.
    """

    way: Way
    context: int
    token_passes: int
    stored: int
    read: int
    written: int
    table: int = 0

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return self.read + self.written


def kv_bytes_per_token(config: ModelConfig) -> int:
    """K and V of one token in all layers: 57,344 bytes in the 7B."""
    return config.num_layers * 2 * config.kv_size * KV_BYTES


def step_cost(config: ModelConfig, context: int, way: Way) -> StepCost:
    """Count one step. NanoqwenError for a context that the model has no positions for."""
    if not 1 <= context <= config.max_positions:
        raise NanoqwenError(f"context: found {context}, expected 1 to {config.max_positions} (the model's positions)")
    token, pages = kv_bytes_per_token(config), pages_for(context)
    if way == "no cache":
        return StepCost(way, context, context, 0, token * token_passes(context, cached=False), token * context)
    if way == "contiguous":
        return StepCost(way, context, 1, token * config.max_positions, token * context, token)
    if way == "pages":
        table = TABLE_BYTES * pages
        read = config.num_layers * table
        return StepCost(way, context, 1, token * PAGE_SLOTS * pages + table, token * context + read, token, read)
    raise NanoqwenError(f"way {way!r}: expected one of {', '.join(WAYS)}")


def token_passes(num_tokens: int, cached: bool) -> int:
    """Tokens that run through the layers until a text has num_tokens: without a cache 1 + 2 + … + num_tokens.

    >>> token_passes(2048, cached=False), token_passes(2048, cached=True)
    (2098176, 2048)
    """
    return num_tokens if cached else num_tokens * (num_tokens + 1) // 2


@dataclass(frozen=True)
class AttentionTime:
    """Seconds of one layer's attention, the best of several: a prompt of so many tokens, and one step after as many.

    The best, because other programs on the machine can only add to a time.
    """

    tokens: int
    prefill: float
    step: float


MEASURED = (256, 512, 1024, 2048)


def time_attention(
    config: ModelConfig, tokens: Iterable[int] = MEASURED, budget: float = 0.8, clock: Callable[[], float] | None = None
) -> tuple[AttentionTime, ...]:
    """Time the torch backend's attention on random K and V in float32, for about `budget` seconds in all.

    Each of them runs once untimed and then at least three times. clock: seconds, for tests.
    """
    tokens = tuple(tokens)
    backend, share = TorchBackend(config, torch.float32), budget / (2 * len(tokens))
    return tuple(
        AttentionTime(
            count,
            _best_seconds(_attention(backend, config, count, count), share, clock or time.perf_counter),
            _best_seconds(_attention(backend, config, 1, count), share, clock or time.perf_counter),
        )
        for count in tokens
    )


def _attention(backend: TorchBackend, config: ModelConfig, rows: int, length: int) -> Callable[[], object]:
    """One call over `length` tokens in pages that lie in a random order; `rows` of them are new."""
    generator, pages = torch.Generator().manual_seed(0), pages_for(length)
    shape = (2, config.num_kv_heads, pages, PAGE_SLOTS, config.head_dim)
    k_pages, v_pages = torch.randn(shape, generator=generator)
    q = torch.randn(rows, config.num_q_heads, config.head_dim, generator=generator)
    table = torch.randperm(pages, generator=generator).to(torch.int32)
    return lambda: backend.paged_attention(q, k_pages, v_pages, table, length)


def _best_seconds(call: Callable[[], object], budget: float, clock: Callable[[], float]) -> float:
    call()
    taken: list[float] = []
    while len(taken) < 3 or (sum(taken) < budget and len(taken) < 100):
        start = clock()
        call()
        taken.append(clock() - start)
    return min(taken)
