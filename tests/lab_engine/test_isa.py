"""The four instructions as methods: the emulator's results, on an int as on many lanes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_engine.errors import PtxError
from lab_engine.isa import Isa

words = st.integers(0, 0xFFFFFFFF)
ISA = Isa()


@given(words, words, words, st.integers(0, 255))
def test_lop3_looks_every_bit_up_in_its_table(a, b, c, table):
    bits = [table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1 for i in range(32)]
    assert ISA.lop3(a, b, c, table) == sum(bit << i for i, bit in enumerate(bits))


@given(words, st.integers(0, 40))
def test_shr_brings_zeros_in_and_shifts_all_bits_out(a, amount):
    assert ISA.shr(a, amount) == a >> amount


@given(st.floats(-60000, 60000, width=16), st.floats(-200, 200, width=16), st.floats(-60000, 60000, width=16))
def test_hfma2_rounds_once_and_hsub2_subtracts_the_second(a, b, c):
    with np.errstate(over="ignore"):
        fma, sub = np.float16(a * b + c), np.float16(a - c)
    registers = [ISA.half2(number) for number in (a, b, c)]
    assert ISA.halves(ISA.hfma2(*registers)) == (fma, fma)
    assert ISA.halves(ISA.hsub2(registers[0], registers[2])) == (sub, sub)


@given(st.lists(words, min_size=1, max_size=5))
def test_on_lanes_an_instruction_does_what_it_does_on_each_int(values):
    lanes = np.array(values, np.uint32)
    assert ISA.shr(ISA.lop3(lanes, 0x00F000F0, 0x64006400, 0xEA), 8).tolist() == [
        ISA.shr(ISA.lop3(value, 0x00F000F0, 0x64006400, 0xEA), 8) for value in values
    ]
    low, high = ISA.halves(ISA.lop3(lanes, 0x000F000F, 0x64006400, 0xEA))
    assert low.tolist() == [1024 + (value & 15) for value in values]
    assert high.tolist() == [1024 + (value >> 16 & 15) for value in values]


def test_a_literal_below_zero_is_its_32_bits_and_numpy_s_integers_are_ints():
    assert ISA.shr(-1, 28) == 0xF
    assert ISA.shr(np.int64(0xF0), np.uint8(4)) == 0xF
    assert type(ISA.shr(np.uint32(16), 4)) is int


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ISA.shr(1.0, 4), "shr.u32: a is of type float; expected a register of 32 bits, an int"),
        (lambda: ISA.shr(1 << 32, 4), "shr.u32: a is 0x100000000; expected 32 bits"),
        (lambda: ISA.lop3(1, None, 3, 0xEA), "lop3.b32: b is of type NoneType"),
        (lambda: ISA.lop3(1, 2, 3, 256), "lop3: table is 256; expected an int of 8 bits"),
        (lambda: ISA.hsub2(np.zeros(3), 1), "sub.rn.f16x2: a is an array of float64"),
        (lambda: ISA.half2(None), "half2: value is of type NoneType; expected a number"),
    ],
)
def test_what_is_no_register_is_refused_by_instruction_and_operand(call, message):
    with pytest.raises(PtxError, match=message.replace(".", r"\.").split(";")[0]):
        call()


def test_two_isas_are_equal_so_that_a_checker_sees_no_changed_argument():
    assert Isa() == Isa()
