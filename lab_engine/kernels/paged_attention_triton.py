"""Paged attention in Triton: the operation of lab_engine/paged_attention.py, for one new token of many sequences.

`attend_split` runs once for each sequence, KV head and split. The query heads of a group are the rows of one product,
so K and V are read once for all of them. A split is a run of neighbouring pages, read STEP tokens at a time; m, l and
acc stay in registers, in float32. `combine_splits` then makes one softmax of the splits, always in the same order:
the result is the same to the bit on every run. Slots without a token are never read: a masked load selects, and 0 * NaN
cannot happen. With TRITON_INTERPRET=1 in the environment before the import, the same code runs without a GPU.
"""

# ruff: noqa: ANN001, ANN201, PLR0913, PLR0917 - Triton would read a kernel's annotations as data types of its arguments

from __future__ import annotations

import math
import os

import torch
import triton
import triton.language as tl
from torch import Tensor

from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import PAGE_SLOTS

STEP = 32  # tokens that a program reads at once: two pages
ROWS = 16  # the smallest height of a product on tensor cores; rows beyond the query heads of a group are masked
NUM_WARPS = 4
NUM_STAGES = {2: 5, 4: 3}  # steps in flight, by bytes of an element: shared memory holds them
PROGRAMS_PER_SM = 2
HEAD_DIMS = (16, 32, 64, 128)  # the tested ones
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@triton.jit  # type: ignore[untyped-decorator]
def attend_split(  # type: ignore[no-untyped-def]
    q, k_pages, v_pages, page_tables, lengths, outs, lses, max_pages, plane, scale,
    RATIO: tl.constexpr, HEAD_DIM: tl.constexpr, SLOTS: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """The output and the lse of the query heads of one KV head over one split of one sequence.

    outs float32 (batch, num_q_heads, num_splits, HEAD_DIM), lses (batch, num_q_heads, num_splits); of an empty split
    only the lse is written, -inf. plane: elements of one KV head in the pool, num_pages * SLOTS * HEAD_DIM.
    """
    sequence, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_heads, num_splits = tl.num_programs(1) * RATIO, tl.num_programs(2)
    length = tl.load(lengths + sequence)
    run = tl.cdiv(tl.cdiv(length, SLOTS), num_splits) * SLOTS
    begin = split * run
    end = tl.minimum(begin + run, length)

    row, dim = tl.arange(0, ROWS), tl.arange(0, HEAD_DIM)
    head = sequence * num_heads + kv_head * RATIO + row
    real = row < RATIO
    part = head * num_splits + split
    q_rows = tl.load(q + head[:, None] * HEAD_DIM + dim, mask=real[:, None], other=0.0)
    k_plane, v_plane = k_pages + kv_head.to(tl.int64) * plane, v_pages + kv_head.to(tl.int64) * plane

    m = tl.full([ROWS], -float("inf"), tl.float32)
    l = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    for first in range(begin, end, STEP):  # at least one token of each step is there, so the new m is a number
        token = first + tl.arange(0, STEP)
        there = token < end
        page_id = tl.load(page_tables + sequence * max_pages + token // SLOTS, mask=there, other=0)
        at = (page_id.to(tl.int64) * SLOTS + token % SLOTS)[:, None] * HEAD_DIM + dim
        k = tl.load(k_plane + at, mask=there[:, None], other=0.0)
        v = tl.load(v_plane + at, mask=there[:, None], other=0.0)
        scores = tl.dot(q_rows, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(there, scores, -float("inf"))
        new_m = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - new_m[:, None])
        factor = tl.exp(m - new_m)
        l = l * factor + tl.sum(p, 1)
        acc = acc * factor[:, None]
        p_high = p.to(v.dtype)
        acc = tl.dot(p_high, v, acc, input_precision="ieee")
        if v.dtype != tl.float32:  # what 16 bits of p leave over: without it the output is wrong by up to 2e-3
            acc = tl.dot((p - p_high.to(tl.float32)).to(v.dtype), v, acc)
        m = new_m
    if begin < end:
        tl.store(outs + part[:, None] * HEAD_DIM + dim, acc / l[:, None], mask=real[:, None])
        tl.store(lses + part, m + tl.log(l), mask=real)
    else:
        tl.store(lses + part, m, mask=real)


@triton.jit  # type: ignore[untyped-decorator]
def combine_splits(  # type: ignore[no-untyped-def]
    outs, lses, out, lse, num_splits, HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """One softmax from the splits of one query head: each weighs exp(its lse); what an empty one holds is not read.

    out float32 (batch, num_q_heads, HEAD_DIM), lse (batch, num_q_heads). SPLITS: a power of two, num_splits or more.
    """
    head = tl.program_id(0)
    split, dim = tl.arange(0, SPLITS), tl.arange(0, HEAD_DIM)
    part = head * num_splits + split
    part_lse = tl.load(lses + part, mask=split < num_splits, other=-float("inf"))
    seen = part_lse != -float("inf")
    part_out = tl.load(outs + part[:, None] * HEAD_DIM + dim, mask=seen[:, None], other=0.0)
    largest = tl.max(part_lse, 0)
    largest = tl.where(largest == -float("inf"), 0.0, largest)
    weight = tl.exp(part_lse - largest)
    total = tl.sum(weight, 0)
    safe = tl.where(total == 0.0, 1.0, total)
    tl.store(out + head * HEAD_DIM + dim, tl.sum(weight[:, None] * part_out, 0) / safe)
    tl.store(lse + head, tl.where(total == 0.0, -float("inf"), largest + tl.log(safe)))


def paged_attention_triton(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_tables: Tensor,
    lengths: Tensor,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of the newest token of each sequence over all its pages: output float32 (batch, num_q_heads, head_dim)
    and lse float32 (batch, num_q_heads).

    q (batch, num_q_heads, head_dim), already turned by RoPE; k_pages, v_pages (num_kv_heads, num_pages, 16, head_dim):
    the planes of one layer; all of one dtype, float32, bfloat16 or float16. page_tables int32 (batch, max_pages),
    lengths int32 (batch,), the new token included: KVCache.tables gives both. Nothing waits for the GPU, so what they
    hold is not checked: every length <= 16 * max_pages, every page id that is used in the pool. A length of 0 gives
    zeros and lse -inf; a batch of 0 gives empty tensors. num_splits: workers for each sequence and KV head, 1 or more;
    left out, `default_splits`.
    """
    _check(q, k_pages, v_pages, page_tables, lengths)
    if num_splits is not None and num_splits < 1:
        raise NanoqwenError(f"num_splits: found {num_splits}, expected 1 or more")
    batch, num_heads, head_dim = q.shape
    if batch == 0:
        return torch.empty(q.shape, device=q.device), torch.empty(q.shape[:2], device=q.device)
    num_kv_heads, num_pages = k_pages.shape[:2]
    max_pages = page_tables.shape[1]
    splits = num_splits or default_splits(batch * num_kv_heads, max_pages, _num_sms(q))
    outs, out = (torch.empty(*shape, head_dim, device=q.device) for shape in ((batch, num_heads, splits), q.shape[:2]))
    lses, lse = torch.empty_like(outs[..., 0]), torch.empty_like(out[..., 0])
    plane = num_pages * PAGE_SLOTS * head_dim
    attend_split[batch, num_kv_heads, splits](
        q, k_pages, v_pages, page_tables, lengths, outs, lses, max_pages, plane, 1 / math.sqrt(head_dim),
        num_heads // num_kv_heads, head_dim, PAGE_SLOTS, ROWS, STEP,
        num_warps=NUM_WARPS, num_stages=NUM_STAGES[q.element_size()],
    )  # fmt: skip
    combine_splits[(batch * num_heads,)](outs, lses, out, lse, splits, head_dim, triton.next_power_of_2(splits))
    return out, lse


def default_splits(groups: int, max_pages: int, num_sms: int) -> int:
    """A power of two: enough splits to give every SM PROGRAMS_PER_SM programs, but none shorter than a step.

    groups: batch * num_kv_heads. max_pages stands for the lengths, which only the GPU knows.

    >>> default_splits(4, 128, 132), default_splits(128, 128, 132), default_splits(4, 1, 132)
    (64, 4, 1)
    """
    wanted = triton.next_power_of_2(-(-PROGRAMS_PER_SM * num_sms // groups))
    longest = max(1, max_pages * PAGE_SLOTS // STEP)
    return int(min(wanted, 1 << (longest.bit_length() - 1)))


def _num_sms(q: Tensor) -> int:
    """Of q's GPU. In the interpreter programs run one after another, as on one SM."""
    return torch.cuda.get_device_properties(q.device).multi_processor_count if q.is_cuda else 1


def _check(q: Tensor, k_pages: Tensor, v_pages: Tensor, page_tables: Tensor, lengths: Tensor) -> None:
    """Refuse what the kernels would read wrongly, in one line."""
    if (q.ndim, k_pages.ndim, page_tables.ndim) != (3, 4, 2):
        found = f"{tuple(q.shape)}, {tuple(k_pages.shape)} and {tuple(page_tables.shape)}"
        raise NanoqwenError(f"q, k_pages and page_tables: found {found}, expected 3, 4 and 2 dimensions")
    batch, num_heads, head_dim = q.shape
    num_kv_heads = k_pages.shape[0]
    if num_kv_heads < 1:
        raise NanoqwenError(f"k_pages: found {num_kv_heads} KV heads, expected 1 or more")
    if num_heads % num_kv_heads or not 1 <= num_heads // num_kv_heads <= ROWS:
        raise NanoqwenError(f"{num_heads} query heads: expected 1 to {ROWS} for each of the {num_kv_heads} KV heads")
    if head_dim not in HEAD_DIMS:
        raise NanoqwenError(f"head_dim: found {head_dim}, expected one of {HEAD_DIMS}, those that were tested")
    pages = (num_kv_heads, k_pages.shape[1], PAGE_SLOTS, head_dim)
    wanted = {
        "q": (q, q.shape, q.dtype),
        "k_pages": (k_pages, pages, q.dtype),
        "v_pages": (v_pages, pages, q.dtype),
        "page_tables": (page_tables, (batch, page_tables.shape[-1]), torch.int32),
        "lengths": (lengths, (batch,), torch.int32),
    }
    if q.dtype not in DTYPES:
        raise NanoqwenError(f"q: found {q.dtype}, expected float32, bfloat16 or float16")
    for name, (tensor, shape, dtype) in wanted.items():
        if tuple(tensor.shape) != tuple(shape) or tensor.dtype != dtype or tensor.device != q.device:
            found = f"{tuple(tensor.shape)} {tensor.dtype} on {tensor.device}"
            raise NanoqwenError(f"{name}: found {found}, expected {tuple(shape)} {dtype} on {q.device}")
        if not tensor.is_contiguous():
            raise NanoqwenError(f"{name}: expected contiguous memory; pass {name}.contiguous()")
    if not q.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        raise NanoqwenError(f"q is on {q.device}: Triton needs an NVIDIA GPU, or TRITON_INTERPRET=1 before its import")
    if not q.is_cuda and q.dtype == torch.bfloat16:
        raise NanoqwenError("q: Triton's interpreter multiplies bfloat16 as integers; use float32 or float16")
