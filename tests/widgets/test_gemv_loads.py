import ast
import json

import pytest
import traitlets
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_engine.errors import NanoqwenError
from lab_engine.index_text import functions
from tests.widgets.loads_data import DATA_FILE, every_state, javascript_data
from widgets import WarpLoads
from widgets.gemv_loads_data import tree, written_out
from widgets.gemv_loads_text import numbers_in


def row_of(text, name):
    return next(line for line in text.splitlines() if line.startswith(name))


# Presets: each shows what it promises ------------------------------------------------------------------------------


def test_without_arguments_lane_9_of_row_5_shows_the_exercise_s_example():
    loads = WarpLoads()
    assert loads.preset == "a warp a row, 16 B"
    assert loads.sentence == (
        "coalesced, K 3584 · iteration 2 · lane 9: row 5, bytes 10128–10143, group 18 · 16 sectors, 100 % used"
    )
    assert loads.scene.formulas() == [
        ("byte", "row * (k / 2) + (i * 512 + lane * 16)"),
        ("", "5 * (3584 / 2) + (2 * 512 + 9 * 16) = 10128"),
        ("group", "offset / 64 = 1168 / 64 = 18, weights 2336–2367 of the row"),
    ]


@pytest.mark.parametrize(
    ("preset", "bar", "total"),
    [
        ("a warp a row, 16 B", "512 B used of 512 B moved", "6.42 MB moved, 1 ×"),
        ("uncoalesced: a thread a row, 4 B", "128 B used of 1024 B moved, 896 B for nobody", "51.38 MB moved, 8 ×"),
        ("a thread a row, 16 B", "512 B used of 1024 B moved, 512 B for nobody", "12.85 MB moved, 2 ×"),
        ("shifted by 16 B", "512 B used of 544 B moved, 32 B for nobody", "6.88 MB moved, 1.07 ×"),
        ("the last iteration", "256 B used of 256 B moved", "6.42 MB moved, 1 ×"),
    ],
)
def test_every_preset_shows_its_surprise_in_numbers(preset, bar, total):
    scene = WarpLoads(preset=preset).scene
    assert scene.bar_words() == bar
    assert scene.total_words() == f"3584 × 3584 without a cache: 6.42 MB used, {total}"


def test_an_idle_lane_says_why_it_reads_nothing():
    loads = WarpLoads(preset="the last iteration")
    assert "lane 16: idle, past the end of the row" in loads.sentence
    assert loads.scene.formulas()[1] == ("", "3 * 512 + 16 * 16 < 3584 / 2 is false")
    loads.lane = 15
    assert "lane 15: row 5, bytes 10736–10751, group 27" in loads.sentence


@pytest.mark.parametrize(("lane", "idle"), [(11, False), (12, True)])
def test_at_k_384_only_12_lanes_have_work(lane, idle):
    assert ("idle" in WarpLoads(k=384, lane=lane).sentence) == idle


def test_a_bulk_copy_has_a_producer_and_no_lanes():
    loads = WarpLoads(pattern="ring", k=18944, step=1, lane=7)
    assert "producer: 2048 bytes from byte 2048, row 0" in loads.sentence
    assert "no lane of a warp reads this memory" in loads.text_picture()


# The kernels' expressions ------------------------------------------------------------------------------------------


def value_of(node, at):
    """An independent reading of a tree: as Python's own, with // for /."""
    if isinstance(node, list):
        left, right = (value_of(one, at) for one in node[1:])
        return int(eval(f"{left} {node[0].replace('/', '//')} {right}"))
    return at.get(node, node)


@settings(deadline=None, max_examples=100, derandomize=True, database=None)
@given(st.sampled_from(sorted(functions())), st.data())
def test_a_tree_without_calls_has_the_value_of_the_header_s_function(name, data):
    function = functions()[name]
    numbers = [data.draw(st.integers(1, 50) if one != "k" else st.just(3584)) for one in function.parameters]
    at = dict(zip(function.parameters, numbers, strict=True))
    try:
        expected = function(*numbers)
    except NanoqwenError:  # a difference may be negative for numbers that no kernel has
        return
    assert value_of(tree(written_out(name)), at) == expected


def test_the_text_with_its_numbers_has_the_value_of_the_byte():
    for loads in every_state():
        scene = loads.scene
        if scene.chosen:
            text, _, value = scene.formulas()[1][1].partition(" = ")
            assert eval(text.replace("/", "//")) == int(value) == scene.shown.start
            assert "(" not in ast.unparse(written_out("group_of"))


def test_numbers_take_the_place_of_whole_names():
    assert numbers_in("k + lane * k2 - 4", {"k": 1, "lane": 22, "k2": 3}) == "1 + 22 * 3 - 4"


# State -------------------------------------------------------------------------------------------------------------


def test_another_pattern_or_row_keeps_the_iteration_where_there_is_one():
    loads = WarpLoads(pattern="naive", step=447)
    loads.pattern = "coalesced"
    assert loads.step == 3
    loads.k = 384
    assert loads.step == 0
    loads.set_state({"pattern": "naive", "k": 18944, "step": 2367})
    loads.set_state({"k": 128})
    assert (loads.pattern, loads.step) == ("naive", 15)


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("lane", 32, "lane is 32, expected 0 to 31"),
        ("lane", -1, "lane is -1, expected 0 to 31"),
        ("warp", 8, "warp is 8, expected 0 to 7"),
        ("step", 4, "step is 4, expected 0 to 3"),
    ],
)
def test_what_does_not_exist_is_refused_in_one_line(name, value, line):
    with pytest.raises(traitlets.TraitError) as refused:
        setattr(WarpLoads(), name, value)
    assert str(refused.value) == line


@pytest.mark.parametrize(("name", "value"), [("pattern", "lop3"), ("k", 100), ("shift", 8)])
def test_a_choice_names_what_can_be_chosen(name, value):
    with pytest.raises(traitlets.TraitError, match=r"coalesced|3584|16"):
        setattr(WarpLoads(), name, value)


def test_the_code_recreates_the_state():
    loads = WarpLoads(preset="shifted by 16 B", lane=3)
    assert loads.code == 'WarpLoads(preset="shifted by 16 B", lane=3)'
    assert eval(loads.code).sentence == loads.sentence


# Pictures ----------------------------------------------------------------------------------------------------------


def test_the_text_picture_shows_lanes_and_halves_of_sectors():
    text = WarpLoads(preset="shifted by 16 B").text_picture()
    assert row_of(text, "lanes") == "lanes    ######## #@###### ######## ########  # reads, - idle, @ lane 9"
    assert row_of(text, "sectors") == "sectors  .#######|########|########|########|#."
    assert "5 * (3584 / 2) + (2 * 512 + 9 * 16) = 10128" in text


def test_the_text_picture_is_plain_letters_in_every_state():
    for loads in every_state():
        text = loads.text_picture()
        assert text.isascii(), loads.sentence
        assert max(map(len, text.splitlines())) <= 96


def test_pngs_differ_and_have_one_size():
    loads = WarpLoads()
    pictures = []
    for name in loads.presets:
        loads.preset = name
        pictures.append(loads.png())
    pictures.append(WarpLoads(pattern="ring").png())
    assert len(set(pictures)) == 6
    assert len({picture[16:24] for picture in pictures}) == 1
    loads.preset = loads.presets[0]
    assert loads.png() == pictures[0]


def test_javascript_tests_read_the_data_of_today():
    """tests/widgets/js/gemv_loads.json is written by `python -m tests.widgets.loads_data`."""
    assert json.loads(DATA_FILE.read_text(encoding="utf-8")) == json.loads(json.dumps(javascript_data()))
