"""Paged attention against float64 without pages: the tail, the heads, the extremes, the workers, the observer."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import PageTable
from lab_engine.paged_attention import combine, online_softmax_update, paged_attention, pages_per_worker
from tests.lab_engine.dense_attention import dense_attention, lay_out, random_case

LENGTHS = [1, 2, 15, 16, 17, 31, 32, 33, 48, 56]
INF = math.inf


def run(case, **keywords):
    return paged_attention(case.q, case.k_pages, case.v_pages, case.page_table, case.length, **keywords)


def difference(case, **keywords):
    """max |output - float64| over each head; the output must be finite."""
    found = run(case, **keywords)[0]
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


SHAPES = [(1, 2), (2, 2), (5, 1), (6, 2), (7, 2), (8, 1)]
"""Query heads for each KV head, and KV heads."""


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(("ratio", "kv_heads"), SHAPES)
def test_every_length_up_to_200_equals_float64_with_1_to_8_workers(ratio, kv_heads, head_dim):
    """The number of workers goes round from length to length and from shape to shape."""
    for length in range(1, 201):
        fill = (math.nan, INF, -INF)[length % 3]
        case = random_case(length, 1, ratio * kv_heads, kv_heads, head_dim, fill)
        expected, expected_lse = dense_attention(case.q, case.k, case.v)
        num_splits = (1, 2, 4, 8)[(length + ratio + 2 * (head_dim == 128)) % 4]
        out, lse = run(case, num_splits=num_splits)
        assert (out - expected).abs().max() <= 1e-5, (length, num_splits)
        assert (lse - expected_lse).abs().max() <= 1e-5, (length, num_splits)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(("ratio", "kv_heads"), SHAPES)
def test_a_thousand_random_lengths_equal_float64(ratio, kv_heads, head_dim):
    """84 lengths up to 2000, short ones more often, in each of the 12 shapes; float32, bfloat16 and float16 pages.

    16-bit pages are compared with float64 on the rounded q, k and v.
    """
    uniform = torch.rand(84, generator=torch.Generator().manual_seed(ratio + head_dim))
    for number, length in enumerate((2000 * uniform**2).ceil().int().tolist()):
        dtype = (torch.float32, torch.bfloat16, torch.float16)[number % 3]
        fill, num_splits = (math.nan, INF)[number % 2], (1, 2, 4, 8)[number % 4]
        case = random_case(length, 1, ratio * kv_heads, kv_heads, head_dim, fill, dtype, seed=number)
        out = run(case, num_splits=num_splits)[0]
        error = (out - dense_attention(case.q, case.k, case.v)[0]).abs().max()
        assert error <= (1e-5 if dtype == torch.float32 else 2e-3), (length, num_splits, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_pages_of_16_bits_are_summed_in_float32(dtype):
    """Against float64 on the rounded q, k and v: what is left is the rounding of float32 sums, not of 16 bits."""
    for length in range(1, 201):
        assert difference(random_case(length, dtype=dtype), num_splits=1 + length % 4).max() <= 1e-5


def without_switches(case):
    """The same loop with no switch, no worker and no observer, written down a second time."""
    num_tokens, num_heads, head_dim = case.q.shape
    kv_head = torch.arange(num_heads) // (num_heads // case.k_pages.shape[0])
    visible = case.length - num_tokens + 1 + torch.arange(num_tokens)
    m, l = torch.full((num_heads, num_tokens), -INF), torch.zeros(num_heads, num_tokens)
    acc = torch.zeros(num_heads, num_tokens, head_dim)
    for page, page_id in enumerate(case.page_table):
        token = 16 * page + torch.arange(16)
        scores = (case.q.transpose(0, 1) / math.sqrt(head_dim)) @ case.k_pages[kv_head, page_id].mT
        scores = torch.where(token < visible[:, None], scores, -INF)
        v = torch.where((token < case.length)[:, None], case.v_pages[kv_head, page_id], 0.0)
        m, l, acc = online_softmax_update(m, l, acc, scores, v)
    return (acc / torch.where(l == 0, 1.0, l)[..., None]).transpose(0, 1), (m + l.log()).transpose(0, 1)


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(4, 2, 128), (28, 4, 64), (3, 1, 64)])
def test_with_every_switch_off_it_is_the_plain_loop_bit_for_bit(heads, kv_heads, head_dim):
    for length in range(1, 65):
        for num_tokens in {1, min(length, 5), length}:
            case = random_case(length, num_tokens, heads, kv_heads, head_dim)
            for found, expected in zip(run(case), without_switches(case), strict=True):
                assert torch.equal(found, expected), (length, num_tokens)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_products_beyond_fp16_give_the_float32_result(dtype):
    """q = 30 and k = 20 in 128 dims: the raw product 76,800 is inf in fp16, the scaled one 6788."""
    k = torch.cat([torch.full((1, 1, 128), 20.0), torch.full((19, 1, 128), 19.875)])
    case = lay_out(*(x.to(dtype) for x in (torch.full((1, 1, 128), 30.0), k, torch.randn(20, 1, 128))))
    out, lse = run(case)
    assert torch.allclose(out[0, 0], case.v[0, 0].float(), atol=1e-5)
    assert lse.item() == pytest.approx(76800 / math.sqrt(128), rel=1e-5)


@pytest.mark.parametrize("num_splits", [1, 4])
@pytest.mark.parametrize("page_table", [[], [0], [2, 1]])
def test_no_tokens_give_zeros_and_an_lse_of_minus_inf(page_table, num_splits):
    pages = torch.full((2, 4, 16, 64), math.nan)
    out, lse = paged_attention(torch.randn(1, 4, 64), pages, pages, page_table, 0, num_splits=num_splits)
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


# Workers and their parts


@pytest.mark.parametrize("num_splits", [1, 2, 4, 8])
def test_several_tokens_are_split_too_though_a_worker_sees_nothing_of_some_rows(num_splits):
    for length in range(1, 41):
        case = random_case(length, length)
        expected, expected_lse = dense_attention(case.q, case.k, case.v)
        out, lse = run(case, num_splits=num_splits)
        assert (out - expected).abs().max() <= 1e-5
        assert (lse - expected_lse).abs().max() <= 1e-5


@pytest.mark.parametrize("num_splits", [1, 2, 4, 8])
def test_each_worker_s_pages_alone_and_then_combine_give_the_same(num_splits):
    """The contract of split kernels: ceil(pages / workers) neighbours each, the last workers perhaps none."""
    for length in range(1, 41):
        case = random_case(length)
        each = -(-len(case.page_table) // num_splits)
        parts = []
        for first in range(0, num_splits * each, each):
            left = min(max(length - 16 * first, 0), 16 * each)
            table = case.page_table[first : first + each]
            parts.append(paged_attention(case.q, case.k_pages, case.v_pages, table, left))
        outs, lses = (torch.stack(list(values)) for values in zip(*parts, strict=True))
        outs[lses == -INF] = math.nan  # what an idle worker leaves in its buffer
        for found, expected in zip(combine(outs, lses), run(case, num_splits=num_splits), strict=True):
            assert torch.allclose(found, expected, atol=1e-6)


def test_more_workers_than_pages_change_nothing():
    case = random_case(40)
    for found, expected in zip(run(case, num_splits=100), run(case, num_splits=3), strict=True):
        assert torch.equal(found, expected)


def test_no_worker_is_refused():
    with pytest.raises(NanoqwenError, match="num_splits: found 0, expected 1 or more"):
        run(random_case(5), num_splits=0)


def test_two_parts_weigh_as_published():
    out, lse = combine(torch.tensor([[1.0, 2.0], [5.0, -2.0]]), torch.tensor([3.0, 5.0]))
    assert out.tolist() == pytest.approx([4.5232, -1.5232], abs=5e-5)
    assert lse.item() == pytest.approx(5.12693, abs=5e-6)


@pytest.mark.parametrize("garbage", [math.nan, INF, -INF, 3e38])
def test_an_empty_part_is_never_touched(garbage):
    part = torch.tensor([[1.0, 2.0], [garbage, garbage]])
    for order in ([0, 1], [1, 0]):
        out, lse = combine(part[order], torch.tensor([3.0, -INF])[order])
        assert torch.equal(out, part[0])
        assert lse.item() == 3.0


def test_only_empty_parts_give_zeros_and_minus_inf_and_leave_the_next_row_as_it_is():
    outs, lses = torch.full((3, 2, 4), math.nan), torch.full((3, 2), -INF)
    outs[1, 1], lses[1, 1] = torch.arange(4.0), 2.5
    out, lse = combine(outs, lses)
    assert torch.equal(out, torch.stack([torch.zeros(4), torch.arange(4.0)]))
    assert lse.tolist() == [-INF, 2.5]


@pytest.mark.parametrize("size", [-20000.0, -800.0, 800.0, 20000.0])
def test_parts_of_any_size_combine(size):
    out, lse = combine(torch.tensor([[1.0], [3.0]]), torch.tensor([size, size]))
    assert out.item() == 2.0
    assert lse.item() == pytest.approx(size + math.log(2), rel=1e-7)


def test_what_a_part_really_saw_is_kept_though_it_is_nan():
    out, lse = combine(torch.tensor([[1.0], [math.nan]]), torch.tensor([3.0, math.nan]))
    assert out.isnan().all()
    assert lse.isnan().all()


# What the observer sees


def updates_of(case, **keywords):
    seen = []
    result = run(case, observer=seen.append, **keywords)
    for found, expected in zip(result, run(case, **keywords), strict=True):
        assert torch.equal(found, expected)  # to look changes nothing
    return seen


def test_the_workers_run_side_by_side_each_over_its_run_of_pages():
    case = random_case(85)  # six pages: two for each of three workers, none for the fourth
    updates = updates_of(case, num_splits=4)
    assert [(u.split, u.page) for u in updates] == [(0, 0), (1, 2), (2, 4), (0, 1), (1, 3), (2, 5)]
    assert [u.page_id for u in updates] == [case.page_table[u.page] for u in updates]


@pytest.mark.parametrize("num_splits", [1, 3])
def test_an_update_holds_the_state_after_its_page(num_splits):
    case = random_case(56, num_tokens=2)
    num_heads, each = case.q.shape[1], -(-4 // num_splits)
    k, v = (x.double().repeat_interleave(2, dim=1) for x in (case.k, case.v))
    all_scores = torch.einsum("thd,khd->htk", case.q.double(), k) / 8
    for update in updates_of(case, num_splits=num_splits):
        tokens = slice(16 * each * update.split, 16 * (update.page + 1))
        hidden = torch.arange(56)[tokens] > torch.tensor([54, 55])[:, None]
        scores = all_scores[:, :, tokens].masked_fill(hidden, -INF)
        m = scores.amax(dim=-1)
        p = (scores - m[..., None]).exp()
        assert torch.allclose(update.m.double(), m)
        assert torch.allclose(update.l.double(), p.sum(dim=-1))
        assert torch.allclose(update.acc.double(), torch.einsum("htk,khd->htd", p, v[tokens]), atol=1e-5)
        assert update.scores.shape == (num_heads, 2, 16)


def test_valid_says_which_slots_a_row_may_look_at_and_the_scores_of_the_others_are_minus_inf():
    for update in updates_of(random_case(20, num_tokens=3)):
        first = 16 * update.page
        assert update.valid.sum(dim=-1).tolist() == [min(max(seen - first, 0), 16) for seen in (18, 19, 20)]
        assert torch.equal(update.scores > -INF, update.valid.expand(4, 3, 16))


# The page table


def test_a_page_table_may_be_a_list_a_tensor_or_the_cache_s_own():
    case = random_case(40)
    table = PageTable(case.page_table)
    for form in (table, table.tensor(), torch.tensor(case.page_table), tuple(case.page_table)):
        found = paged_attention(case.q, case.k_pages, case.v_pages, form, 40)
        assert torch.equal(found[0], run(case)[0])


def test_entries_beyond_the_length_are_not_looked_at():
    case = random_case(16)
    found = paged_attention(case.q, case.k_pages, case.v_pages, [*case.page_table, -1, 99], 16)
    assert torch.equal(found[0], run(case)[0])


@pytest.mark.parametrize(("table", "message"), [([0], "found 1 page ids, expected at least 2"), ([0, -1], "0 to 3")])
def test_a_table_that_is_too_short_or_names_no_page_is_refused(table, message):
    pages = torch.zeros(2, 4, 16, 64)
    with pytest.raises(NanoqwenError, match=message):
        paged_attention(torch.randn(1, 4, 64), pages, pages, table, 17)


@pytest.mark.parametrize("num_splits", [1.5, "2", None, True, -1])
def test_workers_that_are_no_whole_number_are_refused(num_splits):
    with pytest.raises(NanoqwenError, match="num_splits"):
        run(random_case(5), num_splits=num_splits)


def test_a_million_workers_for_four_pages_take_no_memory_of_their_own():
    case = random_case(56)
    for found, expected in zip(run(case, num_splits=10**6), run(case, num_splits=5), strict=True):
        assert torch.equal(found, expected)
    assert run(case, bug="empty_split", num_splits=10**6)[0].isnan().all()


@pytest.mark.parametrize("length", [-1, -17, 56.0, "56", None, True])
def test_a_length_that_is_no_number_of_tokens_is_refused(length):
    case = random_case(56)
    with pytest.raises(NanoqwenError, match="length"):
        paged_attention(case.q, case.k_pages, case.v_pages, case.page_table, length)


@pytest.mark.parametrize(
    "table", [[3.7, 1, 5, 0], torch.tensor([3.0, 1, 5, 0]), [[3, 1], [5, 0]], torch.tensor(3), "3"]
)
def test_a_table_of_anything_but_page_ids_is_refused(table):
    case = random_case(56)
    with pytest.raises(NanoqwenError, match="page_table"):
        paged_attention(case.q, case.k_pages, case.v_pages, table, 56)


@pytest.mark.parametrize(
    ("q", "k", "v", "name"),
    [
        ((1, 4, 64), (2, 4, 16, 64), (4, 4, 16, 64), "v_pages"),
        ((1, 4, 64), (2, 4, 16, 64), (2, 3, 16, 64), "v_pages"),
        ((1, 4, 64), (2, 4, 8, 64), (2, 4, 8, 64), "k_pages"),
        ((1, 4, 32), (2, 4, 16, 64), (2, 4, 16, 64), "k_pages"),
        ((1, 4, 64), (0, 4, 16, 64), (0, 4, 16, 64), "k_pages"),
        ((4, 64), (2, 4, 16, 64), (2, 4, 16, 64), "q"),
    ],
)
def test_planes_that_do_not_fit_are_refused_by_name(q, k, v, name):
    with pytest.raises(NanoqwenError, match=f"^{name}: found shape"):
        paged_attention(torch.zeros(q), torch.zeros(k), torch.zeros(v), [0], 5)


def test_parts_that_cannot_be_summed_are_refused():
    with pytest.raises(NanoqwenError, match="found 0, expected 1 or more"):
        combine(torch.zeros(0, 4), torch.zeros(0))
    with pytest.raises(NanoqwenError, match=r"outs: found torch\.float16"):
        combine(torch.zeros(2, 4, dtype=torch.float16), torch.zeros(2))
    with pytest.raises(NanoqwenError, match="num_splits"):
        pages_per_worker(4, 0)


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
