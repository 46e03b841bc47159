"""What lab 05 shows of the H200: recorded numbers, the kernels' source, and a machine with or without a GPU."""

import torch

from lab_engine import attention_gpu, gpu
from lab_engine.errors import ToolchainError
from lab_engine.recordings import load_recording
from widgets import attention_h200
from widgets.attention_h200 import errors_table, gpu_here, kernel_source, speed_table

BANDWIDTH = 4.68e12


def test_the_source_is_one_function_without_comments_for_checkers():
    for name in ("attend_split", "combine_splits"):
        text = kernel_source(name).text
        assert text.startswith(f"@triton.jit\ndef {name}(\n")
        assert text.count("def ") == 1
        assert "noqa" not in text
        assert "type: ignore" not in text
        assert "fmt: skip" not in text
    assert "tl.where(there, scores" in kernel_source("attend_split").text


def test_the_floor_is_the_bytes_of_k_and_v_over_the_bandwidth():
    """2048 tokens of the 7B: 4.19 MB a layer, 0.9 µs."""
    recording = load_recording("paged_attention")
    rows = {row[:2]: row for row in speed_table(recording, BANDWIDTH).rows}
    [recorded] = [row for row in recording.data["rows"] if (row["batch"], row["context"]) == (1, 2048)]
    assert recorded["bytes"] == 2048 * 2 * 4 * 128 * 2
    ours, peer = recorded["triton"]["us"], recorded["sdpa"]["enable_gqa"]["us"]
    assert rows["1", "2,048"][2:5] == ("0.90", f"{ours:.1f}", f"{peer:.1f}")
    share = 100 * recorded["bytes"] / BANDWIDTH / (ours * 1e-6)
    assert rows["1", "2,048"][6:] == (f"{share:.0f} %", f"{ours / peer:.2f}")


def test_every_shape_was_recorded_with_calls_that_no_cache_holds():
    rows = load_recording("paged_attention").data["rows"]
    assert [(row["batch"], row["context"]) for row in rows] == [(b, n) for b in (1, 32) for n in (64, 512, 2048, 8192)]
    assert all(row["calls"] % 28 == 0 and row["calls"] * row["bytes"] >= 4 * 60e6 for row in rows)


def test_no_form_of_pytorchs_call_was_faster_than_the_one_that_is_shown():
    for row in load_recording("paged_attention").data["rows"]:
        times = [form["us"] for form in row["sdpa"].values()]
        assert row["sdpa"]["enable_gqa"]["us"] < 1.02 * min(times)


def test_no_time_is_below_its_floor():
    for row in load_recording("paged_attention").data["rows"]:
        assert row["bytes"] / BANDWIDTH * 1e6 < row["triton"]["us"]


def test_every_dtype_was_right_on_more_than_a_thousand_sequences():
    correctness = load_recording("paged_attention").data["correctness"]
    assert {name: found["tolerance"] for name, found in correctness.items()} == {
        "float32": 1e-5,
        "float16": 2e-3,
        "bfloat16": 2e-3,
    }
    for found in correctness.values():
        assert 0 < found["output_error"] <= found["tolerance"]
        assert found["sequences"] >= 1200
    assert [row[0] for row in errors_table(load_recording("paged_attention")).rows] == list(correctness)


def refuse(words):
    def refuse_gpu():
        raise ToolchainError(words)

    return refuse_gpu


def test_without_a_gpu_one_line_says_so(monkeypatch):
    monkeypatch.setattr(attention_gpu, "check_gpu", refuse("no NVIDIA GPU found"))
    table = gpu_here().table
    assert table.rows == ()
    assert table.badge is None
    assert table.note == "Not run here: no NVIDIA GPU found"


def stand_in(monkeypatch, paged=None):
    """A GPU whose layer takes 5 µs; its attention is PyTorch's, on the CPU."""
    small = attention_gpu.random_batch([40], dtype=torch.float16, device="cpu")
    monkeypatch.setattr(attention_gpu, "check_gpu", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    monkeypatch.setattr(attention_gpu, "layers_of", lambda *_: [small] * 4)
    monkeypatch.setattr(attention_gpu, "errors_of", lambda _: (3e-6, 1e-6))
    monkeypatch.setattr(attention_gpu, "paged", paged or (lambda layers: lambda: [layer.q for layer in layers]))
    monkeypatch.setattr(gpu, "replay_seconds", lambda run, replays: [len(run()) * 5e-6] * replays)


def test_a_gpu_shows_its_error_its_times_and_what_it_reads(monkeypatch):
    stand_in(monkeypatch)
    table = gpu_here().table
    assert [row[0] for row in table.rows] == ["512", "2,048", "8,192"]
    assert table.rows[1][1:] == ("3.0e-06", "5.0", "5.0", f"{2048 * 2 * 4 * 128 * 2 / 5e-6 / 1e9:,.0f}")
    assert table.badge.kind == "measured"


def test_a_gpu_that_cannot_run_the_kernel_says_why_in_one_line(monkeypatch):
    def out_of_memory(_):
        raise RuntimeError("out of shared memory\nRequired: 131072")

    stand_in(monkeypatch, out_of_memory)
    assert gpu_here().table.note == "Not run here: out of shared memory"


def test_the_text_is_the_same_on_every_machine(monkeypatch):
    stand_in(monkeypatch)
    here = repr(gpu_here())
    monkeypatch.setattr(attention_gpu, "check_gpu", refuse("no Triton found"))
    assert repr(attention_h200.gpu_here()) == here
