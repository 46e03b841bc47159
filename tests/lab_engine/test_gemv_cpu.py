"""The product in three formats: right to what the format allows, with the bytes that it has to read."""

import pytest
import torch

from lab_engine import gemv_cpu
from lab_engine.gemv import gemv_bytes
from lab_engine.gemv_cpu import time_formats


@pytest.fixture(autouse=True)
def few_copies(monkeypatch):
    monkeypatch.setattr(gemv_cpu, "COLD_BYTES", 1 << 18)


def test_every_format_is_as_right_as_it_can_be_and_reads_the_bytes_that_are_counted():
    n, k = 192, 384
    found = {one.name.split(",")[0]: one for one in time_formats(n, k)}
    counted = gemv_bytes(n, k)
    assert found["float32"].error < 1e-5
    assert found["float32"].bytes == 4 * n * k
    assert 1e-3 < found["INT8"].error < 3e-2
    assert found["INT8"].bytes == n * k + 4 * n
    if "INT4" in found:
        assert 1e-4 < found["INT4"].error < 8e-3  # x and scales in bfloat16
        assert found["INT4"].bytes == counted.weights + counted.scales
    assert all(one.seconds > 0 for one in found.values())


def test_the_matrix_is_one_of_those_that_the_products_of_a_token_take(monkeypatch):
    """Of codes -7 to 7, 0 on average, and scales that keep the size of x."""
    seen = []
    timed = gemv_cpu._timed
    monkeypatch.setattr(gemv_cpu, "_timed", lambda *given: seen.append(given[-2:]) or timed(*given))
    time_formats(256, 256)
    x, expected = seen[-1]
    assert 0.8 < float(expected.norm() / x.double().norm()) < 1.2


def test_without_a_fast_kernel_a_format_is_left_out(monkeypatch):
    monkeypatch.setattr(gemv_cpu, "has_packed_kernel", lambda: False)
    monkeypatch.delattr(torch, "_int_mm")
    assert [one.name for one in time_formats(64, 128)] == ["float32"]


def test_each_call_gets_another_copy():
    pairs = gemv_cpu._copies(torch.zeros(1 << 14))
    seen = [next(pairs)[0].data_ptr() for _ in range(10)]
    assert len(set(seen)) == 5
    assert seen[5:] == seen[:5]
