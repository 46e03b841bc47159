import numpy as np
import pytest
import torch

from lab_engine.checks import exercises
from lab_engine.checks.lab08_int8 import quantize_int8
from lab_engine.checks.lab08_top_p import top_p_probs
from lab_engine.checks.lab08_visible import visible_tokens
from tests.lab_engine.checks.quantizers import a_scale_a_row, one_scale_a_row_stored_once, quantizer

INT8, TOP_P, VISIBLE = exercises("08_decoder").values()


# --- quantize_int8 ---


def int8_with(largest=127, *, limit=127, group=64, check=True, **changes):
    """A quantize_int8 that does one thing differently; limit None: it does not clip."""
    changes |= {"limit": limit or 127, "clip": limit is not None, "check_k": check, "check_scale": False}
    return quantizer(group, largest, **changes)


def scale_of_one(weight):
    return weight.round().clamp(-127, 127).to(torch.int8), torch.ones(len(weight), weight.shape[1] // 64).half()


def codes_with_a_scale_of_one(weight):
    codes, scales = quantize_int8(weight)
    return codes, torch.ones_like(scales)


def epsilon_in_the_scale(weight):
    codes, scales = quantize_int8(weight)
    return codes, scales.clamp(min=1e-6)


def refuses_without_a_name(weight):
    if weight.shape[1] % 64:
        raise ValueError("bad shape")
    return quantize_int8(weight)


def wraps_without_a_guard(weight):
    codes, scales = int8_with(guard=False)(weight)
    return codes, scales


ALL_INT8 = {case.name for case in INT8.cases}
WRONG_INT8 = {
    "max/128 without clip": (int8_with(largest=128, limit=None), "The sign flipped", None),
    "max/128, clipped": (int8_with(largest=128), "The scale is max |w| / 127", None),
    "a scale a row": (int8_with(scale_of=a_scale_a_row), "Group 2 became 0", None),
    "a scale a row, stored once": (one_scale_a_row_stored_once(127), "Group 2 became 0", None),
    "group 128": (int8_with(group=128), "The group is 64 weights", None),
    "group 128, unchecked": (int8_with(group=128, check=False), "The group is 64 weights", None),
    "clipped to ±7": (int8_with(limit=7), "8 bits now", ALL_INT8 - {"k = 96"}),
    "max/7": (int8_with(largest=7, limit=7), "8 bits now", ALL_INT8 - {"k = 96"}),
    "reader forgets the scale": (int8_with(divide=False), "The reader computes q × scale", ALL_INT8 - {"k = 96"}),
    "no scale at all": (scale_of_one, "The reader computes q × scale", ALL_INT8),
    "scale not returned": (codes_with_a_scale_of_one, "The reader computes q × scale", ALL_INT8 - {"k = 96"}),
    "no check": (int8_with(check=False), "Name K and 64", {"k = 96"}),
    "check without a name": (refuses_without_a_name, "Name K and 64", {"k = 96"}),
    "max without abs": (int8_with(scale_of=lambda g: g.amax(-1)), "take |w|", None),
    "truncates": (int8_with(rounding=torch.trunc), "Round to nearest", ALL_INT8 - {"k = 96", "half-way weights"}),
    "unrounded scale": (int8_with(cast=False), "divided by the scale before it was rounded", None),
    "no guard for scale 0": (wraps_without_a_guard, "x / 0 is inf", None),
    "epsilon in the scale": (epsilon_in_the_scale, "The file must say 0", None),
    "no clip": (int8_with(limit=None), "int8 ends at 127", {"a scale rounded down"}),
    "zeros": (lambda w: tuple(torch.zeros_like(t) for t in quantize_int8(w)), "", ALL_INT8 - {"k = 96"}),
}


@pytest.mark.parametrize("name", WRONG_INT8)
def test_a_wrong_quantization_fails_with_its_own_hint(name, failing_cases):
    wrong, hint, only = WRONG_INT8[name]
    verdict = INT8.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(INT8, wrong) == only


def half_up(x):
    return (x + 0.5).floor()


def in_numpy(weight):
    w = weight.numpy().astype(np.float64)
    if w.shape[1] % 64:
        raise ValueError(f"64 does not divide {w.shape[1]}")
    groups = w.reshape(w.shape[0], w.shape[1] // 64, 64)
    scales = (abs(groups).max(-1) / 127).astype(np.float16)
    with np.errstate(all="ignore"):
        codes = np.rint(groups / scales[..., None].astype(np.float64))
    codes = np.where(scales[..., None] == 0, 0, codes).clip(-127, 127).astype(np.int8)
    return torch.from_numpy(codes.reshape(w.shape)), torch.from_numpy(scales)


def by_the_reciprocal(weight):
    rows, k = weight.shape
    if k % 64 != 0:
        raise ValueError(f"K must be a multiple of 64, found {k}")
    scales = torch.empty(rows, k // 64, dtype=torch.float16)
    codes = torch.zeros(rows, k, dtype=torch.int8)
    for group in range(k // 64):
        part = weight[:, group * 64 : group * 64 + 64]
        scale = (part.abs().max(1).values * (1 / 127)).half()
        scales[:, group] = scale
        inverse = torch.where(scale > 0, 1 / scale.double(), 0.0)
        codes[:, group * 64 : group * 64 + 64] = (part * inverse[:, None]).round().clip(-127, 127).to(torch.int8)
    return codes, scales


RIGHT_INT8 = [INT8.solution, int8_with(), int8_with(rounding=half_up), in_numpy, by_the_reciprocal]


@pytest.mark.parametrize("right", RIGHT_INT8)
def test_a_right_quantization_passes(right):
    verdict = INT8.check(right)
    assert verdict.status == "passed", verdict


def test_quantize_int8_is_a_loop_over_groups():
    weight = torch.randn(3, 192, generator=torch.Generator().manual_seed(1))
    codes, scales = quantize_int8(weight)
    for row in range(3):
        for group in range(3):
            values = weight[row, 64 * group : 64 * group + 64].double()
            scale = np.float16(float(values.abs().max()) / 127)
            assert scales[row, group] == float(scale)
            expected = [round(float(value) / float(scale)) for value in values]
            assert codes[row, 64 * group : 64 * group + 64].tolist() == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda w: quantize_int8(w)[0],
            "returned an int8 tensor of shape (1, 64); expected (codes, scales): an int8 tens",
        ),
        (lambda w: (quantize_int8(w)[0].float(), quantize_int8(w)[1]), "codes are a float32 tensor of shape (1, 64)"),
        (lambda w: (quantize_int8(w)[0], quantize_int8(w)[1].float()), "scales are a float32 tensor of shape (1, 1)"),
        (lambda w: (quantize_int8(w)[0].T, quantize_int8(w)[1]), "codes are an int8 tensor of shape (64, 1); expected"),
        (lambda w: (quantize_int8(w)[0].tolist(), quantize_int8(w)[1]), "codes are a list; expected an int8 tensor"),
    ],
)
def test_a_quantization_of_another_form_is_refused_in_words(wrong, message):
    assert INT8.check(wrong).message.startswith(message)


def test_no_code_of_a_case_depends_on_how_a_division_is_rounded():
    """Half-way values aside, which may go either way."""
    for case in INT8.cases[:-1]:
        if case.name != "half-way weights":
            _, scales = quantize_int8(*case.args)
            level = case.args[0].double() / scales.double().repeat_interleave(64, 1)
            distance = ((level.abs() % 1) - 0.5).abs()
            assert distance[level.isfinite()].min() > 1e-5, case.name


# --- top_p_probs ---


def top_p_with(
    crossing=True, renormalise=True, descending=True, unsort=True, cut_first=False, multiply=False, zero=True, one=True
):
    """A top_p_probs in plain Python that does one thing differently."""

    def filter_probs(logits, p, temperature):
        values = logits.double().tolist()
        if temperature == 0:
            if zero:
                best = values.index(max(values))
                return torch.tensor([float(i == best) for i in range(len(values))])
            return torch.full_like(logits, float("nan"))
        factor = temperature if multiply else 1 / temperature
        probs = softmax([v * (1 if cut_first else factor) for v in values])
        order = sorted(range(len(probs)), key=probs.__getitem__, reverse=descending)
        mass, kept = 0.0, []
        for i in order:
            if (mass if crossing else mass + probs[i]) >= p and not (not crossing and mass + probs[i] == p):
                break
            kept.append(i)
            mass += probs[i]
        if one and not kept and crossing:
            kept = order[:1]
        if cut_first:
            full = softmax([v * factor for v in values])
            probs = full
        if not unsort:
            kept = list(range(len(kept)))
        total = sum(probs[i] for i in kept) if renormalise else 1.0
        out = [probs[i] / total if i in kept else 0.0 for i in range(len(probs))]
        return torch.tensor(out)

    return filter_probs


def softmax(values):
    top = max(values)
    exps = np.exp([v - top for v in values])
    return (exps / exps.sum()).tolist()


def ties_to_the_highest_at_0(logits, p, temperature):
    if temperature == 0:
        best = len(logits) - 1 - int(logits.flip(0).argmax())
        return torch.eye(len(logits))[best]
    return top_p_probs(logits, p, temperature)


def divides_by_0(logits, p, temperature):
    if temperature == 0:
        return torch.softmax(logits / temperature, -1)
    return top_p_probs(logits, p, temperature)


def no_maximum_taken_out(logits, p, temperature):
    exps = (logits / max(temperature, 1e-30)).exp()
    if temperature == 0 or (exps.isfinite().all() and exps.sum() > 0):
        return top_p_probs(logits, p, temperature)
    return exps / exps.sum()


def returned_in_sorted_order(logits, p, temperature):
    return (
        top_p_probs(logits, p, temperature).sort(descending=True).values if temperature else top_p_probs(logits, p, 0)
    )


def no_cut(logits, p, temperature):
    return torch.softmax(logits / temperature, -1)


UNSORTED = {"unsorted", "37 tokens, unsorted", "logits of 1000"}
NOT_1 = {"temperature 2", "temperature 0.5"}
WRONG_TOP_P = {
    "drops the token that crosses p": (top_p_with(crossing=False), "It is what reaches p", None),
    "not renormalised": (top_p_with(renormalise=False), "Sums to 1", None),
    "sorted upwards": (top_p_with(descending=False), "Largest first", None),
    "mask by rank": (top_p_with(unsort=False), "Undo the sort", UNSORTED),
    "in sorted order": (returned_in_sorted_order, "Undo the sort", UNSORTED),
    "temperature after the cut": (top_p_with(cut_first=True), "The set depends on T", {"temperature 2"}),
    "× T": (top_p_with(multiply=True), "Divide", NOT_1),
    "T = 0 divides": (divides_by_0, "Ties to the lowest id", {"temperature 0"}),
    "T = 0, highest id": (ties_to_the_highest_at_0, "Ties to the lowest id", {"temperature 0"}),
    "no maximum taken out": (no_maximum_taken_out, "inf/inf", {"logits of 1000"}),
    "nothing kept": (top_p_with(one=False, renormalise=True), "At least one", {"p = 0"}),
    "no cut": (no_cut, "Largest first", None),
    "constant": (lambda logits, *_: torch.full_like(logits, 1 / len(logits)), "", None),
}


@pytest.mark.parametrize("name", WRONG_TOP_P)
def test_a_wrong_sampler_fails_with_its_own_hint(name, failing_cases):
    wrong, hint, only = WRONG_TOP_P[name]
    verdict = TOP_P.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(TOP_P, wrong) == only


def test_dropping_the_crossing_token_passes_with_four_equal_logits(failing_cases):
    assert "four equal logits" not in failing_cases(TOP_P, top_p_with(crossing=False))


def masks_logits(logits, p, temperature):
    if temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(), len(logits)).float()
    logits = logits / temperature
    order = logits.argsort(descending=True)
    mass = logits[order].softmax(-1).cumsum(-1)
    reached = int((mass < p).sum()) + 1
    return logits.index_fill(0, order[reached:], -torch.inf).softmax(-1)


def keeps_the_last_of_equal_tokens(logits, p, temperature):
    if temperature == 0:
        return top_p_probs(logits, p, 0)
    return top_p_probs(logits.flip(0), p, temperature).flip(0)


def in_double(logits, p, temperature):
    return top_p_with()(logits, p, temperature).double()


@pytest.mark.parametrize(
    "right", [TOP_P.solution, top_p_with(), masks_logits, keeps_the_last_of_equal_tokens, in_double]
)
def test_a_right_sampler_passes(right):
    verdict = TOP_P.check(right)
    assert verdict.status == "passed", verdict


def test_top_p_probs_gives_the_known_numbers():
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    torch.testing.assert_close(top_p_probs(logits, 0.75, 1), torch.tensor([0.625, 0.375, 0, 0]))
    warm = torch.tensor([0.4306, 0.3335, 0.2359, 0])
    torch.testing.assert_close(top_p_probs(logits, 0.75, 2), warm, rtol=0, atol=5e-5)


def test_top_p_probs_agrees_with_plain_python_on_many_vocabularies():
    generator = torch.Generator().manual_seed(0)
    for vocab in (1, 2, 17, 100):
        for p in (0.1, 0.5, 0.93):
            logits = torch.randn(vocab, generator=generator) * 3
            torch.testing.assert_close(top_p_probs(logits, p, 0.8), top_p_with()(logits, p, 0.8))


def test_no_case_lies_on_a_rounding_edge():
    for case in TOP_P.cases:
        logits, p, temperature = case.args
        if temperature and p not in (0, 1) and case.name != "four equal logits":
            mass = (logits.double() / temperature).softmax(-1).sort(descending=True).values.cumsum(-1)
            assert (mass - p).abs().min() > 1e-3, case.name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *a: top_p_probs(*a).tolist(), "returned a list; expected a float32 tensor of shape (4,)"),
        (lambda *a: top_p_probs(*a)[None], "returned a float32 tensor of shape (1, 4); expected a float32 tensor"),
        (lambda *a: top_p_probs(*a)[:2], "returned a float32 tensor of shape (2,); expected a float32 tensor"),
        (lambda *a: top_p_probs(*a) > 0, "returned a bool tensor of shape (4,); expected a float32 tensor"),
    ],
)
def test_probabilities_of_another_form_are_refused_in_words(wrong, message):
    assert TOP_P.check(wrong).message.startswith(message)


def test_logits_that_are_scaled_in_place_are_noticed():
    def in_place(logits, p, temperature):
        if temperature not in (0, 1):
            logits /= temperature
            return top_p_probs(logits, p, 1.0)
        return top_p_probs(logits, p, temperature)

    verdict = TOP_P.check(in_place)
    assert verdict.case == "temperature 2"
    assert "changed one of its arguments" in verdict.message


# --- visible_tokens ---


def without_the_current_token(length, window, sinks):
    return [i for i in visible_tokens(length, window, sinks) if i != length - 1]


def window_ends_before_the_current_token(length, window, sinks):
    return sorted({*range(min(sinks, length)), *range(max(0, length - 1 - window), length - 1)})


def window_of_one_more(length, window, sinks):
    return visible_tokens(length, window + 1, sinks)


def negative_start(length, window, sinks):
    return sorted({*range(min(sinks, length)), *range(length - window, length)})


def sinks_past_the_end(length, window, sinks):
    return sorted({*range(sinks), *range(max(0, length - window), length)})


def sinks_listed_twice(length, window, sinks):
    return [*range(min(sinks, length)), *range(max(0, length - window), length)]


def sinks_counted_in_the_window(length, window, sinks):
    return visible_tokens(length, window - sinks, sinks)


def in_descending_order(length, window, sinks):
    return visible_tokens(length, window, sinks)[::-1]


def no_sinks(length, window, sinks):
    return visible_tokens(length, window, 0)


VISIBLE_ARGS = {case.name: case.args for case in VISIBLE.cases}
SHORTER = {name for name, (length, window, _) in VISIBLE_ARGS.items() if length < window}
OVERLAP = {name for name, (length, window, sinks) in VISIBLE_ARGS.items() if sinks and length < window + sinks}
WRONG_VISIBLE = [
    (without_the_current_token, "It sees itself", set(VISIBLE_ARGS)),
    (window_ends_before_the_current_token, "It sees itself", None),
    (window_of_one_more, "32 with the current token", None),
    (negative_start, "Clamp at 0", SHORTER),
    (sinks_past_the_end, "Two tokens, two sinks", {"shorter than the sinks"}),
    (sinks_listed_twice, "A set", OVERLAP),
    (sinks_counted_in_the_window, "4 + 32", None),
    (in_descending_order, "Ascending", set(VISIBLE_ARGS)),
    (no_sinks, "Two ranges", None),
    (lambda length, *_: list(range(length)), "Two ranges", None),
]


@pytest.mark.parametrize(("wrong", "hint", "only"), WRONG_VISIBLE, ids=[row[0].__name__ for row in WRONG_VISIBLE])
def test_a_wrong_set_of_positions_fails_with_its_own_hint(wrong, hint, only, failing_cases):
    verdict = VISIBLE.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(VISIBLE, wrong) == only


def test_a_window_of_one_more_is_invisible_up_to_the_window(failing_cases):
    failing = failing_cases(VISIBLE, window_of_one_more)
    assert not failing & {name for name, (length, window, _) in VISIBLE_ARGS.items() if length <= window}


def by_a_mask(length, window, sinks):
    positions = torch.arange(length)
    return positions[(positions < sinks) | (positions >= length - window)].tolist()


def by_a_condition(length, window, sinks):
    return [i for i in range(length) if i < sinks or i > length - 1 - window]


@pytest.mark.parametrize("right", [VISIBLE.solution, by_a_mask, by_a_condition])
def test_a_right_set_of_positions_passes(right):
    assert VISIBLE.check(right).status == "passed"


def test_visible_tokens_gives_the_known_positions():
    assert visible_tokens(56, 32, 4) == [0, 1, 2, 3, *range(24, 56)]
    assert visible_tokens(34, 32, 4) == list(range(34))
    assert visible_tokens(2, 32, 4) == [0, 1]


def test_positions_of_another_form_are_refused_in_words():
    assert VISIBLE.check(lambda *a: set(visible_tokens(*a))).message == "returned a set; expected a list of ints"
    tensors = VISIBLE.check(lambda *a: torch.tensor(visible_tokens(*a)))
    assert tensors.message == "returned an int64 tensor of shape (36,); expected a list of ints"


def takes_the_last_kept(logits, p, temperature):
    probs = top_p_probs(logits, p, temperature)
    ordered = torch.softmax(logits, -1).sort(descending=True).values
    (ordered.cumsum(0) - ordered < p).nonzero()[-1]
    return probs


def test_an_index_that_is_not_there_when_p_is_0_gets_the_hint_of_that_case():
    verdict = TOP_P.check(takes_the_last_kept)
    assert verdict.case == "p = 0"
    assert "IndexError" in verdict.message
    assert "At least one token stays" in verdict.hint
