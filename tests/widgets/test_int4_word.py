import json

import numpy as np
import pytest
import torch
import traitlets
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_engine import ptx
from lab_engine.group_trace import running_group
from lab_engine.int4 import quantize_groups
from lab_engine.unpack import METHODS, UnpackMethod, unpack_all
from tests.widgets.word_data import DATA_FILE, every_state, javascript_data
from widgets import WordUnpack
from widgets.int4_word_data import word_data

TOY_CODES = (-7, -1, 0, 3, 5, -4, 2, 7)
STEPS = {"shift_mask": 35, "lop3": 10, "prmt": 16, "prmt_bit3": 15}


def picture(word):
    """The data of the step on view."""
    return word._trace["methods"][word.method]["steps"][word.step]


def notes(word):
    """The notes of the step on view, those of the low bits first."""
    return [(one["text"], one["more"]) for one in sorted(picture(word)["notes"], key=lambda note: note["to"])]


# Presets: each shows what it promises ------------------------------------------------------------------------------


def test_without_arguments_the_toy_word_stands_in_both_orders():
    word = WordUnpack()
    assert (word.preset, word.word, word.method, word.step) == ("two orders", "0xFA4DB871", "shift_mask", 0)
    assert word.codes == TOY_CODES
    assert word.sentence == (
        "shift_mask, 0 of 34 · linear 0xFA4DB871 · value_shuffle 0xF4B7AD81 · w0 and w7 stay in place"
    )


def test_two_orders_wires_each_nibble_to_its_place_and_marks_the_two_that_stay():
    step = picture(WordUnpack(preset="two orders"))
    assert [wire[:2] for wire in step["wires"]] == [[0, 0], [2, 1], [4, 2], [6, 3], [1, 4], [3, 5], [5, 6], [7, 7]]
    assert step["bands"] == [[31, 28], [3, 0]]


def test_unshifted_pair_is_1152_and_1200_and_becomes_0_and_3():
    word = WordUnpack(preset="lop3: unshifted pair")
    assert word.sentence == "lop3, 2 of 9 · 0xF4B7AD81 & 0x00F000F0 | 0x64006400 = 0x64B06480 · w2 1152, w3 1200"
    assert notes(word) == [
        ("fp16 1152 = 1024 + 16 × 8", "then × 1/16 − 72 = 0 = w2"),
        ("fp16 1200 = 1024 + 16 × 11", "then × 1/16 − 72 = 3 = w3"),
    ]
    word.step = 7
    assert word.sentence == "lop3, 7 of 9 · 0x64B06480 × 1/16 − 72 = 0x42000000 · w2 0, w3 3"
    assert notes(word) == [("1152 × 1/16 − 72 = 0 = w2", ""), ("1200 × 1/16 − 72 = 3 = w3", "")]


def test_shifted_by_8_is_1037_and_1028_and_becomes_5_and_minus_4():
    word = WordUnpack(preset="lop3: shifted by 8")
    assert picture(word)["result"]["value"] == 0x6404640D
    assert word.sentence.endswith(" = 0x6404640D · w4 1037, w5 1028")
    assert notes(word) == [
        ("fp16 1037 = 1024 + 13", "then − 1032 = 5 = w4"),
        ("fp16 1028 = 1024 + 4", "then − 1032 = −4 = w5"),
    ]


def test_prmt_picks_high_bytes_from_two_tables():
    word = WordUnpack(preset="prmt")
    assert word.sentence == "prmt, 4 of 15 · prmt(0xC5C6C7C8, 0xBCC0C2C4, 0x3071) = 0xC5C8BCC7"
    assert [byte["value"] for byte in picture(word)["table"]] == ["−8", "−7", "−6", "−5", "−4", "−3", "−2", "−1"]
    assert [pick["byte"] for pick in picture(word)["picks"]] == [1, 7, 0, 3]
    word.step = 5
    assert [byte["value"] for byte in picture(word)["table"]] == ["0", "1", "2", "3", "4", "5", "6", "7"]
    word.step = 6
    assert word.sentence.endswith(" = 0x4200BCC7")
    assert [text for text, _ in notes(word)] == ["−7 = w0", "−1 = w1", "0 = w2", "3 = w3"]


def test_bit_3_left_in_copies_two_signs_and_half_of_the_weights_are_wrong():
    word = WordUnpack(preset="mistake: bit 3 left in")
    assert word.sentence == "prmt_bit3, 3 of 14 · prmt(0xC5C6C7C8, 0xBCC0C2C4, 0xB871) = 0xFFFFBCC7"
    assert [pick["sign"] for pick in picture(word)["picks"]] == [False, False, True, True]
    assert picture(word)["result"]["fill"][:16] == "x" * 16
    word.step = 14
    assert word.sentence.endswith(" · 4 of 8 right · 14 / 8 = 1.75 a weight")
    shown = word._trace["methods"]["prmt_bit3"]["unpacked"]
    assert [one["text"] for one in shown] == ["−7", "−1", "0", "0", "0", "−4", "0", "0"]
    assert [one["right"] for one in shown] == [code <= 0 for code in TOY_CODES]


@pytest.mark.parametrize(
    ("method", "cost"), [("shift_mask", "34 / 8 = 4.25"), ("lop3", "9 / 8 = 1.125"), ("prmt", "15 / 8 = 1.875")]
)
def test_the_last_step_counts_instructions_a_weight(method, cost):
    word = WordUnpack(method=method, step=STEPS[method] - 1)
    assert word.sentence.endswith(f" · 8 of 8 right · {cost} a weight")


# Which bits are whose ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "step", "fill"),
    [
        ("lop3", 1, ".kk..k......1111.kk..k......0000"),  # 0x6400 | n in each half
        ("lop3", 2, ".kk..k..3333.....kk..k..2222...."),  # 0x6400 | n << 4
        ("lop3", 3, "........777755553333111166664444"),  # word >> 8
        ("lop3", 6, "11111111........00000000........"),  # fp16 -8 … 7: the low byte is 0
        ("shift_mask", 2, "0" * 32),  # n - 8: the sign runs through
        ("shift_mask", 3, "-" * 16 + "00000000........"),  # a 16-bit register
        ("prmt", 4, "k3333333k2222222k1111111k0000000"),  # -8 … -1: all signs are 1
        ("prmt", 5, ".3333333.2222222.1111111.0000000"),  # 0 … 7: all signs are 0
    ],
)
def test_each_bit_of_a_result_belongs_to_the_weight_that_it_depends_on(method, step, fill):
    assert picture(WordUnpack(method=method, step=step))["result"]["fill"] == fill


def test_the_names_of_presets_say_the_method_and_those_that_begin_in_its_middle_say_so():
    for preset in WordUnpack()._spec["presets"][1:]:
        word = WordUnpack(preset=preset["name"])
        assert preset["name"].startswith({"prmt_bit3": "mistake"}.get(word.method, word.method))
        assert 0 < word.step < word.step_count() - 1
        assert preset["ask"].startswith(f"The middle of {word.method}") or word.method == "prmt_bit3"


@pytest.mark.parametrize(("method", "count"), [("lop3", 4), ("prmt", 1), ("prmt_bit3", 1), ("shift_mask", 0)])
def test_the_table_of_each_lop3_is_explained_where_it_is_shown(method, count):
    steps = WordUnpack()._trace["methods"][method]["steps"]
    said = [step for step in steps if step["why"].endswith(" · 0xea is the truth table of (a & b) | c")]
    assert [step for step in steps if "0xea" in step["text"]] == said
    assert len(said) == count
    assert all((a & b) | c == 0xEA >> (a << 2 | b << 1 | c) & 1 for a in (0, 1) for b in (0, 1) for c in (0, 1))


def test_a_mask_keeps_its_bits_and_mutes_the_rest():
    step = picture(WordUnpack(preset="lop3: unshifted pair"))
    assert [row["label"] for row in step["rows"]] == ["word", "& mask", "| fp16 1024"]
    assert step["rows"][0]["fill"] == "........3333............2222...."
    assert step["rows"][1]["fill"] == "........mmmm............mmmm...."
    assert step["bands"] == [[23, 20], [7, 4]]
    assert step["changed"] == 0xF4B7AD81 ^ 0x64B06480


def test_every_pick_of_every_prmt_gives_the_byte_of_the_result():
    for method in METHODS:
        for step in word_data(0x90E5A3F7)["methods"][method]["steps"]:
            for place, pick in enumerate(step.get("picks", ())):
                byte = int(step["table"][pick["byte"]]["hex"], 16)
                expected = (0xFF if byte & 0x80 else 0) if pick["sign"] else byte
                assert step["result"]["value"] >> 8 * place & 0xFF == expected


# A method of one's own ---------------------------------------------------------------------------------------------

TO_TWO_HALVES = "prmt.b32 h{i}, word, 0, 0x4{i}4{i};  // byte {i} into both halves"
AS_FP16 = "lop3.b32 h{i}, h{i}, 0x00f0000f, 0x64006400, 0xea;  // 1024 + n, and 1024 + 16 n above it"
TO_WEIGHTS = "fma.rn.f16x2 h{i}, h{i}, 0x2c003c00, 0xd480e408;  // x 1 - 1032, and x 1/16 - 72 above it"
TWO_LINES = "\n".join(line.format(i=i) for i in range(4) for line in (TO_TWO_HALVES, AS_FP16, TO_WEIGHTS))
ALL_INSTRUCTIONS = """
and.b32 low, word, 0x0f0f0f0f;    // even weights
xor.b32 odd, word, 0xf0f0f0f0;    // two's complement, but for the bits below
shr.u32 odd, odd, 4;
lop3.b32 odd, odd, 0x0f0f0f0f, 0x07070707, 0x6a;  // another table
shl.b32 up, low, 24;
or.b32 up, up, 5;
mov.b32 copy, up;
add.s32 copy, copy, -8;
cvt.rn.f16.s32 small, copy;
"""


def own_method(monkeypatch, name, text):
    method = UnpackMethod(name, "linear", "a method of one's own", ptx.parse(text), "own.cuh")
    monkeypatch.setitem(METHODS, name, method)
    return WordUnpack(method=name)


def test_a_method_of_prmt_and_lop3_is_explained_where_the_words_fit(monkeypatch):
    assert np.array_equal(unpack_all(np.array([0xFA4DB871], np.uint32), "prmt")[0], TOY_CODES)
    word = own_method(monkeypatch, "both", TWO_LINES)
    assert word.step_count() == 13
    word.step = 1
    assert notes(word) == [("0x0071: w0 and w1", ""), ("0x0071: w0 and w1", "")]
    assert word.sentence == "both, 1 of 12 · prmt(0xFA4DB871, 0x00000000, 0x4040) = 0x00710071"
    word.step = 2
    assert notes(word) == [
        ("fp16 1025 = 1024 + 1", "then × 1 − 1032 = −7 = w0"),
        ("fp16 1136 = 1024 + 16 × 7", "then × 1/16 − 72 = −1 = w1"),
    ]
    assert word.sentence.endswith(" = 0x64706401 · w0 1025, w1 1136")
    word.step = 3
    assert word.sentence == "both, 3 of 12 · 0x64706401 × 0x2C003C00 + 0xD480E408 = 0xBC00C700 · w0 −7, w1 −1"
    assert notes(word) == [("1025 × 1 − 1032 = −7 = w0", ""), ("1136 × 1/16 − 72 = −1 = w1", "")]
    word.step = 12
    assert word.sentence.endswith(" · 8 of 8 right · 12 / 8 = 1.5 a weight")


@pytest.mark.parametrize("name", ["two lines", "all instructions", "another number"])
def test_every_step_of_any_method_is_drawn_and_said(monkeypatch, name):
    text = TWO_LINES.replace("0x64006400", "0x54005400") if name == "another number" else TWO_LINES
    word = own_method(monkeypatch, name, text if name != "all instructions" else ALL_INSTRUCTIONS + text)
    for step in range(word.step_count()):
        word.step = step
        assert word.sentence
        assert word.text_picture()
        assert word.png()


def test_another_magic_number_is_not_taken_for_1024_plus_n(monkeypatch):
    word = own_method(monkeypatch, "other", TWO_LINES.replace("0x64006400", "0x54005400"))
    word.step = 2
    assert [text for text, _ in notes(word)] == ["0x5401: w0", "0x5470: w1"]
    assert "w0" not in word.sentence


# Any word ----------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40, derandomize=True, database=None)
@given(st.integers(0, 0xFFFFFFFF))
def test_any_word_is_unpacked_right_but_for_the_mistake(word):
    data = word_data(word)
    codes = [(word >> 4 * place & 0xF) - 8 for place in range(8)]
    assert data["codes"] == codes
    for name, method in data["methods"].items():
        right = [one["right"] for one in method["unpacked"]]
        assert right == [name != "prmt_bit3" or code <= 0 for code in codes], name
        assert max(method["done"]) == len(method["steps"]) - 1


@pytest.mark.parametrize(
    "given_word",
    [0x12345678, "0x12345678", "12345678", np.uint32(0x12345678), torch.tensor(0x12345678, dtype=torch.int32)],
)
def test_a_word_from_python_changes_codes_and_traces_and_keeps_the_place(given_word):
    word = WordUnpack(preset="lop3: unshifted pair")
    word.word = given_word
    assert word.word == "0x12345678"
    assert word.codes == (0, -1, -2, -3, -4, -5, -6, -7)
    assert (word.preset, word.step) == ("lop3: unshifted pair", 2)
    assert word.sentence.endswith("· w2 1120, w3 1104")


def test_an_int32_pattern_and_codes_give_the_same_word():
    assert WordUnpack(word=0xFA4DB871 - (1 << 32)).codes == TOY_CODES
    assert WordUnpack(codes=torch.tensor(TOY_CODES, dtype=torch.int8)).word == "0xFA4DB871"


def test_real_weights_of_the_running_group_can_be_shown():
    codes, _ = quantize_groups(running_group())
    word = WordUnpack(codes=codes[:8], method="lop3", step=9)
    assert word.codes == tuple(codes[:8].tolist()) != TOY_CODES
    assert "8 of 8 right" in word.sentence


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("word", 1 << 32, 'word is 4294967296, expected 32 bits as an int or as hex digits: "0xFA4DB871"'),
        ("word", "0xFA4DB8711", 'word is "0xFA4DB8711", expected 32 bits as an int or as hex digits: "0xFA4DB871"'),
        ("word", "toy", 'word is "toy", expected 32 bits as an int or as hex digits: "0xFA4DB871"'),
        ("word", "-1", 'word is "-1", expected 32 bits as an int or as hex digits: "0xFA4DB871"'),
        ("word", "1_0", 'word is "1_0", expected 32 bits as an int or as hex digits: "0xFA4DB871"'),
        ("word", " 1", 'word is " 1", expected 32 bits as an int or as hex digits: "0xFA4DB871"'),
        ("word", "", 'word is "", expected 32 bits as an int or as hex digits: "0xFA4DB871"'),
        ("word", "١", 'word is "١", expected 32 bits as an int or as hex digits: "0xFA4DB871"'),
        ("word", 1.5, 'word is 1.5, expected 32 bits as an int or as hex digits: "0xFA4DB871"'),
        ("codes", [8] * 8, "codes are [8, 8, 8, 8, 8, 8, 8, 8], expected 8 from -8 to 7, weight 0 first"),
        ("codes", [1, 2], "codes are [1, 2], expected 8 from -8 to 7, weight 0 first"),
        ("method", "sub", 'method is "sub", expected one of: shift_mask, lop3, prmt, prmt_bit3'),
        ("step", 10, "step is 10, expected 0 to 9"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(name, value, line):
    word = WordUnpack(preset="lop3: unshifted pair")
    with pytest.raises(traitlets.TraitError) as refused:
        setattr(word, name, value)
    assert str(refused.value) == line
    assert (word.word, word.method, word.step) == ("0xFA4DB871", "lop3", 2)


def test_a_word_and_codes_at_once_are_refused():
    with pytest.raises(traitlets.TraitError, match=r"^word and codes are two ways to say the same: pass one of them$"):
        WordUnpack(word=1, codes=[0] * 8)


# State -------------------------------------------------------------------------------------------------------------


def test_another_method_starts_at_its_beginning_and_leaves_the_preset():
    word = WordUnpack(preset="lop3: unshifted pair")
    word.step = 9
    assert word.preset == "lop3: unshifted pair"
    word.method = "prmt"
    assert (word.preset, word.step, word.step_count()) == ("", 0, 16)


def test_every_method_has_a_step_more_than_instructions():
    assert {name: len(method["steps"]) for name, method in WordUnpack()._trace["methods"].items()} == STEPS


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ({}, 'WordUnpack(preset="two orders", word="0xFA4DB871")'),
        ({"preset": "prmt", "step": 6}, 'WordUnpack(preset="prmt", word="0xFA4DB871", step=6)'),
        ({"method": "lop3", "word": 0}, 'WordUnpack(word="0x00000000", method="lop3", step=0)'),
    ],
)
def test_the_code_recreates_the_state(state, line):
    word = WordUnpack(**state)
    assert word.code == line
    again = eval(word.code)
    assert [getattr(again, name) for name in word.fields] == [getattr(word, name) for name in word.fields]


def test_a_state_from_the_browser_is_taken_as_it_is():
    word = WordUnpack(method="shift_mask", step=30)
    word.set_state({"preset": "mistake: bit 3 left in", "method": "prmt_bit3", "step": 9})
    assert (word.preset, word.method, word.step) == ("mistake: bit 3 left in", "prmt_bit3", 9)


# Pictures ----------------------------------------------------------------------------------------------------------


def test_the_text_picture_shows_the_step_bit_by_bit():
    assert WordUnpack(method="lop3", step=7).text_picture().splitlines() == [
        "weight           w7   w6   w5   w4    w3   w2   w1   w0",
        "q                7    2    -4   5     3    0    -1   -7",
        "nibble of        w7   w5   w3   w1    w6   w4   w2   w0",
        "n = q + 8        F    4    B    7     A    D    8    1    0xF4B7AD81",
        "",
        "fma.rn.f16x2 h1, h1, 0x2c002c00, 0xd480d480",
        "h1              0110 0100 1011 0000  0110 0100 1000 0000  0x64B06480",
        "x 1/16          0010 1100 0000 0000  0010 1100 0000 0000  0x2C002C00",
        "- 72            1101 0100 1000 0000  1101 0100 1000 0000  0xD480D480",
        "= h1            0100 0010 0000 0000  0000 0000 0000 0000  0x42000000",
        "                1200 x 1/16 - 72 = 3 = w3  1152 x 1/16 - 72 = 0 = w2",
        "",
        "unpacked         .    .    .    .     3    0    -1   -7",
    ]


def test_the_text_picture_is_plain_letters_at_every_step():
    for word in every_state():
        text = word.text_picture()
        assert text.isascii(), word.sentence
        assert max(map(len, text.splitlines())) <= 80


def test_the_png_is_the_same_twice_and_every_step_has_the_same_size():
    one = WordUnpack(preset="prmt").png()
    assert one == WordUnpack(preset="prmt").png()
    others = [
        WordUnpack(method=method, step=step).png() for method, step in (("shift_mask", 3), ("lop3", 3), ("lop3", 9))
    ]
    assert len({one, *others}) == 4
    assert len({picture[16:24] for picture in (one, *others)}) == 1  # width and height of a PNG


def test_javascript_tests_read_the_data_of_today():
    """tests/widgets/js/word.json is written by `python -m tests.widgets.word_data`."""
    assert json.loads(DATA_FILE.read_text(encoding="utf-8")) == json.loads(json.dumps(javascript_data()))


@pytest.mark.parametrize("codes", ["x", 0, [0.5] * 8])
def test_codes_that_are_no_whole_numbers_are_refused_in_one_line(codes):
    with pytest.raises(traitlets.TraitError, match="expected 8 whole numbers from -8 to 7"):
        WordUnpack().codes = codes
