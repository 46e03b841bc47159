"""Attention of new tokens over a paged past: online softmax, one page at a time.

A row of scores is never stored whole. For each page the running maximum m, the sum l of exp(score - m) and the
weighted sum acc of V are brought up to date; what was summed under the old maximum is rescaled by exp(old m - new m).
The tail, the last page, has slots without a token: their scores become -inf and their V is not touched, because
0 * NaN is NaN. Several workers may share the pages, each with a run of neighbours; their parts are then combined by
log-sum-exp. This is the readable form that every fast one is compared with; `bug` switches on a real mistake.
Source: Milakov, Gimelshein, arXiv:1805.02867; FlashAttention-2, arXiv:2307.08691, 3.1.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab_engine.attention_bugs import BUGS, behaviour_of
from lab_engine.errors import NanoqwenError, whole_number
from lab_engine.kv_pages import PAGE_SLOTS, pages_for

__all__ = ["BUGS", "PageUpdate", "combine", "online_softmax_update", "paged_attention", "pages_per_worker"]

_LOWEST = torch.finfo(torch.float32).min


@dataclass(frozen=True)
class PageUpdate:
    """What one worker has after one page; T new tokens, H query heads.

    split: the worker. page, page_id: the logical page and where it lies. scores float32 (H, T, 16), as they go into
    the softmax. valid bool (T, 16): the slots whose token a row may look at. m, l (H, T) and acc (H, T, head_dim).
    """

    split: int
    page: int
    page_id: int
    scores: Tensor
    valid: Tensor
    m: Tensor
    l: Tensor
    acc: Tensor


def paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Sequence[int] | Tensor,
    length: int,
    bug: str | None = None,
    num_splits: int = 1,
    observer: Callable[[PageUpdate], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Causal attention of the last T tokens of a sequence over all its pages.

    q floating (T, num_q_heads, head_dim), turned by RoPE; k_pages, v_pages (num_kv_heads, num_pages,
    16, head_dim): the planes of a layer; length: all tokens in the cache, the T new ones included.
    Returns the output, float32 (T, num_q_heads, head_dim), and lse float32 (T, num_q_heads): log of the
    sum of exp(score); scores are scaled by 1 / sqrt(head_dim), on q. A row that sees nothing gives
    zeros and lse -inf: a length of 0, or the first T - length rows where T is larger.
    num_splits workers take ceil(pages / num_splits) pages each, in order; the last may get none.
    observer sees each page of each worker: the first page of all workers, then the second.
    bug: a name of BUGS. NanoqwenError: planes, heads, table, length or num_splits that do not fit.
    """
    rules, length = behaviour_of(bug), whole_number("length", length)
    num_tokens, num_heads, head_dim = _checked_shape(q, k_pages, v_pages)
    root = math.sqrt(head_dim)
    q = q.float().transpose(0, 1) / (1.0 if rules.scores_in_fp16 else root)
    kv_head = _kv_heads(num_heads, k_pages.shape[0], rules.groups_are_neighbours)
    num_pages = pages_for(length) if rules.rounds_pages_up else length // PAGE_SLOTS
    table = _checked_table(page_table, num_pages, k_pages.shape[1])
    if not rules.knows_newest_page and length % PAGE_SLOTS == 1:
        table[-1] = _page_of_another(table, k_pages.shape[1])
    valid, empty, later = _slot_masks(length, num_tokens, num_pages, rules.counts_current_token)

    # A worker runs over `run` neighbouring pages; the last may have fewer, or none. One idle worker stands for all.
    rows = min(whole_number("num_splits", num_splits, 1), num_pages + 1), num_heads, num_tokens
    m, l, acc = torch.full(rows, -math.inf), torch.zeros(rows), torch.zeros(*rows, head_dim)
    run = pages_per_worker(num_pages, rows[0])
    for n in range(run):
        step = slice(n, None, run)  # the n-th page of every worker that has one; those are the first workers
        k, v = (_gathered(pages, kv_head, table[step]) for pages in (k_pages, v_pages))
        scores = q @ k.mT
        if rules.scores_in_fp16:
            scores = scores.half().float() / root
        scores.masked_fill_(later[step, None], -math.inf)
        if rules.tail_score is not None:
            scores.masked_fill_(empty[step, None, None], rules.tail_score)
        if rules.clears_tail_v:
            v.masked_fill_(empty[step, None, :, None], 0.0)
        busy = slice(len(k))
        state = online_softmax_update(m[busy], l[busy], acc[busy], scores, v, rules.rescales)
        m[busy], l[busy], acc[busy] = state
        if observer:
            seen = range(n, num_pages, run), table[step].tolist(), scores, valid[step], *state
            for split, values in enumerate(zip(*seen, strict=True)):
                observer(PageUpdate(split, *values))

    # A worker that saw nothing leaves 0 / 0 behind, which is NaN: undefined memory, as in a real kernel.
    out, lse = combine(acc / l[..., None], m + l.log(), rules.guards_empty_parts)
    return out.transpose(0, 1), lse.transpose(0, 1)


def pages_per_worker(num_pages: int, num_splits: int) -> int:
    """ceil(pages / workers): so many neighbouring pages go to each worker, as long as there are any.

    NanoqwenError for less than one worker.

    >>> [pages_per_worker(n, 4) for n in (0, 1, 4, 5, 9)]
    [0, 1, 1, 2, 3]
    """
    return -(-whole_number("num_pages", num_pages) // whole_number("num_splits", num_splits, 1))


def online_softmax_update(
    m: Tensor, l: Tensor, acc: Tensor, scores: Tensor, v: Tensor, rescale: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Bring the running softmax state up to date with the scores and values of one more page.

    m, l float32 (…,), acc (…, head_dim), scores (…, slots), v (…, slots, head_dim) -> the new m, l, acc.
    Start with m = -inf, l = 0, acc = 0; a page whose scores are all -inf leaves the state as it is.
    """
    new_m = torch.maximum(m, scores.amax(dim=-1))
    safe_m = new_m.clamp(min=_LOWEST)  # where nothing was seen: -inf - -inf is NaN
    p = torch.exp(scores - safe_m[..., None])
    factor = torch.exp(m - safe_m) if rescale else torch.ones_like(m)
    return new_m, l * factor + p.sum(dim=-1), acc * factor[..., None] + p @ v


def combine(outs: Tensor, lses: Tensor, guard: bool = True) -> tuple[Tensor, Tensor]:
    """One softmax from parts that have seen different tokens: each weighs exp(its lse).

    outs float32 (parts, …, head_dim), each divided by its own sum; lses (parts, …) -> the output and its lse.
    An empty part has lse -inf, and its output is never touched: it may hold anything. Only empty parts: 0 and -inf.
    NanoqwenError: no parts at all, or parts of 16 bits, which are too coarse to be summed.
    """
    _check_parts(outs, lses)
    largest = lses.amax(dim=0)
    if guard:
        outs = outs.masked_fill((lses == -math.inf)[..., None], 0.0)
        largest = largest.clamp(min=_LOWEST)
    weights = torch.exp(lses - largest)
    total = weights.sum(dim=0)
    out = (weights[..., None] * outs).sum(dim=0)
    # The part with the largest lse weighs 1, so a total below 1 is the 0 of nothing but empty parts.
    return out / total.clamp(min=1.0)[..., None], largest + total.log()


def _slot_masks(length: int, num_tokens: int, num_pages: int, itself: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Which slots of each page a row may look at, hold no token, or hold a token that comes later than the row's.

    Bool (num_pages, T, 16), (num_pages, 16) and (num_pages, T, 16). itself: a row looks at its own token too.
    """
    token = torch.arange(PAGE_SLOTS * num_pages).view(num_pages, PAGE_SLOTS)
    visible = length - num_tokens + torch.arange(num_tokens) + itself
    valid, empty = token[:, None] < visible[:, None], token >= length
    return valid, empty, ~(valid | empty[:, None])


def _gathered(pages: Tensor, kv_head: Tensor, page_ids: Tensor) -> Tensor:
    """One page a worker from the plane that each query head reads: float32 (workers, H, 16, head_dim), a copy."""
    return pages.index_select(1, page_ids).index_select(0, kv_head).transpose(0, 1).float()


def _checked_shape(q: Tensor, k_pages: Tensor, v_pages: Tensor) -> tuple[int, int, int]:
    """The shape of q; one plane of another shape would be read at the slots and ids of the other."""
    if q.ndim != 3:
        raise NanoqwenError(f"q: found shape {tuple(q.shape)}, expected (T, num_q_heads, head_dim)")
    num_tokens, num_heads, head_dim = q.shape
    if k_pages.ndim != 4 or k_pages.shape[2:] != (PAGE_SLOTS, head_dim) or not k_pages.shape[0]:
        asked = f"(1 or more KV heads, num_pages, {PAGE_SLOTS}, head_dim {head_dim} as q)"
        raise NanoqwenError(f"k_pages: found shape {tuple(k_pages.shape)}, expected {asked}")
    if k_pages.shape != v_pages.shape:
        found = f"found shape {tuple(v_pages.shape)}, expected {tuple(k_pages.shape)} as k_pages"
        raise NanoqwenError(f"v_pages: {found}")
    return num_tokens, num_heads, head_dim


def _kv_heads(num_heads: int, num_kv_heads: int, groups_are_neighbours: bool) -> Tensor:
    """The KV head of each query head: h // ratio, since the heads of a group are neighbours."""
    if num_heads % num_kv_heads:
        raise NanoqwenError(f"{num_heads} query heads: expected a multiple of the {num_kv_heads} KV heads")
    heads = torch.arange(num_heads)
    return heads // (num_heads // num_kv_heads) if groups_are_neighbours else heads % num_kv_heads


def _page_of_another(table: Tensor, pool_pages: int) -> int:
    """The lowest page id that the sequence does not own, its own first one where it owns all: the same on every run."""
    return min(set(range(pool_pages)) - set(table.tolist()), default=int(table[0]))


def _checked_table(page_table: Sequence[int] | Tensor, num_pages: int, pool_pages: int) -> Tensor:
    """The first num_pages page ids, int64, a copy; a negative id would silently read from the end of the pool."""
    try:
        table = torch.as_tensor(page_table)
    except (TypeError, ValueError, RuntimeError):
        raise NanoqwenError(f"page_table: found {reprlib.repr(page_table)}, expected page ids") from None
    if table.ndim != 1:
        raise NanoqwenError(f"page_table: found shape {tuple(table.shape)}, expected the page ids of one sequence")
    if len(table) and (table.is_floating_point() or table.is_complex() or table.dtype == torch.bool):
        raise NanoqwenError(f"page_table: found {table.dtype}, expected whole numbers")
    table = table[:num_pages].to(torch.int64, copy=True)
    if len(table) < num_pages:
        raise NanoqwenError(f"page_table: found {len(table)} page ids, expected at least {num_pages} for the length")
    if num_pages and not 0 <= int(table.min()) <= int(table.max()) < pool_pages:
        raise NanoqwenError(f"page_table: found {table.tolist()}, expected ids from 0 to {pool_pages - 1}")
    return table


def _check_parts(outs: Tensor, lses: Tensor) -> None:
    if not len(lses):
        raise NanoqwenError("parts to combine: found 0, expected 1 or more")
    for name, part in (("outs", outs), ("lses", lses)):
        if part.dtype not in (torch.float32, torch.float64):
            raise NanoqwenError(f"{name}: found {part.dtype}, expected torch.float32")
