"""Generation: what ends it, what is never chosen, how many passes it takes, and that it can be repeated."""

import pytest
import torch

from lab_engine.convert import convert
from lab_engine.errors import PromptError
from lab_engine.loading import load_decoder
from tests.lab_engine.tiny_models import NUM_KNOWN_IDS, edit_json, random_checkpoint

PROMPT = list(range(40, 60))
NEVER = frozenset()


@pytest.fixture(scope="module")
def varied_file(tmp_path_factory):
    """An untied model: a tied random one repeats its last token for ever."""
    folder = tmp_path_factory.mktemp("varied")
    checkpoint = random_checkpoint(folder / "m", seed=4, scale=0.12, tie_word_embeddings=False)
    return convert(checkpoint, folder / "varied.nanoqwen")


@pytest.fixture
def exact_decoder(load_exact, varied_file):
    """A fresh float32 decoder of `varied_file`."""
    return load_exact(varied_file)


class Script:
    """A sampler that chooses these ids in turn, and keeps the length of every vector of logits that it saw."""

    def __init__(self, *ids):
        self.ids, self.seen = list(ids), []

    def __call__(self, logits):
        self.seen.append(len(logits))
        return self.ids[len(self.seen) - 1]


def record_passes(decoder):
    """The number of tokens of each pass, in order."""
    passes = []

    def observe(stage, _, output):
        if stage == "embed":
            passes.append(len(output))

    decoder.observer = observe
    return passes


# What ends a text


def test_every_stop_token_of_the_model_ends_it_and_is_not_yielded(exact_decoder):
    stops = exact_decoder.tokenizer.stop_token_ids
    assert len(stops) == 2
    for stop in stops:
        assert list(exact_decoder.generate(PROMPT, 9, sampler=Script(5, 6, stop, 7))) == [5, 6]
        assert exact_decoder.sequence.length == len(PROMPT) + 2


def test_a_stop_token_at_once_gives_no_token(exact_decoder):
    (stop, *_) = exact_decoder.tokenizer.stop_token_ids
    assert list(exact_decoder.generate(PROMPT, 9, sampler=Script(stop))) == []


@pytest.mark.parametrize(("stops", "expected"), [([384, 386], {384, 386}), (384, {384, 386})])
def test_a_stop_list_and_a_single_stop_id_are_both_read(checkpoint, stops, expected):
    """generation_config may hold a list or one number; the tokenizer's eos_token (386) always ends a text too."""
    edit_json(checkpoint / "generation_config.json", eos_token_id=stops)
    decoder = load_decoder(checkpoint, "torch", torch.float32)
    assert decoder.tokenizer.stop_token_ids == expected
    for stop in expected:
        assert list(decoder.generate(PROMPT, 9, sampler=Script(5, stop))) == [5]


@pytest.mark.parametrize("stops", [frozenset({6, 9}), {6}, [6]])
def test_other_stop_tokens_may_be_given(exact_decoder, stops):
    assert list(exact_decoder.generate(PROMPT, 9, stops, Script(5, 6))) == [5]
    (models_own, *_) = exact_decoder.tokenizer.stop_token_ids
    assert list(exact_decoder.generate(PROMPT, 3, stops, Script(5, models_own, 6))) == [5, models_own]


def test_text_that_spells_a_stop_token_does_not_end_it(exact_decoder):
    spelled = exact_decoder.tokenizer.encode("'<|im_end|>'")
    assert list(exact_decoder.generate(PROMPT, len(spelled), sampler=Script(*spelled))) == spelled


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_at_most_max_new_tokens_are_yielded(exact_decoder, count):
    assert list(exact_decoder.generate(PROMPT, count, NEVER, Script(*range(9)))) == list(range(count))


@pytest.mark.parametrize("count", [-1, -100])
def test_a_negative_count_is_refused_before_the_first_token(exact_decoder, count):
    with pytest.raises(PromptError, match=f"max_new_tokens: found {count}"):
        exact_decoder.generate(PROMPT, count)


def test_a_bad_prompt_is_refused_by_the_call_itself(exact_decoder):
    for prompt in ([], [-1], [1] * 97):
        with pytest.raises(PromptError):
            exact_decoder.generate(prompt, 5)


@pytest.mark.parametrize(("num_pages", "room"), [(6, 96), (3, 48)])
def test_it_goes_to_the_very_end_of_positions_and_pages(load_exact, num_pages, room):
    """Every free position is fed, and one more token comes from the last logits."""
    decoder = load_exact(num_pages=num_pages)
    found = list(decoder.generate(PROMPT, 1000, NEVER))
    assert len(found) == room - len(PROMPT) + 1
    assert decoder.sequence.length == room
    assert list(decoder.generate([1] * room, 1000, NEVER)) != []
    assert list(decoder.generate(PROMPT, 1000, NEVER)) == found


# What is chosen


def test_the_sampler_sees_only_ids_that_the_tokenizer_knows(exact_decoder):
    script = Script(1, 2, 3)
    list(exact_decoder.generate(PROMPT, 3, NEVER, script))
    assert exact_decoder.config.vocab_size == 433
    assert script.seen == [NUM_KNOWN_IDS] * 3


def test_a_padded_row_is_never_chosen_however_large_its_logit(exact_decoder, monkeypatch):
    def spike(_):
        logits = torch.zeros(433)
        logits[[17, NUM_KNOWN_IDS, 432]] = torch.tensor([1.0, 100.0, 200.0])
        return logits

    monkeypatch.setattr(exact_decoder, "prefill", spike)
    monkeypatch.setattr(exact_decoder, "step", spike)
    assert list(exact_decoder.generate(PROMPT, 2, NEVER)) == [17, 17]


def test_ties_go_to_the_lowest_id(exact_decoder, monkeypatch):
    def tied(_):
        logits = torch.zeros(433)
        logits[[3, 300, 17, 395]] = 2.5
        return logits

    monkeypatch.setattr(exact_decoder, "prefill", tied)
    assert list(exact_decoder.generate(PROMPT, 1, NEVER)) == [3]


def test_greedy_takes_the_largest_logit_of_each_step(load_exact, varied_file):
    decoder, manual = load_exact(varied_file), load_exact(varied_file)
    found = list(decoder.generate(PROMPT, 10, NEVER))
    assert len(set(found)) > 5
    logits, expected = manual.prefill(PROMPT), []
    for _ in range(10):
        expected.append(int(logits[:NUM_KNOWN_IDS].argmax()))
        logits = manual.step(expected[-1])
    assert found == expected


# How many passes


@pytest.mark.parametrize("count", [0, 1, 2, 6])
def test_k_tokens_take_one_prefill_and_k_minus_1_steps(exact_decoder, count):
    """The last token is not fed back: nobody would read its logits. For 0 tokens the prompt alone is run."""
    passes = record_passes(exact_decoder)
    list(exact_decoder.generate(PROMPT, count, NEVER, Script(*range(9))))
    assert passes == [len(PROMPT)] + [1] * max(count - 1, 0)


def test_a_stop_token_is_not_fed(exact_decoder):
    passes = record_passes(exact_decoder)
    list(exact_decoder.generate(PROMPT, 9, frozenset({6}), Script(5, 6)))
    assert passes == [len(PROMPT), 1]


def test_a_reader_that_stops_early_pays_for_no_more(exact_decoder):
    passes = record_passes(exact_decoder)
    stream = exact_decoder.generate(PROMPT, 9, NEVER, Script(*range(9)))
    assert next(stream) == 0
    assert next(stream) == 1
    stream.close()
    assert passes == [len(PROMPT), 1]


# Again


def test_three_runs_are_identical(exact_decoder, varied_file):
    fast = load_decoder(varied_file, "torch")
    for decoder in (exact_decoder, fast):
        first, second, third = (list(decoder.generate(PROMPT, 20, NEVER)) for _ in range(3))
        assert first == second == third
        assert len(first) == 20
        assert len(set(first)) > 5


def test_a_second_text_ends_the_first_one_loudly(exact_decoder):
    """Two texts at once would continue each other's sequence."""
    first = exact_decoder.generate(PROMPT, 9, NEVER)
    next(first)
    second = exact_decoder.generate(PROMPT[::-1], 9, NEVER)
    next(second)
    with pytest.raises(PromptError, match="another prompt has replaced"):
        next(first)
    assert len(list(second)) == 8


def test_no_page_is_lost_over_many_texts(exact_decoder):
    for length in (5, 16, 30, 17, 1):
        list(exact_decoder.generate(PROMPT * 2, length, NEVER))
        assert exact_decoder.cache.pool.num_used == len(exact_decoder.sequence.page_table)


def test_a_model_whose_logits_are_nan_says_so(checkpoint):
    """Otherwise NaN becomes token 0, and the text a row of exclamation marks."""
    decoder = load_decoder(checkpoint, "torch", torch.float32)
    decoder.weights.norm.data[0] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        list(decoder.generate(PROMPT, 3))
