"""Every bug of the attention changes what its line says and nothing else.

Each mistake is written down a second time, in float64 over tokens that lie in one piece: `MODELS`. Where a bug cannot
show, its output is the right one bit for bit: `VISIBLE` says where it shows.
"""

import math
from typing import NamedTuple

import pytest
import torch

from lab_engine.attention_bugs import BEHAVIOURS, BUGS, RIGHT, behaviour_of
from lab_engine.errors import NanoqwenError
from lab_engine.paged_attention import paged_attention
from tests.lab_engine.dense_attention import dense_attention, lay_out, random_case

LENGTHS = range(1, 65)
SPLITS = (1, 2, 4)
HEADS = [(4, 2), (3, 1), (4, 4), (14, 2)]
"""Query heads and KV heads."""


def run(case, bug=None, **keywords):
    return paged_attention(case.q, case.k_pages, case.v_pages, case.page_table, case.length, bug, **keywords)


def difference(case, bug=None):
    """max |output - float64| over each head; the output must be finite."""
    found = run(case, bug)[0]
    assert found.isfinite().all()
    return (found.double() - dense_attention(case.q, case.k, case.v)[0]).abs().amax(dim=(0, 2))


def rising_case(length, num_heads, num_kv_heads, fill=0.5):
    """Scores that rise from page to page, so that every page has a new maximum.

    q and k are multiples of 1/64: q . k is exact in float32, so that it is clear how fp16 rounds it.
    """
    generator = torch.Generator().manual_seed(length)
    k = 0.1 * torch.randn(length, num_kv_heads, 64, generator=generator)
    k[:, :, 0] = torch.linspace(-3, 3, length)[:, None] + 0.01 * torch.arange(num_kv_heads)
    q = 0.3 * torch.randn(1, num_heads, 64, generator=generator)
    q[..., 0] = 9.7
    q, k = (torch.round(64 * x) / 64 for x in (q, k))
    return lay_out(q, k, torch.randn(length, num_kv_heads, 64, generator=generator), fill, generator)


# The mistakes in float64, for one new token


def on_pages(case, page_table):
    """K and V of all slots of these pages in turn, used or not: (slots, kv_heads, head_dim)."""
    return (pages[:, page_table].flatten(1, 2).transpose(0, 1) for pages in (case.k_pages, case.v_pages))


def scores_and_values(case, k, v):
    """Scores (heads, tokens) and V (heads, tokens, head_dim) in float64, each query head with its KV head."""
    ratio = case.q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(ratio, dim=1).transpose(0, 1) for x in (k, v))
    return torch.einsum("hd,htd->ht", case.q[0].double(), k) / math.sqrt(k.shape[-1]), v


def softmax_over(scores, v):
    return torch.einsum("ht,htd->hd", scores.softmax(dim=-1), v)


def slots_are_tokens(case, num_splits):
    return dense_attention(case.q, *on_pages(case, case.page_table))[0][0]


def empty_slots_score_0(case, num_splits):
    scores, v = scores_and_values(case, *on_pages(case, case.page_table))
    scores[:, case.length :] = 0.0
    return softmax_over(scores, v)


def right(case, num_splits):
    return dense_attention(case.q, case.k, case.v)[0][0]


def nan_beside_the_tail(case, num_splits):
    return right(case, num_splits) + (math.nan if case.length % 16 else 0.0)


def last_page_of_another(case, num_splits):
    if case.length % 16 != 1:
        return right(case, num_splits)
    lowest = min(set(range(case.k_pages.shape[1])) - set(case.page_table))
    k, v = on_pages(case, [*case.page_table[:-1], lowest])
    return dense_attention(case.q, k[: case.length], v[: case.length])[0][0]


def first_tokens(case, count):
    return dense_attention(case.q, case.k[:count], case.v[:count])[0][0] if count else torch.zeros(*case.q.shape[1:])


def sums_under_mixed_maxima(case, num_splits):
    """A token weighs exp(score - the largest so far in its worker), and a worker exp(its lse) all the same."""
    scores, v = scores_and_values(case, case.k, case.v)
    run = 16 * -(-len(case.page_table) // num_splits)
    weights = []
    for first in range(0, case.length, run):
        mine = scores[:, first : first + run]
        largest = torch.cat([mine[:, : n + 16].amax(-1, keepdim=True).expand(-1, 16) for n in range(0, run, 16)], -1)
        weights.append(torch.exp(mine - largest[:, : mine.shape[1]] + mine.amax(-1, keepdim=True)))
    joined = torch.cat(weights, dim=-1)
    return torch.einsum("ht,htd->hd", joined / joined.sum(-1, keepdim=True), v)


def heads_modulo(case, num_splits):
    kv_head = [head % case.k.shape[1] for head in range(case.q.shape[1])]
    return dense_attention(case.q, case.k[:, kv_head], case.v[:, kv_head])[0][0]


def rounded_raw_scores(case, num_splits):
    scores, v = scores_and_values(case, case.k, case.v)
    root = math.sqrt(case.k.shape[-1])
    return softmax_over((scores * root).half().double() / root, v)


def nan_with_an_idle_worker(case, num_splits):
    pages = len(case.page_table)
    idle = num_splits * -(-pages // num_splits) - pages >= -(-pages // num_splits)
    return right(case, num_splits) + (math.nan if idle else 0.0)


MODELS = {
    "no_tail_mask": slots_are_tokens,
    "mask_to_zero": empty_slots_score_0,
    "nan_in_v": nan_beside_the_tail,
    "stale_page": last_page_of_another,
    "length_minus_one": lambda case, _: first_tokens(case, case.length - 1),
    "floor_pages": lambda case, _: first_tokens(case, case.length // 16 * 16),
    "no_rescale": sums_under_mixed_maxima,
    "head_modulo": heads_modulo,
    "fp16_scores": rounded_raw_scores,
    "empty_split": nan_with_an_idle_worker,
}


class At(NamedTuple):
    """Where a bug may show: tokens, workers, query heads and KV heads."""

    length: int
    splits: int
    heads: int
    kv_heads: int


VISIBLE = {
    "no_tail_mask": lambda at: at.length % 16 != 0,
    "mask_to_zero": lambda at: at.length % 16 != 0,
    "nan_in_v": lambda at: at.length % 16 != 0,  # where the unused slots hold NaN
    "stale_page": lambda at: at.length % 16 == 1,
    "length_minus_one": lambda at: at.length >= 1,
    "floor_pages": lambda at: at.length % 16 != 0,
    "no_rescale": lambda at: at.length > 16 * at.splits,  # a worker with two pages
    "head_modulo": lambda at: 1 < at.kv_heads < at.heads,
    "fp16_scores": lambda at: at.length > 1,  # one token has the weight 1 whatever its score
    "empty_split": lambda at: at.length <= {1: 0, 2: 16, 4: 48}[at.splits],  # up to 64 tokens
}

ROUNDING = 2e-5


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_its_model_where_it_shows_and_the_right_bits_elsewhere(bug, heads, kv_heads):
    for length in LENGTHS:
        case = rising_case(length, heads, kv_heads, fill=math.nan if bug == "nan_in_v" else 0.5)
        for num_splits in SPLITS:
            found, expected = run(case, bug, num_splits=num_splits)[0], MODELS[bug](case, num_splits)
            assert torch.allclose(found[0].double(), expected.double(), rtol=0, atol=ROUNDING, equal_nan=True)
            shows = not torch.equal(found, run(case, num_splits=num_splits)[0])
            assert shows == VISIBLE[bug](At(length, num_splits, heads, kv_heads)), (length, num_splits)


@pytest.mark.parametrize("bug", sorted(set(BUGS) - {"fp16_scores"}))  # that one is rounding, until it overflows
def test_where_a_bug_shows_it_is_far_above_rounding(bug):
    splits, errors = 2, []
    for length in LENGTHS:
        if VISIBLE[bug](At(length, splits, 4, 2)):
            case = rising_case(length, 4, 2, fill=math.nan if bug == "nan_in_v" else 0.5)
            found, expected = run(case, bug, num_splits=splits)[0], run(case, num_splits=splits)[0]
            errors.append(float((found - expected).abs().max()))
    assert errors
    assert all(error > 10 * ROUNDING or math.isnan(error) for error in errors), min(errors)


# What single bugs are about


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


@pytest.mark.parametrize("fill", [0.0, 0.5, 3e38])
def test_v_of_empty_slots_multiplied_by_0_is_right_as_long_as_it_is_a_number(fill):
    for length in LENGTHS:
        case = random_case(length, fill=fill)
        assert torch.equal(run(case, "nan_in_v")[0], run(case)[0])


def test_one_inf_in_v_of_an_empty_slot_spoils_its_column_only():
    case = random_case(20, fill=0.0)
    case.v_pages[:, case.page_table[-1], 9, 5] = math.inf
    bad = run(case, "nan_in_v")[0].isnan()
    assert bad[..., 5].all()
    assert int(bad.sum()) == case.q.shape[1]


def test_a_stale_table_is_right_again_one_step_later_and_reads_the_same_page_on_every_run():
    for length in (16, 18, 32, 34):
        case = random_case(length, fill=0.5)
        assert torch.equal(run(case, "stale_page")[0], run(case)[0])
    seen = []
    run(random_case(17, fill=0.5), "stale_page", observer=seen.append)
    case = random_case(17)
    assert seen[0].page_id == case.page_table[0]
    assert seen[1].page_id == min(set(range(5)) - set(case.page_table))


def test_a_stale_table_in_a_pool_without_another_page_names_the_sequence_s_first():
    pages, seen = torch.zeros(2, 2, 16, 64), []
    paged_attention(torch.randn(1, 4, 64), pages, pages, [1, 0], 17, "stale_page", observer=seen.append)
    assert [update.page_id for update in seen] == [1, 1]


def test_a_stale_table_is_the_kernel_s_alone():
    table = torch.tensor([1, 0])
    pages = torch.zeros(2, 3, 16, 64)
    paged_attention(torch.randn(1, 4, 64), pages, pages, table, 17, "stale_page")
    assert table.tolist() == [1, 0]


def case_with_maximum_at(token, length=40):
    """One head whose score is 6 at a token and about 0 elsewhere."""
    q, k = torch.zeros(1, 1, 64), torch.zeros(length, 1, 64)
    q[..., 0] = 8.0
    k[:, 0, 0] = torch.linspace(-0.5, 0, length)
    k[token, 0, 0] = 6.0
    return lay_out(q, k, torch.randn(length, 1, 64, generator=torch.Generator().manual_seed(token)))


def test_no_rescale_is_right_when_the_maximum_is_on_the_first_page_and_wrong_after_it():
    for token in [0, 7, 15]:
        case = case_with_maximum_at(token)
        assert torch.equal(run(case, "no_rescale")[0], run(case)[0])
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


def test_a_raw_product_beyond_fp16_is_inf_and_the_row_is_nan():
    """q = 30 and k = 20 in 128 dims is 76,800; k = 17 gives 65,280, still a number."""
    q, v = torch.full((1, 1, 128), 30.0), torch.randn(20, 1, 128)
    for size, is_number in ((20.0, False), (17.0, True)):
        case = lay_out(q, torch.full((20, 1, 128), size), v)
        assert run(case, "fp16_scores")[0].isfinite().all() == is_number
        assert run(case)[0].isfinite().all()


def test_raw_products_that_fp16_holds_exactly_show_nothing():
    """Whole numbers below 2048; the root of 64 is a power of two."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randint(-3, 4, (n, 4, 64), generator=generator).float() for n in (1, 50))
    case = lay_out(q, k, torch.randn(50, 4, 64, generator=generator))
    assert torch.equal(run(case, "fp16_scores")[0], run(case)[0])


@pytest.mark.parametrize(("score", "most"), [(10.0, 1.0), (200.0, 0.02), (2000.0, 0.1)])
def test_rounding_a_raw_score_moves_the_weights_by_at_most_its_fp16_step(score, most):
    """A step of fp16 is 2 ** -10 of the power of two below: 1 at 1024 to 2047, so 1/8 of a score at head_dim 64."""
    raw = torch.tensor(score)
    assert abs(float(raw.half()) - score) <= most
    step = 2.0 ** (math.floor(math.log2(score)) - 10)
    q, k = torch.zeros(1, 1, 64), torch.zeros(2, 1, 64)
    q[..., 0], k[:, 0, 0] = 1.0, torch.tensor([score, score + 0.49 * step])
    v = torch.tensor([0.0, 1.0])[:, None, None].expand(2, 1, 64)
    case = lay_out(q, k, v)
    assert run(case, "fp16_scores")[0][0, 0, 0].item() == 0.5
    gap = 0.49 * step / 8
    assert run(case)[0][0, 0, 0].item() == pytest.approx(1 / (1 + math.exp(-gap)), abs=1e-5)


@pytest.mark.parametrize(("num_splits", "idle_pages"), [(1, []), (2, [1]), (4, [1, 2, 3, 5, 6, 9]), (8, range(1, 8))])
def test_an_unguarded_combine_is_nan_exactly_where_a_worker_has_no_page(num_splits, idle_pages):
    for pages in range(1, 17):
        found = run(random_case(16 * pages), "empty_split", num_splits=num_splits)[0]
        idle = num_splits > -(-pages // -(-pages // num_splits))
        assert found.isnan().all() == idle
        if num_splits < 8:
            assert idle == (pages in idle_pages)


def test_in_a_prompt_an_unguarded_combine_spoils_the_rows_of_which_a_worker_saw_nothing():
    case = random_case(40, num_tokens=40)
    bad = run(case, "empty_split", num_splits=3)[0].isnan().flatten(1)
    assert bad.all(dim=1).tolist() == [token < 32 for token in range(40)]
    assert bad.any(dim=1).tolist() == [token < 32 for token in range(40)]


# The table of bugs


def test_every_bug_has_a_line_a_model_and_a_place_where_it_shows():
    assert set(BUGS) == set(MODELS) == set(VISIBLE)
    assert all(line and "\n" not in line for line in BUGS.values())


def test_a_bug_changes_one_decision_or_the_two_of_a_mask_that_is_missing():
    for bug, behaviour in BEHAVIOURS.items():
        changed = {name for name, value in vars(behaviour).items() if value != getattr(RIGHT, name)} - {"cause"}
        assert len(changed) == 1 or changed == {"tail_score", "clears_tail_v"}, bug


def test_no_bug_is_the_right_behaviour():
    assert behaviour_of(None) is RIGHT


def test_an_unknown_bug_is_refused():
    with pytest.raises(NanoqwenError, match="bug 'no_such': expected one of no_tail_mask, "):
        run(random_case(3), "no_such")
