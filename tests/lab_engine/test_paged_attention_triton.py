"""Paged attention in Triton's interpreter, on a machine without a GPU; see triton_behaviours.py for what is tested."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tools.bootstrap import ROOT


def test_the_kernel_does_in_the_interpreter_what_it_should():
    if not find_spec("triton"):
        missing = "no Triton here; on Linux: .venv/bin/python -m pip install -c constraints.txt -e .[gpu]"
        if os.environ.get("CI") and sys.platform == "linux":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/lab_engine/triton_behaviours.py"]
    interpreted = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "PYTEST_ADDOPTS": ""}
    interpreted.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, cwd=ROOT, env=interpreted, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_without_a_gpu_the_kernel_says_what_it_needs():
    pytest.importorskip("triton")
    code = """
import torch
from lab_engine.attention_gpu import random_batch
from lab_engine.kernels.paged_attention_triton import paged_attention_triton
paged_attention_triton(*random_batch([5], dtype=torch.float32, device="cpu").arguments)
"""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        "q is on cpu: Triton needs an NVIDIA GPU, or TRITON_INTERPRET=1 before its import"
    )


def test_the_engine_and_its_gpu_side_import_without_triton():
    code = "import sys; sys.modules['triton'] = None; import lab_engine, lab_engine.kernels, lab_engine.attention_gpu"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
