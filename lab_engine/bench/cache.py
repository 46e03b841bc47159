"""One step of the paged cache for 256 sequences of mixed lengths: a slot for each new token, tables and lengths."""

from __future__ import annotations

import random
from dataclasses import replace

import torch
from torch import Tensor

from lab_engine.backends import make_backend
from lab_engine.bench.machine import median_seconds
from lab_engine.bench.models import QWEN_7B
from lab_engine.bench.result import Measurement
from lab_engine.kv_pages import PAGE_SLOTS, KVCache, Sequence, pages_for

_CONFIG = replace(QWEN_7B, num_layers=1)  # the books are the same for any number of layers
_LONGEST = 2048
_RUNS = 64


def cache_step_256(backend: str) -> Measurement:
    """append_each and tables; in each step about every sixteenth sequence begins a page."""
    device = make_backend(backend, _CONFIG, None).device
    generator = random.Random(0)
    lengths = [generator.randint(1, _LONGEST) for _ in range(256)]
    num_pages = sum(pages_for(length + _RUNS + 2) for length in lengths)
    order = generator.sample(range(num_pages), num_pages)
    cache = KVCache(_CONFIG, num_pages, torch.bfloat16, device, order)
    sequences = [cache.new_sequence() for _ in lengths]
    for sequence, length in zip(sequences, lengths, strict=True):
        cache.append(sequence, length)

    def step() -> tuple[Tensor, Tensor, Tensor]:
        return cache.append_each(sequences), *cache.tables(sequences)

    value = median_seconds(step, _RUNS)
    expected = [length + _RUNS + 2 for length in lengths]
    return Measurement(
        value=value,
        passed=_is_right(*step(), sequences, expected),
        how=f"median of {_RUNS} steps, {len(lengths)} sequences of 1 to {_LONGEST} tokens, {num_pages} pages",
    )


def _is_right(slots: Tensor, tables: Tensor, lengths: Tensor, sequences: list[Sequence], expected: list[int]) -> bool:
    """Every length is as expected, every slot is that of the last token, and no page stands in two tables."""
    if lengths.tolist() != expected:
        return False
    rows = [row[: pages_for(length)] for row, length in zip(tables.tolist(), expected, strict=True)]
    last = [row[-1] * PAGE_SLOTS + (length - 1) % PAGE_SLOTS for row, length in zip(rows, expected, strict=True)]
    named = [page_id for row in rows for page_id in row]
    same = all(row == sequence.page_table for row, sequence in zip(rows, sequences, strict=True))
    return same and slots.tolist() == last and len(set(named)) == len(named)
