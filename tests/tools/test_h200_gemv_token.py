"""The recording `gemv_token`, with a stand-in for the GPU: what it compares, what it times, what it refuses."""

import itertools
import math

import pytest
import torch

from lab_engine import gemv_gpu, gemv_ladder, gemv_peer, gpu
from lab_engine.backends import cuda
from lab_engine.config import QWEN2_5_CODER, ModelConfig
from lab_engine.errors import RecordingError
from lab_engine.gemv_token import product
from lab_engine.weights import Int4Matrix
from tests.lab_engine.gemv_stand_in import StandInBackend
from tools import h200_gemv_token, h200_machine, record_h200

SMALL = ModelConfig(256, 384, 3, 4, 2, 64, 512, 1024, 1e6, 1e-6, tie_embeddings=True)
STAGES = ["qkv", "o", "gate_up", "down", "lm_head"]
KINDS = ["bench_shapes", "odd_rows", "plain_shapes", "plain_odd_rows"]


@pytest.fixture
def stand_in(monkeypatch):
    """A GPU that computes on the CPU; a graph takes 3 µs, 7, 5, 3, 7, 5 … a replay for each call it holds."""
    made = []

    def backend(config):
        made.append(StandInBackend(config, made.wrong))
        return made[-1]

    class Made(list):
        wrong = staticmethod(lambda _, result: result)

        def load_rung(self, name, words, scales):
            return lambda x: self.wrong(name, product([Int4Matrix(words, scales)], x))

    made = Made()

    def replay_seconds(run, replays):
        calls = run()
        count = len(calls) if calls else 1
        return [1e-6 * count * us for us in itertools.islice(itertools.cycle((3, 7, 5)), replays)]

    monkeypatch.setattr(h200_gemv_token, "DEVICE", "cpu")
    monkeypatch.setattr(cuda, "CudaBackend", backend)
    monkeypatch.setattr(gpu, "replay_seconds", replay_seconds)
    monkeypatch.setattr(gemv_ladder, "load", made.load_rung)
    monkeypatch.setattr(gemv_gpu, "read_bandwidth", lambda: 4.6543210987e12)
    monkeypatch.setattr(gemv_peer, "load", lambda parts: lambda x: product(parts, x[0])[None])
    monkeypatch.setattr(h200_gemv_token, "clocks_under_load", lambda _: {"sm": 1800, "memory": 3200})
    return made


def test_every_stage_has_both_times_its_bytes_and_its_error(stand_in):
    data, clocks = h200_gemv_token.speed(SMALL)
    assert list(data["forms"]) == STAGES
    for stage, (n, k) in {"qkv": (512, 256), "o": (256, 256), "gate_up": (768, 256), "down": (256, 384)}.items():
        form = data["forms"][stage]
        assert form["plain"] == form["dependent"] == {"us": 5.0, "us_spread": 4.0}
        assert form["bytes"] == n * k * 33 // 64
        assert 0 <= form["error"] < 1e-6
    assert data["forms"]["lm_head"]["bytes"] == 512 * 256 * 33 // 64
    assert (data["layers"], data["replays"], data["read_bytes_per_second"]) == (3, 51, 4654321098700)
    assert clocks == {"sm": 1800, "memory": 3200}


def test_a_stage_is_timed_over_all_layers_and_lm_head_four_times(stand_in):
    _, weights, token = h200_gemv_token.loaded(SMALL, 3)
    stand_in[-1].calls.clear()
    h200_gemv_token.forms(StandInBackend(SMALL), weights, token)
    assert stand_in[-1].calls == [
        (stage, dependent)
        for stage in STAGES
        for dependent in (False, True)
        for _ in range(4 if stage == "lm_head" else 3)
    ]


def test_a_token_has_milliseconds_and_the_errors_of_what_the_replays_left(stand_in):
    token = h200_gemv_token.speed(SMALL)[0]["token"]
    assert token["plain"] == token["dependent"] == {"ms": 0.005, "ms_spread": 0.004}
    assert set(token["errors"]) == {"h", "logits"}
    assert all(0 <= error < 1e-6 for error in token["errors"].values())


def test_the_peer_has_every_stage_and_a_token_of_all_its_calls(stand_in):
    peer = h200_gemv_token.speed(SMALL)[0]["peer"]
    assert set(peer) == {*STAGES, "token"}
    assert all(peer[stage] == {"us": 5.0, "us_spread": 4.0} for stage in STAGES)
    assert peer["token"]["ms"] == pytest.approx(5e-3 * (4 * 3 + 1))


def test_a_peer_that_multiplies_wrongly_gets_no_time(stand_in, monkeypatch):
    monkeypatch.setattr(gemv_peer, "load", lambda parts: lambda x: 1.1 * product(parts, x[0])[None])
    with pytest.raises(ValueError, match=r"peer _weight_int4pack_mm: wrong by 1\.0e-01, expected 2e-02 or less"):
        h200_gemv_token.speed(SMALL)


def test_all_rows_and_odd_numbers_of_them_are_compared(stand_in):
    found = h200_gemv_token.correctness("small", SMALL)
    assert list(found) == KINDS
    for errors in found.values():
        assert list(errors) == STAGES
        assert all(0 <= error < 1e-6 for error in errors.values())


@pytest.mark.parametrize("factor", [1.01, math.nan])
@pytest.mark.parametrize("stage", STAGES)
def test_a_wrong_stage_stops_the_recording(stand_in, stage, factor):
    stand_in.__class__.wrong = staticmethod(lambda name, result: result * factor if name == stage else result)
    with pytest.raises(RecordingError, match=rf"small, bench_shapes, {stage}: wrong by .* expected 1e-03 or less"):
        h200_gemv_token.correctness("small", SMALL)


def test_a_wrong_plain_product_stops_the_recording(stand_in):
    stand_in.__class__.wrong = staticmethod(lambda name, result: result * 1.01 if name == "mma" else result)
    with pytest.raises(RecordingError, match=r"small, plain_shapes, qkv: wrong by 1\.0e-02, expected 1e-03 or less"):
        h200_gemv_token.correctness("small", SMALL)


def test_a_token_that_is_wrong_only_in_a_replay_stops_the_recording(stand_in, monkeypatch):
    monkeypatch.setattr(gpu, "replay_seconds", lambda _, replays: [1e-3] * replays)  # nothing runs
    with pytest.raises(RecordingError, match=r"token, plain, h: wrong by"):
        h200_gemv_token.speed(SMALL)


def test_one_bit_that_differs_between_two_runs_stops_the_recording(stand_in):
    runs = itertools.count()

    def wrong(name, result):
        if name == "gate_up" and next(runs) == 15:
            result[3] *= 1 + 1e-6
        return result

    stand_in.__class__.wrong = staticmethod(wrong)
    with pytest.raises(RecordingError, match="small: two runs of the same token differ; expected the same bits"):
        h200_gemv_token.correctness("small", SMALL)


def test_the_recording_holds_every_model(stand_in, monkeypatch):
    monkeypatch.setattr(h200_machine, "nvidia_smi", lambda *_: ["NVIDIA H200"])
    monkeypatch.setattr(h200_gemv_token, "QWEN2_5_CODER", dict.fromkeys(QWEN2_5_CODER, SMALL))
    data, _ = h200_gemv_token.record()
    for what in KINDS:
        assert list(data[what]) == ["0.5B", "1.5B", "3B", "7B", "14B", "32B"]
    assert data["bit_identical"] is True
    assert record_h200.RECORDERS["gemv_token"].measure is h200_gemv_token.record


def test_another_gpu_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr(h200_machine, "nvidia_smi", lambda *_: ["NVIDIA H100"])
    with pytest.raises(RecordingError, match="device NVIDIA H100: expected an NVIDIA H200"):
        h200_gemv_token.record()
    assert not torch.cuda.is_initialized()
