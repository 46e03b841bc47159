import json
import re

import pytest
import traitlets

from lab_engine.kv_trace import parse_actions, trace_history
from lab_engine.running_example import RUNNING_EXAMPLE
from tests.widgets.kv_data import BUSY, DATA_FILE, EIGHT, FULL, javascript_data
from widgets import KVPages
from widgets.kv_pages_presets import kv_presets
from widgets.kv_pages_text import counters, event_words, memory
from widgets.kv_pages_view import MAX_TOKENS, TOKEN_BYTES, holders, usage

PRESETS = (
    "15 → 16 → 17",
    "running sequence",
    "two forks at 20",
    "full pool",
    "fragmented",
    "shared prefix of 40",
)


def ask(preset):
    return next(one.ask for one in kv_presets() if one.name == preset)


def frames_from(preset):
    """The frames from the one that a preset shows first."""
    playground = KVPages(preset=preset)
    return playground._history[playground.step :]


def test_without_arguments_15_tokens_are_shown_before_the_16th():
    playground = KVPages()
    assert playground.presets == PRESETS
    assert (playground.preset, playground.step, playground.step_count()) == (PRESETS[0], 2, 5)
    assert playground.sentence == "A · token 14 · page 0 → id 5 · slot 14 · bytes 24064–24319"


def test_the_running_sequence_has_the_address_of_the_labs():
    playground = KVPages(preset="running sequence")
    assert playground.sentence == "A · token 55 · page 3 → id 12 · slot 7 · bytes 50944–51199"
    assert playground.scene.one.page_table == RUNNING_EXAMPLE.page_table
    playground.token = 17
    assert playground.sentence == f"A · token 17 · page 1 → id 9 · slot 1 · bytes {9 * 4096 + 256}–{9 * 4096 + 511}"


def test_an_empty_slot_of_the_tail_is_no_token():
    playground = KVPages(preset="running sequence", token=56)
    assert playground.sentence == "A · no token · page 3 → id 12 · slot 8 · bytes 51200–51455"
    playground.token = 200  # beyond the table: its last slot
    assert "slot 15" in playground.sentence


def test_the_sentence_says_why_there_is_no_slot():
    assert KVPages(actions="").sentence == "no sequence · 16 of 16 ids free"
    assert KVPages(actions="new").sentence == "A · no token yet · 16 of 16 ids free"
    assert KVPages(actions="new; append A; free A").sentence == "A · freed · 16 of 16 ids free"
    assert KVPages(actions="new", sequence="C").sentence == "C · not made yet · 16 of 16 ids free"


def test_the_seventeenth_token_of_the_7b_takes_a_page_in_each_of_224_planes():
    assert TOKEN_BYTES == 28 * 2 * 4 * 128 * 2 == 57_344
    *_, last = frames = frames_from("15 → 16 → 17")
    assert [len(frame.taken) for frame in frames] == [1, 0, 1]
    assert (usage(last).used, usage(last).empty_slots) == (2, 15)


def test_the_first_preset_asks_for_a_prediction_and_does_not_give_it_away():
    """The second id goes at the 17th token, and then 15 slots are empty."""
    question = ask("15 → 16 → 17")
    assert question.endswith("?")
    assert not re.search(r"\d", question)


def test_a_full_pool_takes_the_16th_token_and_refuses_the_17th_in_the_engine_s_words():
    shown, fits, refused = frames_from("full pool")
    assert (shown.free_ids, fits.free_ids, fits.error) == ((), (), "")
    assert refused.error.startswith("page pool: 1 page needed, 0 of 16 are free")
    assert (refused.sequences, refused.ref_counts) == (fits.sequences, fits.ref_counts)
    playground = KVPages(preset="full pool", step=10)
    assert playground.sentence == f"append D · refused: {refused.error}"
    assert f"refused: {refused.error}" in " ".join(playground.text_picture().split())


def test_fragments_leave_no_gap_over_2_pages_and_100_tokens_fit():
    shown, _, fits = frames_from("fragmented")
    assert usage(shown).longest_run == 2
    assert (usage(shown).free, len(fits.taken), fits.error) == (8, 7, "")


def test_a_shared_prefix_takes_10_ids_instead_of_16():
    *_, last = frames_from("shared prefix of 40")
    assert usage(last).used == 10
    assert sum(len(one.page_table) for one in last.sequences) == 16
    assert last.ref_counts.count(4) == 2


def test_the_ids_that_the_asks_name_are_the_engine_s():
    assert f"ids {', '.join(map(str, RUNNING_EXAMPLE.page_table))}" in ask("running sequence")
    assert [frames_from("two forks at 20")[0].ref_counts[page_id] for page_id in (5, 9)] == [2, 2]


def test_counters_are_the_numbers_counted_by_hand():
    """A 37 and B 18 tokens hold 5 pages: 80 slots, 25 of them empty; 55 of 65,536 reserved tokens are filled."""
    frame = KVPages(actions="new; append A 37; new; append B 18").scene.frame
    assert counters(frame) == [
        ("used ids", "5 of 16", "4.38 MiB in the 7B"),
        ("free ids", "11", "longest run 3"),
        ("empty slots in tails", "25 (31.3 %)", "1.37 MiB in the 7B"),
        ("contiguous, 32,768 tokens each", "2 × 1.75 GiB = 3.50 GiB", "0.1 % filled, the rest wasted"),
    ]
    assert MAX_TOKENS * TOKEN_BYTES == 1.75 * 2**30


def test_slots_of_a_shared_page_are_counted_once():
    frame = KVPages(preset="two forks at 20").scene.frame
    assert (usage(frame).used, usage(frame).empty_slots, usage(frame).tokens) == (2, 12, 40)
    cut = KVPages(actions="new; append A 20; fork A; truncate B 17").scene.frame
    assert usage(cut).empty_slots == 12
    assert [(one.name, one.valid) for one in holders(cut, 9)] == [("A", 4), ("B", 1)]


def test_an_action_is_told_in_words():
    told = {
        "": "every page is free; the next one is id 5",
        "new": "A has no token and no page",
        "new; append A 20": "took ids 5, 9",
        "new; append A 15; append A": "no id taken: the tail has room",
        "new; append A 20; fork A": "B shares ids 5, 9; nothing is copied",
        "new; fork A": "B is empty",
        "new; append A 20; fork A; append B 13": "copied id 9 to id 2, since others hold it; took id 12",
        "new; append A 17; truncate A 16": "id 9 returned",
        "new; append A 17; truncate A 17": "no id returned",
        "new; append A 20; free A": "ids 5, 9 returned",
        "new; append A 20; fork A; evict": "A, the oldest: no id returned",
    }
    for actions, words in told.items():
        assert event_words(KVPages(actions=actions).scene.frame)[1] == words


def test_memory_is_written_in_units_of_1024():
    assert [memory(count) for count in (0, 1023, 917_504, 9_175_040)] == ["0 B", "1023 B", "896 KiB", "8.75 MiB"]


def test_setting_the_actions_goes_to_their_end_and_keeps_the_preset():
    playground = KVPages(preset="two forks at 20")
    playground.actions = " new;append A  3; append A 1 "
    assert (playground.actions, playground.step) == ("new; append A 3; append A", 3)
    assert playground.preset == "two forks at 20"
    playground.actions = "new"
    assert playground.step == 1
    playground.preset = "full pool"
    assert (playground.step, playground.step_count()) == (8, 11)


@pytest.mark.parametrize(
    "state",
    [
        {"preset": "two forks at 20"},
        {"preset": "two forks at 20", "step": 5, "sequence": "A", "token": 3},
        {"preset": "full pool", "actions": "new; append A 40; fork A", "step": 1},
        {"actions": BUSY},
        {"step": 1, "order": "ascending", "token": 7, "actions": "new; append A 40"},
    ],
)
def test_the_code_recreates_the_state(state):
    first = KVPages(**state)
    again = eval(first.code)
    assert {name: getattr(again, name) for name in again.fields} == {
        name: getattr(first, name) for name in first.fields
    }
    assert all(getattr(first, name) == value for name, value in state.items())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("token", 256, "token is 256, expected 0 to 255, or -1 for the newest"),
        ("sequence", "I", 'sequence is "I", expected A to H or ""'),
        ("sequence", "AB", 'sequence is "AB", expected A to H or ""'),
        ("step", 5, "step is 5, expected 0 to 4"),
        (
            "actions",
            "new; apend A",
            'actions: number 2 is "apend A", expected new, append A 15, fork A, truncate A 8, free A or evict',
        ),
        (
            "actions",
            "new" + "; new" * 8,
            "actions: 9 sequences are alive after action 9, the picture has room for 8; free one first",
        ),
    ],
)
def test_a_state_outside_is_refused_in_one_line(name, value, message):
    with pytest.raises(traitlets.TraitError) as caught:
        KVPages(preset=PRESETS[0], **{name: value})
    assert str(caught.value) == message


def test_a_state_from_the_browser_is_taken_as_a_whole():
    playground = KVPages(preset="running sequence")
    playground.set_state({"actions": "new; append A 56; fork A; append B", "step": 4, "sequence": "A", "token": 3})
    assert playground.sentence == "A · token 3 · page 0 → id 5 · slot 3 · bytes 21248–21503"
    playground.set_state({"actions": "new", "step": 1})
    assert (playground.step, playground.step_count()) == (1, 2)


def test_the_trace_s_frames_are_what_is_shown():
    playground = KVPages(actions=BUSY)
    frames = trace_history(parse_actions(BUSY), 16, RUNNING_EXAMPLE.page_order)
    for step, frame in enumerate(frames):
        playground.step = step
        assert playground.scene.frame == frame


def test_the_text_picture_shows_tables_and_slots():
    rows = KVPages(preset="two forks at 20", step=4).text_picture().splitlines()
    assert rows[0] == "action 4 of 5: append B: copied id 9 to id 2, since others hold it"
    assert " A     20  5 9" in rows
    assert ">B     21  5 2" in rows
    assert "    5  ################  A B as page 0" in rows
    assert "    2  #####...........  B as page 1" in rows


@pytest.mark.parametrize("actions", [BUSY, EIGHT, FULL])
def test_no_row_of_the_text_picture_is_long(actions):
    playground = KVPages(actions=actions)
    for step in range(playground.step_count()):
        playground.step = step
        assert all(len(row) <= 88 for row in playground.text_picture().splitlines())


def test_pngs_are_the_same_twice_have_one_size_and_show_every_step():
    pictures = []
    for preset in PRESETS:
        playground = KVPages(preset=preset)
        pictures.append(playground.png())
        assert playground.png() == pictures[-1]
    busy = KVPages(actions=BUSY)
    for step in (0, 1, 9, busy.step_count() - 3, busy.step_count() - 1):
        busy.step = step
        pictures.append(busy.png())
    assert len(set(pictures)) == len(pictures)
    assert len({picture[16:24] for picture in pictures}) == 1  # width and height of a PNG
    assert max(map(len, pictures)) < 80_000


def test_javascript_tests_read_the_data_of_today():
    """tests/widgets/js/kv_pages.json is written by `python -m tests.widgets.kv_data`."""
    assert json.loads(DATA_FILE.read_text(encoding="utf-8")) == json.loads(json.dumps(javascript_data()))
