"""Attention of one new token over 2048 tokens of past, in the shapes of the 7B, all 28 layers in turn."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from lab_engine.backends import make_backend
from lab_engine.bench.machine import median_seconds, read_bandwidth
from lab_engine.bench.models import QWEN_7B, TOLERANCE
from lab_engine.bench.result import Measurement
from lab_engine.kv_pages import KVCache, pages_for
from lab_engine.paged_attention import paged_attention

_LENGTH = 2048


def attention_7b(backend: str) -> Measurement:
    """Through a page table in random order; the peer reads a contiguous cache. Both together outgrow any cache."""
    ops = make_backend(backend, QWEN_7B, None)
    generator = torch.Generator().manual_seed(0)
    table = torch.randperm(pages_for(_LENGTH), generator=generator).to(ops.device)
    cache = KVCache(QWEN_7B, len(table), ops.dtype, ops.device)
    cache.data.normal_()
    q = torch.randn(1, QWEN_7B.num_q_heads, QWEN_7B.head_dim, generator=generator).to(ops.device, ops.dtype)
    contiguous = cache.data[:, :, :, table].flatten(3, 4).contiguous()

    def paged() -> list[Tensor]:
        with torch.inference_mode():
            return [ops.paged_attention(q, k, v, table, _LENGTH) for k, v in cache.data]

    def dense() -> list[Tensor]:
        # The heads of a group are rows over their KV head: the fastest form of the call, found by trying them.
        # With enable_gqa=True, which multiplies each head alone, it took ten times as long on an AMD EPYC with AVX-512.
        rows = q.view(1, QWEN_7B.num_kv_heads, -1, QWEN_7B.head_dim)
        with torch.inference_mode():
            return [F.scaled_dot_product_attention(rows, k[None], v[None]) for k, v in contiguous]

    runs = 9
    num_bytes = cache.data.nbytes
    return Measurement(
        value=median_seconds(paged, runs),
        passed=all(_is_right(out, q, pages, table) for out, pages in zip(paged(), cache.data, strict=True)),
        how=f"median of {runs} times {QWEN_7B.num_layers} layers, {_LENGTH} tokens, {num_bytes} bytes of K and V",
        limit=num_bytes / read_bandwidth() if ops.device.type == "cpu" else None,
        peer=("scaled_dot_product_attention, contiguous", median_seconds(dense, runs)),
    )


def _is_right(out: Tensor, q: Tensor, pages: Tensor, table: Tensor) -> bool:
    """Against the readable form, in float32."""
    k, v = pages.cpu()
    expected = paged_attention(q.cpu(), k, v, table.tolist(), _LENGTH)[0]
    return bool((out.cpu().float() - expected).abs().max() <= TOLERANCE * expected.abs().max())
