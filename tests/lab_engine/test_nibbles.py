"""unpack_int8: every half-word gives the codes times 16, in the order that the kernels' activations have."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab_engine import int4, ptx
from lab_engine.kernels import read_source
from lab_engine.unpack import every_half_word

LOW, HIGH = (0, 4, 1, 5), (2, 6, 3, 7)
INSTRUCTIONS = ptx.parse_function(read_source("nibbles.cuh"), "unpack_int8")


def unpacked(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of low and high by emulation: two int8 (n, 4)."""
    state = ptx.run(INSTRUCTIONS, {"word": words})
    return tuple(state[name].astype("<u4")[:, None].view(np.int8) for name in ("low", "high"))


def codes(words: np.ndarray) -> np.ndarray:
    """The engine's own reader: uint32 (n,) -> int8 (n, 8)."""
    return int4.unpack_words(torch.from_numpy(words.view(np.int32))[:, None]).numpy()


def test_every_half_word_in_both_halves_gives_16_times_the_codes():
    words = every_half_word()
    low, high = unpacked(words)
    expected = 16 * codes(words).astype(np.int32)
    assert np.array_equal(low, expected[:, LOW])
    assert np.array_equal(high, expected[:, HIGH])


@given(st.lists(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=20))
def test_any_words_give_16_times_the_codes(words):
    array = np.array(words, np.uint32)
    assert np.array_equal(np.hstack(unpacked(array)), 16 * codes(array).astype(np.int32)[:, LOW + HIGH])


def test_the_toy_word_by_hand():
    # Weights -7 -1 0 3 5 -4 2 7.
    [low], [high] = unpacked(np.array([0xF4B7AD81], np.uint32))
    assert low.tolist() == [-112, 80, -16, -64]
    assert high.tolist() == [0, 32, 48, 112]


def test_three_instructions_unpack_eight_weights_and_each_says_why():
    assert [instruction.op for instruction in INSTRUCTIONS] == ["shl.b32", "lop3.b32", "lop3.b32"]
    assert all(instruction.note for instruction in INSTRUCTIONS)


@pytest.mark.parametrize("activations", [(1, -2, 3, -4, 5, -6, 7, -8), (127, -128, 127, -128, 127, -128, 127, -128)])
@given(st.integers(0, 0xFFFFFFFF))
def test_two_dp4a_are_the_integer_product_of_a_word(activations, word):
    x = np.array(activations, np.int8)
    registers = {
        "word": np.array([word], np.uint32),
        "x_low": x[list(LOW)].view("<u4"),
        "x_high": x[list(HIGH)].view("<u4"),
        "zero": np.zeros(1, np.uint32),
    }
    dot = ptx.parse("dp4a.s32.s32 half, low, x_low, zero;\ndp4a.s32.s32 sum, high, x_high, half;")
    found = ptx.run((*INSTRUCTIONS, *dot), registers)["sum"].view(np.int32)
    assert found[0] == 16 * int(codes(registers["word"])[0].astype(int) @ x.astype(int))
