"""Parts of a product's time: they add up, none is negative, and a bench without a GPU says so."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab_engine import gemv_gpu
from lab_engine.errors import ToolchainError
from lab_engine.gemv_dp4a import activation_bytes
from lab_engine.gemv_parts import PARTS, VARIANTS, measure_parts, parts_of
from lab_engine.gpu import CALLS

times = st.floats(0.5, 100)


def test_each_part_is_what_a_kernel_takes_more_than_the_one_before():
    assert parts_of(1.2, 9.0, 9.5, 12.0) == {"launch": 1.2, "quantize": 2.5, "read": 7.8, "unpack": 0.5}


def test_a_second_kernel_is_a_second_launch():
    assert parts_of(1.2, 9.0, 9.5, 12.0, second_launch=1.2)["launch"] == 2.4
    assert parts_of(1.2, 9.0, 9.5, 12.0, second_launch=1.2)["quantize"] == 1.3


def test_a_product_that_is_as_fast_as_reading_has_no_part_for_unpacking():
    assert parts_of(1.0, 9.0, 8.9, 8.9) == {"launch": 1.0, "quantize": 0.0, "read": 7.9, "unpack": 0.0}


@given(times, times, times, times, times)
def test_parts_add_up_to_the_whole_and_none_is_negative(launch, read, given_x, total, second):
    found = parts_of(launch, read, given_x, total, second)
    assert tuple(found) == PARTS
    assert min(found.values()) >= 0
    assert sum(found.values()) == pytest.approx(total, abs=0.01)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_one_line_says_so():
    with pytest.raises(ToolchainError, match="no NVIDIA GPU"):
        measure_parts(64, 128)


REPLAY_US = 8.0


class StandInKernels:
    """Takes the launches that a real GPU would: kernel -> (grid, shared bytes) of each."""

    launches: dict = {}  # noqa: RUF012 - one for all files of kernels
    graphs: list = []  # noqa: RUF012 - launches in each graph

    def __init__(self, source):
        self.source = source

    def launch(self, name, grid, threads, *arguments, shared_bytes=0):
        del threads, arguments
        self.launches.setdefault(name, []).append((grid, shared_bytes))


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of two multiprocessors on which every kernel takes a microsecond, and a replay 8 more."""
    StandInKernels.launches = {}
    launches, graphs = StandInKernels.launches, []
    monkeypatch.setattr(StandInKernels, "graphs", graphs)

    def replay_seconds(run, replays):
        before = sum(map(len, launches.values()))
        run()
        graphs.append(sum(map(len, launches.values())) - before)
        return [1e-6 * (graphs[-1] + REPLAY_US)] * replays

    monkeypatch.setattr("lab_engine.gpu.multiprocessors", lambda: 2)
    monkeypatch.setattr("lab_engine.gpu.Kernels", StandInKernels)
    monkeypatch.setattr("lab_engine.gpu.replay_seconds", replay_seconds)
    monkeypatch.setattr("lab_engine.gemv_ladder.Kernels", StandInKernels)
    monkeypatch.setattr("lab_engine.gemv_ladder.multiprocessors", lambda: 2)
    monkeypatch.setattr(gemv_gpu, "multiprocessors", lambda: 2)
    monkeypatch.setattr(gemv_gpu, "COLD_BYTES", 0)
    generator, randn = torch.Generator, torch.randn
    monkeypatch.setattr(torch, "Generator", lambda _: generator())
    monkeypatch.setattr(torch, "randn", lambda *sizes, generator, **_: randn(*sizes, generator=generator))
    return launches


def test_every_variant_is_timed_and_a_second_kernel_shows(gpu):
    found = measure_parts(200, 3584)
    assert tuple(found) == VARIANTS
    share = REPLAY_US / 100
    assert {name: sum(parts.values()) for name, parts in found.items()} == {
        "fp16": 1.0 + share,
        "dp4a_separate": 2.0 + share,
        "dp4a_fused": 1.0 + share,
        "dp4a_limbs": 1.0 + share,
    }
    assert found["dp4a_separate"]["launch"] == 2.0 + share
    # 13 tiles of 16 rows on three blocks a multiprocessor.
    assert set(gpu["read_rows"]) == {(6, 0)}
    assert {grid for grid, _ in gpu["gemv_rows"]} == {6}
    assert set(gpu["gemv_dp4a_separate"]) == {(6, activation_bytes(3584, 1))}
    assert set(gpu["gemv_dp4a_limbs"]) == {(6, activation_bytes(3584, 2))}
    assert set(gpu["gemv_quantize_int8"]) == {(2, 0)}


@pytest.mark.parametrize("copies", [4, 6, 41, 120])
def test_however_few_matrices_no_graph_has_fewer_calls_and_each_matrix_is_multiplied_as_often(gpu, monkeypatch, copies):
    monkeypatch.setattr(gemv_gpu, "COLD_BYTES", copies * 8 * 66)
    found = measure_parts(8, 128)
    rounds = -(-CALLS // copies)
    assert set(StandInKernels.graphs) == {rounds * copies, 2 * rounds * copies}  # separate has two kernels a call
    assert found["fp16"]["launch"] == pytest.approx(1.0 + REPLAY_US / (rounds * copies), abs=1e-3)


def test_the_table_of_this_machine_times_a_rung_as_the_parts_are_timed(gpu):
    _, us, rate = gemv_gpu.LadderBench(8, 128).run("rows")
    assert StandInKernels.graphs == [CALLS]
    assert us == pytest.approx(1.0 + REPLAY_US / CALLS)
    assert rate == pytest.approx(8 * 66 / us * 1e6)


@pytest.mark.parametrize(("cold_bytes", "copies"), [(0, 4), (5 * 8 * 66 - 1, 5), (5 * 8 * 66 + 1, 6)])
def test_a_graph_goes_through_more_matrices_than_a_cache_holds(gpu, monkeypatch, cold_bytes, copies):
    """A row of 128 weights is 64 bytes and a scale of 2."""
    monkeypatch.setattr(gemv_gpu, "COLD_BYTES", cold_bytes)
    matrices, x = gemv_gpu.cold_matrices(8, 128)
    assert len(matrices) == copies
    assert len({matrix.words.data_ptr() for matrix in matrices}) == copies
    assert not torch.equal(matrices[0].words, matrices[-1].words)
    assert (x.dtype, tuple(x.shape)) == (torch.float16, (128,))
