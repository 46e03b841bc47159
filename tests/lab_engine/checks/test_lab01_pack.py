import numpy as np
import pytest
import torch

from lab_engine import int4
from lab_engine.checks.lab01_pack import EXERCISE as PACK
from lab_engine.checks.lab01_pack import pack_words
from tests.lab_engine.checks.answers import INVERSE, SHUFFLED, names


def pack_with(*, number=lambda q: q + 8, order=None, mask=True, width=np.int64, combine=np.bitwise_or):
    """A pack_words in NumPy that does one thing differently."""

    def pack(q, layout):
        right = SHUFFLED if layout == "value_shuffle" else range(8)
        numbers = number(q.numpy().astype(np.int64)).reshape(len(q), -1, 8)
        words = np.zeros(numbers.shape[:2], np.int64)
        for i, weight in enumerate(order(right) if order else right):
            nibble = numbers[..., weight] & 0xF if mask else numbers[..., weight]
            words = combine(words, nibble.astype(width) << width(4 * i))
        return torch.from_numpy(words.astype(np.uint64).astype(np.uint32).view(np.int32))

    return pack


def in_int8(q, layout):
    n = (q + 8).reshape(len(q), -1, 8)
    words = torch.zeros(n.shape[:2], dtype=torch.int32)
    for i, weight in enumerate(SHUFFLED if layout == "value_shuffle" else range(8)):
        words |= n[..., weight] << (4 * i)
    return words


def big_endian(q, layout):
    return torch.from_numpy(pack_words(q, layout).numpy().byteswap())


def signed(order):
    return pack_with(number=lambda q: q, mask=False, **order)


IN_SHUFFLED_ORDER = {case.name for case in PACK.cases if case.args[1] == "value_shuffle"}
WRONG_PACK = {
    "clips to 0…15": (pack_with(number=lambda q: q.clip(0, 15)), "All negative weights are gone", 0x72053000),
    "no bias, masked": (pack_with(number=lambda q: q), "The reader subtracts 8", 0x72C530F9),
    "no bias, no mask": (signed({}), "Sign bits run over the neighbours", 0xFFFFFFF9),
    "no bias, no mask, added": (signed({"combine": np.add}), "Sign bits run over the neighbours", None),
    "+ 7": (pack_with(number=lambda q: q + 7), "n = q + 8; −8 must be 0", 0xE93CA760),
    "+ 7, no mask": (pack_with(number=lambda q: q + 7, mask=False), "n = q + 8; −8 must be 0", 0xE93CA760),
    "weight 0 in the top nibble": (pack_with(order=lambda o: o[::-1]), "Nibble 0 is bits 0–3", 0x178BD4AF),
    "big-endian word": (big_endian, "Nibble 0 is bits 0–3", 0x71B84DFA),
    "the inverse order": (
        pack_with(order=lambda o: INVERSE if o == SHUFFLED else o),
        "Nibble i holds weight order[i], where order = (0, 2, 4, 6, 1, 3, 5, 7); yours went",
        0xFA4DB871,
    ),
    "layout ignored": (lambda q, _layout: pack_words(q, "linear"), "Two layouts, two words", 0xFA4DB871),
    "always shuffled": (lambda q, _layout: pack_words(q, "value_shuffle"), "Two layouts, two words", 0xF4B7AD81),
    "shifted in int8": (in_int8, "An int8 has 8 bits", None),
    "even and odd swapped": (pack_with(order=lambda o: [i ^ 1 for i in o]), "do one word by hand", None),
    "zeros": (lambda *a: torch.zeros_like(pack_words(*a)), "do one word by hand", 0),
}


@pytest.mark.parametrize("name", WRONG_PACK)
def test_a_wrong_word_fails_with_its_own_hint(name):
    wrong, hint, toy = WRONG_PACK[name]
    verdict = PACK.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if toy is not None:
        assert int(wrong(PACK.cases[0].args[0], "linear")) & 0xFFFFFFFF == toy


def test_the_inverse_order_gives_the_word_of_the_lesson_and_fails_shuffled_cases_only(failing_cases):
    wrong = WRONG_PACK["the inverse order"][0]
    assert int(wrong(PACK.cases[0].args[0], "value_shuffle")) & 0xFFFFFFFF == 0xFBA847D1
    assert failing_cases(PACK, wrong) == IN_SHUFFLED_ORDER
    assert failing_cases(PACK, WRONG_PACK["layout ignored"][0]) == IN_SHUFFLED_ORDER


def test_the_smear_of_minus_1_beside_3_fills_the_word():
    assert int(signed({})(torch.tensor([[-1, 3, 0, 0, 0, 0, 0, 0]], dtype=torch.int8), "linear")) == -1


@pytest.mark.parametrize("name", ["clips to 0…15", "no bias, masked", "no bias, no mask", "+ 7", "shifted in int8"])
def test_a_wrong_bias_fails_every_case(name, failing_cases):
    assert failing_cases(PACK, WRONG_PACK[name][0]) == names(PACK)


def test_no_word_of_a_case_is_the_same_in_two_orders():
    for case in PACK.cases[:4]:
        codes = case.args[0].reshape(-1, 8)
        assert all(len(set(row)) == 8 for row in codes.tolist())


def in_one_sum(q, layout):
    order = list(SHUFFLED if layout == "value_shuffle" else range(8))
    n = (q.long() + 8).reshape(q.shape[0], q.shape[1] // 8, 8)[..., order]
    return (n * 16 ** torch.arange(8)).sum(-1).int()


def through_text(q, layout):
    order = SHUFFLED if layout == "value_shuffle" else range(8)
    rows = []
    for row in q.tolist():
        words = [row[i : i + 8] for i in range(0, len(row), 8)]
        rows.append([int("".join(f"{word[i] + 8:x}" for i in order)[::-1], 16) for word in words])
    return torch.tensor(np.array(rows, np.uint32).view(np.int32))


@pytest.mark.parametrize("right", [pack_words, pack_with(), int4.pack_words, in_one_sum, through_text])
def test_a_right_word_passes(right):
    verdict = PACK.check(right)
    assert verdict.status == "passed", verdict


def test_pack_words_gives_the_known_words_and_the_engines():
    toy = torch.tensor([[-7, -1, 0, 3, 5, -4, 2, 7]], dtype=torch.int8)
    assert int(pack_words(toy, "linear")) & 0xFFFFFFFF == 0xFA4DB871
    assert int(pack_words(toy, "value_shuffle")) & 0xFFFFFFFF == 0xF4B7AD81
    q = torch.randint(-8, 8, (5, 40), generator=torch.Generator().manual_seed(2), dtype=torch.int8)
    for layout in ("linear", "value_shuffle"):
        assert torch.equal(pack_words(q, layout), int4.pack_words(q, layout))


def test_a_wrong_word_is_shown_nibble_by_nibble_below_its_weights():
    verdict = PACK.check(WRONG_PACK["layout ignored"][0])
    assert verdict.given[0].values == ("−7", "−1", "0", "3", "5", "−4", "2", "7")
    assert verdict.given[0].note == "row 0 · word 0 · value_shuffle"
    assert (verdict.expected.values, verdict.expected.note) == (tuple("18DA7B4F"), "0xF4B7AD81")
    assert (verdict.yours.values, verdict.yours.note) == (tuple("178BD4AF"), "0xFA4DB871")
    assert verdict.differ == (1, 2, 3, 4, 5, 6)


def test_words_of_another_form_are_refused_in_words():
    verdict = PACK.check(lambda *a: pack_words(*a).long() & 0xFFFFFFFF)
    assert verdict.message == "returned an int64 tensor of shape (1, 1); expected an int32 tensor of shape (1, 1)"
    assert "bit pattern of an int32" in verdict.hint
    verdict = PACK.check(lambda *a: pack_words(*a).flatten())
    assert verdict.message == "returned an int32 tensor of shape (1,); expected an int32 tensor of shape (1, 1)"
    assert verdict.hint == "Row by row, eight codes a word: (rows, k // 8)."
    verdict = PACK.check(lambda *a: pack_words(*a).float())
    assert (verdict.status, verdict.hint) == ("failed", "")


def with_python_ints(q, layout):
    words = torch.zeros((len(q), q.shape[1] // 8), dtype=torch.int32)
    for place, word in enumerate(pack_words(q, layout).flatten().tolist()):
        words.view(-1)[place] = word & 0xFFFFFFFF
    return words


def one_tensor_of_ints(q, layout):
    return torch.tensor([[w & 0xFFFFFFFF for w in row] for row in pack_words(q, layout).tolist()], dtype=torch.int32)


def through_numpy(q, layout):
    words = np.zeros((len(q), q.shape[1] // 8), np.int32)
    words[0, 0] = int(pack_words(q, layout)[0, 0]) & 0xFFFFFFFF
    return torch.from_numpy(words)


@pytest.mark.parametrize("wrong", [with_python_ints, one_tensor_of_ints])
def test_a_word_that_overflows_an_int32_is_told_where_to_compute(wrong):
    verdict = PACK.check(wrong)
    assert "without overflow" in verdict.message
    assert "compute in int64, then `.to(torch.int32)`" in verdict.hint


def test_an_overflow_of_numpy_is_told_the_same():
    assert "compute in int64" in PACK.check(through_numpy).hint


def test_a_misspelt_name_gets_no_hint_about_nibbles():
    verdict = PACK.check(lambda q, _layout: q.too(torch.int64))
    assert "AttributeError" in verdict.message
    assert not verdict.hint


def test_an_error_with_several_rows_gets_the_hint_about_rows():
    verdict = PACK.check(lambda q, layout: (q.reshape(1, q.shape[1]), pack_words(q, layout))[1])
    assert (verdict.case, verdict.hint) == (
        "three rows of 24 (linear)",
        "Row by row, eight codes a word: (rows, k // 8).",
    )


def test_a_fault_at_the_top_nibble_of_minus_8_is_seen(failing_cases):
    def one_too_many_at_the_top(q, layout):
        last = q.reshape(len(q), -1, 8)[..., 7] == -8
        return torch.where(last, pack_words(q, layout) | 1 << 28, pack_words(q, layout))

    assert failing_cases(PACK, one_too_many_at_the_top) == {"−8 first and last"}
