"""Prompts that begin alike share whole pages: the right ones, never others, and nobody loses what is in use."""

import math

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from lab_engine import decoder as decoder_module
from lab_engine import prefix_cache as prefix_cache_module
from lab_engine.errors import NanoqwenError, PromptError
from lab_engine.kv_pages import PAGE_SLOTS
from lab_engine.loading import open_source
from lab_engine.prefix_cache import PrefixCache
from lab_engine.reference import reference_logits
from lab_engine.running_example import running_decoder
from tests.lab_engine.kv_histories import Histories, cache_of, read, write

IDS = torch.randint(0, 396, (60,), generator=torch.Generator().manual_seed(3)).tolist()
LENGTHS = [1, 2, 15, 16, 17, 31, 32, 33, 48]


@pytest.fixture(scope="module")
def expected(shared_file):
    """The reference's logits of every prefix of IDS, on the weights of `shared_file`."""
    return reference_logits(open_source(shared_file)[0], IDS)


@pytest.fixture
def decoder(load_exact):
    """A decoder that knows prefixes; its pool of 6 pages holds NaN until a token is written."""
    decoder = load_exact(num_pages=6)
    decoder.cache.data.fill_(math.nan)
    decoder.prefix_cache = PrefixCache(decoder.cache)
    return decoder


@pytest.fixture
def computed(decoder):
    """The number of tokens of every pass."""
    passes = []

    def count(stage, layer, output):
        if (stage, layer) == ("embed", None):
            passes.append(len(output))

    decoder.observer = count
    return passes


def remembered(cache, prefixes, token_ids):
    """Run a prompt as a decoder does; what is written for a token is the token. Returns its sequence."""
    sequence = prefixes.start(token_ids)
    write(cache, sequence, token_ids[sequence.length :])
    prefixes.remember(sequence, token_ids)
    return sequence


# In the decoder


@pytest.mark.parametrize("length", LENGTHS)
def test_the_same_prompt_again_gives_the_same_logits_and_computes_only_its_end(decoder, computed, expected, length):
    """32 tokens are two full pages, and both are known: the second is computed again, for the last token's logits."""
    first, second = decoder.prefill(IDS[:length]), decoder.prefill(IDS[:length])
    assert computed == [length, length - (length - 1) // PAGE_SLOTS * PAGE_SLOTS]
    assert int(first.argmax()) == int(second.argmax())
    assert (second - expected[length - 1]).abs().max() <= 1e-4
    assert (decoder.step(IDS[length]) - expected[length]).abs().max() <= 1e-4
    assert decoder.sequence.length == length + 1


def test_a_longer_prompt_continues_a_shorter_one(decoder, computed, expected):
    for length in (20, 40, 60):
        assert (decoder.prefill(IDS[:length]) - expected[length - 1]).abs().max() <= 1e-4
    assert computed == [20, 24, 28]


def test_prefixes_that_differ_in_token_15_share_no_page(decoder, computed, expected, shared_file):
    other = [*IDS[:15], IDS[15] + 1, *IDS[16:40]]
    decoder.prefill(IDS[:40])
    first = list(decoder.prefix_cache.page_ids)
    logits = decoder.prefill(other)
    assert computed == [40, 40]
    assert not set(decoder.sequence.page_table[:2]) & set(first)
    assert (logits - reference_logits(open_source(shared_file)[0], other)[-1]).abs().max() <= 1e-4
    assert (decoder.prefill(IDS[:40]) - expected[39]).abs().max() <= 1e-4


def test_prefixes_that_differ_in_token_16_share_the_first_page(decoder, computed):
    decoder.prefill(IDS[:40])
    decoder.prefill([*IDS[:16], IDS[16] + 1, *IDS[17:40]])
    assert computed == [40, 24]


def test_the_second_page_of_another_prompt_is_not_taken_for_the_same(decoder, computed):
    """Equal tokens at 16 to 31 after other tokens have other K and V."""
    decoder.prefill(IDS[:40])
    decoder.prefill([*IDS[20:36], *IDS[16:40]])
    assert computed == [40, 40]


def test_an_empty_prompt_is_refused_and_what_was_there_stays(decoder):
    decoder.prefill(IDS[:33])
    with pytest.raises(PromptError, match="found 0 tokens"):
        decoder.prefill([])
    assert (decoder.sequence.length, len(decoder.prefix_cache)) == (33, 2)


@pytest.mark.parametrize("piece", [1, 5, 16, 17])
def test_what_follows_a_known_prefix_may_go_in_pieces(decoder, expected, monkeypatch, piece):
    decoder.prefill(IDS[:20])
    monkeypatch.setattr(decoder_module, "PREFILL_TOKENS", piece)
    assert (decoder.prefill(IDS[:48]) - expected[47]).abs().max() <= 1e-4


def test_two_sequences_share_a_prefix_and_neither_disturbs_the_other(decoder, expected):
    decoder.prefill(IDS[:40])
    first, decoder.sequence = decoder.sequence, decoder.cache.new_sequence()
    decoder.prefill([*IDS[:36], 7, 8])
    second = decoder.sequence
    assert second.page_table[:2] == first.page_table[:2]
    assert [decoder.cache.pool.ref_count(page_id) for page_id in first.page_table] == [3, 3, 1]
    decoder.sequence = first
    assert (decoder.step(IDS[40]) - expected[40]).abs().max() <= 1e-4


def test_a_pass_that_fails_half_way_gives_its_pages_back_and_leaves_the_known_ones(decoder, expected):
    decoder.prefill(IDS[:33])

    def fail(stage, layer, output):
        if (stage, layer) == ("attention", 1):
            raise KeyboardInterrupt

    decoder.observer = fail
    with pytest.raises(KeyboardInterrupt):
        decoder.prefill(IDS)
    assert decoder.cache.pool.num_used == len(decoder.prefix_cache) == 2
    decoder.observer = None
    assert (decoder.prefill(IDS) - expected[59]).abs().max() <= 1e-4


def test_without_a_prefix_cache_nothing_is_shared(load_exact):
    decoder = load_exact()
    first_logits = decoder.prefill(IDS[:32])
    first, decoder.sequence = decoder.sequence, decoder.cache.new_sequence()
    assert torch.equal(decoder.prefill(IDS[:32]), first_logits)
    assert not set(first.page_table) & set(decoder.sequence.page_table)


# When the pool is short


def test_a_prompt_evicts_old_prefixes_before_it_is_refused(decoder, computed, expected):
    """6 pages: two prompts of 40 leave 4 known pages; one of 60 needs 4, so the older prompt loses its pages."""
    for token_ids in ([9] * 40, IDS[::-1][:40]):
        decoder.prefill(token_ids)
    assert len(decoder.prefix_cache) == 4
    assert (decoder.prefill(IDS[:60]) - expected[59]).abs().max() <= 1e-4
    assert decoder.cache.pool.num_free == 0
    decoder.prefill(IDS[::-1][:40])
    decoder.prefill([9] * 40)
    assert computed == [40, 40, 60, 8, 40]


def test_a_step_evicts_old_prefixes_before_the_text_ends(load_exact, expected):
    decoder = load_exact(num_pages=3)
    decoder.prefix_cache = PrefixCache(decoder.cache)
    decoder.prefill([9] * 33)
    decoder.prefill(IDS[:16])
    assert decoder.cache.pool.num_free == 0
    assert decoder.room() == 32
    for length in range(16, 40):
        assert (decoder.step(IDS[length]) - expected[length]).abs().max() <= 1e-4
    assert len(decoder.prefix_cache) == 1  # the first page of IDS, which is in use
    assert decoder.prefix_cache.num_evictable == 0


def test_a_pool_in_use_refuses_and_everybody_keeps_what_they_have(load_exact):
    decoder = load_exact(num_pages=3)
    decoder.prefix_cache = PrefixCache(decoder.cache)
    decoder.prefill(IDS[:33])
    first, decoder.sequence = decoder.sequence, decoder.cache.new_sequence()
    with pytest.raises(PromptError, match=r"expected at most 0: .* the pool 0 free pages"):
        decoder.prefill([9] * 16)
    with pytest.raises(PromptError, match="found 49 tokens, expected at most 32"):
        decoder.prefill([*IDS[:33], *[9] * 16])
    assert decoder.prefix_cache.page_ids == (first.page_table[1], first.page_table[0])
    assert [decoder.cache.pool.ref_count(page_id) for page_id in first.page_table] == [2, 2, 1]


def test_a_prompt_fits_because_its_prefix_is_there_already(load_exact, expected):
    """4 pages, 3 of them in use by another request with the same first 32 tokens: 40 tokens need one page more."""
    decoder = load_exact(num_pages=4)
    decoder.prefix_cache = PrefixCache(decoder.cache)
    decoder.prefill(IDS[:33])
    decoder.sequence = decoder.cache.new_sequence()
    assert (decoder.prefill(IDS[:40]) - expected[39]).abs().max() <= 1e-4
    assert decoder.cache.pool.num_free == 0


def test_one_page_and_one_token_are_told_in_the_singular(load_exact):
    decoder = load_exact(num_pages=1)
    with pytest.raises(PromptError, match=r"expected at most 16: .* the pool 1 free page of 16$"):
        decoder.prefill(IDS[:17])
    decoder.prefill(IDS[:16])
    decoder.sequence = decoder.cache.new_sequence()
    with pytest.raises(PromptError, match="found 1 token, expected at most 0"):
        decoder.prefill(IDS[:1])


# Of another cache


def test_prefixes_of_another_cache_are_refused_and_what_was_there_stays(load_exact, expected):
    """Its ids name other memory: sharing or evicting them would corrupt both pools without a word."""
    decoder, other = load_exact(num_pages=6), load_exact(num_pages=6)
    decoder.prefill(IDS[:33])
    decoder.prefix_cache = PrefixCache(other.cache)
    for action in (lambda: decoder.prefill(IDS[:40]), lambda: decoder.step(IDS[33]), decoder.room):
        with pytest.raises(NanoqwenError, match=r"^prefix_cache: knows pages of another cache; set decoder\.prefix"):
            action()
    assert (decoder.sequence.length, decoder.cache.pool.num_used, other.cache.pool.num_used) == (33, 3, 0)
    decoder.prefix_cache = PrefixCache(decoder.cache)
    assert (decoder.step(IDS[33]) - expected[33]).abs().max() <= 1e-4


# With the shipped model


def test_the_shipped_model_writes_the_same_text_after_a_known_prefix():
    prompt = "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n"
    prompt += "        self.items.append(item)\n\n    def pop(self):\n        return self.items.pop()\n\n"
    plain, knowing = running_decoder(), running_decoder()
    knowing.prefix_cache = PrefixCache(knowing.cache)
    ids = plain.tokenizer.encode(prompt)
    end = plain.tokenizer.encode("    def peek(")
    assert len(ids) > 2 * PAGE_SLOTS
    knowing.prefill(ids)
    texts = [list(decoder.generate([*ids, *end], 16)) for decoder in (plain, knowing)]
    assert texts[0] == texts[1]
    assert knowing.cache.pool.ref_count(knowing.sequence.page_table[1]) == 2


# The pages themselves


def test_a_page_is_known_once_whoever_computed_it():
    cache = cache_of(8)
    prefixes = PrefixCache(cache)
    both = [prefixes.start(range(40)), prefixes.start(range(40))]
    for sequence in both:
        write(cache, sequence, range(40))
        prefixes.remember(sequence, range(40))
    assert set(prefixes.page_ids) == set(both[0].page_table[:2])
    cache.free(both[1])
    assert cache.pool.num_used == 3


def test_the_least_recently_used_prefix_goes_first_and_its_end_before_its_beginning():
    cache = cache_of(8)
    prefixes = PrefixCache(cache)
    tables = []
    for token in (1, 2):
        sequence = remembered(cache, prefixes, [token] * 49)
        tables.append(list(sequence.page_table))
        cache.free(sequence)
    cache.free(prefixes.start([1] * 49))
    order = [*tables[1][2::-1], *tables[0][2::-1]]
    for page_id in order:
        assert prefixes.evict(1) == 1
        assert cache.pool.free_ids[0] == page_id
    assert (prefixes.evict(1), len(prefixes), cache.pool.num_free) == (0, 0, 8)


def test_pages_in_use_stay_and_so_does_what_they_continue():
    """A second sequence computed the same tokens by itself: it holds page 2 of the chain and not pages 0 and 1."""
    cache = cache_of(8)
    prefixes = PrefixCache(cache)
    first, second = prefixes.start(range(33)), prefixes.start(range(49))
    for sequence, length in ((first, 33), (second, 49)):
        write(cache, sequence, range(length))
        prefixes.remember(sequence, range(length))
    cache.free(first)
    assert (prefixes.num_evictable, prefixes.evict(9)) == (0, 0)
    cache.free(second)
    assert (prefixes.num_evictable, prefixes.evict(9), cache.pool.num_free) == (3, 3, 8)


@pytest.mark.parametrize("num_pages", [0, -3])
def test_evicting_no_page_evicts_none(num_pages):
    cache = cache_of(4)
    prefixes = PrefixCache(cache)
    cache.free(remembered(cache, prefixes, range(33)))
    assert (prefixes.evict(num_pages), len(prefixes)) == (0, 2)


def test_writing_into_a_known_page_after_going_back_writes_into_a_copy():
    cache = cache_of(4)
    prefixes = PrefixCache(cache)
    sequence = remembered(cache, prefixes, range(20))
    cache.truncate(sequence, 10)
    write(cache, sequence, [7])
    cache.free(sequence)
    assert read(cache, prefixes.start(range(20))) == list(range(16))


def test_odd_tokens_and_counts_are_refused_in_one_line():
    prefixes = PrefixCache(cache_of(4))
    with pytest.raises(NanoqwenError, match=r"^token id: found 1\.5, expected a whole number$"):
        prefixes.start([1.5] * 40)
    with pytest.raises(NanoqwenError, match=r"^num_pages: found 1\.5, expected a whole number$"):
        prefixes.evict(1.5)


@pytest.mark.parametrize("token_ids", [range(19), range(21), []])
def test_tokens_that_are_not_those_of_the_sequence_are_refused(token_ids):
    cache = cache_of(4)
    prefixes = PrefixCache(cache)
    sequence = remembered(cache, prefixes, range(20))
    with pytest.raises(NanoqwenError, match=f"found {len(token_ids)}, expected 20"):
        prefixes.remember(sequence, token_ids)


@pytest.mark.parametrize(
    ("weak_hash", "shared"),
    [(lambda *_: 0, [0, 0, 0, 16]), (lambda _, tokens: hash(tokens), [0, 0, 16, 32])],
    ids=["constant", "page alone"],
)
def test_tokens_of_one_hash_are_not_taken_for_each_other(monkeypatch, weak_hash, shared):
    """The two texts have the same second page after another first one: its K and V differ. No page is lost either."""
    monkeypatch.setattr(prefix_cache_module, "chain_hash", weak_hash)
    cache = cache_of(8)
    prefixes = PrefixCache(cache)
    text, other = range(40), [*range(100, 116), *range(16, 40)]
    for token_ids, length in zip((text, other, other, text), shared, strict=True):
        sequence = prefixes.start(token_ids)
        assert sequence.length == length
        assert read(cache, sequence) == list(token_ids)[:length]
        cache.free(sequence)
        cache.free(remembered(cache, prefixes, token_ids))
    assert cache.pool.num_used == len(prefixes)
    prefixes.evict(8)
    assert cache.pool.num_free == 8


# Any history

DOCUMENTS = [
    tuple(range(60)),
    (*range(15), 99, *range(16, 60)),  # another token 15
    (*range(32), *range(132, 160)),  # another third page
    (*range(100, 116), *range(16, 60)),  # the same second page after another first one
]


class PrefixHistories(Histories):
    """The same histories, in which prompts also begin with known pages, are remembered, and old pages are evicted."""

    NUM_PAGES = 10

    def __init__(self):
        super().__init__()
        self.prefixes = PrefixCache(self.cache)
        self.known = {}  # page id -> what it must hold, while it is known

    @rule(target=Histories.sequences, document=st.sampled_from(DOCUMENTS), length=st.sampled_from([1, 16, 17, 32, 60]))
    def prompt(self, document, length):
        tokens = list(document[:length])
        sequence = self.prefixes.start(tokens)
        assert sequence.length % PAGE_SLOTS == 0
        assert sequence.length < length
        assert read(self.cache, sequence) == self.written(tokens)[: sequence.length]
        missing = length - sequence.length
        self.prefixes.evict(self.cache.pages_needed(sequence, missing) - self.cache.pool.num_free)
        if self.cache.room(sequence) < missing:
            tokens = tokens[: sequence.length]
        write(self.cache, sequence, self.written(tokens)[sequence.length :])
        self.model.append((sequence, tokens))
        return self.model[-1]

    @rule(pair=Histories.sequences)
    def remember(self, pair):
        sequence, tokens = pair
        before = set(self.prefixes.page_ids)
        self.prefixes.remember(sequence, tokens)
        for number, page_id in enumerate(sequence.page_table):
            if page_id in set(self.prefixes.page_ids) - before:
                self.known[page_id] = self.written(tokens)[number * PAGE_SLOTS :][:PAGE_SLOTS]

    @rule(num_pages=st.integers(0, 4))
    def evict(self, num_pages):
        in_use = {page_id for sequence, _ in self.model for page_id in sequence.page_table}
        most = min(num_pages, self.prefixes.num_evictable)
        assert self.prefixes.evict(num_pages) == most
        assert not in_use & set(self.cache.pool.free_ids)

    def held_elsewhere(self):
        return self.prefixes.page_ids

    @invariant()
    def every_known_page_holds_what_was_remembered(self):
        for page_id in self.prefixes.page_ids:
            found = self.cache.data[:, :, :, page_id].movedim(3, 0).flatten(1)
            assert (found == found[:, :1]).all()
            assert found[:, 0].tolist() == self.known[page_id]


TestPrefixHistories = PrefixHistories.TestCase
