"""The GEMV's Triton rungs: in the interpreter without a GPU, and compiled for Hopper.

gemv_triton_behaviours.py says what is tested in the interpreter.
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from lab_engine import sass
from tools.bootstrap import ROOT

RUNGS = ["triton_naive", "triton_coalesced", "triton_best"]


@pytest.fixture(autouse=True)
def _triton():
    """Skip where Triton is missing; CI on Linux has it."""
    if not find_spec("triton"):
        missing = "no Triton here; on Linux: .venv/bin/python -m pip install -c constraints.txt -e .[gpu]"
        if os.environ.get("CI") and sys.platform == "linux":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)


def test_the_rungs_do_in_the_interpreter_what_they_should():
    behaviours = "tests/lab_engine/gemv_triton_behaviours.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", behaviours]
    interpreted = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "PYTEST_ADDOPTS": ""}
    interpreted.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, cwd=ROOT, env=interpreted, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_without_a_gpu_a_rung_says_what_it_needs():
    code = """
import torch
from lab_engine.kernels.gemv_triton import load
load("triton_best", torch.zeros(1, 16, dtype=torch.int32), torch.zeros(1, 1, dtype=torch.float16))
"""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        "words are on cpu: Triton needs an NVIDIA GPU, or TRITON_INTERPRET=1 before its import"
    )


@pytest.fixture(scope="module")
def compiled():
    from lab_engine.kernels.gemv_triton import compile_rung

    return {name: compile_rung(name) for name in RUNGS}


def loads(compiled_rung):
    return re.findall(r"ld\.global\.(\S+)", compiled_rung.asm["ptx"])


def test_naive_reads_a_word_at_a_time(compiled):
    """b32: a word; the b16 are scales and x."""
    assert loads(compiled["triton_naive"]).count("b32") == 1
    assert not any(kind.startswith("v") for kind in loads(compiled["triton_naive"]))


def test_coalesced_reads_16_bytes_a_lane(compiled):
    """One for the words, four for the 32 x that they are multiplied with."""
    assert loads(compiled["triton_coalesced"]).count("v4.b32") == 5


def test_best_has_the_words_of_eight_rows_in_flight_beside_x(compiled):
    assert loads(compiled["triton_best"]).count("v4.b32") == 8 + 4


@pytest.mark.parametrize(
    ("name", "converts"), [("triton_naive", True), ("triton_coalesced", True), ("triton_best", False)]
)
def test_only_best_does_without_a_conversion_of_integers(compiled, name, converts):
    [lines] = sass.disassemble(compiled[name].asm["cubin"]).values()
    assert any(line.opcode.startswith("I2F") for line in lines) == converts


def test_in_best_mask_and_exponent_are_one_instruction(compiled):
    """32 weights a lane in each of 8 rows: one LOP3 for each; a few more compute addresses."""
    [lines] = sass.disassemble(compiled["triton_best"].asm["cubin"]).values()
    logic = sum(line.opcode == "LOP3.LUT" for line in lines)
    assert 256 <= logic < 320


@pytest.mark.parametrize("name", RUNGS)
def test_no_register_is_kept_in_memory(compiled, name):
    [lines] = sass.disassemble(compiled[name].asm["cubin"]).values()
    assert not any(line.opcode.startswith(("LDL", "STL")) for line in lines)
