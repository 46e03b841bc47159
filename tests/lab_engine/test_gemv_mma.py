"""The tensor-core GEMV without a GPU: tiles and back, one block multiplied as the kernel does it, the compiled code."""

import os
import platform
import sys

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lab_engine import gemv_mma, ptx, sass
from lab_engine.config import QWEN2_5_CODER
from lab_engine.errors import NanoqwenError, ToolchainError
from lab_engine.gemv_mma import Plan, interleave, pack_tiles, plan, unpack_tiles
from lab_engine.int4 import dequantize, unpack_words
from lab_engine.kernels import read_source
from tools.h200_gemv_code import resources

SMS = 132


def random_matrix(n, k, seed=0):
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(-(2**31), 2**31, (n, k // 8), dtype=torch.int32, generator=generator)
    return words, (torch.rand(n, k // 128, generator=generator) - 0.5).to(torch.float16)


# Plans and tiles


@settings(deadline=None, max_examples=50)
@given(n=st.integers(1, 700), groups=st.integers(1, 5) | st.sampled_from([65, 66, 68]), sms=st.integers(1, 40))
def test_every_matrix_comes_back_from_its_tiles(n, groups, sms):
    words, scales = random_matrix(n, groups * 128, seed=n)
    one = plan(n, groups * 128, sms)
    packed = pack_tiles(words, scales, one)
    assert packed.numel() == one.blocks * one.tiles * one.groups * one.unit_bytes
    found = unpack_tiles(packed, one)
    assert torch.equal(found[0], words)
    assert torch.equal(found[1], scales)


def least_shared_bytes(n, groups, sms):
    """Three stages of eight units, x as codes and scales, a sum a warp and row, by hand for every height of a tile."""
    for rows in range(8, 33, 2):
        unit = -(-rows * 66 // 16) * 16
        tiles = -(-n // (rows * sms))
        yield 3 * (8 * unit + 16) + groups * (256 + 4) + 4 * 16 * (tiles * 32 + 1)


@given(n=st.integers(1, 300_000), groups=st.integers(1, 512), sms=st.integers(1, 200))
@example(n=266_562, groups=48, sms=132)  # the plan with the fewest bytes does not fit, another one does
@example(n=35_025, groups=266, sms=22)  # a cluster does not fit
@example(n=12_800, groups=66, sms=20)  # a cluster's sums are more than fit where x was
@example(n=48 * 132 * 32, groups=40, sms=132)  # so many sums that they take from the ring
def test_a_plan_covers_all_rows_with_one_block_an_sm_in_units_that_a_bulk_copy_can_bring(n, groups, sms):
    try:
        one = plan(n, groups * 128, sms)
    except NanoqwenError:
        assert min(least_shared_bytes(n, groups, sms)) > 227 * 1024
        return
    assert one.shared_bytes <= 227 * 1024
    assert one.parts == 1 or one.tiles <= one.groups
    assert one.blocks <= one.grid <= sms
    assert one.grid % one.parts == one.blocks % one.parts == 0
    owners = one.blocks // one.parts
    assert owners * one.tiles * one.rows >= n > (owners - 1) * one.tiles * one.rows
    assert one.groups * one.parts == groups
    assert one.rows % 2 == 0
    assert one.rows * 66 <= one.unit_bytes < one.rows * 66 + 16
    assert one.unit_bytes % 16 == 0
    # A warp goes on by WARPS units: where its stage is, that of the round before must have landed.
    assert 1 <= one.window <= one.slots - gemv_mma.WARPS // gemv_mma.STAGE_UNITS


def shapes(config):
    hidden, queries = config.hidden_size, config.q_size
    kv, intermediate = config.kv_size, config.intermediate_size
    return {
        "qkv": (queries + 2 * kv, hidden),
        "o": (hidden, queries),
        "gate_up": (2 * intermediate, hidden),
        "down": (hidden, intermediate),
        "lm_head": (config.vocab_size, hidden),
    }


@pytest.mark.parametrize("model", QWEN2_5_CODER)
def test_every_product_of_every_model_fits_the_shared_memory_of_an_h200(model):
    for n, k in shapes(QWEN2_5_CODER[model]).values():
        one = plan(n, k, SMS)
        assert one.shared_bytes <= 227 * 1024
        assert one.blocks > SMS * 0.9 or n * k < 5e6  # the small ones have too few rows for all


def test_a_7b_reads_hardly_a_byte_more_than_its_nibbles_and_scales():
    found = [plan(n, k, SMS) for n, k in shapes(QWEN2_5_CODER["7B"]).values()]
    assert [(one.rows, one.tiles, one.blocks, one.parts) for one in found] == [
        (18, 2, 128, 1),
        (28, 1, 128, 1),
        (32, 9, 132, 1),
        (28, 2, 128, 2),
        (32, 36, 132, 1),
    ]
    read = sum(one.blocks * one.tiles * one.groups * one.unit_bytes for one in found)
    assert read / sum(n * k * 0.515625 for n, k in shapes(QWEN2_5_CODER["7B"]).values()) < 1.004


def test_a_unit_holds_its_rows_words_then_their_scales():
    words, scales = random_matrix(6, 256)
    packed = pack_tiles(words, scales, Plan(n=6, k=256, rows=2, tiles=2, grid=2))
    unit = packed.view(2, 2, 2, 144)[1, 0, 1]  # block 1, tile 0, group 1: rows 4 and 5
    assert torch.equal(unit[:64].view(torch.int32), words[4, 16:])
    assert torch.equal(unit[64:128].view(torch.int32), words[5, 16:])
    assert torch.equal(unit[128:132].view(torch.float16), scales[4:, 1])
    assert not unit[132:].any()
    assert not packed.view(2, 2, 2, 144)[1, 1].any()  # rows 6 and 7 are padding


def test_gate_and_up_rows_take_turns():
    assert interleave(torch.arange(3), torch.arange(10, 13)).tolist() == [0, 10, 1, 11, 2, 12]


@pytest.mark.parametrize("size", [(0, 128), (4, 0), (4, 100), (4, -128)])
def test_a_matrix_that_has_no_whole_groups_is_refused(size):
    with pytest.raises(NanoqwenError, match=r"matrix .*expected"):
        plan(*size, SMS)


def test_a_matrix_whose_sums_do_not_fit_a_block_is_refused_in_a_line():
    message = (
        r"^matrix \(300000, 3584\): needs [\d,]+ bytes of shared memory a block on 1 SMs, expected at most 232,448;"
    )
    with pytest.raises(NanoqwenError, match=message):
        plan(300_000, 3584, 1)
    with pytest.raises(NanoqwenError, match="sms: found 0, expected at least 1"):
        plan(4, 128, 0)


def test_words_and_scales_that_do_not_fit_the_plan_are_refused():
    words, scales = random_matrix(4, 256)
    one = plan(4, 256, 1)
    with pytest.raises(NanoqwenError, match=r"words: found \(4, 32\) torch.int64, expected \(4, 32\) torch.int32"):
        pack_tiles(words.long(), scales, one)
    with pytest.raises(NanoqwenError, match=r"scales: found \(3, 2\) torch.float16, expected \(4, 2\)"):
        pack_tiles(words, scales[:3], one)


def tiles_of(n, k):
    words, scales = random_matrix(n, k)
    one = plan(n, k, 1)
    return gemv_mma.MmaMatrix(pack_tiles(words, scales, one), one, torch.zeros(2, dtype=torch.int64))


def test_a_vector_that_is_not_on_the_gpu_is_refused():
    with pytest.raises(NanoqwenError, match=r"x: found \(256,\) torch.float32 on cpu, expected .*float16 on the GPU"):
        gemv_mma.plain(torch.zeros(256), tiles_of(4, 256), torch.zeros(4))


# Launches, on a stand-in for the GPU


@pytest.fixture
def launched(monkeypatch):
    """The arguments of each launch; every tensor says that it is on the GPU, and the first output becomes W x."""
    calls = []

    class StandIn:
        def launch(self, name, grid, threads, tiles, x, y, *_, **__):
            del grid, threads
            calls.append((name, x, y))
            if name == "gemv_plain":
                words, scales = unpack_tiles(tiles, plan(len(y), len(x), 1))
                y.copy_(dequantize(unpack_words(words), scales) @ x.float())

    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(gemv_mma, "kernels", StandIn)
    monkeypatch.setattr(gemv_mma, "multiprocessors", lambda: 1)
    return calls


def test_every_call_of_the_rung_gives_a_y_of_its_own(launched):
    words, scales = random_matrix(6, 256)
    dense = dequantize(unpack_words(words), scales).double()
    multiply = gemv_mma.load_plain(words, scales)
    vectors = torch.randn(2, 256, generator=torch.Generator().manual_seed(1)).half()
    found = [multiply(x) for x in vectors]
    for x, y in zip(vectors, found, strict=True):
        assert (y.dtype, tuple(y.shape)) == (torch.float32, (6,))
        assert torch.allclose(y.double(), dense @ x.double(), atol=1e-4)
    assert [name for name, *_ in launched] == ["gemv_plain"] * 2


def past(vector, elements):
    """The same numbers, so many elements past a multiple of 16 bytes."""
    room = torch.zeros(len(vector) + elements, dtype=vector.dtype)
    return room[elements:].copy_(vector)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(255).half(), r"x: found \(255,\) torch.float16 on cpu, expected \(256,\) torch.float16"),
        (torch.zeros(256), r"x: found \(256,\) torch.float32"),
        (torch.zeros(512).half()[::2], r"x: expected contiguous memory; pass x.contiguous\(\)"),
        (past(torch.zeros(256).half(), 3), r"x: starts 6 bytes past a multiple of 16; pass x.clone\(\)"),
    ],
)
def test_an_x_that_the_rung_would_misread_is_refused(launched, x, message):
    with pytest.raises(NanoqwenError, match=message):
        gemv_mma.load_plain(*random_matrix(6, 256))(x)
    with pytest.raises(NanoqwenError, match=message):
        gemv_mma.plain(x, tiles_of(6, 256), torch.zeros(6))
    assert not launched


def test_a_matrix_that_the_rung_would_misread_is_refused(launched):
    words, scales = random_matrix(6, 256)
    with pytest.raises(NanoqwenError, match=r"scales: found \(6, 2\) torch.float32 on cpu, expected \(6, 2\)"):
        gemv_mma.load_plain(words, scales.float())
    with pytest.raises(NanoqwenError, match=r"words: expected contiguous memory; pass words.contiguous\(\)"):
        gemv_mma.load_plain(words.T.contiguous().T, scales)


def test_what_threads_load_by_four_numbers_begins_at_a_multiple_of_16_bytes_and_what_they_write_anywhere(launched):
    vector, shifted, matrix = torch.zeros(256), past(torch.zeros(256), 1), tiles_of(8, 256)
    with pytest.raises(NanoqwenError, match="x: starts 4 bytes past"):
        gemv_mma.o(shifted, matrix, torch.zeros(8))
    with pytest.raises(NanoqwenError, match="norm: starts 4 bytes past"):
        gemv_mma.qkv(vector, shifted, 1e-6, matrix, torch.zeros(8), torch.zeros(8))
    y = past(torch.zeros(8), 1)
    with pytest.raises(NanoqwenError, match=r"h: found \(8,\) torch.float16 on cpu, expected \(8,\) torch.float32"):
        gemv_mma.o(vector, matrix, y.half())
    gemv_mma.o(vector, matrix, y)
    assert launched == [("gemv_residual", vector, y)]


# The arithmetic of the kernel, in NumPy


def limbs(x):
    """x as the kernel quantizes it, a group of 128 at a time: high and low bytes int64 (groups, 128), and scales."""
    groups = x.astype(np.float64).reshape(-1, 128)
    largest = np.abs(groups).max(axis=1)
    v = np.rint(groups * (32512 / largest)[:, None]).astype(np.int64)
    low = (v + 128) % 256 - 128
    return (v - low) // 256, low, largest / 32512 / 16


def times_tiles(packed, one, x):
    """The product as tensor cores see it: bytes of 16 q from the kernel's own unpack_int8, 32 columns at a time."""
    unpack = ptx.parse_function(read_source("nibbles.cuh"), "unpack_int8")
    high, low, x_scales = limbs(x)
    stacks = one.blocks // one.parts
    units = packed.numpy().reshape(stacks, one.parts, one.tiles, one.groups, one.unit_bytes)
    y = np.zeros((stacks, one.tiles, one.rows))
    for group in range(one.groups * one.parts):
        unit = units[:, group // one.groups, :, group % one.groups]
        words = np.ascontiguousarray(unit[..., : one.rows * 64]).view(np.uint32)
        scales = np.ascontiguousarray(unit[..., one.rows * 64 : one.rows * 66]).view(np.float16).astype(np.float64)
        done = ptx.run(unpack, {"word": words})
        pair = [done[name].view(np.int8).reshape(*y.shape, 16, 4).astype(np.int64) for name in ("low", "high")]
        order = [[0, 4, 1, 5], [2, 6, 3, 7]]
        exact = sum(
            256 * (a * high[group].reshape(16, 8)[:, at]).sum(axis=(-1, -2))
            + (a * low[group].reshape(16, 8)[:, at]).sum(axis=(-1, -2))
            for a, at in zip(pair, order, strict=True)
        )
        assert np.abs(exact).max() < 2**31
        y += exact * scales * x_scales[group]
    return y.reshape(-1)[: one.n]


@pytest.mark.parametrize(("n", "k", "sms"), [(64, 256, 2), (45, 384, 3), (100, 128, 2), (50, 8448, 4)])
def test_the_product_from_tiles_is_that_of_float64_to_sixteen_bits_of_the_activation(n, k, sms):
    words, scales = random_matrix(n, k)
    x = np.random.default_rng(1).standard_normal(k)
    one = plan(n, k, sms)
    found = times_tiles(pack_tiles(words, scales, one), one, x)
    expected = dequantize(unpack_words(words), scales).double().numpy() @ x
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 3e-5


def test_the_largest_sums_stay_exact_in_32_bits():
    words = torch.zeros(2, 16, dtype=torch.int32)  # nibble 0: q = -8
    one = plan(2, 128, 1)
    found = times_tiles(pack_tiles(words, torch.ones(2, 1, dtype=torch.float16), one), one, np.ones(128))
    assert found == pytest.approx([-1024.0, -1024.0])


# The compiled code


@pytest.fixture(scope="module")
def compiled():
    return _with_tools(sass.disassemble)


@pytest.fixture(scope="module")
def used():
    return _with_tools(resources)


def _with_tools(read):
    """What `read` finds in the cubin; CI has the tools, elsewhere they may be missing."""
    try:
        return read(sass.compile_cubin(gemv_mma.SOURCE))
    except ToolchainError as error:
        if os.environ.get("CI") and (sys.platform, platform.machine()) == ("linux", "x86_64"):
            raise
        pytest.skip(str(error))


FORMS = ["plain", "plain_split", "qkv", "residual", "residual_split", "gate_up", "lm_head"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_uses_bulk_copies_barriers_and_tensor_cores_and_spills_nothing(compiled, form):
    opcodes = [line.opcode.split(".")[0] for line in compiled[f"gemv_{form}"]]
    assert opcodes.count("IMMA") == 8  # 2 tiles of 16 rows times 4 words
    assert {"UBLKCP", "SYNCS", "ACQBULK", "PREEXIT", "REDUX"} <= set(opcodes)
    assert not {"LDL", "STL"} & set(opcodes)
    assert not [
        line for line in compiled[f"gemv_{form}"] if line.opcode.startswith("LDG") and "CONSTANT" in line.opcode
    ]


def test_no_kernel_has_local_memory_and_all_of_them_fit_the_registers_of_an_sm(used):
    """`down` runs a _split form, whose numbers are not in the recording's launch: those are gemv_plain's."""
    assert set(used) == {f"gemv_{form}" for form in FORMS}
    for found in used.values():
        assert found["spill_bytes"] == 0
        assert 16 <= found["registers"] <= 65536 // gemv_mma.THREADS


def test_a_word_is_unpacked_by_two_logic_instructions_and_a_shift(compiled):
    lines = compiled["gemv_plain"]
    assert sum(line.opcode == "LOP3.LUT" and "0x80808080" in line.text for line in lines) == 2 * 16


def test_only_kernels_for_long_rows_hold_code_for_clusters(compiled):
    assert set(compiled) == {f"gemv_{form}" for form in FORMS}
    clusters = {name for name, lines in compiled.items() if any(line.opcode.startswith("UCGABAR") for line in lines)}
    assert clusters == {"gemv_plain_split", "gemv_residual_split"}


def test_the_constants_of_kernel_and_python_agree():
    source = read_source("gemv_mma_ring.cuh")
    for name, value in (
        ("kWarps", gemv_mma.WARPS),
        ("kStageUnits", gemv_mma.STAGE_UNITS),
        ("kUnitRows", gemv_mma.UNIT_ROWS),
        ("kParts", gemv_mma.PARTS),
    ):
        assert f"constexpr int {name} = {value};" in source


def test_a_product_with_a_norm_refuses_rows_that_are_cut():
    words, scales = random_matrix(4, 8448)
    one = plan(4, 8448, 4)
    matrix = gemv_mma.MmaMatrix(pack_tiles(words, scales, one), one, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(NanoqwenError, match=r"rows of 8448 weights.*at most 8192"):
        gemv_mma.gate_up(torch.zeros(8448), torch.zeros(8448), 1e-6, matrix, torch.zeros(2))
