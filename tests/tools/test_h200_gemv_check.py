"""The check of the ladder on a GPU: what it reads from compute-sanitizer, without one."""

import pytest

from lab_engine.errors import NanoqwenError, ToolchainError
from lab_engine.gemv_ladder import RUNGS
from tools import h200_gemv_check as check


@pytest.fixture
def sanitizer(tmp_path, monkeypatch):
    """A function: put a compute-sanitizer on PATH that prints this, notes its arguments, and exits with this code."""

    def install(text: str, code: int = 0):
        path, arguments = tmp_path / "compute-sanitizer", tmp_path / "arguments"
        path.write_text(
            f"#!/bin/sh\necho \"$@\" > {arguments}\ncat <<'END'\n{text}\nEND\nexit {code}\n", encoding="utf-8"
        )
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
    assert asked[:2] == ["--tool", tool]
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
