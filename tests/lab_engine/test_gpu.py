"""Launching kernels where there is no GPU: one clear line; times that are counted by hand."""

import pytest
import torch

from lab_engine import gpu
from lab_engine.errors import ToolchainError


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("ask", [gpu.arch, gpu.multiprocessors, lambda: gpu.Kernels("gemv_mma.cu")])
def test_without_a_gpu_one_line_says_so(ask):
    with pytest.raises(ToolchainError, match=r"^no NVIDIA GPU found$"):
        ask()


def test_nothing_is_timed_without_a_gpu():
    with pytest.raises(ToolchainError, match="no NVIDIA GPU"):
        gpu.replay_seconds(lambda: pytest.fail("ran"), 3)


def test_a_call_takes_the_median_replay_over_the_calls_in_it():
    assert gpu.median_us([28e-6, 56e-6, 280e-6], 28) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({}, {"us": 7.0, "us_spread": 2.46}),
        ({"calls": 7, "digits": 4}, {"us": 1.0, "us_spread": 0.3509}),
        ({"unit": "ms", "digits": 4}, {"ms": 0.007, "ms_spread": 0.0025}),
    ],
)
def test_a_time_is_the_median_replay_and_its_spread_the_largest_less_the_smallest(keywords, expected):
    assert gpu.median_and_spread([8.0561e-6, 5.6e-6, 7e-6], **keywords) == expected


@pytest.mark.parametrize(("capability", "name"), [((9, 0), "sm_90a"), ((8, 9), "sm_89"), ((12, 0), "sm_120a")])
def test_a_gpu_is_named_as_compilers_name_it(monkeypatch, capability, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert gpu.arch() == name
