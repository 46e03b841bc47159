"""Tokens a second: a decode step at context 128, and a prompt of 512."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

import lab_engine
from lab_engine.bench.machine import matmul_flops, median_seconds, read_bandwidth
from lab_engine.bench.models import (
    QWEN_05B,
    RandomSource,
    logits_agree,
    prompt_operations,
    random_decoder,
    shipped_model,
    step_bytes,
)
from lab_engine.bench.result import Measurement
from lab_engine.decoder import Decoder
from lab_engine.loading import open_source
from lab_engine.weights import WeightSource

_PROMPT, _STEPS, _RUNS = 112, 32, 7  # tokens 113 to 144: context 128 on average
_LONG_PROMPT = 512


def decode_tiny(backend: str) -> Measurement:
    """The shipped model continues this file's text."""
    decoder = lab_engine.load(shipped_model(), backend)
    prompt = decoder.tokenizer.encode(Path(__file__).read_text(encoding="utf-8"))[:_PROMPT]
    return _decode(decoder, open_source(shipped_model())[0], prompt)


def decode_05b(backend: str) -> Measurement:
    """Random INT4 weights, head too, in the shapes of the 0.5B."""
    return _decode(random_decoder(QWEN_05B, backend), RandomSource(QWEN_05B), _random_ids(_PROMPT))


def prefill_05b(backend: str) -> Measurement:
    """The same weights read a prompt."""
    decoder, ids = random_decoder(QWEN_05B, backend), _random_ids(_LONG_PROMPT)
    runs = 5
    taken = median_seconds(lambda: decoder.prefill(ids), runs)
    on_cpu = decoder.backend.device.type == "cpu"
    limit = matmul_flops(decoder.backend.dtype) / prompt_operations(QWEN_05B, _LONG_PROMPT) * _LONG_PROMPT
    return Measurement(
        value=_LONG_PROMPT / taken,
        passed=logits_agree(decoder.prefill(ids)[None], RandomSource(QWEN_05B), ids),
        how=f"median of {runs} prompts of {_LONG_PROMPT} tokens",
        limit=limit if on_cpu else None,
    )


def _decode(decoder: Decoder, source: WeightSource, prompt: list[int]) -> Measurement:
    _timed_run(decoder, prompt)
    runs = [_timed_run(decoder, prompt) for _ in range(_RUNS)]
    logits, ids = runs[-1][1:]
    on_cpu = decoder.backend.device.type == "cpu"
    return Measurement(
        value=1 / median(run[0] for run in runs),
        passed=logits_agree(logits, source, ids),
        how=f"median of {_RUNS} runs, each the mean of {_STEPS} steps after {_PROMPT} tokens, argmax included",
        limit=read_bandwidth() / step_bytes(decoder.config, _PROMPT + _STEPS // 2) if on_cpu else None,
    )


def _timed_run(decoder: Decoder, prompt: list[int]) -> tuple[float, Tensor, list[int]]:
    """Seconds a step; the logits of the prompt's end and of each step; all tokens fed."""
    ids, rows = list(prompt), [decoder.prefill(prompt)]
    start = time.perf_counter()
    for _ in range(_STEPS):
        ids.append(decoder.backend.argmax(rows[-1]))
        rows.append(decoder.step(ids[-1]))
    taken = time.perf_counter() - start
    return taken / _STEPS, torch.stack(rows).cpu(), ids


def _random_ids(count: int) -> list[int]:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(0, QWEN_05B.vocab_size, (count,), generator=generator).tolist()
