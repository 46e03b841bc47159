"""Mistakes of a GEMV: what each does to y in float64, which test sees it, and what the shipped model then writes."""

import itertools

import numpy as np
import pytest
import torch

from lab_engine.errors import NanoqwenError
from lab_engine.gemv_mistakes import (
    GEMV_MISTAKES,
    SECTORS,
    TESTS,
    GemvTest,
    constant_share,
    gemv,
    gemv_errors,
    group_terms,
    mistake_error,
    request,
    seen_by,
    shipped_matrices,
)
from lab_engine.gemv_texts import MATRIX, NEW_TOKENS, ROWS, trace_gemv_mistake
from lab_engine.int4 import pack_words, quantize_rows
from lab_engine.int4_mistakes import normal_weights
from lab_engine.running_example import RUNNING_EXAMPLE, running_decoder
from lab_engine.weights import Int4Matrix

SAFE = 0.02  # rounding moves a logit of this model by less than 1e-3 from CPU to CPU
NUMERIC = sorted(set(GEMV_MISTAKES) - {"uncoalesced"})


def packed(n=5, k=896, method="search", seed=3):
    q, scales = quantize_rows(torch.randn(n, k, generator=torch.Generator().manual_seed(seed)), method)
    return Int4Matrix(pack_words(q), scales), q.double().numpy(), scales.double().numpy()


def activations(k, seed=5):
    return torch.randn(k, generator=torch.Generator().manual_seed(seed))


# A product


def by_hand(q, scales, x, mistake):
    """In float64, weight by weight."""
    y = np.zeros(len(q))
    for row, i in itertools.product(range(len(q)), range(q.shape[1])):
        weight, scale = q[row, i], scales[row, i // 128]
        if mistake == "missing_correction":
            weight += 8
        if mistake == "scale_of_group_0":
            scale = scales[row, 0]
        if mistake == "size_of_group_0":
            scale = abs(scales[row, 0]) * np.sign(scale)
        y[row] += weight * scale * x[i]
    return y


@pytest.mark.parametrize("mistake", ["none", *GEMV_MISTAKES])
@pytest.mark.parametrize("k", [128, 384, 896, 1152])
def test_a_product_is_what_float64_gives_with_the_same_mistake(mistake, k):
    matrix, q, scales = packed(k=k)
    x = activations(k)
    wanted = by_hand(q, scales, x.double().numpy(), mistake)
    assert np.allclose(gemv(matrix, x, mistake), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert np.allclose(group_terms(matrix, x, mistake).sum(1), wanted, rtol=1e-12)


def test_uncoalesced_loads_give_the_right_numbers_in_another_order_of_sums():
    matrix, _, _ = packed(64, 3584)
    x = activations(3584)
    right, other = gemv(matrix, x), gemv(matrix, x, "uncoalesced")
    assert not torch.equal(right, other)
    assert (right - other).norm() < 1e-5 * right.norm()


def test_an_unknown_mistake_is_refused_by_name():
    with pytest.raises(NanoqwenError, match="mistake 'x': expected one of none, uncoalesced, missing_correction"):
        gemv(packed()[0], activations(896), "x")
    with pytest.raises(NanoqwenError, match="mistake 'none': expected one of uncoalesced, missing_correction"):
        trace_gemv_mistake("none")


# The errors of the lab's table


@pytest.fixture(scope="module")
def errors():
    return {entry.mistake: entry for entry in gemv_errors()}


def test_a_missing_correction_moves_every_weight_by_eight_steps(errors):
    """A step of 128 normal weights is max|w| / 7 = 2.83 / 7 = 0.404 of their spread: 8 × 0.404 = 323 %."""
    assert errors["missing_correction"].positive == pytest.approx(8 * 0.404, rel=0.03)
    assert errors["missing_correction"].signed == pytest.approx(2.64, rel=0.03)
    assert errors["missing_correction"].shipped == pytest.approx((2.64, 2.66, 2.78), rel=0.01)


def test_the_scale_of_another_group_is_off_by_twice_their_spread_over_the_root_of_two(errors):
    """Scales vary by 14 %, so two of them differ by sqrt(2) × 14 % = 20 %. With both signs half of the weights turn
    round: sqrt(2² / 2) = 141 %; in three groups a row, of which the first is right, sqrt(2/3) of that, 115 %.
    """
    entry = errors["scale_of_group_0"]
    assert entry.positive == pytest.approx(0.20, abs=0.005)
    assert entry.signed == pytest.approx(2**0.5, abs=0.02)
    assert entry.shipped == pytest.approx((1.09, 1.17, 1.33), rel=0.01)


def test_where_scales_keep_their_sign_the_same_mistake_is_a_sixth_as_large(errors):
    assert errors["size_of_group_0"].positive == errors["scale_of_group_0"].positive
    assert errors["size_of_group_0"].signed == pytest.approx(0.187, abs=0.005)
    assert errors["size_of_group_0"].shipped == pytest.approx((0.142, 0.152, 0.239), rel=0.01)


def test_uncoalesced_loads_cost_no_error(errors):
    assert (errors["uncoalesced"].positive, errors["uncoalesced"].signed) == (0.0, 0.0)
    assert errors["uncoalesced"].shipped == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("mistake", NUMERIC)
def test_the_table_agrees_with_float64_and_the_same_activations(mistake):
    matrix, q, scales = packed(3, 256)
    x = torch.randn(256, 1024, generator=torch.Generator().manual_seed(0)).double().numpy()
    right, wrong = (np.stack([by_hand(q, scales, column, m) for column in x.T[:64]]) for m in ("none", mistake))
    sampled = np.linalg.norm(wrong - right) / np.linalg.norm(right)
    assert mistake_error(matrix, mistake) == pytest.approx(sampled, rel=0.15)


def test_a_missing_correction_is_one_constant_for_all_rows_only_where_scales_are_alike():
    plain, searched = (quantize_rows(normal_weights(), method) for method in ("absmax7", "search"))
    assert constant_share(Int4Matrix(pack_words(plain[0]), plain[1])) == pytest.approx(0.98, abs=0.01)
    assert constant_share(Int4Matrix(pack_words(searched[0]), searched[1])) < 0.01
    assert max(map(constant_share, shipped_matrices())) < 0.03
    alike = Int4Matrix(pack_words(plain[0]), torch.full_like(plain[1], 0.5))
    assert constant_share(alike) == pytest.approx(1.0)


# Which test sees which mistake


SEES = {
    "uncoalesced": (SECTORS,),
    "missing_correction": ("one group", "equal scales", "several scales"),
    "scale_of_group_0": ("x that sums to 0", "several scales"),
    "size_of_group_0": ("x that sums to 0", "several scales"),
}


@pytest.mark.parametrize("mistake", GEMV_MISTAKES)
def test_each_mistake_is_seen_by_these_tests(mistake):
    assert seen_by(mistake) == SEES[mistake]


def numbers_see(mistake, **options):
    return GemvTest("", **options).sees(mistake)


def test_one_group_hides_the_scale_of_group_0_and_shows_a_missing_correction():
    assert not numbers_see("scale_of_group_0", k=128)
    assert numbers_see("missing_correction", k=128)
    assert numbers_see("scale_of_group_0", k=256)


def test_equal_scales_hide_the_scale_of_group_0_and_show_a_missing_correction():
    assert not numbers_see("scale_of_group_0", equal_scales=True)
    assert numbers_see("missing_correction", equal_scales=True)
    assert numbers_see("scale_of_group_0", equal_scales=False)


def test_activations_that_sum_to_0_in_every_group_hide_a_missing_correction():
    assert not numbers_see("missing_correction", sums_to_0=True)
    assert numbers_see("scale_of_group_0", sums_to_0=True)


def test_no_comparison_of_numbers_sees_uncoalesced_loads_and_a_count_of_sectors_does():
    assert not any(test.sees("uncoalesced") for test in TESTS)
    assert (request("uncoalesced").used, request("uncoalesced").moved) == (128, 1024)
    assert all(request(mistake).efficiency == 1.0 for mistake in NUMERIC)


def test_a_right_product_passes_every_test():
    assert not any(test.sees("none") for test in TESTS)
    assert len({test.name for test in TESTS}) == len(TESTS) == 4


# The shipped model


@pytest.fixture(scope="module")
def traces():
    return {name: trace_gemv_mistake(name) for name in GEMV_MISTAKES}


FIRST_WORDS = {
    "uncoalesced": "    def __init__(self, *args",
    "missing_correction": "   modmodmodmodmod",
    "scale_of_group_0": "<|fim_suffix|>_CHECK_proxyds depMENT",
    "size_of_group_0": '    """Store a stack.\n\n    This is the stacking step and the step size',
}
DEPARTS = {"uncoalesced": None, "missing_correction": 1, "scale_of_group_0": 0, "size_of_group_0": 1}


@pytest.mark.parametrize("name", GEMV_MISTAKES)
def test_the_shipped_model_writes_the_same_text_on_every_machine(traces, name):
    trace = traces[name]
    assert trace.margin > SAFE
    assert "".join(trace.wrong).startswith(FIRST_WORDS[name])
    assert len(trace.wrong) == len(trace.right) == NEW_TOKENS
    assert trace.departs == DEPARTS[name]


def test_the_right_text_is_the_engine_s_own(traces):
    decoder = running_decoder()
    ids = decoder.tokenizer.encode(RUNNING_EXAMPLE.prompt)
    written = decoder.tokenizer.decode(list(decoder.generate(ids, NEW_TOKENS, frozenset())))
    assert {"".join(trace.right) for trace in traces.values()} == {written}


def test_uncoalesced_loads_leave_no_term_off_and_the_first_group_keeps_its_scale(traces):
    assert {value for row in traces["uncoalesced"].terms for value in row} == {0.0}
    assert {row[0] for row in traces["scale_of_group_0"].terms} == {0.0}
    assert all(any(row) for row in traces["scale_of_group_0"].terms)


def test_a_missing_correction_is_off_by_eight_steps_times_the_sum_of_the_group_s_activations(traces):
    trace = traces["missing_correction"]
    matrix = {m.shape: m for m in shipped_matrices()[6:7]}[384, 896]
    scales = matrix.scales[:ROWS].double()
    off = torch.tensor(trace.terms, dtype=torch.float64) / scales
    assert torch.allclose(off, off[0].expand_as(off), rtol=1e-9)  # by group alone: 8 · Σx
    assert trace.rows == pytest.approx([sum(row) for row in trace.terms])
    assert (trace.matrix, len(trace.terms), len(trace.terms[0])) == (MATRIX, 16, 7)
