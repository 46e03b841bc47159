"""Pages: who holds which, where a token lies, and that no history of the cache ever loses or mixes up one."""

import doctest

import numpy as np
import pytest
import torch

import lab_engine.kv_pages
from lab_engine.config import ModelConfig
from lab_engine.errors import NanoqwenError, OutOfPages
from lab_engine.kv_pages import PAGE_SLOTS, KVCache, PagePool, PageTable, element_address, pages_for
from tests.lab_engine.kv_histories import CONFIG, CONFIG_7B, Histories, cache_of, fill, read, write

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
    with pytest.raises(NanoqwenError, match=f"token: found {token}, expected 0 to 19"):
        sequence.locate(token)


@pytest.mark.parametrize(("start", "count"), [(-1, 2), (19, 2), (0, 21), (5, -1), (21, 0)])
def test_slots_outside_the_sequence_are_refused(start, count):
    cache = cache_of(4)
    sequence = cache.new_sequence()
    cache.append(sequence, 20)
    with pytest.raises(NanoqwenError, match=r"^(start|count): found -?\d+, expected 0 to \d+$"):
        cache.slots(sequence, start, count)


def test_bytes_of_a_page_a_token_and_an_id():
    cache = KVCache(CONFIG_7B, 1, torch.bfloat16)
    assert cache.num_planes == 224
    assert cache.page_bytes == 4096
    assert cache.bytes_per_token == 57344
    assert cache.pool.bytes_per_id == 896 * 1024 == 917_504
    assert KVCache(CONFIG, 1, torch.bfloat16).page_bytes == 2048


def test_capacity_in_ids_and_in_bytes():
    """76 GB for the 7B: 82,833 ids of 917,504 bytes; on "meta" the books are kept and no memory is taken."""
    cache = KVCache(CONFIG_7B, 76 * 10**9 // 917_504, torch.bfloat16, "meta")
    assert (cache.pool.num_pages, cache.pool.num_bytes) == (82_833, 82_833 * 917_504)
    assert cache.pool.num_bytes == cache.data.nbytes
    assert cache.append(cache.new_sequence(), 17) == [0, 1]
    first = cache.new_sequence()
    cache.append(first, 20)
    assert cache.append(cache.fork(first), 1) == [4]  # a copy on write, of nothing


# The address of an element


def test_addresses_of_the_running_example_and_of_the_7b():
    assert element_address(0, 16, 12, 7, 0, 128) == 50944
    assert element_address(0, 16, 12, 7, 127, 128) + 1 == 51199
    assert element_address(30, 64, 12, 7, 5, 128) == 7_915_274  # layer 3, V, head 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_an_address_is_where_pytorch_keeps_the_element(dtype):
    config = ModelConfig(128, 128, 3, 4, 2, 64, 300, 4096, 1e6, 1e-6, True)
    data = KVCache(config, 5, dtype).data
    for layer, kind, head, page_id, slot, dim in [(0, 0, 0, 0, 0, 0), (2, 1, 1, 4, 15, 63), (1, 0, 1, 3, 7, 5)]:
        plane = (layer * 2 + kind) * 2 + head
        found = element_address(plane, 5, page_id, slot, dim, 64, data.element_size())
        assert found == data[layer, kind, head, page_id, slot, dim].data_ptr() - data.data_ptr()


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ((-1, 16, 0, 0, 0), "plane"),
        ((0, 16, 16, 0, 0), "page id"),
        ((0, 16, -1, 0, 0), "page id"),
        ((0, 16, 0, 16, 0), "slot"),
        ((0, 16, 0, 0, 128), "dim"),
    ],
)
def test_an_element_outside_the_pool_has_no_address(place, name):
    with pytest.raises(NanoqwenError, match=name):
        element_address(*place, 128)


# The page table


def test_a_page_table_reads_as_a_list_of_ints():
    table = PageTable([5, 9, 2, 12])
    assert table == [5, 9, 2, 12] == list(table)
    assert table != [5, 9, 2]
    assert table != 5
    assert (len(table), table[0], table[-1], table[1:3], table.index(2)) == (4, 5, 12, [9, 2], 2)
    assert {type(page_id) for page_id in (*table, table[0], *table[:2])} == {int}
    assert repr(table) == "PageTable([5, 9, 2, 12])"
    for page in (4, -5):
        with pytest.raises(IndexError, match="4 pages"):
            table[page]


def test_a_kernel_reads_the_table_where_it_lies():
    table = PageTable([5, 9, 2])
    tensor = table.tensor()
    assert (tensor.dtype, tensor.tolist(), tensor.is_contiguous()) == (torch.int32, [5, 9, 2], True)
    assert table.tensor().data_ptr() == tensor.data_ptr()
    table[1] = 7
    assert tensor.tolist() == [5, 7, 2]


def test_ten_thousand_appends_move_the_table_a_dozen_times():
    """Twice the length each time: constant time an append, on average."""
    table, places = PageTable(), set()
    for page_id in range(10_000):
        table.append(page_id)
        places.add(len(table._ids))
    assert table == list(range(10_000))
    assert len(places) <= 12


def test_a_table_takes_whole_numbers_only_and_stays_as_it_is():
    """An int32 array would take 1.5 for 1."""
    table = PageTable([5, np.int64(9)])
    for action in (
        lambda: table.append(1.5),
        lambda: table.append(-1),
        lambda: table.__setitem__(0, True),
        lambda: PageTable([0.5]),
        lambda: table.truncate(-1),
    ):
        with pytest.raises(NanoqwenError, match=r"^(page id|num_pages): found"):
            action()
    assert table == [5, 9]
    with pytest.raises(IndexError, match=r"logical page 1: the table has 1 page$"):
        PageTable([3])[1]


def test_a_table_cut_short_returns_the_rest():
    table = PageTable([5, 9, 2])
    assert table.truncate(5) == []
    assert table.truncate(1) == [9, 2]
    table.append(7)
    assert table == [5, 7]


def test_the_free_list_is_shown_in_the_order_in_which_it_is_taken():
    pool = PagePool(4, [2, 0, 3, 1])
    assert pool.free_ids == (2, 0, 3, 1)
    assert [pool.take(), pool.take()] == [2, 0]
    pool.release(2)
    assert pool.free_ids == (2, 3, 1)


# Running out


def test_with_no_free_page_15_to_16_succeeds_and_16_to_17_changes_nothing():
    cache = cache_of(1)
    sequence = cache.new_sequence()
    write(cache, sequence, range(15))
    assert cache.pool.num_free == 0
    write(cache, sequence, [15])
    with pytest.raises(OutOfPages, match=r"^page pool: 1 page needed, 0 of 1"):
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


def test_appending_0_tokens_takes_nothing_and_copies_nothing():
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
    changes = (cache.free, cache.append, cache.fork, lambda freed: cache.truncate(freed, 0))
    looks = (
        cache.room,
        cache.pages_needed,
        lambda freed: cache.tables([freed]),
        lambda freed: cache.slots(freed, 0, 0),
    )
    for action in (*changes, *looks):
        with pytest.raises(NanoqwenError, match="freed already"):
            action(sequence)
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
        with pytest.raises(NanoqwenError, match=f"page id: found {page_id}, expected 0 to 2"):
            action(page_id)


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [1, 2, 3], [0, 1, 2, 3]])
def test_a_free_order_that_is_no_order_of_the_ids_is_refused(order):
    with pytest.raises(NanoqwenError, match="free_order"):
        PagePool(3, order)


@pytest.mark.parametrize("num_pages", [0, -1])
def test_a_pool_without_pages_is_refused(num_pages):
    with pytest.raises(NanoqwenError, match="num_pages"):
        PagePool(num_pages)


# Whole numbers


@pytest.mark.parametrize("odd", [1.5, "3", None, True, np.float64(2), np.ones((2, 2)), [1]], ids=repr)
def test_what_is_no_whole_number_is_refused_in_one_line_and_changes_nothing(odd):
    cache = cache_of(4)
    sequence = cache.new_sequence()
    cache.append(sequence, 20)
    doors = {
        "num_tokens": [lambda: cache.append(sequence, odd), lambda: cache.pages_needed(sequence, odd)],
        "length": [lambda: cache.truncate(sequence, odd)],
        "token": [lambda: sequence.locate(odd)],
        "start": [lambda: cache.slots(sequence, odd, 1)],
        "count": [lambda: cache.slots(sequence, 0, odd)],
        "page id": [lambda: cache.pool.ref_count(odd), lambda: cache.pool.share(odd), lambda: cache.pool.release(odd)],
        "num_pages": [lambda: PagePool(odd), lambda: cache_of(odd)],
        "free_order": [lambda: PagePool(3, [odd, 1, 2])],
    }
    for name, actions in doors.items():
        for action in actions:
            with pytest.raises(NanoqwenError) as caught:
                action()
            message = str(caught.value)
            assert message.startswith(f"{name}: found ")
            assert message.endswith(", expected a whole number")
            assert "\n" not in message
    assert (sequence.length, sequence.page_table, cache.pool.free_ids) == (20, [0, 1], (2, 3))


def test_numpy_and_torch_integers_are_taken_as_ints():
    pool = PagePool(np.int64(4), torch.tensor([2, 0, 3, 1]))
    assert {type(page_id) for page_id in (pool.num_pages, *pool.free_ids)} == {int}
    pool.release(np.int64(pool.take()))
    assert {type(page_id) for page_id in pool.free_ids} == {int}
    cache = cache_of(4)
    sequence = cache.new_sequence()
    cache.append(sequence, np.int64(5))
    assert type(sequence.length) is int
    cache.truncate(sequence, torch.tensor(3))
    assert type(sequence.length) is int


def test_an_address_beyond_32_bits_does_not_wrap_around_and_half_a_plane_is_none():
    """Plane 223 of a pool of 10,000 pages begins at byte 223 * 10,000 * 4096."""
    assert element_address(*map(np.int32, (223, 10_000, 0, 0, 0, 128))) == 9_134_080_000
    with pytest.raises(NanoqwenError, match=r"^plane: found 0\.5, expected a whole number$"):
        element_address(0.5, 16, 12, 7, 0, 128)


def test_a_sequence_without_tokens_has_no_token_0():
    sequence = cache_of(1).new_sequence()
    with pytest.raises(NanoqwenError, match=r"^token: found 0, but there is none$"):
        sequence.locate(0)


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


# Many sequences at once


def lengths_of(cache, *lengths):
    """Sequences of these lengths; the values of number n are n * 1000, n * 1000 + 1, …"""
    sequences = [cache.new_sequence() for _ in lengths]
    for number, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
        write(cache, sequence, range(1000 * number, 1000 * number + length))
    return sequences


def test_one_token_each_for_many_sequences_lies_where_single_appends_put_it():
    one_by_one, together = cache_of(16), cache_of(16)
    lengths = [0, 1, 15, 16, 17, 31, 32, 33]
    singles, batch = lengths_of(one_by_one, *lengths), lengths_of(together, *lengths)
    for sequence in singles:
        one_by_one.append(sequence)
    slots = together.append_each(batch)
    assert slots.dtype == torch.int64
    assert [sequence.page_table for sequence in batch] == [sequence.page_table for sequence in singles]
    assert [sequence.length for sequence in batch] == [length + 1 for length in lengths]
    last = [page_id * PAGE_SLOTS + slot for page_id, slot in (one.locate(one.length - 1) for one in singles)]
    assert slots.tolist() == last


def test_tables_and_lengths_of_a_batch():
    order = [5, 9, 2, 12, *(page for page in range(16) if page not in (5, 9, 2, 12))]
    cache = cache_of(16, free_order=order)
    tables, lengths = cache.tables(lengths_of(cache, 33, 0, 16))
    assert (tables.dtype, lengths.dtype) == (torch.int32, torch.int32)
    assert tables.tolist() == [[5, 9, 2], [0, 0, 0], [12, 0, 0]]
    assert lengths.tolist() == [33, 0, 16]
    tables, lengths = cache.tables([])
    assert (tables.shape, lengths.shape, cache.append_each([]).shape) == ((0, 0), (0,), (0,))


def test_a_batch_that_needs_one_page_too_many_takes_none_and_raises_no_length():
    cache = cache_of(4)
    sequences = lengths_of(cache, 15, 16, 16)
    with pytest.raises(OutOfPages, match="2 pages needed, 1 of 4 are free"):
        cache.append_each(sequences)
    assert [(sequence.length, sequence.page_table) for sequence in sequences] == [(15, [0]), (16, [1]), (16, [2])]
    assert cache.pool.free_ids == (3,)
    assert [read(cache, sequence)[-1] for sequence in sequences] == [14, 1015, 2015]
    cache.append_each(sequences[:2])
    assert [sequence.length for sequence in sequences] == [16, 17, 16]


def test_forks_in_one_batch_copy_their_shared_tail_for_all_but_the_last():
    """Three holders of one half-filled page: two copies and the page itself are enough, and two free pages suffice."""
    cache = cache_of(4)
    (first,) = lengths_of(cache, 20)
    sequences = [first, cache.fork(first), cache.fork(first)]
    slots = cache.append_each(sequences)
    assert len({int(slot) // PAGE_SLOTS for slot in slots}) == 3
    assert cache.pool.num_free == 0
    fill(cache, slots, [100, 200, 300])
    assert [read(cache, sequence) for sequence in sequences] == [[*range(20), 100 * n] for n in (1, 2, 3)]
    assert cache.pool.ref_count(first.page_table[0]) == 3


def test_forks_in_one_batch_copy_for_each_where_another_fork_stays_behind():
    cache = cache_of(4)
    (first,) = lengths_of(cache, 20)
    second, third = cache.fork(first), cache.fork(first)
    cache.append_each([second, third])
    assert len({first.page_table[1], second.page_table[1], third.page_table[1]}) == 3
    assert read(cache, first) == list(range(20))


def test_a_batch_takes_a_sequence_once_and_no_freed_one():
    cache = cache_of(4)
    first, second = lengths_of(cache, 20, 5)
    with pytest.raises(NanoqwenError, match="twice"):
        cache.append_each([first, second, first])
    cache.free(second)
    with pytest.raises(NanoqwenError, match="freed already"):
        cache.append_each([first, second])
    assert first.length == 20


# Going back


@pytest.mark.parametrize(
    ("length", "kept"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2), (31, 2), (32, 2), (33, 3), (39, 3), (40, 3)]
)
def test_going_back_over_page_boundaries_releases_whole_pages_only(length, kept):
    cache = cache_of(4)
    sequence = cache.new_sequence()
    write(cache, sequence, range(40))
    cache.truncate(sequence, length)
    assert (sequence.length, len(sequence.page_table), cache.pool.num_used) == (length, kept, kept)
    assert read(cache, sequence) == list(range(length))
    write(cache, sequence, range(100, 124))
    assert read(cache, sequence) == [*range(length), *range(100, 124)]


def test_after_going_back_the_same_ids_are_taken_in_the_same_order():
    cache = cache_of(6, free_order=[4, 1, 5, 0, 3, 2])
    sequence = cache.new_sequence()
    cache.append(sequence, 60)
    cache.truncate(sequence, 10)
    assert cache.append(sequence, 50) == [1, 5, 0]


def test_going_back_into_a_shared_full_page_copies_it_on_the_next_append():
    """Both held 32 tokens; one goes back to 20 and continues: the other's tokens 20 to 31 must stay."""
    cache = cache_of(4)
    first = cache.new_sequence()
    write(cache, first, range(32))
    second = cache.fork(first)
    cache.truncate(second, 20)
    assert second.page_table == first.page_table
    assert len(write(cache, second, [7])) == 1
    assert read(cache, first) == list(range(32))
    assert read(cache, second) == [*range(20), 7]


def test_going_back_on_one_fork_leaves_the_other_its_pages():
    cache = cache_of(4)
    first = cache.new_sequence()
    write(cache, first, range(40))
    second = cache.fork(first)
    cache.truncate(first, 3)
    assert read(cache, second) == list(range(40))
    assert [cache.pool.ref_count(page_id) for page_id in second.page_table] == [2, 1, 1]


@pytest.mark.parametrize("length", [-1, 21])
def test_going_back_to_a_length_that_never_was_is_refused(length):
    cache = cache_of(2)
    sequence = cache.new_sequence()
    cache.append(sequence, 20)
    with pytest.raises(NanoqwenError, match=f"found {length}, expected 0 to 20"):
        cache.truncate(sequence, length)
    assert (sequence.length, len(sequence.page_table)) == (20, 2)


# Any history


TestHistories = Histories.TestCase


@pytest.mark.parametrize("num_pages", [0, -1, 1.5, None, "4"])
def test_a_cache_of_no_whole_number_of_pages_is_refused_by_name(num_pages):
    with pytest.raises(NanoqwenError, match="num_pages"):
        KVCache(CONFIG, num_pages, torch.float32)


@pytest.mark.parametrize("num_pages", [10**13, 10**30])
def test_a_cache_larger_than_any_memory_is_refused(num_pages):
    with pytest.raises(OutOfPages, match="no memory"):
        KVCache(CONFIG, num_pages, torch.float32)
