"""The four mistakes with INT4 words: a word by hand, a product in float64, the text of the shipped model."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.bug_desk import NEW_TOKENS, ROUNDING
from lab_engine.errors import NanoqwenError
from lab_engine.int4 import pack_words, quantize_rows
from lab_engine.int4_mistakes import (
    INT4_MISTAKES,
    SHIFT,
    misread,
    misread_group,
    normal_weights,
    product_errors,
    smear_words,
)
from lab_engine.loading import open_source
from lab_engine.mistakes import MISTAKES, exact_decoder
from lab_engine.nanoqwen_file import LAYOUTS
from lab_engine.running_example import RUNNING_EXAMPLE
from lab_engine.weights import DenseSource

TOY = [-7, -1, 0, 3, 5, -4, 2, 7]
eight_codes = st.lists(st.integers(-8, 7), min_size=8, max_size=8)


def codes_of(*codes):
    return torch.tensor([[*codes, *[0] * (8 - len(codes))]], dtype=torch.int8)


def bits(words):
    return [word & 0xFFFFFFFF for word in words.flatten().tolist()]


# A word


@pytest.mark.parametrize(
    ("codes", "word"),
    [((-1, 3), 0xFFFFFFFF), ((3, -1), 0xFFFFFFF3), ((3, 5), 0x00000053), (tuple(TOY), 0xFFFFFFF9), ((0,) * 8, 0)],
)
def test_signs_run_over_all_nibbles_above(codes, word):
    assert bits(smear_words(codes_of(*codes), "linear")) == [word]


def test_in_the_shuffled_order_the_neighbour_above_weight_1_is_weight_3():
    assert bits(smear_words(codes_of(0, -1), "value_shuffle")) == [0xFFFF0000]
    assert misread(codes_of(0, -1), "sign_smear").tolist() == [[-8, 7, -8, 7, -8, 7, -8, 7]]


def test_without_a_negative_code_the_careless_packer_only_forgets_the_8():
    codes = codes_of(0, 1, 2, 3, 4, 5, 6, 7)
    assert torch.equal(misread(codes, "sign_smear"), codes - 8)


@given(eight_codes, st.sampled_from(sorted(LAYOUTS)))
def test_words_are_smeared_as_by_python_s_integers(codes, layout):
    word = 0
    for place, index in enumerate(LAYOUTS[layout]):
        word |= codes[index] << (4 * place)
    assert bits(smear_words(codes_of(*codes), layout)) == [word & 0xFFFFFFFF]


def test_the_readers_mistakes_on_the_toy_word():
    codes = codes_of(*TOY)
    assert misread(codes, "none").tolist() == [TOY]
    assert misread(codes, "missing_bias").tolist() == [[1, 7, 8, 11, 13, 4, 10, 15]]
    assert misread(codes, "zero_point_7").tolist() == [[-6, 0, 1, 4, 6, -3, 3, 8]]
    assert misread(codes, "wrong_layout").tolist() == [[-7, 0, 5, 2, -1, 3, -4, 7]]
    assert bits(pack_words(misread(codes, "wrong_layout"), "linear")) == [0xF4B7AD81]  # the shuffled toy word
    assert misread(codes, "sign_smear").tolist() == [[1, *[7] * 7]]


def test_an_unknown_mistake_is_refused_by_name():
    with pytest.raises(NanoqwenError, match="mistake 'no_such': expected one of none, wrong_layout, "):
        misread(codes_of(1), "no_such")


# A group


def test_with_a_wrong_zero_point_every_weight_moves_by_the_same_step():
    group = misread_group(torch.tensor(TOY, dtype=torch.int8), 0.0625, "zero_point_7")
    assert group.differences == (0.0625,) * 8
    assert (group.mistake, group.scale, group.codes) == ("zero_point_7", 0.0625, tuple(TOY))
    assert misread_group(torch.tensor(TOY, dtype=torch.int8), -0.5, "missing_bias").differences == (-4.0,) * 8


def test_only_nibbles_above_a_negative_code_are_smeared():
    """In nibble order the codes are 1 -2 3 4 | -5 6 0 -1: nibbles 2 to 7 lie above the first negative one.

    Nibble 7 is -1, 0xF, with or without its bits.
    """
    weights = [1, -5, -2, 6, 3, 0, 4, -1]
    group = misread_group(torch.tensor(weights, dtype=torch.int8), 1.0, "sign_smear")
    assert group.smeared == (False, True, False, True, True, True, True, False)
    assert group.read == (-7, 7, 6, 7, 7, 7, 7, 7)
    assert group.differences == (-8.0, 12.0, 8.0, 1.0, 4.0, 7.0, 3.0, 8.0)


@pytest.mark.parametrize("mistake", sorted(set(INT4_MISTAKES) - {"sign_smear"}))
def test_no_other_mistake_smears(mistake):
    assert not any(misread_group(torch.tensor(TOY, dtype=torch.int8), 1.0, mistake).smeared)


def test_in_the_wrong_layout_a_group_keeps_its_codes_in_other_places():
    codes = torch.randint(-8, 8, (128,), generator=torch.Generator().manual_seed(0), dtype=torch.int8)
    group = misread_group(codes, 0.5, "wrong_layout")
    assert sorted(group.read) == sorted(group.codes)
    assert group.differences[0::8] == (0.0,) * 16
    assert group.differences[7::8] == (0.0,) * 16


# A product


@pytest.fixture(scope="module")
def table():
    return {entry.mistake: entry for entry in product_errors(normal_weights())}


def test_the_table_has_the_rounding_alone_and_every_mistake(table):
    assert list(table) == ["none", *INT4_MISTAKES]
    assert normal_weights().shape == (256, 3584)


def test_rounding_alone_costs_a_step_over_the_root_of_12(table):
    """max|w| of 128 normal weights is 2.83 sigma, the step 0.404 sigma: 11.7 %, whatever mean the activations have."""
    assert table["none"].centred == pytest.approx(0.117, abs=0.001)
    assert table["none"].shifted == pytest.approx(0.117, abs=0.001)


@pytest.mark.parametrize(("mistake", "steps"), [("zero_point_7", 1), ("missing_bias", 8)])
def test_equal_steps_cost_what_the_sum_of_the_activations_says(table, mistake, steps):
    """The error of a row is steps * 0.404 * sum(x): sum(x)^2 is K on average, and (0.1 K)^2 more with the shift."""
    k = 3584
    centred = np.hypot(steps * 0.404, 0.117)
    shifted = np.hypot(steps * 0.404 * np.sqrt((k + (SHIFT * k) ** 2) / (k + SHIFT**2 * k)), 0.117)
    assert table[mistake].centred == pytest.approx(centred, rel=0.05)
    assert table[mistake].shifted == pytest.approx(shifted, rel=0.02)


def test_weights_in_other_places_cost_the_same_at_any_mean(table):
    """Six of eight weights are independent of the right ones: sqrt(2 * 6/8) = 122 %."""
    assert table["wrong_layout"].centred == pytest.approx(1.225, abs=0.02)
    assert table["wrong_layout"].shifted == pytest.approx(1.225, abs=0.02)


def test_scales_of_either_sign_let_equal_steps_cancel():
    """`search` gives the extreme of a group code -8, so half of the scales are negative."""
    searched = {entry.mistake: entry for entry in product_errors(normal_weights(64), "search")}
    plain = {entry.mistake: entry for entry in product_errors(normal_weights(64), "absmax7")}
    assert searched["zero_point_7"].shifted < 0.3 * plain["zero_point_7"].shifted


@pytest.mark.parametrize("mistake", ["none", *INT4_MISTAKES])
def test_the_table_agrees_with_float64_and_the_same_activations(mistake):
    weight = normal_weights(3, 256)
    found = {entry.mistake: entry for entry in product_errors(weight)}[mistake]
    q, scales = quantize_rows(weight, "absmax7")
    x = torch.randn(256, 1024, generator=torch.Generator().manual_seed(0)).double().numpy()
    wrong = misread(q, mistake).numpy() * scales.double().numpy().repeat(128, axis=1)
    for shift, value in ((0.0, found.centred), (0.1, found.shifted)):
        right = weight.double().numpy() @ (x + shift)
        error = wrong @ (x + shift) - right
        assert value == pytest.approx(np.sqrt((error**2).sum() / (right**2).sum()), rel=1e-5)


# The text of the shipped model


FIRST_WORDS = {
    "missing_bias": "nipmediateMAIN####",
    "sign_smear": "Index integ differen",
    "zero_point_7": "mmryyearu_str",
    "wrong_layout": "ablesLOGGERlavFeature",
}


@pytest.mark.parametrize("mistake", INT4_MISTAKES)
def test_the_shipped_model_writes_the_same_noise_on_every_machine(mistake):
    """Every token leads by far more than the float32 sums of two machines differ."""
    source, tokenizer = open_source(data_path(SHIPPED_MODEL))
    switch = MISTAKES[mistake]
    decoder = exact_decoder(DenseSource(source, switch.reader), tokenizer, 12, switch)
    logits = decoder.prefill(tokenizer.encode(RUNNING_EXAMPLE.prompt))
    text, leads = "", []
    for _ in range(NEW_TOKENS):
        best = logits[: tokenizer.vocab_size].topk(2)
        leads.append(float(best.values[0] - best.values[1]))
        text += tokenizer.token_text(int(best.indices[0]))
        logits = decoder.step(int(best.indices[0]))
    assert min(leads) > 4 * ROUNDING
    assert text.startswith(FIRST_WORDS[mistake])
