"""Batches for the GPU and what they are compared with, on the CPU."""

import math

import pytest
import torch

from lab_engine import attention_gpu
from lab_engine.attention_gpu import Batch, check_gpu, contiguous, dense, largest_errors, layers_of, random_batch
from lab_engine.errors import ToolchainError
from lab_engine.paged_attention import paged_attention
from tests.lab_engine.dense_attention import dense_attention, random_case


def small(lengths, **keywords):
    return random_batch(lengths, (4, 2), 64, torch.float32, device="cpu", **keywords)


def test_a_page_has_one_owner_and_only_slots_with_a_token_hold_numbers():
    batch = small([40, 1, 0, 16])
    used = [*batch.page_tables[0].tolist(), int(batch.page_tables[1, 0]), int(batch.page_tables[3, 0])]
    assert len(set(used)) == 5
    assert batch.k_pages.shape == (2, 5 + 3, 16, 64)
    for pages in (batch.k_pages, batch.v_pages):
        assert pages.isfinite().all(dim=-1).sum() == 2 * (40 + 1 + 16)
        assert pages.isnan().any(dim=-1).sum() == 2 * (8 * 16 - 57)


def test_the_comparison_agrees_with_attention_without_pages():
    case = random_case(33, num_heads=6)
    tables, lengths = torch.tensor([case.page_table], dtype=torch.int32), torch.tensor([33], dtype=torch.int32)
    out, lse = dense_attention(case.q, case.k, case.v)
    batch = Batch(case.q, case.k_pages, case.v_pages, tables, lengths)
    assert max(largest_errors(batch, out, lse)) < 1e-12
    out[0, 5, 3] += 0.25
    lse[0, 1] -= 0.5
    assert largest_errors(batch, out, lse) == pytest.approx((0.25, 0.5))


def test_nan_is_an_error_wherever_it_stands():
    batch = small([5, 40])
    out, lse = torch.zeros(2, 4, 64), torch.zeros(2, 4)
    out[0, 0, 0] = math.nan
    assert math.isnan(largest_errors(batch, out, lse)[0])


@pytest.mark.parametrize("rows", [False, True])
def test_pytorchs_attention_over_the_contiguous_copy_means_the_same(rows):
    batch = small([40, 40])
    [out] = dense([batch], [contiguous(batch)], "any", rows)()
    for row, table in enumerate(batch.page_tables):
        expected, _ = paged_attention(batch.q[row : row + 1], batch.k_pages, batch.v_pages, table, 40)
        assert torch.allclose(out[row], expected[0], atol=1e-5)


def test_layers_are_repeated_until_no_cache_of_a_gpu_holds_them(monkeypatch):
    """28 layers of 2048 tokens: 117 MB, so three rounds; all with caches of their own."""
    seeds = []
    monkeypatch.setattr(attention_gpu, "random_batch", lambda *_, seed, **__: seeds.append(seed))
    layers_of(2048, 1)
    assert seeds == list(range(3 * 28))
    seeds.clear()
    layers_of(2048, 32)
    assert seeds == list(range(28))


def test_a_machine_without_triton_or_gpu_is_told_what_is_missing(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    pytest.importorskip("triton")
    with pytest.raises(ToolchainError, match="no NVIDIA GPU found"):
        check_gpu()
    monkeypatch.setattr(attention_gpu, "find_spec", lambda _: None)
    with pytest.raises(ToolchainError, match=r"no Triton found; on Linux: .*\.\[gpu\]"):
        check_gpu()
