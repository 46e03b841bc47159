import pytest

from lab_engine.errors import NanoqwenError, OutOfPages
from lab_engine.kv_pages import PagePool, PageTable, Sequence
from lab_engine.value_pages import EMPTY, ValuePool


@pytest.fixture
def pool():
    return ValuePool(4, free_order=(2, 0, 3, 1))


def holding(pool, values):
    """A sequence of at most 16 values on one page."""
    sequence = Sequence(PageTable([pool.take()]))
    for slot, value in enumerate(values):
        pool.write(sequence.page_table[0], slot, value)
    sequence.length = len(values)
    return sequence


def test_ids_are_handed_out_and_counted_by_the_engines_pool(pool):
    assert isinstance(pool, PagePool)
    assert [pool.take() for _ in range(4)] == [2, 0, 3, 1]
    with pytest.raises(OutOfPages):
        pool.take()


def test_values_are_read_through_the_table_in_the_order_of_the_tokens(pool):
    pool.take()
    sequence = holding(pool, "abc")
    sequence.page_table = PageTable([0, 2])
    sequence.length = 18
    pool.write(2, 1, "z")
    assert pool.values(sequence) == ["a", "b", "c", *[EMPTY] * 14, "z"]


def test_a_fork_shares_every_page_and_copies_the_table(pool):
    a = holding(pool, "abc")
    b = pool.fork(a)
    assert pool.ref_count(2) == 2
    assert pool.values(b) == ["a", "b", "c"]
    b.page_table[0] = 3
    assert list(a.page_table) == [2]


def test_a_copy_holds_all_16_slots_and_lives_on_its_own(pool):
    a = holding(pool, range(16))
    target = pool.take()
    pool.copy(2, target)
    pool.write(2, 0, "changed")
    assert [pool.read(target, slot) for slot in range(16)] == list(range(16))
    assert pool.values(a)[0] == "changed"
    assert (pool.ref_count(2), pool.ref_count(target)) == (1, 1)


def test_a_freed_page_keeps_its_values_until_the_next_owner_writes(pool):
    a = holding(pool, "abc")
    pool.free(a)
    assert (a.length, len(a.page_table), pool.num_free) == (0, 0, 4)
    b = holding(pool, "x")
    assert list(b.page_table) == [2]
    assert (pool.read(2, 0), pool.read(2, 1)) == ("x", "b")


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda pool: pool.write(2, 0, "a"), "page id 2: is free; `take` it before its slots are used"),
        (lambda pool: pool.copy(pool.take(), 3), "page id 3: is free; `take` it"),
        (lambda pool: pool.copy(3, pool.take()), "page id 3: is free; `take` it"),
        (lambda pool: pool.write(pool.take(), 16, "a"), "slot 16: expected 0 to 15"),
        (lambda pool: pool.write(pool.take(), -1, "a"), "slot -1: expected 0 to 15"),
        (lambda pool: pool.read(4, 0), "page id: found 4, expected 0 to 3"),
    ],
)
def test_misuse_is_refused_in_one_line(pool, misuse, message):
    with pytest.raises(NanoqwenError, match=message):
        misuse(pool)
