"""The PTX emulator: published vectors, each instruction against a scalar reference, the parser's refusals."""

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_engine import ptx
from lab_engine.errors import PtxError

words = st.integers(0, 0xFFFFFFFF) | st.sampled_from([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
# Every pattern of fp16, and often numbers whose sums round, cancel, overflow or are not finite.
halves = st.integers(0, 0xFFFF) | st.sampled_from(
    [0, 0x8000, 1, 0x3C00, 0x6400, 0x6801, 0x7BFF, 0x7C00, 0xFC00, 0x7E00]
)


def execute(line: str, **registers: int) -> int:
    """What one instruction writes, for 32-bit registers."""
    [instruction] = ptx.parse(line)
    state = ptx.run([instruction], {name: np.array([value], np.uint32) for name, value in registers.items()})
    return int(state[instruction.writes][0])


# The reference


def signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def number(bits: int) -> float:
    return float(struct.unpack("<e", struct.pack("<H", bits))[0])


def fp16(exact: Fraction, *, negative_zero: bool = False) -> int:
    """The bits of the fp16 number nearest to an exact value, ties to even; steps below 2**-14 are 2**-24."""
    if exact == 0:
        return 0x8000 if negative_zero else 0
    size, exponent = abs(exact), -14
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    steps = round(size / Fraction(2) ** (exponent - 10))  # Python rounds ties to even
    bits = min(steps + ((exponent + 14) << 10), 0x7C00)
    return bits | (0x8000 if exact < 0 else 0)


def fma(a: int, b: int, c: int) -> int:
    x, y, z = number(a), number(b), number(c)
    if not all(np.isfinite([x, y, z])):
        with np.errstate(invalid="ignore"):
            result = np.float16(np.float64(x) * y + z)
        return 0x7FFF if np.isnan(result) else int(result.view(np.uint16))
    both_negative = bool((a ^ b) >> 15 and c >> 15)
    return fp16(Fraction(x) * Fraction(y) + Fraction(z), negative_zero=both_negative)


def lop3(a: int, b: int, c: int, table: int) -> int:
    result = 0
    for bit in range(32):
        row = 4 * (a >> bit & 1) + 2 * (b >> bit & 1) + (c >> bit & 1)
        result |= (table >> row & 1) << bit
    return result


def prmt(a: int, b: int, selector: int) -> int:
    pool = struct.pack("<II", a, b)
    result = []
    for nibble in (selector >> 4 * i & 0xF for i in range(4)):
        byte = pool[nibble & 7]
        result.append((0xFF if byte > 127 else 0) if nibble > 7 else byte)
    return int.from_bytes(bytes(result), "little")


def dp4a(a: int, b: int, c: int) -> int:
    pairs = zip(struct.unpack("<4b", struct.pack("<I", a)), struct.unpack("<4b", struct.pack("<I", b)), strict=True)
    return (c + sum(x * y for x, y in pairs)) & 0xFFFFFFFF


# Vectors that others published


@pytest.mark.parametrize(
    ("a", "b", "selector", "published"),
    [
        (0x03020100, 0x07060504, 0x7531, 0x07050301),
        (0x03020100, 0x07060504, 0x6420, 0x06040200),
        (0x80, 0, 0x8888, 0xFFFFFFFF),
        (0xC5C6C7C8, 0xBCC0C2C4, 0xB871, 0xFFFFBCC7),
    ],
)
def test_prmt_gives_the_published_words(a, b, selector, published):
    assert execute("prmt.b32 d, a, b, c;", a=a, b=b, c=selector) == published
    assert prmt(a, b, selector) == published


@pytest.mark.parametrize(
    ("table", "formula"),
    [
        (0x80, lambda a, b, c: a & b & c),
        (0xFE, lambda a, b, c: a | b | c),
        (0x40, lambda a, b, c: a & b & ~c),
        (0x1A, lambda a, b, c: (a & b | c) ^ a),
        (0xEA, lambda a, b, c: a & b | c),
    ],
)
def test_a_table_is_its_formula_of_f0_cc_and_aa(table, formula):
    assert formula(0xF0, 0xCC, 0xAA) == table
    assert execute(f"lop3.b32 d, a, b, c, {table};", a=0xF0, b=0xCC, c=0xAA) & 0xFF == table


# Each instruction against the reference


@given(words, words, words, st.integers(0, 255))
def test_lop3_follows_its_table_bit_by_bit(a, b, c, table):
    assert execute(f"lop3.b32 d, a, b, c, {table:#x};", a=a, b=b, c=c) == lop3(a, b, c, table)


@given(words, words, words)
def test_prmt_picks_bytes_and_replicates_signs(a, b, selector):
    assert execute("prmt.b32 d, a, b, c;", a=a, b=b, c=selector) == prmt(a, b, selector)


@given(words, words, words)
def test_dp4a_adds_four_products_of_signed_bytes(a, b, c):
    assert execute("dp4a.s32.s32 d, a, b, c;", a=a, b=b, c=c) == dp4a(a, b, c)


def test_dp4a_of_the_smallest_bytes_is_positive_and_the_sum_wraps_around():
    assert execute("dp4a.s32.s32 d, a, b, c;", a=0x80808080, b=0x80808080, c=0) == 4 * 128 * 128
    assert execute("dp4a.s32.s32 d, a, b, c;", a=0x80808080, b=0x80808080, c=0x7FFFFFFF) == 0x8000FFFF


@given(words, words | st.integers(0, 40))
def test_shifts_push_every_bit_out_beyond_31(a, amount):
    assert execute("shr.u32 d, a, b;", a=a, b=amount) == a >> amount
    assert execute("shl.b32 d, a, b;", a=a, b=amount) == (a << min(amount, 32)) & 0xFFFFFFFF


@given(words, words)
def test_logic_and_wrapping_arithmetic(a, b):
    expected = {
        "and.b32": a & b,
        "or.b32": a | b,
        "xor.b32": a ^ b,
        "add.s32": (a + b) & 0xFFFFFFFF,
        "sub.s32": (a - b) & 0xFFFFFFFF,
        "mov.b32": b,
    }
    for op, result in expected.items():
        operands = "b" if op == "mov.b32" else "a, b"
        assert execute(f"{op} d, {operands};", a=a, b=b) == result


@given(words, words)
def test_mov_puts_the_low_halves_of_two_registers_into_one(low, high):
    assert execute("mov.b32 d, {low, high};", low=low, high=high) == (low & 0xFFFF) | (high & 0xFFFF) << 16


@given(words | st.integers(0, 140000) | st.integers(0xFFFF0000, 0xFFFFFFFF))
def test_cvt_rounds_a_signed_integer_to_the_nearest_fp16(value):
    assert execute("cvt.rn.f16.s32 d, a;", a=value) == fp16(Fraction(signed(value)))


@given(*[halves] * 4)
def test_sub_works_on_both_halves(a, b, c, d):
    result = execute("sub.rn.f16x2 d, x, y;", x=a | b << 16, y=c | d << 16)
    # x - y is x + (-y); fma with 1 gives that.
    assert (result & 0xFFFF, result >> 16) == (fma(a, 0x3C00, c ^ 0x8000), fma(b, 0x3C00, d ^ 0x8000))


@given(*[halves] * 6)
def test_fma_rounds_once_on_both_halves(a, b, c, d, e, f):
    result = execute("fma.rn.f16x2 d, x, y, z;", x=a | b << 16, y=c | d << 16, z=e | f << 16)
    assert (result & 0xFFFF, result >> 16) == (fma(a, c, e), fma(b, d, f))


def test_fma_does_not_round_the_product():
    # 1.0009765625 squared is 1.00195407867…; rounded first, the 2**-20 at its end would be lost.
    assert number(execute("fma.rn.f16x2 d, a, a, c;", a=0x3C01, c=0xBC02) & 0xFFFF) == 2.0**-20


def test_nan_becomes_the_canonical_one():
    assert execute("sub.rn.f16x2 d, a, b;", a=0x7C007E01, b=0x7C000000) == 0x7FFF7FFF


# Reading the source


def test_one_run_covers_an_array_and_literals_may_be_decimal_or_negative():
    state = ptx.run(ptx.parse("add.s32 d, a, -8;\nshl.b32 d, d, 4;"), {"a": np.array([8, 9, 0], np.uint32)})
    assert state["d"].tolist() == [0, 16, 0xFFFFFF80]


SOURCE = """
__device__ void other(unsigned word) { }
__device__ __forceinline__ void pair(unsigned word,
        unsigned& h0) {
    asm(R"({
        .reg .b32 t;
        // the two weights of the low byte
        shr.u32 t, %1, 4;   // first the upper one
        mov.b32 %0, {%1, t};
    })"
        : "=&r"(h0)
        : "r"(word), "r"(0x10));
}
"""


def test_operands_get_their_names_and_comments_stay():
    first, second = ptx.parse_function(SOURCE, "pair")
    assert (first.text, first.note) == ("shr.u32 t, word, 4", "first the upper one")
    assert (second.text, second.reads, second.note) == ("mov.b32 h0, {word, t}", ("word", "t"), "")


@pytest.mark.parametrize(
    ("text", "words_of_the_message"),
    [
        ("mul.lo.u32 d, a, b;", "mul.lo.u32"),
        ("lop3.b32 d, a, b, c;", "reads 3 operands, expected 4"),
        ("shr.u32 d, a, 4", "semicolon"),
        ("shr.u32 d, a, 4; shr.u32 e, a, 8;", "semicolon"),
        ("or.b32 d, a, ghost;", "register ghost"),
    ],
)
def test_text_that_cannot_be_run_is_refused_by_name(text, words_of_the_message):
    with pytest.raises(PtxError, match=words_of_the_message):
        execute(text, a=1, b=2, c=3)


def test_a_function_that_is_not_there_is_named():
    for name in ("missing", "other"):
        with pytest.raises(PtxError, match=f"function {name}"):
            ptx.parse_function(SOURCE, name)
