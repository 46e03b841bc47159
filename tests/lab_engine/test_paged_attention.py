"""Paged attention against float64 without pages; the tail, the heads, the extremes; and what each bug changes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab_engine.errors import NanoqwenError
from lab_engine.paged_attention import BUGS, online_softmax_update, paged_attention
from tests.lab_engine.dense_attention import dense_attention, lay_out, random_case

LENGTHS = [1, 2, 15, 16, 17, 31, 32, 33, 48, 56]
INF = math.inf


def run(case, bug=None):
    return paged_attention(case.q, case.k_pages, case.v_pages, case.page_table, case.length, bug)


def difference(case, bug=None):
    """max |output - float64| over each head; the output must be finite."""
    found = run(case, bug)[0]
    assert found.isfinite().all()
    return (found.double() - dense_attention(case.q, case.k, case.v)[0]).abs().amax(dim=(0, 2))


# Right


@pytest.mark.parametrize("fill", [math.nan, INF, -INF, 3e38, 0.0])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_decode_step_equals_float64_whatever_the_empty_slots_hold(length, fill):
    case = random_case(length, fill=fill)
    out, lse = run(case)
    expected, expected_lse = dense_attention(case.q, case.k, case.v)
    assert out.dtype == lse.dtype == torch.float32
    assert (out - expected).abs().max() < 1e-5
    assert (lse - expected_lse).abs().max() < 1e-5


@pytest.mark.parametrize(("length", "num_tokens"), [(1, 1), (16, 16), (17, 17), (33, 33), (33, 2), (40, 24), (56, 17)])
def test_several_tokens_see_their_own_past_only(length, num_tokens):
    case = random_case(length, num_tokens)
    out, lse = run(case)
    expected, expected_lse = dense_attention(case.q, case.k, case.v)
    assert (out - expected).abs().max() < 1e-5
    assert (lse - expected_lse).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_pages_of_16_bits_are_summed_in_float32(dtype):
    assert difference(random_case(33, dtype=dtype)).max() < 1e-5


@pytest.mark.parametrize(("heads", "kv_heads"), [(28, 4), (12, 2), (4, 4), (8, 1), (14, 2)])
def test_query_head_h_reads_kv_head_h_over_ratio(heads, kv_heads):
    """V of KV head j is j everywhere, so the output of a head names the KV head that it read."""
    v = torch.arange(float(kv_heads))[None, :, None].expand(20, kv_heads, 64)
    case = lay_out(torch.randn(1, heads, 64), torch.randn(20, kv_heads, 64), v)
    expected = [h // (heads // kv_heads) for h in range(heads)]
    assert torch.allclose(run(case)[0], torch.tensor(expected).float()[None, :, None])


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(NanoqwenError, match=r"10 query heads.*4 KV heads"):
        run(random_case(5, num_heads=10, num_kv_heads=4))


# Extremes


def test_products_beyond_fp16_give_the_float32_result():
    """q = 30 and k = 20 in 128 dims: the raw product 76,800 is inf in fp16, the scaled one 6788."""
    k = torch.cat([torch.full((1, 1, 128), 20.0), torch.full((19, 1, 128), 19.9)])
    case = lay_out(torch.full((1, 1, 128), 30.0), k, torch.randn(20, 1, 128))
    out, lse = run(case)
    assert torch.allclose(out[0, 0], case.v[0, 0], atol=1e-5)
    assert lse.item() == pytest.approx(76800 / math.sqrt(128), rel=1e-5)


@pytest.mark.parametrize("page_table", [[], [0], [2, 1]])
def test_no_tokens_give_zeros_and_an_lse_of_minus_inf(page_table):
    pages = torch.full((2, 4, 16, 64), math.nan)
    out, lse = paged_attention(torch.randn(1, 4, 64), pages, pages, page_table, 0)
    assert not out.any()
    assert (lse == -INF).all()


def test_a_row_that_sees_nothing_leaves_the_next_row_as_it_is():
    case = random_case(1)
    q = torch.cat([torch.randn(1, 4, 64), case.q])
    out, lse = paged_attention(q, case.k_pages, case.v_pages, case.page_table, 1)
    assert not out[0].any()
    assert (lse[0] == -INF).all()
    alone = run(case)
    assert torch.equal(out[1:], alone[0])
    assert torch.allclose(lse[1:], alone[1], atol=1e-6)


@pytest.mark.parametrize("score", [-20000.0, -200.0, 0.0, 800.0])
def test_scores_of_any_size_are_exact(score):
    """exp(-200) is 0 and exp(800) is inf in float32: only the running maximum saves them."""
    q = torch.zeros(1, 1, 64)
    q[0, 0, 0] = 8.0
    k = torch.zeros(40, 1, 64)
    k[:, 0, 0] = score + torch.linspace(0, 2, 40)
    case = lay_out(q, k, torch.randn(40, 1, 64))
    assert difference(case).max() < 2e-3 if abs(score) > 1000 else difference(case).max() < 2e-5


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_parts_combine_by_their_lse_though_some_are_empty(parts):
    """Lengths 1 to 40 over 1 to 8 workers, each with its run of pages: the contract that split kernels rely on."""
    for length in range(1, 41):
        case = random_case(length)
        pages_each = -(-len(case.page_table) // parts)
        results = []
        for first in range(0, parts * pages_each, pages_each):
            left = min(max(length - 16 * first, 0), 16 * pages_each)
            table = case.page_table[first : first + pages_each]
            results.append(paged_attention(case.q, case.k_pages, case.v_pages, table, left))
        outs, lses = (torch.stack(list(values)) for values in zip(*results, strict=True))
        combined = (outs * lses.softmax(dim=0)[..., None]).sum(dim=0)
        assert (combined - dense_attention(case.q, case.k, case.v)[0]).abs().max() < 1e-5


# The running update

WORKED = [  # page scores, values, then m, l, acc, acc / l
    ([1.0, 3.0], [10.0, 20.0], 3.0, 1.13534, 21.3534, 18.8080),
    ([2.0, 5.0], [30.0, 40.0], 5.0, 1.20344, 44.3835, 36.8806),
    ([4.0], [50.0], 5.0, 1.57132, 62.7774, 39.9521),
]


def fold(pages, rescale=True):
    """m, l, acc after each page of (scores, values)."""
    state = torch.tensor(-INF), torch.tensor(0.0), torch.zeros(1)
    for scores, values in pages:
        v = torch.tensor(values)[:, None]
        state = online_softmax_update(*state, torch.tensor(scores), v, rescale)
        yield state


def test_the_worked_example():
    for (m, l, acc), row in zip(fold([row[:2] for row in WORKED]), WORKED, strict=True):
        found = [m.item(), l.item(), acc.item(), (acc / l).item()]
        assert found == pytest.approx(list(row[2:]), abs=6e-5)
    assert (m + l.log()).item() == pytest.approx(5.45191, abs=1e-5)


def test_the_worked_example_without_rescaling_gives_31_8():
    *_, (_, l, acc) = fold([row[:2] for row in WORKED], rescale=False)
    assert (acc / l).item() == pytest.approx(31.8, abs=0.05)


def test_a_page_of_minus_inf_leaves_the_state_as_it_is():
    (first, second, third) = fold([([-INF, -INF], [1.0, 2.0]), ([0.5, 1.5], [3.0, 4.0]), ([-INF], [9.0])])
    assert [x.item() for x in first] == [-INF, 0.0, 0.0]
    assert second == third


page = st.lists(st.floats(-1000, 1000, width=32) | st.just(-INF), min_size=1, max_size=5)


@given(st.lists(page, min_size=1, max_size=6))
def test_any_pages_in_turn_equal_one_softmax(pages):
    values = [[float(10 * number + place) for place in range(len(scores))] for number, scores in enumerate(pages)]
    *_, (m, l, acc) = fold(zip(pages, values, strict=True))
    scores = torch.tensor([score for scores in pages for score in scores], dtype=torch.float64)
    if scores.max() == -INF:
        assert [m.item(), l.item(), acc.item()] == [-INF, 0.0, 0.0]
        return
    expected = scores.softmax(dim=0) @ torch.tensor([x for run in values for x in run], dtype=torch.float64)
    assert (acc / l).item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-5)
    assert (m + l.log()).item() == pytest.approx(scores.logsumexp(dim=0).item(), rel=1e-6, abs=1e-5)


# Each bug changes what its line says, and nothing else

FULL, PARTIAL = [16, 32, 48, 64], [1, 15, 17, 31, 33, 47, 56]


@pytest.mark.parametrize("bug", ["no_tail_mask", "mask_to_zero"])
def test_the_tail_bugs_are_invisible_at_full_pages_and_wrong_elsewhere(bug):
    for length in FULL:
        assert difference(random_case(length, fill=0.5), bug).max() < 1e-5
    for length in PARTIAL:
        assert difference(random_case(length, fill=0.5), bug).max() > 1e-3


def test_without_a_tail_mask_stale_slots_take_part_as_if_they_were_tokens():
    case = random_case(20, fill=0.5)
    tokens = [(page, slot) for page in case.page_table for slot in range(16)]
    k, v = (torch.stack([pages[:, page, slot] for page, slot in tokens]) for pages in (case.k_pages, case.v_pages))
    assert (run(case, "no_tail_mask")[0] - dense_attention(case.q, k, v)[0]).abs().max() < 1e-5


def test_one_nan_in_an_empty_slot_makes_the_whole_row_nan_without_a_tail_mask():
    assert run(random_case(20), "no_tail_mask")[0].isnan().all()
    assert run(random_case(16), "no_tail_mask")[0].isfinite().all()


@pytest.mark.parametrize(("score", "percent"), [(6, 0.035), (0, 12.5), (-1, 28), (-5, 95.5)])
def test_a_mask_of_0_gives_the_empty_slots_their_published_share(score, percent):
    """56 tokens of one score and 8 empty slots of score 0: V is 1 at the tokens and 0 elsewhere."""
    q, k = torch.zeros(1, 1, 64), torch.zeros(56, 1, 64)
    q[..., 0], k[..., 0] = 8.0, float(score)
    case = lay_out(q, k, torch.ones(56, 1, 64), fill=0.0)
    share = 1 - run(case, "mask_to_zero")[0][0, 0, 0].item()
    assert 100 * share == pytest.approx(percent, abs=0.3 if percent > 1 else 0.001)


def test_length_minus_one_attends_as_if_the_current_token_were_not_there():
    for length in [2, 16, 17, 33]:
        case = random_case(length)
        expected = dense_attention(case.q, case.k[:-1], case.v[:-1])[0]
        assert (run(case, "length_minus_one")[0] - expected).abs().max() < 1e-5
        assert difference(case, "length_minus_one").max() > 1e-3
    assert not run(random_case(1), "length_minus_one")[0].any()


def test_floor_pages_never_reads_the_tail():
    for length in PARTIAL:
        case, whole = random_case(length), length // 16 * 16
        expected = dense_attention(case.q, case.k[:whole], case.v[:whole])[0] if whole else torch.zeros(1, 4, 64)
        assert (run(case, "floor_pages")[0] - expected).abs().max() < 1e-5
    for length in FULL:
        assert difference(random_case(length), "floor_pages").max() < 1e-5


def case_with_maximum_at(token, length=40):
    """One head whose score is 6 at a token and about 0 elsewhere."""
    q, k = torch.zeros(1, 1, 64), torch.zeros(length, 1, 64)
    q[..., 0] = 8.0
    k[:, 0, 0] = torch.linspace(-0.5, 0, length)
    k[token, 0, 0] = 6.0
    return lay_out(q, k, torch.randn(length, 1, 64, generator=torch.Generator().manual_seed(token)))


def test_no_rescale_is_right_when_the_maximum_is_on_the_first_page_and_wrong_after_it():
    for token in [0, 7, 15]:
        assert difference(case_with_maximum_at(token), "no_rescale").max() < 1e-5
    for token in [16, 31, 32, 39]:
        assert difference(case_with_maximum_at(token), "no_rescale").max() > 1e-2


@pytest.mark.parametrize(
    ("heads", "kv_heads", "wrong"), [(28, 4, 20), (14, 2, 6), (4, 2, 2), (3, 1, 0), (4, 4, 0), (12, 2, 6)]
)
def test_head_modulo_is_wrong_for_exactly_the_heads_whose_quotient_differs(heads, kv_heads, wrong):
    case = random_case(33, num_heads=heads, num_kv_heads=kv_heads)
    bad = difference(case, "head_modulo") > 1e-3
    assert bad.tolist() == [h % kv_heads != h // (heads // kv_heads) for h in range(heads)]
    assert int(bad.sum()) == wrong


def test_every_bug_has_a_line_and_a_test_here():
    tested = {"no_tail_mask", "mask_to_zero", "length_minus_one", "floor_pages", "no_rescale", "head_modulo"}
    assert set(BUGS) == tested
    assert all(line and "\n" not in line for line in BUGS.values())


def test_an_unknown_bug_is_refused():
    with pytest.raises(NanoqwenError, match="no_such"):
        run(random_case(3), "no_such")
