"""Pages: who owns which, where a token lies, and that no history of appends, forks and frees ever loses one."""

import doctest

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

import lab_engine.kv_pages
from lab_engine.config import ModelConfig
from lab_engine.errors import NanoqwenError, OutOfPages
from lab_engine.kv_pages import PAGE_SLOTS, KVCache, PagePool, pages_for

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
    slots = cache.slots(sequence, start, len(values))
    cache.data.flatten(3, 4)[..., slots, :] = torch.tensor(values, dtype=torch.float32)[:, None]
    return taken


def read(cache, sequence):
    """The values of all tokens, found through `locate`; every plane and element must agree."""
    if not sequence.length:
        return []
    page_ids, slots = zip(*map(sequence.locate, range(sequence.length)), strict=True)
    rows = cache.data[:, :, :, page_ids, slots].movedim(3, 0).flatten(1)
    assert (rows == rows[:, :1]).all()
    return rows[:, 0].tolist()


# Where a token lies


def test_the_docstrings_table_is_true():
    assert doctest.testmod(lab_engine.kv_pages).failed == 0


@pytest.mark.parametrize(
    ("tokens", "ids", "tail"),
    [(1, 1, 1), (15, 1, 15), (16, 1, 16), (17, 2, 1), (31, 2, 15), (32, 2, 16), (33, 3, 1), (56, 4, 8)],
)
def test_pages_and_tail_of_a_length(tokens, ids, tail):
    cache = cache_of(4)
    sequence = cache.new_sequence()
    cache.append(sequence, tokens)
    assert len(sequence.page_table) == pages_for(tokens) == cache.pool.num_used == ids
    assert sequence.locate(tokens - 1)[1] == tail - 1


def test_one_token_at_a_time_takes_a_page_at_slot_0_and_never_else():
    cache = cache_of(13)
    sequence = cache.new_sequence()
    for length in range(1, 201):
        taken = cache.append(sequence, 1)
        assert len(taken) == (1 if length % PAGE_SLOTS == 1 else 0)
        assert cache.pool.num_used == -(-length // PAGE_SLOTS)


def test_the_running_example_lies_on_pages_5_9_2_12():
    order = [5, 9, 2, 12, *(page for page in range(16) if page not in (5, 9, 2, 12))]
    cache = cache_of(16, free_order=order)
    sequence = cache.new_sequence()
    assert cache.append(sequence, 56) == [5, 9, 2, 12]
    assert sequence.locate(55) == (12, 7)
    assert [sequence.locate(token) for token in (0, 15, 16)] == [(5, 0), (5, 15), (9, 0)]
    assert cache.slots(sequence, 46, 4).tolist() == [2 * 16 + 14, 2 * 16 + 15, 12 * 16, 12 * 16 + 1]


@pytest.mark.parametrize("token", [-1, 20, 64])
def test_a_token_outside_the_sequence_is_nowhere(token):
    """-1 // 16 is -1 and -1 % 16 is 15: unchecked, that is the last slot of the last page."""
    cache = cache_of(4)
    sequence = cache.new_sequence()
    cache.append(sequence, 20)
    with pytest.raises(NanoqwenError, match=f"token {token}"):
        sequence.locate(token)


@pytest.mark.parametrize(("start", "count"), [(-1, 2), (19, 2), (0, 21), (5, -1), (21, 0)])
def test_slots_outside_the_sequence_are_refused(start, count):
    cache = cache_of(4)
    sequence = cache.new_sequence()
    cache.append(sequence, 20)
    with pytest.raises(NanoqwenError):
        cache.slots(sequence, start, count)


def test_bytes_of_a_page_a_token_and_an_id():
    cache = KVCache(CONFIG_7B, 1, torch.bfloat16)
    assert cache.num_planes == 224
    assert cache.page_bytes == 4096
    assert cache.bytes_per_token == 57344
    assert cache.num_planes * cache.page_bytes == 896 * 1024
    assert KVCache(CONFIG, 1, torch.bfloat16).page_bytes == 2048


# Running out


def test_with_no_free_page_15_to_16_succeeds_and_16_to_17_changes_nothing():
    cache = cache_of(1)
    sequence = cache.new_sequence()
    write(cache, sequence, range(15))
    assert cache.pool.num_free == 0
    write(cache, sequence, [15])
    with pytest.raises(OutOfPages, match="1 pages needed, 0 of 1"):
        cache.append(sequence, 1)
    assert (sequence.length, sequence.page_table) == (16, [0])
    assert read(cache, sequence) == list(range(16))


def test_a_request_that_needs_more_pages_than_there_are_takes_none():
    cache = cache_of(3)
    sequence = cache.new_sequence()
    cache.append(sequence, 10)
    with pytest.raises(OutOfPages):
        cache.append(sequence, 39)
    assert (sequence.length, cache.pool.num_free) == (10, 2)
    cache.append(sequence, 38)
    assert (sequence.length, cache.pool.num_free) == (48, 0)


def test_a_pool_with_a_shared_tail_needs_a_page_for_the_copy():
    cache = cache_of(2)
    first = cache.new_sequence()
    write(cache, first, range(20))
    second = cache.fork(first)
    with pytest.raises(OutOfPages):
        cache.append(second, 1)
    assert (second.length, second.page_table) == (20, first.page_table)
    assert cache.pool.ref_count(first.page_table[1]) == 2
    cache.free(first)
    write(cache, second, [7])
    assert read(cache, second) == [*range(20), 7]


@pytest.mark.parametrize("count", [-1, -17])
def test_a_negative_number_of_tokens_is_refused(count):
    cache = cache_of(2)
    sequence = cache.new_sequence()
    cache.append(sequence, 20)
    with pytest.raises(NanoqwenError, match=str(count)):
        cache.append(sequence, count)
    assert sequence.length == 20


def test_growing_by_0_tokens_takes_nothing_and_copies_nothing():
    cache = cache_of(2)
    first = cache.new_sequence()
    assert cache.append(first, 0) == []
    cache.append(first, 20)
    assert cache.append(cache.fork(first), 0) == []


def test_fragments_are_as_good_as_one_run():
    """8 sequences of 2 pages, every other one freed: 100 tokens fit, though no two free ids are neighbours twice."""
    cache = cache_of(16)
    sequences = [cache.new_sequence() for _ in range(8)]
    for sequence in sequences:
        cache.append(sequence, 32)
    for sequence in sequences[::2]:
        cache.free(sequence)
    late = cache.new_sequence()
    write(cache, late, range(100))
    assert read(cache, late) == list(range(100))


# Freeing


def test_freeing_twice_is_refused_and_every_id_is_still_there_once():
    cache = cache_of(4)
    sequence = cache.new_sequence()
    cache.append(sequence, 40)
    cache.free(sequence)
    for action in (lambda: cache.free(sequence), lambda: cache.append(sequence, 1), lambda: cache.fork(sequence)):
        with pytest.raises(NanoqwenError, match="freed already"):
            action()
    assert sorted(cache.pool.take() for _ in range(4)) == [0, 1, 2, 3]
    with pytest.raises(OutOfPages):
        cache.pool.take()


def test_releasing_or_sharing_a_free_id_is_refused():
    pool = PagePool(2)
    page = pool.take()
    pool.release(page)
    with pytest.raises(NanoqwenError, match="double free"):
        pool.release(page)
    with pytest.raises(NanoqwenError, match="free"):
        pool.share(page)
    assert pool.num_free == 2


@pytest.mark.parametrize("page_id", [-1, 3, 99])
def test_an_id_outside_the_pool_is_refused_never_taken_for_another(page_id):
    pool = PagePool(3)
    for action in (pool.ref_count, pool.share, pool.release):
        with pytest.raises(NanoqwenError, match=f"page id {page_id}"):
            action(page_id)


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [1, 2, 3], [0, 1, 2, 3]])
def test_a_free_order_that_is_no_order_of_the_ids_is_refused(order):
    with pytest.raises(NanoqwenError, match="free_order"):
        PagePool(3, order)


@pytest.mark.parametrize("num_pages", [0, -1])
def test_a_pool_without_pages_is_refused(num_pages):
    with pytest.raises(NanoqwenError, match="num_pages"):
        PagePool(num_pages)


# Forks


def test_forks_at_20_share_page_0_and_copy_page_1_on_the_first_write():
    cache = cache_of(8)
    first = cache.new_sequence()
    write(cache, first, range(20))
    second = cache.fork(first)
    assert second.page_table == first.page_table
    assert cache.pool.num_used == 2
    assert write(cache, second, [100]) != []
    assert write(cache, first, [200]) == []  # the only owner again: it writes in place
    assert read(cache, second) == [*range(20), 100]
    assert read(cache, first) == [*range(20), 200]
    assert first.page_table[0] == second.page_table[0]
    assert cache.pool.ref_count(first.page_table[0]) == 2
    assert first.page_table[1] != second.page_table[1]
    assert cache.pool.ref_count(first.page_table[1]) == cache.pool.ref_count(second.page_table[1]) == 1


def test_forks_at_16_share_a_full_page_and_copy_nothing():
    cache = cache_of(3)
    first = cache.new_sequence()
    write(cache, first, range(16))
    second = cache.fork(first)
    write(cache, first, [1])
    write(cache, second, [2])
    assert cache.pool.num_used == 3
    assert (read(cache, first)[16], read(cache, second)[16]) == (1, 2)


def test_freeing_one_fork_leaves_the_other_whole():
    cache = cache_of(4)
    first = cache.new_sequence()
    write(cache, first, range(20))
    second = cache.fork(first)
    cache.free(first)
    assert read(cache, second) == list(range(20))
    cache.free(second)
    assert cache.pool.num_free == 4


def test_a_prefix_of_40_shared_by_four_takes_10_ids_instead_of_16():
    cache = cache_of(16)
    first = cache.new_sequence()
    write(cache, first, range(40))
    sequences = [first, *(cache.fork(first) for _ in range(3))]
    for number, sequence in enumerate(sequences):
        write(cache, sequence, [1000 * number + i for i in range(16)])
    assert cache.pool.num_used == 10
    for number, sequence in enumerate(sequences):
        assert read(cache, sequence) == [*range(40), *(1000 * number + i for i in range(16))]


# Any history


class Histories(RuleBasedStateMachine):
    """Random appends, forks and frees beside a model that keeps plain lists."""

    sequences = Bundle("sequences")

    def __init__(self):
        super().__init__()
        self.cache = cache_of(6, free_order=[3, 0, 5, 1, 4, 2])
        self.model = []  # (sequence, its values)
        self.next_value = 0

    @rule(target=sequences)
    def begin(self):
        self.model.append((self.cache.new_sequence(), []))
        return self.model[-1]

    @rule(pair=sequences, count=st.sampled_from([0, 1, 1, 2, 7, 15, 16, 17, 40]))
    def append(self, pair, count):
        sequence, values = pair
        new = list(range(self.next_value, self.next_value + count))
        before = (list(sequence.page_table), sequence.length, self.cache.pool.num_free)
        try:
            write(self.cache, sequence, new)
        except OutOfPages:
            assert (sequence.page_table, sequence.length, self.cache.pool.num_free) == before
        else:
            self.next_value += count
            values.extend(new)

    @rule(target=sequences, pair=sequences)
    def fork(self, pair):
        self.model.append((self.cache.fork(pair[0]), list(pair[1])))
        return self.model[-1]

    @rule(target=sequences, pair=consumes(sequences))
    def free(self, pair):
        self.cache.free(pair[0])
        self.model = [other for other in self.model if other[0] is not pair[0]]
        return multiple()

    @invariant()
    def every_page_is_free_or_owned_as_often_as_tables_name_it(self):
        named = [page for sequence, _ in self.model for page in sequence.page_table]
        pool = self.cache.pool
        assert [pool.ref_count(page) for page in range(6)] == [named.count(page) for page in range(6)]
        assert pool.num_used == len(set(named))
        assert pool.num_free + pool.num_used == 6

    @invariant()
    def every_sequence_still_holds_its_own_tokens(self):
        for sequence, values in self.model:
            assert len(sequence.page_table) == pages_for(len(values))
            assert read(self.cache, sequence) == values


TestHistories = Histories.TestCase


@pytest.mark.parametrize("num_pages", [0, -1, 1.5, None, "4"])
def test_a_cache_of_no_whole_number_of_pages_is_refused_by_name(num_pages):
    with pytest.raises(NanoqwenError, match="num_pages"):
        KVCache(CONFIG, num_pages, torch.float32)


@pytest.mark.parametrize("num_pages", [10**13, 10**30])
def test_a_cache_larger_than_any_memory_is_refused(num_pages):
    with pytest.raises(OutOfPages, match="no memory"):
        KVCache(CONFIG, num_pages, torch.float32)
