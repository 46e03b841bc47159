"""The tail lens's trace against dense attention in float64, and what each bug does where."""

import itertools
import math

import pytest
import torch

from lab_engine.attention_layer import LAYER, MOST_TOKENS, RunSpec
from lab_engine.attention_texts import SAFE_MARGIN
from lab_engine.attention_trace import LENGTHS, LOW, WORKERS, trace_lens
from lab_engine.bug_desk import ROUNDING
from lab_engine.paged_attention import BUGS
from lab_engine.running_example import RUNNING_EXAMPLE, running_decoder, trace_running_example
from tests.lab_engine.dense_attention import dense_attention

TAIL_BUGS = ("no_tail_mask", "mask_to_zero", "mask_to_zero_low", "nan_in_v")
AT = {length: at for at, length in enumerate(LENGTHS)}


@pytest.fixture(scope="module")
def trace():
    return trace_lens()


@pytest.fixture(scope="module")
def runs(trace):
    return {run.spec.name: run for run in trace.runs}


@pytest.fixture(scope="module")
def seen():
    """q (64, 4, 128), k, v (64, 2, 128) of LAYER, in float64, from a decoder that never saw the trace."""
    decoder = running_decoder()
    rows, layer = [], None

    def observe(stage, index, _):
        nonlocal layer
        layer = index if stage == "qkv" else layer

    attention = decoder.attention
    past = {}

    def attend(q, k_pages, v_pages, page_table, length):
        if layer == LAYER:
            rows.append(q.double())
            k, v = (pages[:, page_table].flatten(1, 2)[:, :length].transpose(0, 1) for pages in (k_pages, v_pages))
            past.update(k=k.double(), v=v.double())
        return attention(q, k_pages, v_pages, page_table, length)

    decoder.observer, decoder.attention = observe, attend
    logits = decoder.prefill(decoder.tokenizer.encode(RUNNING_EXAMPLE.prompt))
    while decoder.sequence.length < MOST_TOKENS:
        logits = decoder.step(decoder.backend.argmax(logits))
    return torch.cat(rows), past["k"], past["v"]


@pytest.fixture(scope="module")
def dense(seen):
    """Scores and weights (heads, 56) of the newest of 56 tokens in LAYER, in float64."""
    q, k, _ = seen
    scores = torch.einsum("hd,nhd->hn", q[55], k[:56].repeat_interleave(2, dim=1)) / math.sqrt(128)
    return scores, scores.softmax(dim=-1)


def dense_out(seen, row, tokens):
    """What query `row` gets from the first `tokens` tokens: (heads, head_dim), in float64."""
    q, k, v = seen
    return dense_attention(q[row : row + 1], k[:tokens], v[:tokens])[0][0]


def distance(found, right):
    return ((found - right).norm(dim=-1) / right.norm(dim=-1)).tolist()


def test_every_bug_of_the_lab_has_a_run(runs):
    assert {run.spec.bug for run in runs.values()} - {None} == set(BUGS) - {"floor_pages"}


def test_the_tokens_are_the_running_example_s_and_so_is_the_table(trace):
    running = trace_running_example()
    texts = tuple(text for step in running.steps for text in step.token_texts)
    assert trace.token_texts[:56] == texts
    assert trace.page_table == RUNNING_EXAMPLE.page_table == (5, 9, 2, 12)


def test_scores_weights_maximum_and_sum_are_those_of_dense_attention(runs, dense):
    scores, weights = dense
    for head, steps in enumerate(runs["right"].rows[AT[56]]):
        found = [score for step in steps for score in step.scores]
        assert found[:56] == pytest.approx(scores[head].tolist(), abs=1e-3)
        assert found[56:] == [-math.inf] * 8
        assert steps[-1].weights[:56] == pytest.approx(weights[head].tolist(), abs=1e-4)
        assert steps[-1].m == pytest.approx(float(scores[head].max()), abs=1e-3)
        assert steps[-1].l == pytest.approx(float((scores[head] - scores[head].max()).exp().sum()), rel=1e-3)


def test_page_by_page_the_state_is_that_of_the_pages_so_far(runs, dense):
    scores, _ = dense
    for head, steps in enumerate(runs["right"].rows[AT[56]]):
        for step in steps:
            seen = scores[head, : 16 * (step.page + 1)]
            assert step.m == pytest.approx(float(seen.max()), abs=1e-3)
            assert step.weights[: len(seen)] == pytest.approx(seen.softmax(dim=0).tolist(), abs=1e-4)
        factors = [math.exp(a.m - b.m) for a, b in itertools.pairwise(steps)]
        assert [step.rescale for step in steps] == pytest.approx([0.0, *factors])


def test_weights_sum_to_1_in_every_row_that_is_a_number(runs):
    for run in runs.values():
        for length in run.rows:
            for steps in length:
                total = sum(steps[-1].weights)
                assert math.isnan(total) or total == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_output_so_far_is_as_far_from_all_of_it_as_in_float64(runs, seen, length):
    right = dense_out(seen, length - 1, length)
    for head, steps in enumerate(runs["right"].rows[AT[length]]):
        ends = [min(length, 16 * (step.page + 1)) for step in steps]
        expected = [distance(dense_out(seen, length - 1, end), right)[head] for end in ends]
        assert [step.off for step in steps] == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_the_error_at_every_length_is_that_of_float64_with_the_same_mistake(runs, seen):
    q, k, v = seen
    for n in range(2, MOST_TOKENS + 1):
        right = dense_out(seen, n - 1, n)
        modulo = (q[n - 1 : n], k[:n, [0, 1, 0, 1]], v[:n, [0, 1, 0, 1]])
        expected = {
            "length_minus_one": distance(dense_out(seen, n - 1, n - 1), right),
            "head_modulo": distance(dense_attention(*modulo)[0][0], right),
        }
        for name, errors in expected.items():
            assert [head[n - 1] for head in runs[name].errors] == pytest.approx(errors, rel=1e-2, abs=1e-5)


@pytest.mark.parametrize("name", TAIL_BUGS)
def test_a_bug_of_the_tail_is_right_exactly_at_multiples_of_16(runs, name):
    for head in runs[name].errors:
        assert [n + 1 for n, error in enumerate(head) if error < 1e-6] == [16, 32, 48, 64]


def test_a_stale_page_is_wrong_exactly_one_token_after_a_boundary(runs):
    for head in runs["stale_page"].errors:
        assert [n + 1 for n, error in enumerate(head) if error > 1e-6] == [1, 17, 33, 49]
    assert [step.page_id for step in runs["stale_page"].rows[AT[17]][0]] == [5, 0]


def test_a_maximum_on_the_first_page_forgives_what_is_not_rescaled(runs):
    run = runs["no_rescale"]
    assert all(error == 0 for head in run.errors for error in head[:16])
    for steps in run.rows[AT[56]]:
        assert (steps[-1].off < 1e-6) == (steps[0].m == steps[-1].m)
    assert run.rows[AT[56]][2][-1].off == pytest.approx(0.86, abs=0.01)


def test_h_modulo_is_wrong_for_heads_1_and_2_of_4(runs):
    wrong = [min(head) > 0.5 for head in runs["head_modulo"].errors]
    assert wrong == [False, True, True, False]
    assert max(runs["head_modulo"].errors[0] + runs["head_modulo"].errors[3]) == 0


def test_without_the_current_token_every_length_is_wrong_and_the_first_is_all_wrong(runs):
    for head in runs["length_minus_one"].errors:
        assert min(head) > 1e-5
        assert head[0] == 1


def test_this_model_s_scores_stay_far_below_fp16_s_end(trace, runs):
    assert trace.largest_raw < 300
    assert max(error for head in runs["fp16_scores"].errors for error in head) < 5e-3


def test_a_raw_score_of_76_800_is_inf_in_fp16_and_the_row_nan(runs):
    run = runs["fp16_scores_high"]
    assert all(math.isnan(error) for head in run.errors for error in head)
    assert run.rows[AT[56]][1][0].scores[0] == math.inf
    assert run.right_rows[AT[56]][1][-1].m == pytest.approx(76_800 / math.sqrt(128), rel=2e-3)


def test_a_shift_of_all_scores_changes_no_weight_of_the_right_row(runs):
    plain, low = runs["right"].rows[AT[56]], runs["mask_to_zero_low"].right_rows[AT[56]]
    for a, b in zip(plain, low, strict=True):
        assert b[-1].m == pytest.approx(a[-1].m + LOW, abs=1e-3)
        assert b[-1].weights == pytest.approx(a[-1].weights, abs=1e-4)


def test_masked_to_0_the_empty_slots_get_next_to_nothing_here_and_nearly_all_once_scores_are_below_0(runs):
    def tail(name):
        return [sum(steps[-1].weights[56:]) for steps in runs[name].rows[AT[56]]]

    scores = [[s for step in steps for s in step.scores][:56] for steps in runs["mask_to_zero"].rows[AT[56]]]
    expected = [8 / (8 + sum(math.exp(s) for s in row)) for row in scores]
    assert tail("mask_to_zero") == pytest.approx(expected, rel=1e-2)
    assert max(tail("mask_to_zero")) < 0.002
    assert min(tail("mask_to_zero_low")) > 0.97


def test_nan_in_v_leaves_every_weight_right(runs):
    run = runs["nan_in_v"]
    for wrong, right in zip(run.rows[AT[56]], run.right_rows[AT[56]], strict=True):
        assert wrong[-1].weights == right[-1].weights
        assert math.isnan(wrong[-1].off)


def test_nan_in_v_is_invisible_where_a_former_owner_left_numbers():
    lens = trace_lens((RunSpec("finite", "nan_in_v"),))
    assert max(error for head in lens.runs[0].errors for error in head) < 1e-6


def test_workers_without_a_page_make_every_context_of_less_than_four_pages_nan(runs):
    for head in runs["empty_split"].errors:
        assert [math.isnan(error) for error in head] == [n <= 48 for n in range(1, MOST_TOKENS + 1)]
    assert [step.worker for step in runs["empty_split"].rows[AT[56]][0]] == list(range(WORKERS))


def test_the_empty_slots_hold_what_the_former_owner_wrote(trace):
    assert [text.strip() for text in trace.former[12][8:]] == ["open", "(path", ")", "as", "file", ":", "", "return"]
    assert set(trace.former) >= {*trace.page_table, 0}


TEXTS = {
    "right": "    def __init__(self, *args, **kwargs):\n        self._stack = None\n        super().__init__(*args",
    "no_tail_mask": "        with open(File, 'rbclass Stack'):\n        return json",
    "nan_in_v": "!!!!",
    "empty_split": "!!!!",
    "no_rescale": "    def __init__(self, *args, **kwargs):\n        self.kwargs):\n        self.kwargs = kwargs",
    "head_modulo": "importTrainedberround",
    "length_minus_one": "_for_stack(stack_stack_stack",
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_model_writes(runs, name):
    assert "".join(runs[name].text.token_texts).startswith(TEXTS[name])


@pytest.mark.parametrize("name", ["mask_to_zero", "stale_page", "fp16_scores"])
def test_three_bugs_do_not_show_in_the_text(runs, name):
    assert runs[name].text.departs is None
    assert runs[name].text.token_texts == runs["right"].text.token_texts


def test_a_text_without_a_visible_mistake_has_met_the_first_token_of_two_pages(trace, runs):
    in_cache = [trace.prompt_tokens + at for at in range(len(runs["stale_page"].text.token_texts))]
    assert {17, 33} <= set(in_cache)


def test_every_choice_on_the_way_is_safe_on_another_machine(runs):
    for run in runs.values():
        assert run.text is None or run.text.least_margin > SAFE_MARGIN + ROUNDING


def test_a_trace_is_the_same_twice(trace):
    spec = trace.runs[1].spec
    assert trace_lens((spec,)).runs == (trace.runs[1],)
