import numpy as np
import pytest
import torch

from lab_engine import int4
from lab_engine.checks import exercises
from lab_engine.checks.lab01_pack import pack_words
from lab_engine.checks.lab01_quantize import quantize_rows
from lab_engine.checks.lab01_shuffle import shuffle_words
from tests.lab_engine.checks.odd_answers import odd_functions

QUANTIZE, PACK, SHUFFLE = exercises("01_int4").values()
SHUFFLED = (0, 2, 4, 6, 1, 3, 5, 7)


def names(exercise):
    return {case.name for case in exercise.cases}


@pytest.mark.parametrize("exercise", [QUANTIZE, PACK, SHUFFLE], ids=lambda exercise: exercise.name)
@pytest.mark.parametrize("name", odd_functions())
def test_whatever_a_function_returns_ends_in_a_verdict(exercise, name):
    verdict = exercise.check(odd_functions()[name])
    assert verdict.status == "failed"
    assert verdict.message
    assert "Traceback" not in str(verdict)
    assert verdict._repr_html_()


@pytest.mark.parametrize("exercise", [QUANTIZE, PACK, SHUFFLE], ids=lambda exercise: exercise.name)
def test_a_function_that_changes_its_argument_is_told_so_and_spoils_no_later_case(exercise):
    before = [arg.clone() for case in exercise.cases for arg in case.args if isinstance(arg, torch.Tensor)]

    def changes(first, *rest):
        result = exercise.solution(first, *rest)
        first.fill_(1)
        return result

    assert "changed one of its arguments" in exercise.check(changes).message
    after = [arg for case in exercise.cases for arg in case.args if isinstance(arg, torch.Tensor)]
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(after, before, strict=True))
    assert exercise.check(exercise.solution).status == "passed"


# --- quantize_rows ---


def quantize_with(
    *,
    largest=7,
    limit=7,
    rounding=torch.round,
    scale_of=None,
    divide=True,
    guard=True,
    check_k=True,
    check_scale=True,
    cast=True,
):
    """A quantize_rows that does one thing differently."""

    def quantize(weight):
        rows, k = weight.shape
        if check_k and k % 128:
            raise ValueError(f"K = {k} is not divisible by 128")
        groups = weight.reshape(rows, -1, 128)
        top = scale_of(groups) if scale_of else groups.abs().amax(-1)
        scales = (top / largest).half()
        if check_scale and not scales.isfinite().all():
            raise ValueError("scale over 65504")
        step = scales.float() if cast else top / largest
        codes = groups / step[..., None] if divide else groups
        if guard:
            codes = torch.where(scales[..., None] == 0, torch.zeros_like(codes), codes)
        codes = rounding(codes)
        if limit:
            codes = codes.clamp(-limit, limit)
        return codes.to(torch.int32).to(torch.int8).reshape(rows, k), scales

    return quantize


def a_scale_a_row(groups):
    return groups.abs().amax((-1, -2))[:, None].expand(groups.shape[:2])


def one_scale_a_row_stored_once(weight):
    scales = (weight.abs().amax(1, keepdim=True) / 7).half()
    return (weight / scales.float()).nan_to_num(0).round().clamp(-7, 7).to(torch.int8), scales


def epsilon_in_the_scale(weight):
    groups = quantize_rows(weight) and weight.reshape(len(weight), -1, 128)
    scales = (groups.abs().amax(-1) / 7).clamp(min=1e-6).half()
    codes = (groups / scales.float()[..., None]).round().clamp(-7, 7)
    return codes.to(torch.int8).reshape(weight.shape), scales


def codes_with_a_scale_of_one(weight):
    codes, scales = quantize_rows(weight)
    return codes, torch.ones_like(scales)


def with_the_sign_in_the_scale(weight):
    codes, scales = quantize_rows(weight)
    return -codes, -scales


def biased_already(weight):
    codes, scales = quantize_rows(weight)
    return codes + 8, scales


def only_inf_is_refused(weight):
    if weight.isnan().any():
        return quantize_with(check_scale=False)(weight)
    return quantize_rows(weight)


def the_weight_itself_is_limited(weight):
    if weight.abs().max() > 65504:
        raise ValueError("scale over 65504")
    return quantize_rows(weight)


def refuses_without_a_name(weight):
    if weight.shape[1] % 128:
        raise ValueError("bad shape")
    return quantize_rows(weight)


def asserts_the_scale(weight):
    if not weight.isfinite().all() or weight.abs().max() > 4.6e5 - 1:
        raise AssertionError("scale")
    return quantize_rows(weight)


WRONG_QUANTIZE = {
    "max without abs": (quantize_with(scale_of=lambda g: g.amax(-1)), "−0.4375 sets the scale too", None),
    "a scale a row": (quantize_with(scale_of=a_scale_a_row), "The second group became all 0", None),
    "a scale a row, stored once": (one_scale_a_row_stored_once, "The second group became all 0", None),
    "max/8, clipped to ±7": (quantize_with(largest=8), "The largest weight must be a level", None),
    "truncates": (quantize_with(rounding=torch.trunc), "Round to nearest", None),
    "rounds down": (quantize_with(rounding=torch.floor), "Round to nearest", None),
    "unrounded scale": (quantize_with(cast=False), "The reader has only the fp16 scale", None),
    "no guard for scale 0": (quantize_with(guard=False), "x/0 is inf and clips to 7", {"a group of ±1e-7"}),
    "epsilon in the scale": (epsilon_in_the_scale, "The file must say 0", None),
    "no check of the scale": (
        quantize_with(check_scale=False),
        "fp16 ends at 65504",
        {"a weight of 4.6e5", "a NaN"},
    ),
    "no check of k": (quantize_with(check_k=False), "a ValueError that names k and 128", {"k = 192"}),
    "check without a name": (refuses_without_a_name, "names k and 128", {"k = 192"}),
    "an assertion": (asserts_the_scale, "fp16 ends at 65504", {"a weight of 4.6e5", "a NaN"}),
    "NaN not refused": (only_inf_is_refused, "NaN is not finite either", {"a NaN"}),
    "limits the weight": (
        the_weight_itself_is_limited,
        "the limit of the scale, not of the weight",
        {"the largest legal weight"},
    ),
    "no clip": (quantize_with(limit=None), "clip", {"a scale rounded down"}),
    "clipped to −8": (quantize_with(largest=7, limit=None, rounding=lambda x: x.round().clamp(-8, 7)), "clip", None),
    "scale not returned": (codes_with_a_scale_of_one, "return the scale that you divided by", None),
    "not divided": (quantize_with(divide=False), "divide by the scale before you round", None),
    "negative scales": (with_the_sign_in_the_scale, "The sign belongs to the code", None),
    "+ 8 already": (biased_already, "the + 8 comes when you pack", None),
    "zeros": (lambda w: tuple(torch.zeros_like(t) for t in quantize_rows(w)), "The scale is max |w| / 7", None),
}


@pytest.mark.parametrize("name", WRONG_QUANTIZE)
def test_a_wrong_quantization_fails_with_its_own_hint(name, failing_cases):
    wrong, hint, only = WRONG_QUANTIZE[name]
    verdict = QUANTIZE.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(QUANTIZE, wrong) == only


@pytest.mark.parametrize(
    ("name", "passing", "failing"),
    [
        ("max without abs", {"the toy group"}, {"largest weight negative"}),
        ("no guard for scale 0", {"a group of zeros"}, {"a group of ±1e-7"}),
        ("unrounded scale", names(QUANTIZE) - {"a group of ±3e-7", "a scale rounded down"}, {"a group of ±3e-7"}),
        ("epsilon in the scale", {"the toy group"}, {"a group of zeros", "a group of ±3e-7"}),
        (
            "max/8, clipped to ±7",
            {"k = 192", "a NaN"},
            {"the toy group", "largest weight negative", "three rows of 384"},
        ),
        ("a scale a row", {"the toy group"}, {"groups 0.4375 and 0.004"}),
    ],
)
def test_a_wrong_quantization_is_caught_by_the_case_made_for_it(name, passing, failing, failing_cases):
    found = failing_cases(QUANTIZE, WRONG_QUANTIZE[name][0])
    assert failing <= found
    assert not passing & found


def half_up(x):
    return (x + 0.5).floor()


def in_numpy(weight):
    w = weight.numpy().astype(np.float64)
    if w.shape[1] % 128:
        raise ValueError(f"128 does not divide {w.shape[1]}")
    groups = w.reshape(w.shape[0], w.shape[1] // 128, 128)
    with np.errstate(all="ignore"):
        scales = (abs(groups).max(-1) / 7).astype(np.float16)
        codes = np.rint(groups / scales[..., None].astype(np.float64))
    if not np.isfinite(scales).all():
        raise ValueError("found a scale of inf or NaN")
    codes = np.where(scales[..., None] == 0, 0, codes).clip(-7, 7).astype(np.int8)
    return torch.from_numpy(codes.reshape(w.shape)), torch.from_numpy(scales)


def group_by_group(weight):
    rows, k = weight.shape
    if k % 128 != 0:
        raise ValueError(f"K must be a multiple of 128, found {k}")
    scales = torch.empty(rows, k // 128, dtype=torch.float16)
    codes = torch.zeros(rows, k, dtype=torch.int8)
    for group in range(k // 128):
        part = weight[:, group * 128 : group * 128 + 128]
        scale = (part.abs().max(1).values * (1 / 7)).half()
        if torch.isinf(scale).any() or torch.isnan(scale).any():
            raise ValueError("the scale is not finite")
        scales[:, group] = scale
        inverse = torch.where(scale > 0, 1 / scale.double(), 0.0)
        codes[:, group * 128 : group * 128 + 128] = (part * inverse[:, None]).round().clip(-7, 7).to(torch.int8)
    return codes, scales


def the_engines(weight):
    return int4.quantize_rows(weight, "absmax7")


RIGHT_QUANTIZE = [quantize_rows, quantize_with(), quantize_with(rounding=half_up), in_numpy, group_by_group]


@pytest.mark.parametrize("right", RIGHT_QUANTIZE)
def test_a_right_quantization_passes(right):
    verdict = QUANTIZE.check(right)
    assert verdict.status == "passed", verdict


def test_quantize_rows_is_a_loop_over_groups_and_equals_the_engines():
    weight = torch.randn(3, 384, generator=torch.Generator().manual_seed(1))
    codes, scales = quantize_rows(weight)
    for row in range(3):
        for group in range(3):
            values = weight[row, 128 * group : 128 * group + 128].double()
            scale = np.float16(float(values.abs().max()) / 7)
            assert scales[row, group] == float(scale)
            expected = [round(float(value) / float(scale)) for value in values]
            assert codes[row, 128 * group : 128 * group + 128].tolist() == expected
    assert all(torch.equal(a, b) for a, b in zip(the_engines(weight), (codes, scales), strict=True))


def test_the_hard_numbers_of_the_cases_are_what_their_names_say():
    args = {case.name: case.args[0] for case in QUANTIZE.cases}
    assert quantize_rows(args["the largest legal weight"])[1][0, 0] == 65504
    codes, scales = quantize_rows(args["a group of ±3e-7"])
    assert scales[0, 1] == 2**-24
    assert set(codes[0, 128:].tolist()) == {-5, 5}  # not 7: the scale is larger than max / 7
    codes, scales = quantize_rows(args["a group of ±1e-7"])
    assert scales[0, 0] == 0
    assert not codes[0, :128].any()
    assert (args["a scale rounded down"].abs().max(1).values / quantize_rows(args["a scale rounded down"])[1][0, 0]) > 8


def test_no_code_of_a_case_depends_on_how_a_division_is_rounded():
    """Half-way values aside, which may go either way."""
    for case in QUANTIZE.cases:
        if not case.refuses and case.name != "half-way weights":
            _, scales = quantize_rows(*case.args)
            level = case.args[0].double() / scales.double().repeat_interleave(128, 1)
            distance = ((level.abs() % 1) - 0.5).abs()
            assert distance[level.isfinite()].min() > 1e-5, case.name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda w: quantize_rows(w)[0],
            "returned an int8 tensor of shape (1, 128); expected (codes, scales): an int8 tensor of shape (1, 128)",
        ),
        (lambda w: list(quantize_rows(w)), "returned a list; expected (codes, scales)"),
        (lambda w: (quantize_rows(w)[0].float(), quantize_rows(w)[1]), "codes are a float32 tensor of shape (1, 128)"),
        (lambda w: (quantize_rows(w)[0], quantize_rows(w)[1].float()), "scales are a float32 tensor of shape (1, 1)"),
        (lambda w: (quantize_rows(w)[0].T, quantize_rows(w)[1]), "codes are an int8 tensor of shape (128, 1)"),
        (lambda w: quantize_rows(w)[::-1], "codes are a float16 tensor of shape (1, 1); expected an int8 tensor"),
    ],
)
def test_a_quantization_of_another_form_is_refused_in_words(wrong, message):
    assert QUANTIZE.check(wrong).message.startswith(message)


def test_a_wrong_code_is_shown_between_its_neighbours():
    verdict = QUANTIZE.check(quantize_with(rounding=torch.trunc))
    assert verdict.given[0].values == ("−0.43", "−0.07", "0.02", "0.19", "0.31", "−0.25", "0.13", "0.4375")
    assert verdict.expected.values == ("−7", "−1", "0", "3", "5", "−4", "2", "7")
    assert verdict.yours.values == ("−6", "−1", "0", "3", "4", "−4", "2", "7")
    assert verdict.differ == (0, 4)


# --- pack_words ---


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


INVERSE = (0, 4, 1, 5, 2, 6, 3, 7)
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
        "Nibble i holds weight 0 2 4 6 1 3 5 7 [i]",
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


# --- shuffle_words ---


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


def test_a_wrong_nibble_is_underlined():
    verdict = SHUFFLE.check(torch.clone)
    assert verdict.given[0].note == "0x76543210"
    assert (verdict.expected.values, verdict.expected.note) == (tuple("02461357"), "0x75316420")
    assert verdict.differ == (1, 2, 3, 4, 5, 6)
