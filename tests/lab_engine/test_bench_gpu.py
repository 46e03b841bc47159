"""bench on a Hopper GPU, with a stand-in for it: which benchmarks run, what they measure, and what is refused why."""

import io
import json

import pytest
import torch
from rich.console import Console

from lab_engine import bench, gemv_peer
from lab_engine.bench import gemv
from lab_engine.bench.models import QWEN_7B
from lab_engine.config import ModelConfig
from lab_engine.errors import BackendError, NanoqwenError
from lab_engine.gemv_token import product
from tests.lab_engine.gemv_stand_in import StandInBackend

SMALL = ModelConfig(256, 384, 3, 4, 2, 64, 512, 1024, 1e6, 1e-6, tie_embeddings=False)
NAME = "gemv_token/qwen2.5-coder-7b"


def quiet(_):
    pass


@pytest.fixture
def hopper(monkeypatch):
    """A GPU that reads 2 TB/s; a token takes it 4, 6, 5, 4 … ms, PyTorch's products 12 ms."""
    backend = StandInBackend(SMALL)

    def replay_seconds(run, replays):
        if run():
            return [12e-3] * replays
        return [(4e-3, 6e-3, 5e-3)[place % 3] for place in range(replays)]

    monkeypatch.setattr(bench, "missing", lambda: None)
    monkeypatch.setattr(bench, "gpu", lambda: "Stand-in GPU, 4 SMs")
    monkeypatch.setattr(gemv, "CudaBackend", lambda _: backend)
    monkeypatch.setattr(gemv, "QWEN_7B", SMALL)
    monkeypatch.setattr(gemv, "_DEVICE", "cpu")
    monkeypatch.setattr(gemv, "replay_seconds", replay_seconds)
    monkeypatch.setattr(gemv, "read_bandwidth", lambda: 2e12)
    monkeypatch.setattr(gemv_peer, "load", lambda parts: lambda x: product(parts, x[0])[None])
    return backend


@pytest.mark.parametrize("names", [[], [NAME]])
def test_a_token_has_its_time_its_limit_and_its_peer(hopper, names):
    (result,) = bench.run(names, "cuda", quiet)
    assert (result.name, result.value, result.unit, result.passed) == (NAME, 5.0, "ms", True)
    assert result.limit == pytest.approx(1e3 * gemv.token_bytes(SMALL) / 2e12)
    assert result.peer == {"name": "PyTorch _weight_int4pack_mm, products alone", "value": 12.0}
    assert result.device == "Stand-in GPU, 4 SMs"
    assert ("qkv", True) in hopper.calls
    json.dumps(result.to_dict())


@pytest.mark.parametrize("operation", ["qkv", "o", "gate_up", "down", "lm_head", "argmax"])
def test_a_token_that_is_wrong_has_no_value(hopper, operation):
    hopper.wrong = lambda name, result: result + (1 if name == operation == "argmax" else 0.1 * (name == operation))
    (result,) = bench.run([NAME], "cuda", quiet)
    assert (result.value, result.passed) == (None, False)


def test_bytes_are_those_of_all_weights_and_scales():
    """28 layers of 233.046 M weights and a head of 3584 · 152064, at 33/64 bytes."""
    layer = 4608 * 3584 + 3584 * 3584 + 37888 * 3584 + 3584 * 18944
    assert gemv.token_bytes(QWEN_7B) == (28 * layer + 152064 * 3584) * 33 // 64 == 3_645_616_128


def test_the_table_shows_milliseconds_and_the_share_of_the_limit(hopper):
    console = Console(width=160, record=True, file=io.StringIO())
    (result,) = bench.run([NAME], "cuda", quiet)
    console.print(bench.as_table([result]))
    text = console.export_text()
    assert "Stand-in GPU, 4 SMs" in text
    assert "5.000 ms" in text
    assert f"{result.limit / 5:.0%}" in text


def test_without_a_hopper_gpu_one_line_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for names, backend, start in (
        ([], "cuda", "backend cuda"),
        ([NAME], "cuda", "backend cuda"),
        ([NAME], "torch", f"benchmark {NAME}: needs --backend cuda, which"),
        ([NAME], "auto", f"benchmark {NAME}: needs --backend cuda, which"),
    ):
        with pytest.raises(BackendError) as refusal:
            bench.run(names, backend, quiet)
        assert str(refusal.value).startswith(start)
        assert str(refusal.value).endswith("cannot run here: needs an NVIDIA Hopper GPU, and PyTorch sees none")


def test_on_hopper_another_backend_is_told_to_use_this_one(hopper):
    with pytest.raises(BackendError, match=f"^benchmark {NAME}: needs --backend cuda$"):
        bench.run([NAME], "torch", quiet)


@pytest.mark.parametrize("name", bench.LATER_NAMES)
def test_what_needs_attention_too_is_refused_with_what_is_there(hopper, name):
    for backend in ("cuda", "auto"):
        with pytest.raises(BackendError, match="has the matrix products of a decode step, but not yet its attention"):
            bench.run([name], backend, quiet)


def test_benchmarks_of_the_cpu_do_not_run_with_this_backend(hopper):
    with pytest.raises(BackendError, match="backend cuda: cannot run here"):
        bench.run(["pack/fp16"], "cuda", quiet)


def test_an_unknown_name_is_refused_with_all_known_ones():
    with pytest.raises(NanoqwenError) as refusal:
        bench.run(["gemv_token"], "torch", quiet)
    assert all(name in str(refusal.value) for name in (NAME, *bench.LATER_NAMES, "cache_step/256"))
