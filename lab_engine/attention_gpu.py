"""Paged attention on this machine's GPU, through Triton: is it right, and how long does a layer take?

Layers are timed as a decode step runs them: one after another, each with a cache of its own, inside a CUDA graph. So no
call finds its keys in the GPU's own cache, and no time is the host's. The peer is PyTorch's
scaled_dot_product_attention over contiguous caches of the same content.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from lab_engine.errors import ToolchainError
from lab_engine.gpu import COLD_BYTES
from lab_engine.kv_pages import PAGE_SLOTS, pages_for

LAYERS, HEADS, HEAD_DIM = 28, (28, 4), 128  # Qwen2.5-Coder-7B
SDPA = {
    "any": [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH],
    "flash": [SDPBackend.FLASH_ATTENTION],
    "cudnn": [SDPBackend.CUDNN_ATTENTION],
    "efficient": [SDPBackend.EFFICIENT_ATTENTION],
}

Attention = Callable[[], list[Tensor]]


@dataclass(frozen=True)
class Batch:
    """What paged_attention_triton takes, for one layer: one new token of each of several sequences."""

    q: Tensor
    k_pages: Tensor
    v_pages: Tensor
    page_tables: Tensor
    lengths: Tensor

    @property
    def arguments(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """In the order of the function's parameters."""
        return self.q, self.k_pages, self.v_pages, self.page_tables, self.lengths


def check_gpu() -> None:
    """Raise ToolchainError, in one line, where the kernel cannot run: no Triton, or no NVIDIA GPU."""
    if find_spec("triton") is None:
        raise ToolchainError("no Triton found; on Linux: .venv/bin/python -m pip install -c constraints.txt -e .[gpu]")
    if not torch.cuda.is_available():
        raise ToolchainError("no NVIDIA GPU found")


def random_batch(
    lengths: Sequence[int],
    heads: tuple[int, int] = HEADS,
    head_dim: int = HEAD_DIM,
    dtype: torch.dtype = torch.bfloat16,
    fill: float = math.nan,
    device: str = "cuda",
    seed: int = 0,
) -> Batch:
    """Random q, K and V; page ids in random order; every slot without a token holds `fill`, three free pages too.

    heads: query heads and KV heads. A table is padded with 0, as KVCache.tables does.
    """
    generator = torch.Generator(device).manual_seed(seed)
    pages = [pages_for(length) for length in lengths]
    ids = torch.randperm(sum(pages) + 3, generator=generator, device=device)
    tables = torch.zeros(len(lengths), max(1, *pages), dtype=torch.int32, device=device)
    for row, own in zip(tables, torch.split(ids, [*pages, 3]), strict=False):
        row[: len(own)] = own
    slots = torch.cat([_slots(table, length) for table, length in zip(tables, lengths, strict=True)])
    pools = torch.full((2, heads[1], len(ids) * PAGE_SLOTS, head_dim), fill, dtype=dtype, device=device)
    size = (2, heads[1], len(slots), head_dim)
    pools[:, :, slots] = torch.randn(size, generator=generator, dtype=dtype, device=device)
    k_pages, v_pages = pools.view(2, heads[1], len(ids), PAGE_SLOTS, head_dim)
    q = 2 * torch.randn(len(lengths), heads[0], head_dim, generator=generator, dtype=dtype, device=device)
    return Batch(q, k_pages, v_pages, tables, torch.tensor(lengths, dtype=torch.int32, device=device))


def contiguous(batch: Batch) -> tuple[Tensor, Tensor]:
    """K and V of a batch whose sequences have one length, without pages: (batch, num_kv_heads, length, head_dim)."""
    length = int(batch.lengths[0])
    slots = torch.stack([_slots(table, length) for table in batch.page_tables])
    k, v = (pages.flatten(1, 2)[:, slots].transpose(0, 1).contiguous() for pages in (batch.k_pages, batch.v_pages))
    return k, v


def largest_errors(batch: Batch, out: Tensor, lse: Tensor) -> tuple[float, float]:
    """max |output - float64| and max |lse - float64| over the sequences that are not empty; NaN where one is NaN."""
    errors = []
    ratio = batch.q.shape[1] // batch.k_pages.shape[0]
    for row, (table, length) in enumerate(zip(batch.page_tables, batch.lengths.tolist(), strict=True)):
        if not length:
            continue
        slots = _slots(table, length)
        k, v = (pages.flatten(1, 2)[:, slots].double() for pages in (batch.k_pages, batch.v_pages))
        q = batch.q[row].double().view(len(k), ratio, -1)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        expected, expected_lse = scores.softmax(-1) @ v, scores.logsumexp(-1)
        pair = (out[row].view_as(expected) - expected, lse[row].view_as(expected_lse) - expected_lse)
        errors.append(torch.stack([error.abs().max() for error in pair]))
    worst = torch.stack(errors).amax(dim=0)
    return float(worst[0]), float(worst[1])


def errors_of(batch: Batch, num_splits: int | None = None) -> tuple[float, float]:
    """Run the Triton kernels once: their largest_errors."""
    from lab_engine.kernels.paged_attention_triton import paged_attention_triton

    return largest_errors(batch, *paged_attention_triton(*batch.arguments, num_splits))


def layers_of(context: int, batch: int, dtype: torch.dtype = torch.bfloat16) -> list[Batch]:
    """The caches of all layers, and of as many further rounds of them as it takes to hold COLD_BYTES of K and V."""
    rounds = math.ceil(COLD_BYTES / (LAYERS * cache_bytes(context, batch)))
    return [random_batch([context] * batch, dtype=dtype, seed=seed) for seed in range(LAYERS * rounds)]


def cache_bytes(context: int, batch: int) -> int:
    """Bytes of K and V that one layer has to read, in 16 bits an element."""
    return 2 * 2 * batch * context * HEADS[1] * HEAD_DIM


def paged(layers: Sequence[Batch], num_splits: int | None = None) -> Attention:
    """All layers in turn, by the Triton kernels."""
    from lab_engine.kernels.paged_attention_triton import paged_attention_triton

    return lambda: [paged_attention_triton(*layer.arguments, num_splits)[0] for layer in layers]


def dense(layers: Sequence[Batch], caches: Sequence[tuple[Tensor, Tensor]], backend: str, rows: bool) -> Attention:
    """All layers in turn, by scaled_dot_product_attention; backend: a key of SDPA.

    rows: the query heads of a group are the rows of a product with their KV head; otherwise enable_gqa is on, with one
    row a query head. Both mean the same.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if rows:
            return F.scaled_dot_product_attention(q.view(len(q), k.shape[1], -1, q.shape[2]), k, v).flatten(1, 2)
        return F.scaled_dot_product_attention(q[:, :, None], k, v, enable_gqa=True)[:, :, 0]

    def run() -> list[Tensor]:
        with sdpa_kernel(SDPA[backend]):
            return [attend(layer.q, *cache) for layer, cache in zip(layers, caches, strict=True)]

    return run


def _slots(table: Tensor, length: int) -> Tensor:
    """Where the tokens of a sequence lie in the flat pool: int64 (length,)."""
    token = torch.arange(length, device=table.device)
    return table[token // PAGE_SLOTS].long() * PAGE_SLOTS + token % PAGE_SLOTS
