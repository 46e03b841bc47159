import numpy as np
import pytest
import torch

from lab_engine import int4
from lab_engine.checks import Row
from lab_engine.checks.lab01_quantize import EXERCISE as QUANTIZE
from lab_engine.checks.lab01_quantize import quantize_rows
from tests.lab_engine.checks.answers import names
from tests.lab_engine.checks.quantizers import a_scale_a_row, one_scale_a_row_stored_once, quantizer


def quantize_with(largest=7, *, limit=7, **changes):
    """A quantize_rows that does one thing differently; limit None: it does not clip."""
    return quantizer(128, largest, limit=limit or 7, clip=limit is not None, **changes)


def epsilon_in_the_scale(weight):
    groups = quantize_rows(weight) and weight.reshape(len(weight), -1, 128)
    scales = (groups.abs().amax(-1) / 7).clamp(min=1e-6).half()
    codes = (groups / scales.float()[..., None]).round().clamp(-7, 7)
    return codes.to(torch.int8).reshape(weight.shape), scales


def codes_with_a_scale_of_one(weight):
    codes, scales = quantize_rows(weight)
    return codes, torch.ones_like(scales)


def neither_divided_nor_scaled(weight):
    codes, scales = quantize_rows(weight)
    return weight.round().clamp(-7, 7).to(codes.dtype), torch.ones_like(scales)


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


def without_the_place(place):
    """The scale does not see one weight of each group."""

    def scale_of(groups):
        return torch.cat([groups[..., :place], groups[..., place + 1 :]], dim=-1).abs().amax(-1)

    return quantize_with(scale_of=scale_of)


def only_where(chosen):
    """Refuses a scale that is not finite only among the chosen ones."""

    def quantize(weight):
        if weight.shape[1] % 128 == 0:
            scales = (weight.abs().reshape(len(weight), -1, 128).amax(-1) / 7).half()
            if not chosen(scales).isfinite().all():
                raise ValueError("a scale is not finite")
        return quantize_with(check_scale=False)(weight)

    return quantize


def only_this_k(wrong_k):
    def quantize(weight):
        if wrong_k(weight.shape[1]):
            raise ValueError(f"k = {weight.shape[1]} is not divisible by 128")
        return quantize_with(check_k=False)(weight)

    return quantize


def speaks_of_a_scale(weight):
    if weight.shape[1] % 128:
        raise ValueError(f"K = {weight.shape[1]}: 128")
    if not (weight.abs().amax() / 7).half().isfinite():
        raise ValueError("Scale too large")
    return quantize_rows(weight)


NOT_FINITE = {"a weight of 4.6e5", "a NaN", "a NaN in row 1, group 1"}
LATE = {"a NaN in row 1, group 1"}
WRONG_QUANTIZE = {
    "blind for the first": (without_the_place(0), "A group is all of its 128 weights", None),
    "blind for the last": (without_the_place(127), "A group is all of its 128 weights", None),
    "asks the first scale": (only_where(lambda s: s[0, 0]), "Ask every scale", LATE),
    "asks the first row": (only_where(lambda s: s[0]), "Ask every scale", LATE),
    "asks the first group": (only_where(lambda s: s[:, 0]), "Ask every scale", LATE),
    "refuses only 192": (only_this_k(lambda k: k == 192), "names k and 128", {"k = 100"}),
    "refuses only k over 128": (only_this_k(lambda k: k > 128 and k % 128), "names k and 128", {"k = 100"}),
    "max without abs": (quantize_with(scale_of=lambda g: g.amax(-1)), "−0.4375 sets the scale too", None),
    "a scale a row": (quantize_with(scale_of=a_scale_a_row), "The second group became all 0", None),
    "a scale a row, stored once": (one_scale_a_row_stored_once(7), "The second group became all 0", None),
    "max/8, clipped to ±7": (quantize_with(largest=8), "The largest weight must be a level", None),
    "max/8, clipped to ±8": (quantize_with(largest=8, limit=8), "The largest weight must be a level", None),
    "max/8, not clipped": (quantize_with(largest=8, limit=None), "The largest weight must be a level", None),
    "truncates": (quantize_with(rounding=torch.trunc), "Round to nearest", None),
    "rounds down": (quantize_with(rounding=torch.floor), "Round to nearest", None),
    "unrounded scale": (quantize_with(cast=False), "divided by the scale before it was rounded", None),
    "unrounded scale, no guard": (quantize_with(cast=False, guard=False), "before it was rounded", None),
    "no guard for scale 0": (quantize_with(guard=False), "x/0 is inf and clips to 7", {"a group up to ±1e-7"}),
    "epsilon in the scale": (epsilon_in_the_scale, "The file must say 0", None),
    "no check of the scale": (
        quantize_with(check_scale=False),
        "fp16 ends at 65504",
        NOT_FINITE,
    ),
    "no check of k": (quantize_with(check_k=False), "a ValueError that names k and 128", {"k = 192", "k = 100"}),
    "check without a name": (refuses_without_a_name, "names k and 128", {"k = 192", "k = 100"}),
    "an assertion": (asserts_the_scale, "fp16 ends at 65504", NOT_FINITE),
    "NaN not refused": (only_inf_is_refused, "NaN is not finite either", NOT_FINITE - {"a weight of 4.6e5"}),
    "limits the weight": (
        the_weight_itself_is_limited,
        "the limit of the scale, not of the weight",
        {"the largest legal weight"},
    ),
    "no clip": (quantize_with(limit=None), "clip", {"a scale rounded down"}),
    "clipped to −8": (quantize_with(largest=7, limit=None, rounding=lambda x: x.round().clamp(-8, 7)), "clip", None),
    "scale not returned": (codes_with_a_scale_of_one, "return the scale that you divided by", None),
    "no scale at all": (neither_divided_nor_scaled, "divide by the scale before you round", None),
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
        ("no guard for scale 0", {"a group of zeros"}, {"a group up to ±1e-7"}),
        ("unrounded scale", names(QUANTIZE) - {"a group of ±3e-7", "a scale rounded down"}, {"a group of ±3e-7"}),
        ("unrounded scale, no guard", {"the toy group", "a group of zeros"}, {"a group up to ±1e-7"}),
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


def with_scales_rounded(up, nearest_zeros=True):
    """The scales that lie below or above max |w| / 7, whatever is nearer; `nearest_zeros` are left as they are."""

    def quantize(weight):
        _, nearest = quantize_rows(weight)
        exact = (weight.abs().reshape(len(weight), -1, 128).amax(-1) / 7).numpy()
        scales = nearest.numpy()
        with np.errstate(over="ignore"):  # of scales that the cases want refused
            further = np.nextafter(scales, np.float16(np.inf if up else -np.inf))
        rounded = np.where(scales < exact if up else scales > exact, further, scales)
        scales = torch.from_numpy(np.where(scales == 0, scales, rounded) if nearest_zeros else rounded)
        step = scales.double().repeat_interleave(128, 1)
        return torch.where(step > 0, weight / step, 0.0).round().clamp(-7, 7).to(torch.int8), scales

    return quantize


RIGHT_QUANTIZE = [
    quantize_rows,
    quantize_with(),
    quantize_with(rounding=half_up),
    in_numpy,
    group_by_group,
    speaks_of_a_scale,
]
RIGHT_QUANTIZE += [with_scales_rounded(up=True), with_scales_rounded(up=False)]


@pytest.mark.parametrize("right", RIGHT_QUANTIZE)
def test_a_right_quantization_passes(right):
    verdict = QUANTIZE.check(right)
    assert verdict.status == "passed", verdict


def test_a_scale_that_is_nearest_to_0_is_told_apart_from_that_of_a_group_of_zeros(failing_cases):
    wrong = with_scales_rounded(up=True, nearest_zeros=False)
    assert failing_cases(QUANTIZE, wrong) == {"a group up to ±1e-7"}
    assert "below half of float16's smallest number" in QUANTIZE.check(wrong).hint


def as_the_docstring_says(weight):
    """Sentence by sentence, one weight at a time."""
    rows, k = weight.shape
    if k % 128:
        raise ValueError(f"k = {k}, 128")
    codes, scales = torch.zeros(rows, k, dtype=torch.int8), torch.zeros(rows, k // 128, dtype=torch.float16)
    for row in range(rows):
        for group in range(k // 128):
            columns = range(128 * group, 128 * group + 128)
            scales[row, group] = max(abs(weight[row, i].item()) for i in columns) / 7
            if not scales[row, group].isfinite() or not weight[row].isfinite().all():
                raise ValueError("scale")
            scale = scales[row, group].item()
            for i in columns if scale else ():
                codes[row, i] = min(max(round(weight[row, i].item() / scale), -7), 7)
    return codes, scales


def test_following_the_docstring_sentence_by_sentence_passes():
    verdict = QUANTIZE.check(as_the_docstring_says)
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
    codes, scales = quantize_rows(args["a group up to ±1e-7"])
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


A_SCALE_A_GROUP, A_SCALE_A_ROW = "One scale for each group of 128: (rows, k // 128).", "one scale a row is too coarse"


def with_scales(change):
    def quantize(weight):
        codes, scales = quantize_rows(weight)
        return codes, change(scales)

    return quantize


@pytest.mark.parametrize(
    ("wrong", "case", "hint"),
    [
        (with_scales(lambda s: s[0]), "the toy group", A_SCALE_A_GROUP),
        (with_scales(lambda s: s[..., None]), "the toy group", A_SCALE_A_GROUP),
        (with_scales(lambda s: s[:, :1]), "groups 0.4375 and 0.004", A_SCALE_A_ROW),
        (
            lambda w: (quantize_rows(w)[0].T, quantize_rows(w)[1]),
            "the toy group",
            "One code for each weight: (rows, k).",
        ),
        (with_scales(lambda s: s.float()), "the toy group", ""),
        (lambda w: quantize_rows(w)[0], "the toy group", ""),
        (lambda w: w.absolut(), "the toy group", ""),
        (lambda w: w.reshape(1, -1, 128) and quantize_rows(w), "the toy group", ""),
    ],
)
def test_a_hint_about_a_form_or_an_error_is_about_nothing_else(wrong, case, hint):
    verdict = QUANTIZE.check(wrong)
    assert (verdict.status, verdict.case) == ("failed", case)
    assert hint in verdict.hint
    assert hint or not verdict.hint


def test_an_error_with_several_rows_gets_the_hint_to_reshape():
    verdict = QUANTIZE.check(lambda w: (w.reshape(1, w.shape[1]), quantize_rows(w))[1])
    assert (verdict.case, verdict.hint[:24]) == ("three rows of 384", "Reshape to (rows, k // 1")


def test_a_wrong_code_is_shown_between_its_neighbours():
    verdict = QUANTIZE.check(quantize_with(rounding=torch.trunc))
    assert verdict.given[0].values == ("−0.43", "−0.07", "0.02", "0.19", "0.31", "−0.25", "0.13", "0.4375")
    assert verdict.given[1:] == (Row("place", (), "row 0 · column 0–7 of 128"), Row("scale", (), "0.0625"))
    assert verdict.expected.values == ("−7", "−1", "0", "3", "5", "−4", "2", "7")
    assert verdict.yours.values == ("−6", "−1", "0", "3", "4", "−4", "2", "7")
    assert verdict.differ == (0, 4)
