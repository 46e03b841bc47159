import pytest

from lab_engine.checks.lab04_append import EXERCISE as APPEND
from lab_engine.checks.lab04_append import append
from lab_engine.errors import OutOfPages
from lab_engine.kv_pages import PageTable, Sequence
from lab_engine.value_pages import ValuePool
from tests.lab_engine.checks.answers import names


def append_with(
    *,
    new_page_at=0,
    shared_above=1,
    copies=True,
    releases=True,
    release_first=False,
    length_first=False,
    counts=True,
    slot_0_first=True,
    renames=True,
    into=None,
    slot_shift=0,
):
    """An append that does one thing differently."""

    def run(pool, sequence, value):
        page, slot = divmod(sequence.length, 16)
        table = sequence.page_table
        if length_first:
            sequence.length += 1
        if slot == new_page_at and slot_0_first:
            table.append(pool.take())
        elif len(table) and (slot or not slot_0_first) and pool.ref_count(table[-1]) > shared_above:
            old = table[-1]
            if release_first:
                pool.release(old)
            own = pool.take()
            if copies:
                pool.copy(old, own)
            if releases and not release_first:
                pool.release(old)
            if renames:
                table[-1] = own
        if slot == 0 and not slot_0_first:
            table.append(pool.take())
        pool.write(table[page], (slot + slot_shift) % 16, value)
        if counts and not length_first:
            sequence.length += 1

    return run


def page_taken_at_slot_15(pool, sequence, value):
    if sequence.length == 0:
        sequence.page_table.append(pool.take())
    append_with(new_page_at=None)(pool, sequence, value)
    if sequence.length % 16 == 0:
        sequence.page_table.append(pool.take())


def copies_backwards(pool, sequence, value):
    table = sequence.page_table
    if sequence.length % 16 and pool.ref_count(table[-1]) > 1:
        own = pool.take()
        pool.copy(own, table[-1])
        pool.release(table[-1])
        table[-1] = own
    append_with(shared_above=99)(pool, sequence, value)


def writes_before_the_copy(pool, sequence, value):
    if sequence.length % 16:
        pool.write(sequence.page_table[-1], sequence.length % 16, value)
    append(pool, sequence, value)


def lets_all_others_go(pool, sequence, value):
    while sequence.length % 16 and pool.ref_count(sequence.page_table[-1]) > 2:
        pool.release(sequence.page_table[-1])
    append(pool, sequence, value)


def swallows_out_of_pages(pool, sequence, value):
    try:
        append(pool, sequence, value)
    except OutOfPages:
        return


def always_takes_one_to_spare(pool, sequence, value):
    append(pool, sequence, value)
    if sequence.length == 17:
        pool.take()


def releases_every_page(pool, sequence, value):
    shared = sequence.length % 16 and pool.ref_count(sequence.page_table[-1]) > 1
    others = list(sequence.page_table[:-1]) if shared else []
    append(pool, sequence, value)
    for page_id in others:
        pool.release(page_id)


def one_tail_for_all():
    """The last page id kept outside of the sequence."""
    tail = None

    def run(pool, sequence, value):
        nonlocal tail
        if sequence.length % 16 == 0:
            tail = pool.take()
            sequence.page_table.append(tail)
        elif tail is None or not pool.ref_count(tail):
            tail = sequence.page_table[-1]
        pool.write(tail, sequence.length % 16, value)
        sequence.length += 1

    return run


def copies_where(shared, *, tail=-1, slots=16):
    """An append that asks shared(pool, sequence) whether to copy, and copies the first slots of one page."""

    def run(pool, sequence, value):
        table, slot = sequence.page_table, sequence.length % 16
        if slot == 0:
            table.append(pool.take())
        elif shared(pool, sequence):
            old, own = table[tail], pool.take()
            for old_slot in range(slots):
                pool.write(own, old_slot, pool.read(old, old_slot))
            pool.release(old)
            table[tail] = own
        pool.write(table[-1], slot, value)
        sequence.length += 1

    return run


def is_shared(pool, sequence, page=-1):
    return pool.ref_count(sequence.page_table[page]) > 1


def any_is_shared(pool, sequence):
    return any(pool.ref_count(page_id) > 1 for page_id in sequence.page_table)


def page_1_is_shared(pool, sequence):
    return len(sequence.page_table) > 1 and is_shared(pool, sequence, 1)


def not_at_slot_15(pool, sequence):
    return sequence.length % 16 < 15 and is_shared(pool, sequence)


def past_the_first_page(pool, sequence):
    return sequence.length > 16 and is_shared(pool, sequence)


def full_page_released(pool, sequence, value):
    if sequence.length and sequence.length % 16 == 0:
        pool.release(sequence.page_table[-1])
    append(pool, sequence, value)


def full_page_released_after_the_take(pool, sequence, value):
    append(pool, sequence, value)
    if sequence.length == 17:
        pool.release(sequence.page_table[0])


def last_id_put_in_again(pool, sequence, value):
    if sequence.length == 16:
        sequence.page_table.append(sequence.page_table[-1])
        pool.write(sequence.page_table[-1], 0, value)
        sequence.length += 1
    else:
        append(pool, sequence, value)


def new_page_in_front(pool, sequence, value):
    if sequence.length % 16 == 0:
        sequence.page_table = [pool.take(), *sequence.page_table]
        pool.write(sequence.page_table[-1], 0, value)
        sequence.length += 1
    else:
        append(pool, sequence, value)


ALL = names(APPEND)
NEW = {"16 tokens", "17 tokens", "two sequences in turn"}
OWN = {"one fork freed first", "an own tail in a full pool"}
CUT = "fork at 24 and a cut to 20"
AGAIN = "an own tail after its copy"
FORKS = {"fork at 7", "fork at 20", "fork at 47", "two forks at 20", CUT, AGAIN}
FULL = {"a shared tail in a full pool", "16 → 17 with 0 free"}
WRONG = {
    "no copy": (append_with(shared_above=99), "Two owners, one page", {*FORKS, "a shared tail in a full pool"}),
    "copy without the old slots": (append_with(copies=False), "The old tokens did not come along", FORKS),
    "old page not released": (append_with(releases=False), "A leak", FORKS),
    "released before the take": (append_with(release_first=True), "take first", {"a shared tail in a full pool"}),
    "length raised before the take": (append_with(length_first=True), "Fail first, then change", FULL),
    "copies though it is the only owner": (append_with(shared_above=0), "write in place", {AGAIN, *OWN}),
    "page taken at slot 15": (page_taken_at_slot_15, "A page is taken at slot 0", None),
    "copy in the wrong direction": (copies_backwards, "the source first", FORKS),
    "written before the copy": (writes_before_the_copy, "into the copy", {CUT}),
    "a full page copied": (append_with(slot_0_first=False), "A full page is never written again", {"fork at 16"}),
    "the table not changed": (append_with(renames=False), "write into the copy", FORKS),
    "all others let go": (lets_all_others_go, "Release the old page once", {"two forks at 20"}),
    "every page released": (releases_every_page, "Release the old page once", FORKS - {"fork at 7"}),
    "copies while page 0 is shared": (copies_where(lambda *a: is_shared(*a, 0)), "write in place", {AGAIN}),
    "copies while any page is shared": (copies_where(any_is_shared), "write in place", {AGAIN}),
    "page 1 taken for the tail": (
        copies_where(page_1_is_shared, tail=1),
        "Two owners, one page",
        {"fork at 7", "fork at 47"},
    ),
    "no copy at slot 15": (copies_where(not_at_slot_15), "Two owners, one page", {"fork at 47"}),
    "no copy in page 0": (copies_where(past_the_first_page), "Two owners, one page", {"fork at 7"}),
    "slots 0 to 3 copied": (
        copies_where(is_shared, slots=4),
        "The old tokens did not come along",
        {"fork at 7", "fork at 47"},
    ),
    "a full page released": (full_page_released, "an id of its own", None),
    "a full page released after the take": (full_page_released_after_the_take, "a full page keeps its tokens", None),
    "the last id put in again": (last_id_put_in_again, "at slot 0 `take` a new page", None),
    "a new page in front": (new_page_in_front, "a new page goes to its end", None),
    "length not counted": (append_with(counts=False), "`length` grows by 1", ALL - FULL),
    "one slot too far": (append_with(slot_shift=1), "slot t % 16", ALL - FULL),
    "OutOfPages swallowed": (swallows_out_of_pages, "let its error through", FULL),
    "a page to spare": (always_takes_one_to_spare, "A page that is taken stands in a table", None),
    "one tail for all": (one_tail_for_all(), "Each sequence has its own tail", None),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_append_fails_with_its_own_hint_on_the_cases_that_show_it(name, failing_cases):
    wrong, hint, only = WRONG[name]
    verdict = APPEND.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    assert verdict.hint
    if only is not None:
        assert failing_cases(APPEND, wrong) == only


def test_equal_tokens_on_both_forks_would_let_a_missing_copy_pass():
    def both(append_one, values):
        pool, a = ValuePool(4), Sequence()
        for token in range(20):
            append(pool, a, token)
        b = pool.fork(a)
        for sequence, value in zip((a, b), values, strict=True):
            append_one(pool, sequence, value)
        return pool.values(a)[20], pool.values(b)[20]

    no_copy = WRONG["no copy"][0]
    assert both(no_copy, ("same", "same")) == both(append, ("same", "same")) == ("same", "same")
    assert both(append, ("one", "other")) == ("one", "other")
    assert both(no_copy, ("one", "other")) == ("other", "other")


def asks_the_pool_first(pool, sequence, value):
    table, slot = sequence.page_table, sequence.length % 16
    shared = slot > 0 and pool.ref_count(table[-1]) > 1
    if (slot == 0 or shared) and pool.num_free == 0:
        raise OutOfPages("no page is free")
    if slot == 0:
        table.append(pool.take())
    if shared:
        new = pool.take()
        pool.copy(table[-1], new)
        pool.release(table[-1])
        table[-1] = new
    pool.write(table[-1], slot, value)
    sequence.length = sequence.length + 1


def a_new_table_and_slots_by_hand(pool, sequence, value):
    ids, slot = list(sequence.page_table), sequence.length % 16
    if slot == 0:
        ids = [*ids, pool.take()]
    elif pool.ref_count(ids[-1]) >= 2:
        own = pool.take()
        for old_slot in range(slot):
            pool.write(own, old_slot, pool.read(ids[-1], old_slot))
        pool.release(ids[-1])
        ids[-1] = own
    sequence.page_table = ids
    pool.write(ids[-1], slot, value)
    sequence.length += 1


def takes_back_what_it_did(pool, sequence, value):
    old = Sequence(PageTable(sequence.page_table), sequence.length)
    sequence.length += 1
    try:
        if old.length % 16 == 0:
            sequence.page_table.append(pool.take())
        elif pool.ref_count(old.page_table[-1]) > 1:
            sequence.page_table[-1] = pool.take()
            pool.release(old.page_table[-1])
            pool.copy(old.page_table[-1], sequence.page_table[-1])
    except OutOfPages:
        sequence.length = old.length
        raise
    pool.write(sequence.page_table[-1], old.length % 16, value)
    return value


@pytest.mark.parametrize("right", [append, asks_the_pool_first, a_new_table_and_slots_by_hand, takes_back_what_it_did])
def test_a_right_append_passes(right):
    verdict = APPEND.check(right)
    assert verdict.status == "passed", verdict


def looks_at_the_tail_first(pool, sequence, value):
    if pool.ref_count(sequence.page_table[-1]) > 1:
        return
    append(pool, sequence, value)


def no_page_taken(pool, sequence, value):
    pool.write(sequence.page_table[sequence.length // 16], sequence.length % 16, value)
    sequence.length += 1


def slot_16(pool, sequence, value):
    append(pool, sequence, value)
    pool.write(sequence.page_table[-1], (sequence.length - 1) % 16 + 1, value)


def releases_twice(pool, sequence, value):
    shared = sequence.length % 16 and pool.ref_count(sequence.page_table[-1]) > 1
    old = sequence.page_table[-1] if shared else None
    append(pool, sequence, value)
    if shared:
        pool.release(old)
        pool.release(old)


def releases_twice_before_the_copy(pool, sequence, value):
    if sequence.length % 16 and is_shared(pool, sequence):
        old, own = sequence.page_table[-1], pool.take()
        pool.release(old)
        pool.release(old)
        pool.copy(old, own)
    append(pool, sequence, value)


def releases_the_copy(pool, sequence, value):
    if sequence.length % 16 and is_shared(pool, sequence):
        own = pool.take()
        pool.copy(sequence.page_table[-1], own)
        pool.release(own)
        sequence.page_table[-1] = own
    append(pool, sequence, value)


def logical_page_as_id(pool, sequence, value):
    append(pool, sequence, value)
    pool.write((sequence.length - 1) // 16, (sequence.length - 1) % 16, value)


def raises_memory_error(pool, sequence, value):
    try:
        append(pool, sequence, value)
    except OutOfPages:
        raise MemoryError("no page") from None


def goes_on_without_a_page(pool, sequence, value):
    try:
        append(pool, sequence, value)
    except OutOfPages:
        pool.write(sequence.page_table[sequence.length // 16 + 1], 0, value)


def no_ids(pool, sequence, value):
    append(pool, sequence, value)
    sequence.page_table = ["page"] * len(sequence.page_table)


def half_lengths(pool, sequence, value):
    append(pool, sequence, value)
    sequence.length += 0.5


def length_by_slots(pool, sequence, value):
    append(pool, sequence, value)
    sequence.length += 15


@pytest.mark.parametrize(
    ("wrong", "message", "hint"),
    [
        (looks_at_the_tail_first, "raised IndexError: logical page -1: the table has 0 pages", "before you look"),
        (no_page_taken, "raised IndexError: logical page 0: the table has 0 pages", "take one"),
        (slot_16, "raised NanoqwenError: slot 16: expected 0 to 15", "The slot is length % 16"),
        (
            releases_twice,
            "raised NanoqwenError: page id 2: is free already (double free)",
            "Release the shared page once",
        ),
        (
            releases_twice_before_the_copy,
            "raised NanoqwenError: page id 2: is free; `take` it before its slots are used",
            "Release the shared page once",
        ),
        (releases_the_copy, "raised NanoqwenError: page id 7: is free; `take` it", "Release the shared page once"),
        (logical_page_as_id, "raised NanoqwenError: page id 0: is free; `take` it", "not the logical page"),
        (raises_memory_error, "raised MemoryError: no page", "let its error through"),
        (goes_on_without_a_page, "raised IndexError", "let its error through"),
        (no_ids, "after A0 was appended, the table of a holds a str; expected page ids from 0 to 7", ""),
        (half_lengths, "after A0 was appended, the length of a is a float; expected a count", "`length` grows by 1"),
        (length_by_slots, "after A0 was appended, the length of a is 16; expected 1", "`length` grows by 1"),
    ],
)
def test_what_breaks_a_sequence_is_said_in_words(wrong, message, hint):
    verdict = APPEND.check(wrong)
    assert verdict.status == "failed"
    assert verdict.message.startswith(message), verdict
    assert hint in verdict.hint


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (full_page_released, "page id 5 stands more than once in the table of a: 5 5"),
        (full_page_released_after_the_take, "page id 5 stands in 1 table; its `ref_count` is 0"),
        (lets_all_others_go, "page id 2 stands in 2 tables; its `ref_count` is 1"),
    ],
)
def test_a_page_released_too_often_is_told_by_the_table_and_the_count_that_are_there(wrong, message):
    verdict = APPEND.check(wrong)
    assert verdict.message == message
    assert verdict.expected is None


def test_the_verdict_shows_the_token_that_was_overwritten():
    verdict = APPEND.check(WRONG["no copy"][0])
    assert str(verdict).splitlines()[1:] == [
        "  case: fork at 20",
        "    before         pool of 8 pages · a: 20 tokens · b: fork of a",
        "    then           A20 to a · B20 to b",
        "    token           13   14   15   16   17   18   19   20",
        "    expected in a  a13  a14  a15  a16  a17  a18  a19  A20",
        "    yours in a     a13  a14  a15  a16  a17  a18  a19  B20",
        "                                                      ^^^",
        "  Hint: Two owners, one page: the second write wins, in both. Copy the page first, then write into the copy.",
    ]
