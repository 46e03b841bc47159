"""Random histories of a paged cache beside plain lists of tokens, and what is read and written on the way."""

import torch
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from lab_engine.config import ModelConfig
from lab_engine.errors import OutOfPages
from lab_engine.kv_pages import KVCache, pages_for

CONFIG = ModelConfig(128, 128, 1, 4, 2, 64, 300, 4096, 1e6, 1e-6, True)
CONFIG_7B = ModelConfig(3584, 18944, 28, 28, 4, 128, 152064, 32768, 1e6, 1e-6, False)


def cache_of(num_pages, config=CONFIG, **keywords):
    """A float32 cache whose slots hold NaN until a token is written."""
    cache = KVCache(config, num_pages, torch.float32, **keywords)
    cache.data.fill_(float("nan"))
    return cache


def write(cache, sequence, values):
    """Append tokens whose every K and V element is the given value; returns the ids that were taken."""
    start = sequence.length
    taken = cache.append(sequence, len(values))
    fill(cache, cache.slots(sequence, start, len(values)), values)
    return taken


def fill(cache, slots, values):
    """Write one value into all elements of each slot."""
    cache.data.flatten(3, 4)[..., slots, :] = torch.tensor(values, dtype=torch.float32)[:, None]


def read(cache, sequence):
    """The values of all tokens, found through `locate`; every plane and element must agree."""
    if not sequence.length:
        return []
    page_ids, slots = zip(*map(sequence.locate, range(sequence.length)), strict=True)
    rows = cache.data[:, :, :, page_ids, slots].movedim(3, 0).flatten(1)
    assert (rows == rows[:, :1]).all()
    return rows[:, 0].tolist()


class Histories(RuleBasedStateMachine):
    """Random appends, forks, truncations and frees beside a model that keeps plain lists.

    A new token is a new number. What is written for it stands for the whole text up to it, as K and V do.
    """

    NUM_PAGES = 6
    sequences = Bundle("sequences")

    def __init__(self):
        super().__init__()
        self.cache = cache_of(self.NUM_PAGES, free_order=[*range(3, self.NUM_PAGES), 0, 2, 1])
        self.model = []  # (sequence, its tokens)
        self.numbers = {}  # text -> what is written for its last token
        self.next_token = 1000

    def new_tokens(self, count):
        self.next_token += count
        return list(range(self.next_token - count, self.next_token))

    def written(self, tokens):
        texts = (tuple(tokens[: end + 1]) for end in range(len(tokens)))
        return [self.numbers.setdefault(text, len(self.numbers)) for text in texts]

    def state(self):
        pool = self.cache.pool
        tables = [(list(sequence.page_table), sequence.length) for sequence, _ in self.model]
        return tables, pool.free_ids, [pool.ref_count(page) for page in range(self.NUM_PAGES)]

    @rule(target=sequences)
    def begin(self):
        self.model.append((self.cache.new_sequence(), []))
        return self.model[-1]

    @rule(pair=sequences, count=st.sampled_from([0, 1, 1, 2, 7, 15, 16, 17, 40]))
    def append(self, pair, count):
        sequence, tokens = pair
        text = [*tokens, *self.new_tokens(count)]
        before, fits = self.state(), count <= self.cache.room(sequence)
        try:
            write(self.cache, sequence, self.written(text)[len(tokens) :])
        except OutOfPages:
            assert not fits
            assert self.state() == before
        else:
            assert fits
            tokens[:] = text

    @rule(every_other=st.booleans())
    def append_each(self, every_other):
        pairs = self.model[:: 2 if every_other else 1]
        before, sequences = self.state(), [sequence for sequence, _ in pairs]
        try:
            slots = self.cache.append_each(sequences)
        except OutOfPages:
            assert self.state() == before
            return
        for (_, tokens), slot in zip(pairs, slots, strict=True):
            tokens.extend(self.new_tokens(1))
            fill(self.cache, slot[None], self.written(tokens)[-1:])
        tables, lengths = self.cache.tables(sequences)
        for (sequence, tokens), row, length in zip(pairs, tables.tolist(), lengths.tolist(), strict=True):
            assert length == len(tokens)
            assert row[: pages_for(length)] == sequence.page_table
            assert not any(row[pages_for(length) :])

    @rule(target=sequences, pair=sequences)
    def fork(self, pair):
        self.model.append((self.cache.fork(pair[0]), list(pair[1])))
        return self.model[-1]

    @rule(pair=sequences, share=st.sampled_from([0, 0.3, 0.5, 0.95, 1]))
    def truncate(self, pair, share):
        sequence, tokens = pair
        length = int(share * len(tokens))
        self.cache.truncate(sequence, length)
        del tokens[length:]

    @rule(target=sequences, pair=consumes(sequences))
    def free(self, pair):
        self.cache.free(pair[0])
        self.model = [other for other in self.model if other[0] is not pair[0]]
        return multiple()

    def held_elsewhere(self):
        """Ids that somebody beside the sequences holds."""
        return []

    @invariant()
    def every_page_is_free_or_held_as_often_as_it_is_named(self):
        named = [page for sequence, _ in self.model for page in sequence.page_table] + list(self.held_elsewhere())
        pool = self.cache.pool
        assert [pool.ref_count(page) for page in range(self.NUM_PAGES)] == [
            named.count(page) for page in range(self.NUM_PAGES)
        ]
        assert pool.num_used == len(set(named))
        assert pool.num_free + pool.num_used == self.NUM_PAGES
        assert sorted([*pool.free_ids, *set(named)]) == list(range(self.NUM_PAGES))

    @invariant()
    def every_sequence_still_holds_its_own_tokens(self):
        for sequence, tokens in self.model:
            assert len(sequence.page_table) == pages_for(len(tokens))
            assert len(set(sequence.page_table)) == len(sequence.page_table)
            assert read(self.cache, sequence) == self.written(tokens)
