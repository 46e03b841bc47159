import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab_engine.errors import NanoqwenError
from lab_engine.kv_trace import Action, History, Holder, parse_actions, trace_history
from lab_engine.running_example import RUNNING_EXAMPLE

ORDER = RUNNING_EXAMPLE.page_order


def run(line, order=ORDER):
    return trace_history(parse_actions(line), len(order), order)


def tables(frame):
    return {one.name: (one.length, one.page_table) for one in frame.sequences}


def test_the_running_example_has_its_table_and_half_a_tail():
    empty, made, filled = run("new; append A 56")
    assert (empty.action, empty.sequences, empty.free_ids) == (None, (), ORDER)
    assert made.sequences == (Holder("A", 0, ()),)
    assert filled.sequences == (Holder("A", 56, (5, 9, 2, 12)),)
    assert (filled.taken, filled.free_ids[0]) == ((5, 9, 2, 12), 7)


def test_the_17th_token_takes_exactly_one_page():
    frames = run("new; append A 15; append A; append A")
    assert [frame.taken for frame in frames[2:]] == [(5,), (), (9,)]


def test_the_first_write_after_a_fork_copies_the_tail_and_the_second_does_not():
    forked, first, second = run("new; append A 20; fork A; append B; append A")[3:]
    assert [forked.ref_counts[page_id] for page_id in (5, 9)] == [2, 2]
    assert (first.taken, first.copied) == ((2,), ((9, 2),))
    assert (second.taken, second.copied) == ((), ())
    assert tables(second) == {"A": (21, (5, 9)), "B": (21, (5, 2))}
    assert [second.ref_counts[page_id] for page_id in (5, 9, 2)] == [2, 1, 1]


def test_a_prefix_of_40_shared_by_four_takes_10_ids():
    frames = run("new; append A 40; fork A; fork A; fork A; append A 16; append B 16; append C 16; append D 16")
    assert frames[5].ref_counts.count(4) == 3
    assert 16 - len(frames[-1].free_ids) == 10
    assert [bool(frame.copied) for frame in frames[6:]] == [True, True, True, False]


def test_a_refused_action_changes_nothing_and_has_the_engine_s_words():
    for line, words in [
        ("new; append A 250; new; append B", "page pool: 1 page needed, 0 of 16 are free; "),
        ("new; append A 9; free A; free A", "sequence: was freed already; make a new one"),
        ("new; append A 9; truncate A 10", "length: found 10, expected 0 to 9"),
        ("append B", "sequence B: does not exist; make it with new or fork"),
        ("evict", "evict: no sequence is alive; make one with new"),
        ("new" + "; new" * 26, "sequence: 26 are alive, one for each letter; free one first"),
    ]:
        before, after = run(line)[-2:]
        assert after.error.startswith(words)
        assert before.error == ""
        for name in ("sequences", "freed", "ref_counts", "free_ids"):
            assert getattr(after, name) == getattr(before, name), name
        assert (after.taken, after.copied, after.returned) == ((), (), ())


def test_truncate_over_a_boundary_returns_the_page_and_the_next_token_takes_it_again():
    cut, again = run("new; append A 17; truncate A 16; append A")[3:]
    assert (cut.returned, tables(cut)) == ((9,), {"A": (16, (5,))})
    assert again.taken == (9,)


def test_evict_frees_the_oldest_and_a_letter_given_again_is_the_youngest():
    frames = run("new; new; append A; append B; free A; new; append A; evict; evict; evict")
    assert tables(frames[5]).keys() == {"B"}
    assert tables(frames[7]).keys() == {"A", "B"}
    assert [tables(frame).keys() for frame in frames[8:10]] == [{"A"}, set()]
    assert frames[9].freed == ("A", "B")
    assert frames[10].error


def test_evicting_a_shared_sequence_returns_only_what_nobody_else_holds():
    frame = run("new; append A 20; fork A; append B; evict")[-1]
    assert frame.returned == (9,)
    assert frame.ref_counts[5] == 1


def test_a_copied_page_holds_the_old_tokens_and_each_fork_its_own():
    """Every token is a number of its own; a sequence must read its own numbers back, whatever others did."""
    history, numbers, written = History(16, ORDER), {}, 0
    rng = random.Random(5)
    for action in random_actions(rng, 300):
        source, before = numbers.get(action.sequence, []), set(numbers)
        frame = history.play(action)
        lengths = {one.name: one.length for one in frame.sequences}
        if action.kind == "append" and not frame.error:
            numbers[action.sequence] = source + list(range(written, written + action.count))
            written += action.count
        for name in set(lengths) - before:
            numbers[name] = list(source) if action.kind == "fork" else []
        numbers = {name: numbers[name][:length] for name, length in lengths.items()}
        for name in lengths:
            assert stored(history, name) == numbers[name], action
    assert written > 300


def stored(history, name):
    slots = history.cache.slots(history.sequences[name], 0, history.sequences[name].length)
    planes = history.cache.data.flatten(0, 2).flatten(1, 2)[:, slots]
    assert torch.equal(planes.amin((0, 2)), planes.amax((0, 2)))  # the same in every plane
    return planes[0, :, 0].int().tolist()


def random_actions(rng, count):
    kinds = ["new", "append", "append", "append", "fork", "truncate", "free", "evict"]
    for _ in range(count):
        kind = rng.choice(kinds)
        name = "" if kind in {"new", "evict"} else rng.choice("ABCDE")
        yield Action(kind, name, rng.randrange(1, 40) if kind in {"append", "truncate"} else 0)


actions = st.one_of(
    st.sampled_from([Action("new"), Action("evict")]),
    st.builds(Action, st.sampled_from(["fork", "free"]), st.sampled_from("ABC")),
    st.builds(Action, st.sampled_from(["append", "truncate"]), st.sampled_from("ABC"), st.integers(0, 70)),
)


@given(st.lists(actions, max_size=25), st.permutations(range(7)))
def test_every_id_is_free_or_counted_once_for_each_table_that_names_it(history, order):
    for frame in trace_history(history, 7, order):
        held = [page_id for one in frame.sequences for page_id in one.page_table]
        assert [held.count(page_id) for page_id in range(7)] == list(frame.ref_counts)
        assert sorted({*held, *frame.free_ids}) == list(range(7))
        assert len(frame.free_ids) + len(set(held)) == 7
        assert all(len(one.page_table) == -(-one.length // 16) for one in frame.sequences)


@given(st.lists(actions, max_size=9))
def test_a_history_is_read_back_from_its_line(history):
    assert parse_actions("; ".join(map(str, history))) == tuple(history)


def test_spaces_do_not_matter_and_no_actions_are_a_history():
    assert parse_actions(" new ;append  A 3") == (Action("new"), Action("append", "A", 3))
    assert parse_actions("  ") == ()


@pytest.mark.parametrize(
    "part",
    ["apend A", "append A -1", "new A", "append AB 3", "append A 3 3", "truncate A", "append a", "", "append A ²"],
)
def test_what_is_no_action_is_refused_with_its_number_and_the_forms(part):
    with pytest.raises(NanoqwenError, match="number 2") as caught:
        parse_actions(f"new; {part}")
    assert str(caught.value) == (
        f'actions: number 2 is "{part}", expected new, append A 15, fork A, truncate A 8, free A or evict'
    )
