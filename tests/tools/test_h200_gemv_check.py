"""The check of the ladder on a GPU: what it reads from compute-sanitizer, without one."""

import pytest
import torch

from lab_engine.errors import NanoqwenError, ToolchainError
from lab_engine.gemv_dp4a import GIVEN, QUANTIZE
from lab_engine.gemv_ladder import RUNGS
from lab_engine.int4 import unpack_words
from tools import h200_gemv_check as check


@pytest.fixture
def sanitizer(tmp_path, monkeypatch):
    """A function: put a compute-sanitizer on PATH that prints this, notes its arguments, and exits with this code.

    Noted in front of them: PYTORCH_NO_CUDA_MEMORY_CACHING.
    """

    def install(text: str, code: int = 0):
        path, arguments = tmp_path / "compute-sanitizer", tmp_path / "arguments"
        note = f'echo $PYTORCH_NO_CUDA_MEMORY_CACHING "$@" > {arguments}'
        path.write_text(f"#!/bin/sh\n{note}\ncat <<'END'\n{text}\nEND\nexit {code}\n", encoding="utf-8")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return arguments

    return install


@pytest.mark.parametrize(
    ("tool", "line", "verdict"),
    [
        ("memcheck", "========= ERROR SUMMARY: 0 errors", "0 errors"),
        ("memcheck", "========= ERROR SUMMARY: 1 error", "1 error"),
        ("racecheck", "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", "0 hazards"),
        ("racecheck", "========= RACECHECK SUMMARY: 12 hazards displayed (12 errors, 0 warnings)", "12 hazards"),
    ],
)
def test_the_count_of_the_summary_is_returned(sanitizer, tool, line, verdict):
    arguments = sanitizer(f"========= COMPUTE-SANITIZER\n{line}")
    assert check.sanitize("rows", tool) == verdict
    asked = arguments.read_text(encoding="utf-8").split()
    assert asked[:3] == ["1", "--tool", tool]
    assert "--kernel-name kns=gemv --report-api-errors no" in " ".join(asked)
    assert ("--padding" in asked) == (tool == "memcheck")
    assert asked[-3:] == ["tools.h200_gemv_check", "--watched", "rows"]


@pytest.mark.parametrize(("text", "code"), [("no device", 0), ("========= ERROR SUMMARY: 0 errors", 1)])
def test_a_run_that_counted_nothing_or_failed_shows_its_output(sanitizer, text, code):
    sanitizer(text, code)
    with pytest.raises(ToolchainError, match=f"memcheck of ring: {text}"):
        check.sanitize("ring", "memcheck")


@pytest.mark.parametrize("error", [1.1e-3, float("nan")])
def test_an_error_over_the_tolerance_is_refused_and_nan_too(error):
    with pytest.raises(NanoqwenError, match=r"lop3: relative L2 error .* expected 1e-03 or less"):
        check._check_error("lop3", error)


def test_every_kind_of_activation_has_a_tolerance():
    assert {rung.activation for rung in RUNGS.values()} == set(check.TOLERANCES)


def test_memcheck_counts_only_if_it_sees_a_read_past_the_end(sanitizer):
    arguments = sanitizer("========= Invalid __global__ read of size 4 bytes\n========= ERROR SUMMARY: 9 errors", 1)
    check.check_memcheck()
    assert arguments.read_text(encoding="utf-8").split()[-2:] == ["--cut", "naive"]
    sanitizer("========= ERROR SUMMARY: 0 errors")
    with pytest.raises(ToolchainError, match=r"did not see naive read behind words cut short: .* 0 errors"):
        check.check_memcheck()


def test_the_matrices_hold_every_code():
    q = unpack_words(check.matrix_of_all_codes(33, 384, torch.Generator().manual_seed(0)).words)
    assert sorted(q.unique().tolist()) == list(range(-8, 8))
    assert (q[:, :8] == -8).all()


def test_a_cut_tensor_keeps_its_shape_and_half_of_its_memory():
    tensor = torch.arange(8, dtype=torch.int32).reshape(2, 4)
    check.cut(tensor)
    assert (tensor.shape, tensor.is_contiguous()) == ((2, 4), True)
    assert tensor.untyped_storage().nbytes() == 16
    assert tensor[0].tolist() == [0, 1, 2, 3]


def test_a_kernel_that_hangs_ends_in_one_line(sanitizer, monkeypatch):
    sanitizer("").with_name("compute-sanitizer").write_text("#!/bin/sh\nexec sleep 30\n", encoding="utf-8")
    monkeypatch.setattr(check, "SECONDS", 0.1)
    with pytest.raises(ToolchainError, match=r"racecheck --watched ring: .* timed out"):
        check.sanitize("ring", "racecheck")


def test_without_compute_sanitizer_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="compute-sanitizer"):
        check.check_memcheck()


def test_every_kernel_of_every_rung_is_watched():
    kernels = {rung.kernel for rung in RUNGS.values()} | {*GIVEN.values(), *QUANTIZE.values()}
    assert all(check.KERNELS in kernel for kernel in kernels)


def test_rows_outnumber_all_blocks_of_an_h200_and_leave_a_tile_unfilled():
    """A dp4a block takes a second tile of 16 rows from 3 * 132 tiles on, a warp of the ring from 2 * 132 * 8 of 2."""
    most = max(check.NS)
    assert most > 3 * 132 * 16
    assert most > 2 * 132 * 8 * 2
    assert most % 2
