"""The recording `paged_attention`, with stand-ins for the GPU: what it compares, what it computes, what it refuses."""

import math
from collections import Counter
from unittest.mock import Mock

import pytest
import torch

from lab_engine import attention_gpu, gpu
from lab_engine.errors import RecordingError
from tests.lab_engine.dense_attention import dense_attention, random_case
from tools import h200_attention, h200_machine


@pytest.fixture
def compared(monkeypatch):
    """Every comparison of `correctness`: (lengths, heads, head_dim, fill, splits); nothing is computed."""
    seen = []

    def random_batch(lengths, heads=(28, 4), head_dim=128, dtype=torch.bfloat16, fill=math.nan, seed=0):
        batch = attention_gpu.Batch(*(torch.zeros(1, 1, head_dim),) * 4, lengths=torch.tensor(list(lengths)))
        object.__setattr__(batch, "how", (tuple(lengths), heads, head_dim, fill))
        return batch

    def errors_of(batch, num_splits):
        seen.append((*batch.how, num_splits))
        return 1e-6, 2e-6

    monkeypatch.setattr(attention_gpu, "random_batch", random_batch)
    monkeypatch.setattr(attention_gpu, "errors_of", errors_of)
    return seen


def test_every_length_ratio_split_and_a_thousand_random_lengths_are_compared(compared):
    data = h200_attention.correctness()
    assert list(data) == ["float32", "float16", "bfloat16"]
    each = compared[: len(compared) // 3]
    matrix = Counter((heads[0] // heads[1], dim, splits) for _, heads, dim, _, splits in each if splits)
    assert matrix == {(r, d, s): 2 for r in (1, 2, 5, 6, 7, 8) for d in (64, 128) for s in (1, 2, 4, 8)}
    assert {str(fill) for *_, fill, splits in each if splits} == {"nan", "inf"}
    others = [lengths for lengths, *_, splits in each if splits is None]
    assert others[0] == tuple(range(1, 201))
    assert sum(map(len, others[1:])) == 1000
    assert all(1 <= length <= 8192 for lengths in others[1:] for length in lengths)
    assert data["float32"] == {"sequences": 2160, "output_error": 1e-6, "lse_error": 2e-6, "tolerance": 1e-5}


@pytest.mark.parametrize("place", [0, 5])
@pytest.mark.parametrize("error", [1.1e-5, math.nan])
@pytest.mark.parametrize("what", ["output", "lse"])
def test_an_output_or_a_lse_that_is_wrong_stops_the_recording(compared, monkeypatch, what, error, place):
    """At the first comparison and at the sixth: a NaN that is not the first is the one that max drops."""
    pair = {"output": (error, 0.0), "lse": (0.0, error)}[what]
    monkeypatch.setattr(attention_gpu, "errors_of", Mock(side_effect=[(0.0, 0.0)] * place + [pair]))
    message = rf"float32, head_dim 64, {(1, 2)[place > 0]} splits: {what} wrong by .*expected 1e-05"
    with pytest.raises(RecordingError, match=message):
        h200_attention.correctness()


def test_nan_in_a_lse_that_the_kernel_gives_stops_the_recording(monkeypatch):
    """Through the comparison with float64 itself, of a right output with one lse spoiled."""
    lengths, case = torch.tensor([33], dtype=torch.int32), random_case(33, num_heads=6)
    tables = torch.tensor([case.page_table], dtype=torch.int32)
    batch = attention_gpu.Batch(case.q, case.k_pages, case.v_pages, tables, lengths)
    out, lse = dense_attention(case.q, case.k, case.v)
    lse[0, 4] = math.nan
    monkeypatch.setattr(attention_gpu, "random_batch", lambda *_, **__: batch)
    monkeypatch.setattr(attention_gpu, "errors_of", lambda given, _: attention_gpu.largest_errors(given, out, lse))
    with pytest.raises(RecordingError, match="lse wrong by nan"):
        h200_attention.correctness()


@pytest.fixture
def row_here(monkeypatch):
    """Make a row on the CPU, of two layers of 40 tokens; replays take 2, 4, 4, 4 … µs a call."""
    layers = [attention_gpu.random_batch([40] * 3, dtype=torch.float32, device="cpu", seed=seed) for seed in (1, 2)]
    caches = [attention_gpu.contiguous(layer) for layer in layers]
    monkeypatch.setattr(attention_gpu, "layers_of", lambda *_: layers)
    monkeypatch.setattr(attention_gpu, "paged", lambda given: attention_gpu.dense(given, caches, "any", rows=False))
    for name in ("flash", "cudnn"):
        monkeypatch.setitem(attention_gpu.SDPA, name, attention_gpu.SDPA["any"])
    times = lambda run, replays: [2e-6 * len(run())] + [4e-6 * len(run())] * (replays - 1)  # noqa: E731
    monkeypatch.setattr(gpu, "replay_seconds", times)
    return lambda: h200_attention._row(40, 3)


def test_a_row_holds_microseconds_a_call_and_the_bytes_by_hand(row_here):
    row = row_here()
    assert row["bytes"] == 3 * 40 * 2 * 4 * 128 * 2
    assert row["calls"] == 2
    assert row["triton"] == {"us": 4.0, "us_spread": 2.0}
    assert set(row["sdpa"]) == set(h200_attention.FORMS)
    assert all(form == row["triton"] for form in row["sdpa"].values())


def test_no_time_counts_where_the_ways_disagree(row_here, monkeypatch):
    monkeypatch.setattr(attention_gpu, "paged", lambda given: lambda: [layer.q for layer in given])
    with pytest.raises(RecordingError, match=r"batch 3, context 40, enable_gqa: .* differs by"):
        row_here()


def test_another_gpu_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr(h200_machine, "nvidia_smi", lambda *_: ["NVIDIA H100"])
    with pytest.raises(RecordingError, match="device NVIDIA H100: expected an NVIDIA H200"):
        h200_attention.record()
