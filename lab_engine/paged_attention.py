"""Attention of new tokens over a paged past: online softmax, one page at a time.

A row of scores is never stored whole. For each page the running maximum m, the sum l of exp(score - m) and the
weighted sum acc of V are brought up to date; what was summed under the old maximum is rescaled by exp(old m - new m).
The tail, the last page, has slots without a token: their scores become -inf and their V is not touched, because
0 * NaN is NaN. This is the readable form that every fast one is compared with; `bug` switches on a real mistake.
Source: Milakov, Gimelshein, arXiv:1805.02867; FlashAttention-2, arXiv:2307.08691, 3.1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import PAGE_SLOTS, pages_for

BUGS = {
    "no_tail_mask": "the empty slots of the tail take part in the softmax",
    "mask_to_zero": "the empty slots get the score 0 instead of -inf",
    "length_minus_one": "the current token is left out",
    "floor_pages": "the number of pages is rounded down, so the tail is never read",
    "no_rescale": "the sums are not rescaled when a later page has a larger maximum",
    "head_modulo": "query head h reads KV head h % num_kv_heads instead of h // ratio",
}
"""The mistakes that `bug` can switch on, each with one line of what goes wrong."""


def paged_attention(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: list[int], length: int, bug: str | None = None
) -> tuple[Tensor, Tensor]:
    """Causal attention of the last T tokens of a sequence over all its pages.

    q floating (T, num_q_heads, head_dim), already turned by RoPE; k_pages, v_pages (num_kv_heads, num_pages, 16,
    head_dim): the planes of one layer; length counts all tokens in the cache, the T new ones included. Returns the
    output, float32 (T, num_q_heads, head_dim), and lse float32 (T, num_q_heads): log of the sum of exp(score).
    A length of 0 gives zeros and lse -inf. The scale 1 / sqrt(head_dim) is applied to q, before the product.
    """
    if bug is not None and bug not in BUGS:
        raise NanoqwenError(f"bug {bug!r}: expected one of {', '.join(BUGS)}")
    num_tokens, num_heads, head_dim = q.shape
    kv_head = _kv_heads(num_heads, k_pages.shape[0], bug)
    scaled = q.float().transpose(0, 1) / math.sqrt(head_dim)
    visible = length - num_tokens + 1 + torch.arange(num_tokens)
    if bug == "length_minus_one":
        visible = visible - 1
    m = torch.full((num_heads, num_tokens), -math.inf)
    l = torch.zeros(num_heads, num_tokens)
    acc = torch.zeros(num_heads, num_tokens, head_dim)
    num_pages = length // PAGE_SLOTS if bug == "floor_pages" else pages_for(length)
    for page, page_id in enumerate(page_table[:num_pages]):
        k, v = k_pages[kv_head, page_id].float(), v_pages[kv_head, page_id].float()
        slot_token = page * PAGE_SLOTS + torch.arange(PAGE_SLOTS)
        valid = slot_token[None, :] < visible[:, None]
        scores = _masked(scaled @ k.transpose(-1, -2), valid, slot_token < length, bug)
        if bug not in ("no_tail_mask", "mask_to_zero"):
            v = torch.where((slot_token < length)[:, None], v, 0.0)
        m, l, acc = online_softmax_update(m, l, acc, scores, v, rescale=bug != "no_rescale")
    out = acc / torch.where(l == 0, 1.0, l)[..., None]
    return out.transpose(0, 1), (m + l.log()).transpose(0, 1)


def online_softmax_update(
    m: Tensor, l: Tensor, acc: Tensor, scores: Tensor, v: Tensor, rescale: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Bring the running softmax state up to date with the scores and values of one more page.

    m, l float32 (…,), acc (…, head_dim), scores (…, slots), v (…, slots, head_dim) -> the new m, l, acc.
    Start with m = -inf, l = 0, acc = 0; a page whose scores are all -inf leaves the state as it is.
    """
    new_m = torch.maximum(m, scores.amax(dim=-1))
    safe_m = torch.where(new_m == -math.inf, 0.0, new_m)
    p = torch.exp(scores - safe_m[..., None])
    factor = torch.exp(m - safe_m) if rescale else torch.where(m == -math.inf, 0.0, 1.0)
    return new_m, l * factor + p.sum(dim=-1), acc * factor[..., None] + p @ v


def _kv_heads(num_heads: int, num_kv_heads: int, bug: str | None) -> Tensor:
    """The KV head of each query head: h // ratio, since the heads of a group are neighbours."""
    if num_heads % num_kv_heads:
        raise NanoqwenError(f"{num_heads} query heads: expected a multiple of the {num_kv_heads} KV heads")
    heads = torch.arange(num_heads)
    return heads % num_kv_heads if bug == "head_modulo" else heads // (num_heads // num_kv_heads)


def _masked(scores: Tensor, valid: Tensor, holds_token: Tensor, bug: str | None) -> Tensor:
    """Scores with -inf where a token may not look: at later tokens and at slots that hold none."""
    if bug == "no_tail_mask":
        valid = valid | ~holds_token
    if bug == "mask_to_zero":
        return torch.where(valid, scores, torch.where(holds_token, -math.inf, 0.0))
    return torch.where(valid, scores, -math.inf)
