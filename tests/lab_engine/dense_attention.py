"""Attention in float64 without pages, and the same past laid out on pages: what every paged form is compared with."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lab_engine.kv_pages import PAGE_SLOTS, pages_for


def dense_attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Causal attention of the last len(q) tokens: output (T, heads, head_dim) and lse (T, heads), float64.

    q (T, heads, head_dim); k, v (length, kv_heads, head_dim).
    """
    length, num_kv_heads, head_dim = k.shape
    rows = q.double().unflatten(1, (num_kv_heads, -1))  # the heads of a group are neighbours
    scores = torch.einsum("qgrd,kgd->qgrk", rows, k.double()) / math.sqrt(head_dim)
    hidden = torch.arange(length)[None, :] > (length - len(q) + torch.arange(len(q)))[:, None]
    scores = scores.masked_fill(hidden[:, None, None, :], -math.inf)
    out = torch.einsum("qgrk,kgd->qgrd", scores.softmax(dim=-1), v.double())
    return out.flatten(1, 2), scores.logsumexp(dim=-1).flatten(1, 2)


@dataclass(frozen=True)
class Case:
    """Random q, k, v (as dense_attention), the same k and v on pages, and the page table."""

    q: Tensor
    k: Tensor
    v: Tensor
    k_pages: Tensor
    v_pages: Tensor
    page_table: list[int]

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return len(self.k)


def random_case(
    length: int,
    num_tokens: int = 1,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 64,
    fill: float = math.nan,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Case:
    """Page ids out of order; every slot without a token, in pages that are used and that are not, holds `fill`."""
    generator = torch.Generator().manual_seed(1000 * seed + length)
    q = 2 * torch.randn(num_tokens, num_heads, head_dim, generator=generator)
    k, v = torch.randn(2, length, num_kv_heads, head_dim, generator=generator)
    return lay_out(q.to(dtype), k.to(dtype), v.to(dtype), fill, generator)


def lay_out(q: Tensor, k: Tensor, v: Tensor, fill: float = math.nan, generator: torch.Generator | None = None) -> Case:
    """The case of given q, k and v."""
    length, num_kv_heads, head_dim = k.shape
    num_pages = pages_for(length) + 3
    page_table = torch.randperm(num_pages, generator=generator)[: pages_for(length)].tolist()
    pages = torch.full((2, num_kv_heads, num_pages, PAGE_SLOTS, head_dim), fill, dtype=k.dtype)
    token = torch.arange(length)
    page_id, slot = torch.tensor(page_table, dtype=torch.int64)[token // PAGE_SLOTS], token % PAGE_SLOTS
    pages[:, :, page_id, slot] = torch.stack([k, v]).transpose(1, 2)
    return Case(q, k, v, pages[0], pages[1], page_table)
