import numpy as np
import pytest
import torch

from lab_engine import int4
from lab_engine.checks.lab01_pack import pack_words
from lab_engine.checks.lab01_shuffle import EXERCISE as SHUFFLE
from lab_engine.checks.lab01_shuffle import shuffle_words
from tests.lab_engine.checks.answers import INVERSE, SHUFFLED


def shuffle_with(order, mask_after=True, mask_before=False):
    """A shuffle_words on int32 NumPy arrays that does one thing differently."""

    def shuffle(words):
        given = words.numpy()
        result = np.zeros_like(given)
        for place, source in enumerate(order):
            nibble = given & np.array(0xF << (4 * source), np.uint32).view(np.int32) if mask_before else given
            nibble = nibble >> np.int32(4 * source)
            result |= (nibble & np.int32(0xF) if mask_after else nibble) << np.int32(4 * place)
        return torch.from_numpy(result) if result.shape else torch.tensor(result)

    return shuffle


WRONG_SHUFFLE = {
    "no mask": (shuffle_with(SHUFFLED, mask_after=False), "copies the sign"),
    "the inverse order": (shuffle_with(INVERSE), "Follow weight 1"),
    "nibbles reversed": (shuffle_with(range(7, -1, -1)), "Follow weight 1"),
    "shuffled and reversed": (shuffle_with(SHUFFLED[::-1]), "Follow weight 1"),
    "identity": (torch.clone, "Follow weight 1"),
    "halves swapped": (shuffle_with((4, 5, 6, 7, 0, 1, 2, 3)), "Even weights fill the low half"),
    "odd ones first": (shuffle_with((1, 3, 5, 7, 0, 2, 4, 6)), "Even weights fill the low half"),
    "zeros": (torch.zeros_like, "Follow weight 1"),
}


@pytest.mark.parametrize("name", WRONG_SHUFFLE)
def test_a_wrong_shuffle_fails_with_its_own_hint(name):
    wrong, hint = WRONG_SHUFFLE[name]
    verdict = SHUFFLE.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict


@pytest.mark.parametrize("name", ["the inverse order", "nibbles reversed", "identity", "halves swapped"])
def test_a_wrong_order_fails_the_random_words(name, failing_cases):
    assert "(3, 5) random words" in failing_cases(SHUFFLE, WRONG_SHUFFLE[name][0])


@pytest.mark.parametrize("name", ["the inverse order", "nibbles reversed", "identity"])
@pytest.mark.parametrize("word", [0x88888888, 0x10000001])
def test_words_that_would_let_a_wrong_order_pass_are_in_no_case(name, word):
    palindrome = torch.from_numpy(np.array([word], np.uint32).view(np.int32))
    assert torch.equal(WRONG_SHUFFLE[name][0](palindrome), shuffle_words(palindrome))
    assert not any((case.args[0] == palindrome).any() for case in SHUFFLE.cases)


def test_a_missing_mask_is_caught_by_a_word_whose_top_bit_is_1(failing_cases):
    toy = SHUFFLE.cases[1].args[0]
    wrong = WRONG_SHUFFLE["no mask"][0]
    assert int(toy) < 0
    assert int(wrong(toy)) & 0xFFFFFFFF == 0xFFFFFFF1
    assert "the toy word" in failing_cases(SHUFFLE, wrong)


def through_unpacking(words):
    q = int4.unpack_words(words.reshape(1, -1), "linear")
    return int4.pack_words(q, "value_shuffle").reshape(words.shape)


def in_int64(words):
    wide = words.long() & 0xFFFFFFFF
    moved = [(wide >> 4 * source & 15) * 16**place for place, source in enumerate(SHUFFLED)]
    return torch.stack(moved).sum(0).int()


def by_delta_swaps(words):
    x = words.numpy().view(np.uint32)
    for mask, shift in ((0x00F000F0, 4), (0x0000FF00, 8)):
        t = (x >> np.uint32(shift) ^ x) & np.uint32(mask)
        x = x ^ t ^ (t << np.uint32(shift))
    return torch.from_numpy(np.array(x)).view(torch.int32)


masked_before_the_shift = shuffle_with(SHUFFLED, mask_after=False, mask_before=True)  # nibble 7 keeps its place

RIGHT_SHUFFLE = [
    shuffle_words,
    shuffle_with(SHUFFLED),
    masked_before_the_shift,
    int4.shuffle_words,
    through_unpacking,
    in_int64,
    by_delta_swaps,
]


@pytest.mark.parametrize("right", RIGHT_SHUFFLE)
def test_a_right_shuffle_passes(right):
    verdict = SHUFFLE.check(right)
    assert verdict.status == "passed", verdict


def test_shuffling_three_times_gives_the_word_back():
    word = torch.tensor([0x76543210], dtype=torch.int32)
    found = [hex(int(word := shuffle_words(word))) for _ in range(3)]
    assert found == ["0x75316420", "0x73625140", "0x76543210"]


def test_shuffled_words_are_those_of_packing():
    q = torch.randint(-8, 8, (4, 48), generator=torch.Generator().manual_seed(3), dtype=torch.int8)
    assert torch.equal(shuffle_words(pack_words(q, "linear")), pack_words(q, "value_shuffle"))


@pytest.mark.parametrize(
    ("wrong", "case", "hint"),
    [
        (lambda w: shuffle_words(w).long(), "0x76543210", "`.to(torch.int32)` keeps the low 32 bits"),
        (lambda w: shuffle_words(w).long()[None], "0x76543210", "`.to(torch.int32)` keeps the low 32 bits"),
        (lambda w: shuffle_words(w).flatten(), "(3, 5) random words", "the result has that of `words`"),
        (lambda w: (list(w), shuffle_words(w))[1], "a single word", "a word alone has the shape ()"),
        (lambda w: w.shuffled(), "0x76543210", ""),
    ],
)
def test_a_hint_about_a_form_or_an_error_is_about_nothing_else(wrong, case, hint):
    verdict = SHUFFLE.check(wrong)
    assert (verdict.status, verdict.case) == ("failed", case)
    assert hint in verdict.hint
    assert hint or not verdict.hint


def test_a_wrong_nibble_is_underlined():
    verdict = SHUFFLE.check(torch.clone)
    assert verdict.given[0].note == "0x76543210"
    assert (verdict.expected.values, verdict.expected.note) == (tuple("02461357"), "0x75316420")
    assert verdict.differ == (1, 2, 3, 4, 5, 6)
