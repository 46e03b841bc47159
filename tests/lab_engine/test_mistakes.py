"""Every mistake of the bug desk changes what it says and nothing else; the right decoder stays the engine's own."""

import pytest
import torch

from lab_engine.bug_desk import DESK, trace_mistakes
from lab_engine.errors import BackendError, NanoqwenError
from lab_engine.int4_mistakes import INT4_MISTAKES
from lab_engine.loading import open_source
from lab_engine.mistakes import (
    DESK_BUGS,
    FREED_AT,
    MISTAKES,
    RIGHT,
    UncheckedArgmax,
    attention_mistake,
    attention_with,
    exact_decoder,
)
from lab_engine.paged_attention import BUGS
from lab_engine.weights import DenseSource

PROMPT = "def fibonacci(n):"
NEW = 30


@pytest.fixture(scope="module")
def opened(shared_file):
    return open_source(shared_file)


@pytest.fixture(scope="module")
def trace(opened):
    return trace_mistakes(*opened, PROMPT, NEW, tuple(MISTAKES))


@pytest.fixture(scope="module")
def symptoms(trace):
    return {symptom.mistake: symptom for symptom in trace.symptoms}


def wrong_lengths(trace, symptom):
    return [trace.prompt_tokens + at for at, value in enumerate(symptom.differences) if value]


def test_the_right_decoder_is_the_engine_s_bit_for_bit(opened, load_exact):
    source, tokenizer = opened
    ids = tokenizer.encode(PROMPT)
    ours, theirs = exact_decoder(DenseSource(source), tokenizer, 6), load_exact()
    assert torch.equal(ours.prefill(ids), theirs.prefill(ids))
    assert list(ours.generate(ids, NEW)) == list(theirs.generate(ids, NEW))


def test_nothing_wrong_shows_no_symptom(trace):
    right = trace.right
    assert (right.mistake, right.departs) == (RIGHT.name, None)
    assert set(right.differences) == {0.0}
    assert right.token_passes == trace.prompt_tokens + NEW - 1
    assert len(right.token_texts) == len(right.differences) == NEW


def test_the_desk_has_six_of_the_attention_s_bugs():
    on_desk = {name for name, mistake in MISTAKES.items() if mistake.attention_bug}
    assert on_desk == set(DESK_BUGS) < set(BUGS)
    assert set(DESK) < set(MISTAKES)


@pytest.mark.parametrize("name", sorted(set(MISTAKES) - {"no_cache"}))
def test_every_mistake_but_one_of_time_makes_logits_wrong(trace, symptoms, name):
    assert wrong_lengths(trace, symptoms[name]), name


@pytest.mark.parametrize("name", INT4_MISTAKES)
def test_a_misread_weight_is_wrong_from_the_first_length_on(trace, symptoms, name):
    assert len(wrong_lengths(trace, symptoms[name])) == NEW
    assert symptoms[name].departs is not None


def test_a_frozen_step_is_right_in_the_prompt_and_the_step_that_was_captured(trace, symptoms):
    assert wrong_lengths(trace, symptoms["frozen_step"])[0] == trace.prompt_tokens + 2


def test_a_page_freed_too_early_is_right_until_the_other_request_has_written(trace, symptoms):
    assert wrong_lengths(trace, symptoms["freed_page"])[0] == FREED_AT + 1


def test_sums_that_are_not_rescaled_are_right_within_the_first_page(trace, symptoms):
    assert wrong_lengths(trace, symptoms["no_rescale"])[0] == 17


def test_without_a_cache_the_text_is_right_and_the_token_passes_grow_with_its_square(trace, symptoms):
    symptom, prompt = symptoms["no_cache"], trace.prompt_tokens
    assert symptom.token_texts == trace.right.token_texts
    assert set(symptom.differences) == {0.0}
    assert symptom.token_passes == sum(prompt + at for at in range(NEW))


def test_a_text_departs_where_it_first_differs_from_the_right_one(trace, symptoms):
    for symptom in symptoms.values():
        pairs = list(zip(symptom.token_texts, trace.right.token_texts, strict=True))
        if symptom.departs is None:
            assert all(a == b for a, b in pairs)
        else:
            assert all(a == b for a, b in pairs[: symptom.departs])


def test_a_trace_is_the_same_twice(opened, trace):
    again = trace_mistakes(*opened, PROMPT, NEW, ("no_tail_mask", "freed_page"))
    kept = [symptom for symptom in trace.symptoms if symptom.mistake in ("no_tail_mask", "freed_page")]
    assert sorted(again.symptoms, key=str) == sorted(kept, key=str)


def test_an_unknown_mistake_is_refused_by_name(opened):
    with pytest.raises(NanoqwenError, match="mistake 'no_such': expected one of wrong_layout, "):
        trace_mistakes(*opened, PROMPT, 1, ("no_such",))


def test_a_text_longer_than_the_former_owner_s_is_refused(opened):
    with pytest.raises(NanoqwenError, match="prompt and new tokens: found 1001, expected at most 80"):
        trace_mistakes(*opened, "def", 1000, ())


def test_the_pages_of_a_new_text_hold_what_another_left(opened):
    source, tokenizer = opened
    decoder = exact_decoder(DenseSource(source), tokenizer, 10)
    decoder.cache.data[:, :, :, 5:] = torch.nan  # pages that nobody has had
    decoder.prefill(tokenizer.encode(PROMPT))
    assert decoder.sequence.page_table[0] < 5
    assert decoder.cache.data[:, :, :, decoder.sequence.page_table].isfinite().all()


def test_floating_weights_are_read_as_they_are(shared_checkpoint):
    source, _ = open_source(shared_checkpoint)
    name = "model.embed_tokens.weight"
    assert torch.equal(DenseSource(source).matrix(name), source.matrix(name))


# Any bug of the attention in a whole decoder


def written_with(opened, mistake, prompt="def f(x):\n    return x", new=20):
    source, tokenizer = opened
    decoder = exact_decoder(DenseSource(source), tokenizer, 10, mistake)
    return list(decoder.generate(tokenizer.encode(prompt), new))


@pytest.mark.parametrize("bug", BUGS)
def test_every_attention_bug_makes_a_decoder_by_name_that_writes_the_same_twice(opened, bug):
    mistake = attention_mistake(bug, num_splits=4 if bug == "empty_split" else 1)
    assert (mistake.name, mistake.cause, mistake.lab) == (bug, BUGS[bug], "05_paged_attention")
    assert written_with(opened, mistake) == written_with(opened, mistake)


@pytest.mark.parametrize(("bug", "num_splits"), [("nan_in_v", 1), ("empty_split", 4)])
def test_a_decoder_whose_logits_are_nan_writes_token_0_on_and_on(opened, bug, num_splits):
    assert written_with(opened, attention_mistake(bug, num_splits)) == [0] * 20


@pytest.mark.parametrize(("bug", "num_splits", "name"), [("x", 1, "bug"), ([], 1, "bug"), (None, 0, "num_splits")])
def test_an_attention_that_cannot_be_made_is_refused_before_the_first_step(bug, num_splits, name):
    with pytest.raises(NanoqwenError, match=name):
        attention_with(bug, num_splits)


def test_with_one_worker_an_unguarded_combine_shows_nothing(opened):
    assert written_with(opened, attention_mistake("empty_split")) == written_with(opened, None)


def test_the_right_decoder_refuses_nan_while_a_gpu_s_argmax_takes_the_largest_number(opened):
    source, _ = opened
    unchecked = UncheckedArgmax(source.config, torch.float32)
    inf, nan = float("inf"), float("nan")
    rows = [[nan, nan], [nan, 1.0, 3.0], [-inf, nan, -inf], [2.0, inf, nan], [1.0, 5.0, 5.0]]
    assert [unchecked.argmax(torch.tensor(row)) for row in rows] == [0, 2, 0, 1, 1]
    with pytest.raises(BackendError, match="NaN"):
        RIGHT.backend(source.config, torch.float32).argmax(torch.tensor(rows[0]))


def test_v_of_unused_slots_is_nan_for_the_bug_that_needs_it_only(opened):
    source, tokenizer = opened
    for bug in BUGS:
        decoder = exact_decoder(DenseSource(source), tokenizer, 10, attention_mistake(bug))
        assert decoder.cache.data.isnan().all() == decoder.cache.data.isnan().any() == (bug == "nan_in_v")


def test_a_page_that_nobody_had_holds_what_the_former_owner_s_first_one_does(opened):
    source, tokenizer = opened
    data = exact_decoder(DenseSource(source), tokenizer, 12).cache.data
    assert all(torch.equal(data[:, :, :, page], data[:, :, :, 0]) for page in range(5, 12))


def test_a_late_page_table_is_right_until_the_step_that_takes_a_page(opened):
    source, tokenizer = opened
    right, late = (
        exact_decoder(DenseSource(source), tokenizer, 10, mistake)
        for mistake in (None, attention_mistake("stale_page"))
    )
    for made in (right, late):
        made.prefill([7, 8, 9])
    lengths = [made for made in range(4, 24) if (right.step(7) - late.step(7)).abs().max() > 1e-3]
    assert lengths[0] == 17


def test_an_unknown_attention_bug_is_refused_by_name():
    with pytest.raises(NanoqwenError, match="bug 'no_such': expected one of no_tail_mask, "):
        attention_mistake("no_such")
