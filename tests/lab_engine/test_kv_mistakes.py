"""Each mistake of the paged cache does to two texts what it says, and its texts are the same on every machine."""

import pytest
import torch

from lab_engine.errors import NanoqwenError
from lab_engine.kv_mistakes import KV_MISTAKES, CarelessPool, SharingCache, trace_kv_mistake
from lab_engine.kv_pages import KVCache, PagePool
from lab_engine.kv_trace import TINY
from lab_engine.kv_turns import Write
from lab_engine.running_example import RUNNING_EXAMPLE, running_decoder

SAFE = 0.02  # rounding moves a logit of this model by less than 1e-3 from CPU to CPU


@pytest.fixture(scope="module")
def traces():
    return {name: trace_kv_mistake(name) for name in KV_MISTAKES}


def wrong(trace):
    return ["".join(text.wrong) for text in trace.texts]


def right(trace):
    return ["".join(text.right) for text in trace.texts]


@pytest.mark.parametrize("name", KV_MISTAKES)
def test_no_choice_of_a_text_is_close_enough_to_fall_otherwise_elsewhere(traces, name):
    assert min(text.margin for text in traces[name].texts) > SAFE


@pytest.mark.parametrize("name", KV_MISTAKES)
def test_a_text_departs_at_its_first_wrong_token_and_the_moment_is_the_first_departure(traces, name):
    departs = []
    for text in traces[name].texts:
        pairs = [a == b for a, b in zip(text.right, text.wrong, strict=True)]
        assert text.departs == (pairs.index(False) if False in pairs else None)
        departs += [text.departs] if text.departs is not None else []
    assert traces[name].moment == min(departs)


def test_the_right_texts_are_the_engine_s_own(traces, running_text):
    assert right(traces["double_free"])[0] == running_text(22)


@pytest.fixture(scope="module")
def running_text():
    """The running example's text in so many new tokens, by Decoder.generate."""
    decoder = running_decoder()
    ids = decoder.tokenizer.encode(RUNNING_EXAMPLE.prompt)
    return lambda count: decoder.tokenizer.decode(list(decoder.generate(ids, count, frozenset())))


# --- floor_pages ---


def test_floor_for_ceil_is_right_on_whole_pages_and_then_blind_to_the_newest_tokens(traces):
    first, second = traces["floor_pages"].texts
    for text, prompt_tokens in ((first, 48), (second, 32)):
        assert text.right[0] == text.wrong[0]  # the prompt fills its pages
        assert (text.length, text.read) == (prompt_tokens + 2, prompt_tokens)
    assert [page.count for page in traces["floor_pages"].pages] == [1] * 7


def test_a_text_that_cannot_see_its_newest_tokens_repeats_itself(traces):
    assert wrong(traces["floor_pages"])[0].count("(self, item") == 4
    assert wrong(traces["floor_pages"])[1] == " return a = b = b = a, a, a, a, b"


# --- double_free ---


def test_a_page_freed_twice_is_handed_out_twice():
    pool = CarelessPool(4)
    page_id = pool.take()
    pool.release(page_id)
    pool.release(page_id)
    assert pool.num_free == 5
    assert (pool.take(), pool.take()) == (page_id, page_id)
    assert pool.ref_count(page_id) == 1  # two hold it
    whole = PagePool(4)
    whole.release(whole.take())
    with pytest.raises(NanoqwenError, match="double free"):
        whole.release(0)


def test_after_a_double_free_each_text_overwrites_the_other_in_one_page(traces):
    trace = traces["double_free"]
    (page,) = trace.pages
    assert (page.page_id, page.count, page.holders) == (5, 1, ("A", "B"))
    assert [(lost.sequence, kept.sequence) for _, _, lost, kept in trace.overwritten] == [("A", "B")] * 4 + [("B", "A")]
    assert [slot for _, slot, _, _ in trace.overwritten] == [0, 1, 2, 3, 4]


def test_after_a_double_free_each_text_turns_into_pieces_of_the_other(traces):
    assert [text.departs for text in traces["double_free"].texts] == [1, 1]
    assert "Account" in wrong(traces["double_free"])[0]
    assert "account_id" in wrong(traces["double_free"])[0]
    assert "Account" not in right(traces["double_free"])[0]


# --- shared_half_page ---


def test_forks_that_share_a_half_filled_page_write_the_same_text(traces):
    trace = traces["shared_half_page"]
    assert trace.same_text
    assert len(set(right(trace))) == 2
    assert [text.departs for text in trace.texts] == [2, None]
    assert "self.items.append(item)" in right(trace)[0]
    assert "self.items.pop(key, None)" in wrong(trace)[0]


def test_the_shared_tail_holds_the_second_fork_s_tokens_for_both(traces):
    trace = traces["shared_half_page"]
    whole, tail = trace.pages
    assert [(page.count, page.holders) for page in trace.pages] == [(2, ("A", "B"))] * 2
    assert all(write.sequence == "AB" for slot in whole.slots for write in slot)
    assert [slot for _, slot, _, _ in trace.overwritten] == [2, 3, 4, 5]  # after the prompt's 18 tokens
    assert tail.slots[3] == (Write("A", 19, "ush"), Write("B", 19, "op"))


def test_equal_next_tokens_hide_a_shared_half_filled_page():
    trace = trace_kv_mistake("shared_half_page", follow=(" pop", " pop"))
    assert [text.departs for text in trace.texts] == [None, None]
    assert trace.overwritten  # and yet every slot is written twice


def test_a_sharing_cache_counts_and_takes_pages_as_the_right_one_does_until_a_fork():
    for tokens in (1, 15, 16, 17, 33):
        caches = [kind(TINY, 8, torch.float32, "meta") for kind in (KVCache, SharingCache)]
        sequences = [cache.new_sequence() for cache in caches]
        taken = [cache.append(sequence, tokens) for cache, sequence in zip(caches, sequences, strict=True)]
        assert taken[0] == taken[1]
        forks = [cache.fork(sequence) for cache, sequence in zip(caches, sequences, strict=True)]
        for cache, fork in zip(caches, forks, strict=True):
            cache.append(fork)
        assert forks[1].page_table[:-1] == forks[0].page_table[:-1]
        shares_tail = tokens % 16 > 0
        assert (forks[1].page_table[-1] == sequences[1].page_table[-1]) == shares_tail
        assert forks[0].page_table[-1] != sequences[0].page_table[-1]


def test_an_unknown_mistake_is_refused_by_name():
    with pytest.raises(NanoqwenError, match="mistake 'leak': expected one of floor_pages, double_free"):
        trace_kv_mistake("leak")
