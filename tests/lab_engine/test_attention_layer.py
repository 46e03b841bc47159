"""The caught layer against dense attention in float64 at every length, and what its weights are with every bug."""

import math

import pytest
import torch

from lab_engine.attention_layer import MOST_TOKENS, RunSpec, relative_errors, right_run
from lab_engine.mistakes import FORMER_OWNER
from lab_engine.paged_attention import BUGS
from lab_engine.running_example import RUNNING_EXAMPLE, running_decoder
from tests.lab_engine.dense_attention import dense_attention

LENGTHS = range(1, MOST_TOKENS + 1)


@pytest.fixture(scope="module")
def decoder():
    decoder = running_decoder()
    decoder.prefill((decoder.tokenizer.encode(FORMER_OWNER) * 96)[:96])
    return decoder


@pytest.fixture(scope="module")
def run(decoder):
    return right_run(decoder, decoder.cache.data.clone())


@pytest.fixture(scope="module")
def past(run):
    """k, v (64, kv_heads, head_dim) of the layer, in the order of tokens."""
    k, v = run.layer.written[:, :, list(run.layer.table)].flatten(2, 3).transpose(1, 2)
    return k, v


def test_it_is_the_running_example_and_the_decoder_is_as_before(decoder, run):
    again = decoder.prefill(decoder.tokenizer.encode(RUNNING_EXAMPLE.prompt))
    assert run.layer.table == RUNNING_EXAMPLE.page_table
    assert len(run.ids) == MOST_TOKENS == len(run.layer.q)
    assert int(again.argmax()) == run.ids[4]
    assert decoder.attention == decoder.backend.paged_attention


@pytest.mark.parametrize("spec", [RunSpec("right"), RunSpec("four workers", num_splits=4), RunSpec("low", shift=-12.0)])
def test_the_right_output_is_that_of_float64_at_every_length(run, past, spec):
    k, v = past
    for length in LENGTHS:
        expected = dense_attention(run.layer.q[length - 1 : length], k[:length], v[:length])[0][0]
        assert max(relative_errors(run.layer.attend(length, spec).out, expected)) < 1e-5


def test_the_right_weights_are_those_of_float64_at_every_length(run, past):
    k, _ = past
    for length in LENGTHS:
        unit = torch.eye(length)[:, None].expand(-1, k.shape[1], -1)
        padded = torch.nn.functional.pad(unit, (0, k.shape[2] - length))  # a slot is a dimension of V
        expected = dense_attention(run.layer.q[length - 1 : length], k[:length], padded)[0][0]
        found = run.layer.weights(length, RunSpec("right")).out
        torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("length", [16, 17, 33, 48, 49, 56])
@pytest.mark.parametrize("bug", sorted(set(BUGS) - {"floor_pages"}))
def test_weights_sum_to_1_also_where_a_page_of_another_request_is_read(run, bug, length):
    total = run.layer.weights(length, RunSpec(bug, bug)).out.sum(dim=-1)
    torch.testing.assert_close(total, torch.ones_like(total), atol=1e-5, rtol=0)


def test_the_stale_page_s_weight_lies_on_the_slots_of_the_last_page(run):
    wrong = run.layer.weights(17, RunSpec("stale", "stale_page"))
    assert wrong.updates[-1].page_id not in run.layer.table
    assert float(wrong.out[:, 16:32].sum(dim=-1).min()) > 0


def test_a_slot_that_was_never_written_holds_nan(run):
    finite, unwritten = (RunSpec("nan", "nan_in_v", unwritten=one) for one in (False, True))
    assert run.layer.attend(56, finite).out.isfinite().all()
    assert run.layer.attend(56, unwritten).out.isnan().all()
    assert run.layer.attend(48, unwritten).out.isfinite().all()  # no empty slot


def test_a_shift_moves_every_score_by_as_much(run):
    plain, low = (run.layer.attend(56, RunSpec("right", shift=shift)).updates[0].scores for shift in (0.0, -12.0))
    torch.testing.assert_close(low, plain - 12.0, atol=1e-3, rtol=0)


def test_the_largest_raw_score_is_that_of_all_pairs(run, past):
    q, k = run.layer.q, past[0]
    pairs = [(t, n, h) for t in LENGTHS for n in range(1, t + 1) for h in range(4)]
    largest = max(abs(float(q[t - 1, h] @ k[n - 1, h // 2])) for t, n, h in pairs)
    assert run.layer.largest_raw() == pytest.approx(largest, rel=1e-5)


def test_an_error_is_a_distance_over_the_right_length():
    right = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]])
    found = torch.tensor([[3.0, 4.0], [1.0, 0.5], [math.nan, 2.0]])
    assert relative_errors(found, right) == pytest.approx([0.0, 0.5, math.nan], nan_ok=True)
