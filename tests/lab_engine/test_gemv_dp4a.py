"""INT8 activations: codes and limbs by hand, errors, dp4a on the kernels' bytes, and what the kernels compile to."""

import os
import platform
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab_engine import ptx, sass
from lab_engine.errors import NanoqwenError, ToolchainError
from lab_engine.gemv_dp4a import (
    GIVEN,
    LIMBS,
    QUANTIZE,
    Launch,
    activation_bytes,
    load,
    quantize,
    reference_fp16,
    reference_int8,
    split_limbs,
)
from lab_engine.gemv_token import product, random_matrix, relative_error
from lab_engine.int4 import pack_words
from lab_engine.kernels import read_source
from lab_engine.weights import Int4Matrix


def matrix(n: int, k: int, seed: int = 0) -> Int4Matrix:
    return random_matrix(n, k, torch.Generator().manual_seed(seed))


def activation(k: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(k, generator=torch.Generator().manual_seed(seed)).half()


# Codes and limbs


def test_the_largest_number_of_a_group_becomes_the_largest_code():
    x = torch.zeros(256, dtype=torch.float16)
    x[3], x[4], x[200] = -4.0, 2.0, 0.5
    codes, scales = quantize(x, limbs=1)
    assert (codes[3], codes[4], codes[200]) == (-127, 64, 127)  # 2 / 4 * 127 = 63.5, to the even one
    assert scales.tolist() == pytest.approx([4 / 127, 0.5 / 127])
    assert quantize(x, limbs=2)[0][[3, 4, 200]].tolist() == [-32512, 16256, 32512]


def test_a_group_of_zeros_gets_scale_0_and_codes_0():
    codes, scales = quantize(torch.zeros(128), limbs=2)
    assert not codes.any()
    assert not scales.any()


@given(st.integers(-32512, 32512))
def test_limbs_are_signed_bytes_and_add_up(code):
    high, low = split_limbs(torch.tensor([code], dtype=torch.int32))
    assert 256 * int(high) + int(low) == code
    assert -128 <= int(high) <= 127
    assert -128 <= int(low) <= 127


def test_a_nan_in_x_reaches_every_row():
    x = activation(256)
    x[77] = torch.nan
    assert reference_int8(*_parts(matrix(3, 256)), x).isnan().all()


# Errors


def _parts(weights: Int4Matrix) -> tuple[torch.Tensor, torch.Tensor]:
    return weights.words, weights.scales


@pytest.mark.parametrize("k", [128, 384, 3584, 18944])
def test_one_limb_errs_by_a_percent_and_two_by_less_than_a_hundredth_of_that(k):
    weights, x = matrix(33, k), activation(k)
    expected = product([weights], x)
    one, two = (relative_error(reference_int8(*_parts(weights), x, limbs), expected) for limbs in (1, 2))
    assert 3e-3 < one < 1.5e-2
    assert 1e-6 < two < 1e-4
    assert 100 < one / two < 500  # a code has 256 times as many steps


def test_fp16_chains_err_by_a_few_ten_thousandths():
    weights, x = matrix(33, 3584), activation(3584)
    assert 1e-4 < relative_error(reference_fp16(*_parts(weights), x), product([weights], x)) < 1e-3


def test_one_number_far_above_its_group_takes_the_codes_of_the_others():
    weights, x = matrix(33, 128), activation(128)
    x[5] = 1000.0
    others = x.clone()
    others[5] = 0
    rounded = quantize(x, 1)[0] * quantize(x, 1)[1]
    assert int((quantize(x, 1)[0] != 0).sum()) == 1
    assert relative_error(rounded[[0, 1, 2]], x[[0, 1, 2]].double()) == 1.0
    assert relative_error(reference_int8(*_parts(weights), others), product([weights], others)) < 1.5e-2


def test_codes_that_are_exact_give_the_exact_product():
    codes = torch.arange(-128, 0).clamp(min=-127).repeat(2)
    q = torch.randint(-8, 8, (5, 256), generator=torch.Generator().manual_seed(3), dtype=torch.int8)
    scales = torch.full((5, 2), 0.5, dtype=torch.float16)
    expected = 0.5 * (q.double() @ codes.double())
    assert torch.equal(reference_int8(pack_words(q), scales, codes.half()), expected)


# The kernels' bytes


@given(st.integers(0, 0xFFFFFFFF), st.integers(0, 1 << 30))
def test_dp4a_on_both_limbs_of_a_word_is_the_integer_product(word, seed):
    codes = torch.randint(-32512, 32513, (8,), generator=torch.Generator().manual_seed(seed), dtype=torch.int32)
    registers = {"word": np.array([word], np.uint32), "zero": np.zeros(1, np.uint32)}
    for name, limb in zip(("h", "l"), split_limbs(codes), strict=True):
        run = limb.numpy().astype(np.int8)[[0, 4, 1, 5, 2, 6, 3, 7]].view("<u4")
        registers |= {f"{name}0": run[:1], f"{name}1": run[1:]}
    dot = """dp4a.s32.s32 a, low, h0, zero;
        dp4a.s32.s32 high_sum, high, h1, a;
        dp4a.s32.s32 b, low, l0, zero;
        dp4a.s32.s32 low_sum, high, l1, b;
        shl.b32 c, high_sum, 8;
        add.s32 sum, c, low_sum;"""
    unpack = ptx.parse_function(read_source("nibbles.cuh"), "unpack_int8")
    found = ptx.run((*unpack, *ptx.parse(dot)), registers)["sum"].view(np.int32)[0]
    q = [(word >> 4 * place & 15) - 8 for place in (0, 4, 1, 5, 2, 6, 3, 7)]
    assert found == 16 * sum(a * b for a, b in zip(q, codes.tolist(), strict=True))


def test_the_largest_sum_of_a_lane_fits_in_32_bits():
    assert 16 * 8 * 32512 * 32 < 2**31


@pytest.mark.parametrize(("n", "k", "tiles", "grid", "quantize_grid"), [(1, 128, 1, 1, 1), (17, 3584, 2, 2, 2)])
def test_a_small_matrix_takes_a_block_a_tile(n, k, tiles, grid, quantize_grid):
    launch = Launch(n, k, sms=132)
    assert (launch.tiles, launch.grid, launch.quantize_grid) == (tiles, grid, quantize_grid)


def test_a_large_one_fills_every_multiprocessor_three_times():
    assert Launch(152064, 3584, sms=132).grid == 396


def test_a_quantized_x_is_codes_and_a_scale_a_group_for_whole_1024():
    assert activation_bytes(18944, 1) == 19 * 1024 + 19 * 8 * 4
    assert activation_bytes(128, 2) == 2 * 1024 + 8 * 4


def test_an_unknown_rung_is_refused_with_the_known_ones():
    with pytest.raises(NanoqwenError, match=r"'dp4a': expected one of dp4a_separate, dp4a_fused, dp4a_limbs$"):
        load("dp4a", *_parts(matrix(3, 128)))


# The compiled kernels


@pytest.fixture(scope="module", params=["sm_90a", "sm_80"])
def opcodes(request):
    """Kernel -> its opcodes; CI has the tools, elsewhere they may be missing."""
    try:
        kernels = sass.disassemble(sass.compile_cubin("gemv_dp4a.cu", request.param))
    except ToolchainError as error:
        if os.environ.get("CI") and (sys.platform, platform.machine()) == ("linux", "x86_64"):
            raise
        pytest.skip(str(error))
    return {name: [line.opcode for line in lines] for name, lines in kernels.items()}


def count(opcodes: list[str], *starts: str) -> int:
    return sum(opcode.startswith(starts) for opcode in opcodes)


def test_every_kernel_that_is_launched_is_there(opcodes):
    products = {f"gemv_{name}" for name in LIMBS}
    assert set(opcodes) == {*products, *QUANTIZE.values(), *GIVEN.values(), "read_rows"}


@pytest.mark.parametrize("name", [*(f"gemv_{name}" for name in LIMBS), *GIVEN.values()])
def test_a_product_takes_two_dp4a_a_word_and_limb_and_converts_once_in_32_weights(opcodes, name):
    words = 4 * 2 * 4  # a lane's words in 16 bytes, rows, iterations of a batch
    limbs = 2 if "limbs" in name else 1
    assert count(opcodes[name], "IDP.4A") == 2 * words * limbs
    assert count(opcodes[name], "I2F") == words / 4
    assert count(opcodes[name], "LDL", "STL") == 0


def test_reading_alone_multiplies_nothing(opcodes):
    assert count(opcodes["read_rows"], "LDG.E.128") == 8
    assert count(opcodes["read_rows"], "IDP", "FFMA", "I2F") == 0
