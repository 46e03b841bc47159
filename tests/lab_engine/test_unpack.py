"""Unpacking: the worked examples of the course, every half-word of every method, and what the mistake does."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab_engine import int4
from lab_engine.errors import NanoqwenError
from lab_engine.unpack import METHODS, every_half_word, trace_unpack, unpack_all

RIGHT = tuple(name for name in METHODS if name != "prmt_bit3")
TOY = (-7, -1, 0, 3, 5, -4, 2, 7)
LINEAR, SHUFFLED = 0xFA4DB871, 0xF4B7AD81


def toy_word(method: str) -> int:
    return {"linear": LINEAR, "value_shuffle": SHUFFLED}[METHODS[method].layout]


def codes(words: np.ndarray, layout: str) -> np.ndarray:
    """The engine's own reader: uint32 (n,) -> int8 (n, 8)."""
    return int4.unpack_words(torch.from_numpy(words.view(np.int32))[:, None], layout).numpy()


def values(method: str, word: int) -> dict[str, list[int]]:
    """All values that each register took, in order."""
    taken: dict[str, list[int]] = {}
    for step in trace_unpack(word, method).steps:
        taken.setdefault(step.writes, []).append(step.value)
    return taken


# The worked examples of the course


def test_an_unshifted_pair_is_1024_plus_16_n_and_becomes_0_and_3():
    [combined, result] = values("lop3", SHUFFLED)["h1"]
    assert combined == SHUFFLED & 0x00F000F0 | 0x64006400 == 0x64B06480
    assert result == 0x42000000  # fp16 3 and 0


def test_the_pair_shifted_by_8_is_1037_and_1028_and_becomes_5_and_minus_4():
    [combined, result] = values("lop3", SHUFFLED)["h2"]
    assert combined == 0x6404640D
    assert result == 0xC4004500  # fp16 -4 and 5


def test_prmt_looks_up_the_high_bytes_of_the_first_four_weights():
    taken = values("prmt", LINEAR)
    assert taken["select"][0] & 0xFFFF == LINEAR & 0x7777 == 0x3071
    assert taken["bytes"][0] == 0x4200BCC7


def test_bit_3_left_in_a_selector_copies_signs():
    first = next(step for step in trace_unpack(LINEAR, "prmt_bit3").steps if step.op == "prmt.b32")
    assert first.reads == (("0xc5c6c7c8", 0xC5C6C7C8), ("0xbcc0c2c4", 0xBCC0C2C4), ("word", LINEAR))
    assert first.value == 0xFFFFBCC7


@pytest.mark.parametrize("method", RIGHT)
def test_the_toy_word_gives_the_toy_codes(method):
    trace = trace_unpack(toy_word(method), method)
    assert trace.codes == TOY
    assert [value for _, _, value in trace.halves] == list(TOY)
    assert [place[:2] for place in trace.halves[:3]] == [("h0", 0), ("h0", 1), ("h1", 0)]


# Every word


@pytest.mark.parametrize("method", RIGHT)
def test_every_half_word_in_both_halves_equals_the_codes(method):
    words = every_half_word()
    assert words.size == 2 * 65536
    assert len(set(words.tolist())) == 2 * 65536 - 1  # 0 comes twice
    found = unpack_all(words, method)
    assert found.dtype == np.float16
    assert np.array_equal(found, codes(words, METHODS[method].layout).astype(np.float16))


@pytest.mark.parametrize("method", RIGHT)
@given(st.lists(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=20))
def test_any_words_equal_the_codes(method, words):
    array = np.array(words, np.uint32)
    assert np.array_equal(unpack_all(array, method), codes(array, METHODS[method].layout))


@given(st.integers(0, 0xFFFFFFFF))
def test_the_mistake_keeps_negative_weights_and_turns_the_others_into_0(word):
    trace = trace_unpack(word, "prmt_bit3")
    assert [value for _, _, value in trace.halves] == [min(code, 0) for code in trace.codes]


@pytest.mark.parametrize("method", METHODS)
def test_zero_is_plus_zero_in_every_method(method):
    assert not np.signbit(unpack_all(np.array([0x88888888], np.uint32), method)).any()


# The trace


@pytest.mark.parametrize("method", METHODS)
def test_the_last_step_that_writes_a_register_leaves_its_halves(method):
    trace = trace_unpack(0x1A2B3C4D, method)
    last = {step.writes: step.value for step in trace.steps}
    for register, half, value in trace.halves:
        assert np.array(last[register] >> 16 * half & 0xFFFF, np.uint16).view(np.float16) == value


@pytest.mark.parametrize("method", METHODS)
def test_every_step_reads_what_an_earlier_step_left(method):
    trace = trace_unpack(0x9E3779B9, method)
    registers = {"word": trace.word}
    for step in trace.steps:
        for name, value in step.reads:
            assert value == (registers[name] if name in registers else int(name, 0))
        registers[step.writes] = step.value


@pytest.mark.parametrize(
    ("method", "counts"),
    [
        ("shift_mask", {"shr.u32": 7, "and.b32": 7, "sub.s32": 8, "cvt.rn.f16.s32": 8, "mov.b32": 4}),
        ("lop3", {"lop3.b32": 4, "shr.u32": 1, "sub.rn.f16x2": 2, "fma.rn.f16x2": 2}),
        ("prmt", {"prmt.b32": 10, "and.b32": 1, "shr.u32": 3, "lop3.b32": 1}),
        ("prmt_bit3", {"prmt.b32": 10, "shr.u32": 3, "lop3.b32": 1}),
    ],
)
def test_each_method_takes_these_instructions_for_eight_weights(method, counts):
    instructions = METHODS[method].instructions
    assert {op: sum(i.op == op for i in instructions) for op in counts} == counts
    assert len(instructions) == sum(counts.values())


def test_every_instruction_says_why_it_is_there():
    assert all(instruction.note for method in METHODS.values() for instruction in method.instructions)


@pytest.mark.parametrize("word", [-1, 1 << 32])
def test_a_word_that_is_no_32_bits_is_refused(word):
    with pytest.raises(NanoqwenError, match="32 bits"):
        trace_unpack(word, "lop3")


def test_an_unknown_method_is_refused_with_the_known_ones():
    with pytest.raises(NanoqwenError, match=f"'magic': expected one of {', '.join(METHODS)}$"):
        unpack_all(np.zeros(1, np.uint32), "magic")


def test_a_numpy_word_gives_the_same_codes():
    assert trace_unpack(np.uint32(0x12345678), "prmt").codes == trace_unpack(0x12345678, "prmt").codes


@pytest.mark.parametrize("word", [1.0, "1", None])
def test_a_word_that_is_no_whole_number_is_refused(word):
    with pytest.raises(NanoqwenError, match="expected a whole number of 32 bits"):
        trace_unpack(word, "lop3")
