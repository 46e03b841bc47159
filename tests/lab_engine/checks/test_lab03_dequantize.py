import numpy as np
import pytest

from lab_engine.checks.lab03_dequantize import EXERCISE as DEQUANTIZE
from lab_engine.checks.lab03_dequantize import dequantize_word
from lab_engine.isa import Isa
from lab_engine.unpack import every_half_word, unpack_all
from tests.lab_engine.checks.answers import INVERSE, SHUFFLED, names


def word_with(
    *, shift=8, table=0xEA, even=0x000F000F, odd=0x00F000F0, minus=1032, times=1 / 16, plus=-72, order=range(8)
):
    """A dequantize_word with other constants, or with its weights in another order."""

    def dequantize(word, isa):
        magic, weights = isa.half2(1024), []
        for half in (word, isa.shr(word, shift)):
            weights += isa.halves(isa.hsub2(isa.lop3(half, even, magic, table), isa.half2(minus)))
            weights += isa.halves(isa.hfma2(isa.lop3(half, odd, magic, table), isa.half2(times), isa.half2(plus)))
        return [weights[i] for i in order]

    return dequantize


def low_half_only(word, isa):
    """Constants without their upper half."""
    weights = []
    for half in (word, isa.shr(word, 8)):
        weights += isa.halves(isa.hsub2(isa.lop3(half, 0x000F000F, 0x64006400, 0xEA), 0x6408))
        weights += isa.halves(isa.hfma2(isa.lop3(half, 0x00F000F0, 0x64006400, 0xEA), isa.half2(1 / 16), 0xD480))
    return weights


def subtracted_the_other_way(word, isa):
    weights = dequantize_word(word, isa)
    return [weight if i % 4 > 1 else -weight for i, weight in enumerate(weights)]


def in_python(word, isa):
    """No isa at all."""
    return [float((word >> 4 * i & 15) - 8) for i in INVERSE]


def in_python_with_arrays(word, isa):
    return [(word >> 4 * i & 15) - 8 for i in INVERSE]


def in_python_for_ints_and_arrays(word, isa):
    return [(word >> 4 * i & 15) * 1.0 - 8 for i in INVERSE]


def masked_in_python(word, isa):
    weights = []
    for half in (word, isa.shr(word, 8)):
        weights += isa.halves(isa.hsub2((half & 0x000F000F) | 0x64006400, isa.half2(1032)))
        weights += isa.halves(isa.hfma2((half & 0x00F000F0) | 0x64006400, isa.half2(1 / 16), isa.half2(-72)))
    return weights


def subtracted_in_python(word, isa):
    weights = []
    for half in (word, isa.shr(word, 8)):
        weights += [w - 1032 for w in isa.halves(isa.lop3(half, 0x000F000F, 0x64006400, 0xEA))]
        weights += [w / 16 - 72 for w in isa.halves(isa.lop3(half, 0x00F000F0, 0x64006400, 0xEA))]
    return weights


def shifted_in_python(word, isa):
    return [w for half in (word, word >> 8) for w in dequantize_word(half, isa)[:4]]


ALL = names(DEQUANTIZE)
TOY, EVERY = "0xF4B7AD81", "all 65,536 half-words"
CONSTANT = {"0x00000000", "0x88888888", "0xFFFFFFFF"}
ZERO = {"0x00000000"}
SHARE = "which weights share a register"
WRONG = {
    "nibble order": (word_with(order=SHUFFLED), SHARE, ALL - CONSTANT),
    "inverse order": (word_with(order=INVERSE), SHARE, ALL - CONSTANT),
    "halves swapped": (word_with(order=(1, 0, 3, 2, 5, 4, 7, 6)), SHARE, ALL - CONSTANT),
    "shift by 4": (word_with(shift=4), SHARE, ALL - CONSTANT - {"0x0000FFFF"}),
    "no shift": (word_with(shift=0), SHARE, ALL - CONSTANT - {"0x0000FFFF"}),
    "shift by 16": (word_with(shift=16), SHARE, ALL - ZERO),
    "−64.5": (word_with(plus=-64.5), "(1024 + 16 n)/16 = 64 + n", ALL),
    "−1024": (word_with(plus=-1024), "(1024 + 16 n)/16 = 64 + n", ALL),
    "−1032 after × 1/16": (word_with(plus=-1032), "(1024 + 16 n)/16 = 64 + n", ALL),
    "no × 1/16": (word_with(times=1, plus=-1032), "sits 4 bits higher", ALL - ZERO),
    "no × 1/16, −72": (word_with(times=1), "sits 4 bits higher", ALL),
    "16 times too large": (word_with(times=1, plus=-1152), "sits 4 bits higher", ALL - {"0x88888888"}),
    "mask 0x0f0f0f0f": (word_with(even=0x0F0F0F0F, odd=0xF0F0F0F0), "Two values a register", ALL - ZERO),
    "mask 0x0f0f0f0f once": (word_with(even=0x0F0F0F0F), "Two values a register", ALL - ZERO),
    "one mask for both": (word_with(odd=0x000F000F), SHARE, ALL - ZERO),
    "zero point 7": (word_with(minus=1031, plus=-71), "8: stored is n = q + 8", ALL),
    "zero point 7, even weights": (word_with(minus=1031), "8: stored is n = q + 8", ALL),
    "no zero point": (word_with(minus=1024, plus=-64), "8: stored is n = q + 8", ALL),
    "no zero point, odd weights": (word_with(plus=-64), "8: stored is n = q + 8", ALL),
    "AND instead of OR": (word_with(table=0xC0), "immLut 0xEA", ALL),
    "OR of all": (word_with(table=0xFE), "immLut 0xEA", ALL),
    "(a | b) & c": (word_with(table=0xA8), "immLut 0xEA", ALL),
    "constants in the low half": (low_half_only, "two fp16 halves", ALL),
    "subtracted the other way": (subtracted_the_other_way, "the register first", ALL - {"0x88888888"}),
    "no isa": (in_python, "Only the isa", {EVERY}),
    "no isa, with arrays": (in_python_with_arrays, "", {EVERY}),
    "no isa, for both": (in_python_for_ints_and_arrays, "Only the isa", {EVERY}),
    "masks in Python": (masked_in_python, "Only the isa", {EVERY}),
    "subtraction in Python": (subtracted_in_python, "Only the isa", {EVERY}),
    "a shift in Python": (shifted_in_python, "Only the isa", {EVERY}),
    "the example's answer": (lambda *_: [-7, -1, 0, 3, 5, -4, 2, 7], "", ALL - {TOY}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_unpack_fails_with_its_own_hint_on_the_cases_that_show_it(name, failing_cases):
    wrong, hint, only = WRONG[name]
    verdict = DEQUANTIZE.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    assert verdict.hint
    assert failing_cases(DEQUANTIZE, wrong) == only


def with_shifted_words(word, isa):
    """Four shifts, one mask, and an XOR for the OR."""
    weights = []
    for shift in (0, 4, 8, 12):
        n = isa.lop3(isa.shr(word, shift), 0x000F000F, isa.half2(1024), 0x6A)
        weights += isa.halves(isa.hfma2(n, isa.half2(1), isa.half2(-1032)))
    return weights


def as_numpy_numbers(word, isa):
    return tuple(np.float16(weight) for weight in dequantize_word(word, isa)) if isinstance(word, int) else as_is(word)


def as_is(word):
    return [np.asarray(weights, np.float32) for weights in dequantize_word(word, Isa())]


@pytest.mark.parametrize("right", [dequantize_word, with_shifted_words, as_numpy_numbers])
def test_a_right_unpack_passes_with_numpy_numbers_too(right):
    verdict = DEQUANTIZE.check(right)
    assert verdict.status == "passed", verdict


def test_every_half_word_in_both_places_is_what_the_kernel_s_own_text_gives():
    words = every_half_word()
    assert np.array_equal(np.stack(dequantize_word(words, Isa()), axis=1), unpack_all(words, "lop3"))
    (last,) = [case for case in DEQUANTIZE.cases if case.name == EVERY]
    lanes = np.asarray(last.args[0])
    assert sorted(lanes & 0xFFFF) == sorted(lanes >> 16) == list(range(1 << 16))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *a: np.array(dequantize_word(*a)), "returned a float64 ndarray of shape (8,); expected a list of"),
        (lambda *a: dequantize_word(*a)[:4], "returned a list of 4; expected eight floats"),
        (lambda *_: [None] * 8, "weight 0 is None; expected eight floats"),
        (lambda *_: "abcdefgh", "returned a str; expected a list of eight floats"),
        (lambda *_: ["a"] * 8, "weight 0 is a str; expected eight floats"),
        (lambda _, isa: isa.lop3("word", 1, 2, 0xEA), "raised PtxError: lop3.b32: a is of type str; expected a reg"),
        (lambda word, isa: isa.lop3(word, 1, 2, 0x1EA), "raised PtxError: lop3: table is 490; expected an int of 8"),
        (lambda word, isa: isa.hsub2(word, 1032.0), "raised PtxError: sub.rn.f16x2: b is of type float; expected"),
        (lambda _, isa: isa.hsub2(None, 1032), "raised PtxError: sub.rn.f16x2: a is of type NoneType; expected"),
        (lambda word, isa: isa.shr(word << 32, 8), "raised PtxError: shr.u32: a is 0xf4b7ad8100000000; expected 32"),
        (lambda _, isa: isa.half2("a"), "raised PtxError: half2: value is of type str; expected a number"),
        (lambda word, isa: isa.prmt(word, 1, 2), "raised AttributeError: 'Isa' object has no attribute 'prmt'"),
    ],
)
def test_another_form_is_refused_in_words(wrong, message):
    assert DEQUANTIZE.check(wrong).message.startswith(message)


def test_nan_is_a_wrong_number():
    verdict = DEQUANTIZE.check(lambda *_: [float("nan")] * 8)
    assert verdict.status == "failed"
    assert verdict.yours.values == ("NaN",) * 8


def test_a_single_number_for_65_536_lanes_is_refused():
    verdict = DEQUANTIZE.check(lambda word, isa: dequantize_word(word if isinstance(word, int) else 0, isa))
    assert verdict.case == EVERY
    assert verdict.message == "weight 0 is a float; expected eight arrays of 65,536 lanes"


def test_the_first_wrong_lane_is_shown_as_a_word():
    def sevens(word):
        return np.asarray(word) & 0xFFFF == 7

    def wrong_at_7(word, isa):
        weights = dequantize_word(word, isa)
        return weights if isinstance(word, int) else [np.where(sevens(word), 0.0, w) for w in weights]

    verdict = DEQUANTIZE.check(wrong_at_7)
    assert verdict.case == EVERY
    assert verdict.given[0].note.endswith("0007")


def test_the_verdict_shows_the_nibbles_and_both_lists():
    verdict = DEQUANTIZE.check(word_with(order=SHUFFLED))
    assert [row.values for row in verdict.rows] == [
        ("1", "8", "D", "A", "7", "B", "4", "F"),
        ("0", "1", "2", "3", "4", "5", "6", "7"),
        ("−7", "−1", "0", "3", "5", "−4", "2", "7"),
        ("−7", "0", "5", "2", "−1", "3", "−4", "7"),
    ]
    assert verdict.given[0].note == "0xF4B7AD81"
