"""Lab 04, append: one more token for a sequence whose tail may be shared, on a pool that holds values."""

from collections import Counter
from collections.abc import Sequence as Series

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.lab04_history import Held, History, State, replayed
from lab_engine.checks.values import error_text, first_true, number, window
from lab_engine.checks.verdict import Row
from lab_engine.kv_pages import PAGE_SLOTS, Sequence
from lab_engine.value_pages import EMPTY, ValuePool


def append(pool: ValuePool, sequence: Sequence, value: object) -> None:
    """Put one more value into the next slot of a sequence, with copy on write.

    A page has 16 slots. If another sequence holds the tail page too, this one gets a copy of
    its own first. OutOfPages of `take` reaches the caller and leaves everything as it was.

    pool: take() returns a free id, ref_count(page_id) says how many tables hold it,
    copy(source_id, target_id) copies all 16 slots, release(page_id) counts one holder less,
    write(page_id, slot, value). sequence: length counts its tokens; page_table reads as a list
    of ids, page_table.append(page_id) adds one and page_table[-1] = page_id replaces the last.

    >>> pool, sequence = ValuePool(4, free_order=(2, 0, 3, 1)), Sequence()
    >>> append(pool, sequence, "first token")
    >>> sequence.length, list(sequence.page_table), pool.values(sequence)
    (1, [2], ['first token'])
    """
    page, slot = divmod(sequence.length, 16)
    if slot == 0:
        sequence.page_table.append(pool.take())
    elif pool.ref_count(sequence.page_table[page]) > 1:
        shared, own = sequence.page_table[page], pool.take()
        pool.copy(shared, own)
        pool.release(shared)
        sequence.page_table[page] = own
    pool.write(sequence.page_table[page], slot, value)
    sequence.length += 1


def _judge(args: Args, expected: State, yours: State) -> Mismatch | None:
    """From what is plainest to what is hidden: refusals, lengths, pages, values, counts, ids that no table names."""
    if yours.broken and not expected.refused:
        return Mismatch(yours.broken, hint=_COUNTS if "the length" in yours.broken else "", about_form=True)
    if yours.refused != expected.refused:
        return _judge_refusals(args[0], expected, yours)
    for name in expected.held:
        wrong = _judge_sequence(args, name, expected, yours)
        if wrong is not None:
            return wrong
    for page_id, count in yours.lost.items():
        hint = _LEAK if count > 1 else "A page that is taken stands in a table, or it is never released."
        return Mismatch(f"page id {page_id} is in no table; `ref_count` says {count}, expected 0", hint=hint)
    return None


def _judge_refusals(history: History, expected: State, yours: State) -> Mismatch:
    if expected.refused:
        value = expected.refused[0]
        return Mismatch(f"appending {value} returned; expected OutOfPages: no page is free", hint=_LET_THROUGH)
    message = f"appending {yours.refused[0]} raised OutOfPages; expected it to fit"
    used = {page_id for one in expected.held.values() for page_id in one.page_ids}
    return Mismatch(message, hint=_IN_PLACE if len(used) == history.num_pages else _AT_SLOT_0)


def _judge_sequence(args: Args, name: str, expected: State, yours: State) -> Mismatch | None:
    wanted, found, refused = expected.held[name], yours.held[name], bool(expected.refused)
    if found.length != wanted.length:
        hint = _FAIL_FIRST if refused else _COUNTS
        return _numbers(args, f"length of {name}", [wanted.length], [found.length], hint)
    if len(found.page_ids) != len(wanted.page_ids):
        hint = first_true((refused, _FAIL_FIRST), (wanted.length % PAGE_SLOTS == 0, _AT_SLOT_0), (True, _PAGES))
        return _numbers(args, f"pages of {name}", [len(wanted.page_ids)], [len(found.page_ids)], hint)
    wrong = _judge_table(name, found, yours, _TAKE_FIRST if refused else _ONCE if args[0].forks else _KEEP)
    if wrong is not None:
        return wrong
    if found.values != wanted.values:
        return _different_values(args, name, wanted, found)
    if found.ref_counts != wanted.ref_counts:
        hint = _FULL_PAGE if found.ref_counts[0] < wanted.ref_counts[0] else _LEAK
        return _numbers(args, f"ref_counts of {name}", wanted.ref_counts, found.ref_counts, hint)
    return None


def _judge_table(name: str, found: Held, yours: State, hint: str) -> Mismatch | None:
    """Ids that were released while a table names them: one table names such an id twice, or more tables than count."""
    tables = Counter(page_id for one in yours.held.values() for page_id in one.page_ids)
    for page_id, count in zip(found.page_ids, found.ref_counts, strict=True):
        if found.page_ids.count(page_id) > 1:
            table = " ".join(map(str, found.page_ids))
            return Mismatch(f"page id {page_id} stands more than once in the table of {name}: {table}", hint=_OWN_ID)
        if count < tables[page_id] and not yours.lost:
            places = f"{tables[page_id]} table{'s' if tables[page_id] > 1 else ''}"
            return Mismatch(f"page id {page_id} stands in {places}; its `ref_count` is {count}", hint=hint)
    return None


def _numbers(args: Args, what: str, wanted: Series[int], found: Series[int], hint: str) -> Mismatch:
    given = _show(args)
    if len(wanted) > 1:
        given += (Row("logical page", tuple(map(number, range(len(wanted))))),)
    differ = tuple(i for i, (a, b) in enumerate(zip(wanted, found, strict=True)) if a != b)
    rows = [
        Row(f"{whose} {what}", tuple(map(number, counts))) for whose, counts in (("expected", wanted), ("your", found))
    ]
    return Mismatch(given=given, expected=rows[0], yours=rows[1], differ=differ, hint=hint)


def _different_values(args: Args, name: str, wanted_one: Held, found_one: Held) -> Mismatch:
    wanted, found = wanted_one.values, found_one.values
    moved = found_one.page_ids != wanted_one.page_ids and sorted(found_one.page_ids) == sorted(wanted_one.page_ids)
    differ = [token for token in range(len(wanted)) if wanted[token] != found[token]]
    place = window(len(wanted), differ[0])
    tokens = Row("token", tuple(map(number, range(len(wanted))[place])))
    last = len(wanted) - 1
    of_another = found[last].isalnum() and found[last][0] != wanted[last][0]
    hint = first_true(
        (moved, _AT_THE_END),
        (differ == [last] and of_another, _TWO_OWNERS),
        (bool(args[0].forks) and differ[0] < last and all(found[t] == EMPTY for t in differ), _CAME_ALONG),
        (differ[0] < last and differ[0] % PAGE_SLOTS == 0 and last not in differ, _FULL_PAGE),
    )
    return Mismatch(
        given=(*_show(args), tokens),
        expected=Row(f"expected in {name}", wanted[place]),
        yours=Row(f"yours in {name}", found[place]),
        differ=tuple(token - place.start for token in differ if place.start <= token < place.stop),
        hint=hint,
    )


def _hint_without_value(case: Case, error: BaseException | None) -> str:
    history: History = case.args[0]
    if error is not None and replayed(append, append)(history).refused:
        return _LET_THROUGH
    if isinstance(error, IndexError):
        return "At slot 0 there is no page for the token yet: take one before you look at the tail."
    if error is not None and "slot 16" in error_text(error):
        return "The slot is length % 16, 0 to 15."
    if error is not None and "is free" in error_text(error):
        return "Release the shared page once, after the copy, and no other." if history.forks else _IN_USE
    return ""


def _show(args: Args) -> tuple[Row, ...]:
    history: History = args[0]
    return (Row("before", (), history.before), Row("then", (), history.then))


_TWO_OWNERS = "Two owners, one page: the second write wins, in both. Copy the page first, then write into the copy."
_CAME_ALONG = "The old tokens did not come along: `pool.copy(shared, own)`, the source first, before you write."
_LEAK = "A leak: the count of the old page stays 2. Release it once, after the copy."
_TAKE_FIRST = "If `take` fails, the page is already gone: take first, release after the copy."
_LET_THROUGH = "This token needs a page: ask `take`, and let its error through to whoever called, as it is."
_OWN_ID = "Each logical page has an id of its own: at slot 0 `take` a new page, and release none that is still in use."
_AT_THE_END = "The table stands in the order of the tokens: a new page goes to its end, `page_table.append`."
_KEEP = "Release nothing here: nobody shares a page, and a full page keeps its tokens."
_IN_USE = "`write` takes a page id that is in use: the one that `take` gave and the table names, not the logical page."
_ONCE = "Release the old page once, and no other: the other sequences still hold it."
_COUNTS = "Each append counts one token: `length` grows by 1."
_SLOT = "Token t lies in slot t % 16 of logical page t // 16."
_FULL_PAGE = "A full page is never written again: at slot 0 take a new page, and copy nothing."
_FAIL_FIRST = "Fail first, then change: `take` may raise OutOfPages, so call it before anything else changes."
_IN_PLACE = "`ref_count` 1: nobody else reads the tail, so write in place. No page is needed."
_AT_SLOT_0 = "A page is taken at slot 0, when its first token comes, and not before."
_PAGES = "One page for each 16 tokens, and one for the rest."

CASES = (
    Case("16 tokens", (History(8, {"a": 0}, appends="a" * 16),), _SLOT),
    Case("17 tokens", (History(8, {"a": 0}, appends="a" * 17),), "The 17th token is slot 0 of a second page."),
    Case(
        "two sequences in turn", (History(8, {"a": 0, "b": 15}, appends="ab" * 18),), "Each sequence has its own tail."
    ),
    Case("fork at 20", (History(8, {"a": 20}, forks="b", appends="ab"),), _TWO_OWNERS),
    Case("fork at 7", (History(8, {"a": 7}, forks="b", appends="ab"),), _TWO_OWNERS),
    Case("fork at 47", (History(8, {"a": 47}, forks="b", appends="ab"),), _TWO_OWNERS),
    Case("an own tail after its copy", (History(3, {"a": 20}, forks="b", appends="aa"),), _IN_PLACE),
    Case("two forks at 20", (History(8, {"a": 20}, forks="bc", appends="bac"),), _TWO_OWNERS),
    Case("fork at 24 and a cut to 20", (History(8, {"a": 24}, forks="b", cut=20, appends="a"),), _TWO_OWNERS),
    Case("fork at 16", (History(8, {"a": 16}, forks="b", appends="ab"),), _FULL_PAGE),
    Case("one fork freed first", (History(2, {"a": 20}, forks="b", freed="b", appends="a"),), _IN_PLACE),
    Case("an own tail in a full pool", (History(1, {"a": 15}, appends="a"),), _IN_PLACE),
    Case("a shared tail in a full pool", (History(2, {"a": 20}, forks="b", appends="a"),), _FAIL_FIRST),
    Case("16 → 17 with 0 free", (History(1, {"a": 16}, appends="a"),), _FAIL_FIRST),
)


EXERCISE = Exercise(
    lab="04_kv_pages",
    solution=append,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "There are three cases: slot 0, a tail that others hold too, and a tail of its own.",
        "`take` before you change anything: no other call can fail. Then copy, release, change the table, write.",
    ),
    adapt=lambda function: replayed(function, append),
    hint_without_value=_hint_without_value,
)
