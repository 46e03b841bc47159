"""The picture of a misread group: its bars are the steps that the engine counts."""

import re

import torch

from lab_engine.int4_mistakes import INT4_MISTAKES, misread_group
from widgets.int4_broken import misread_picture, steps_of
from widgets.still import Svg

CODES = torch.tensor([-7, -1, 0, 3, 5, -4, 2, 7] * 16, dtype=torch.int8)


def groups():
    return [misread_group(CODES, 0.0625, name) for name in INT4_MISTAKES]


def test_steps_are_codes_read_less_codes_meant():
    assert set(steps_of(misread_group(CODES, 0.0625, "zero_point_7"))) == {1}
    assert set(steps_of(misread_group(CODES, 0.0625, "missing_bias"))) == {8}
    assert steps_of(misread_group(CODES, 0.0625, "none")) == [0] * 128


def test_the_text_counts_weights_that_move_and_nibbles_that_were_overrun():
    text = repr(misread_picture(groups(), "a toy group"))
    assert "zero_point_7  128 of 128 weights move, all by +1\n" in text
    assert "wrong_layout   96 of 128 weights move" in text  # only weights 0 and 7 of eight keep their nibble
    assert re.search(r"sign_smear .* nibbles overrun", text)
    assert text.endswith("computed: a toy group")


def test_every_moving_weight_has_one_bar_that_points_where_it_moves():
    picture = misread_picture(groups(), "a toy group")
    svg = Svg()
    picture._draw(svg)
    rects = [element for element in svg.elements if element.startswith("<rect")]
    bars = rects[2:]  # without the key's
    assert len(bars) == sum(bool(step) for group in groups() for step in steps_of(group))
    assert sum("cw solid" in bar for bar in bars) == sum(
        smeared and step != 0
        for group in groups()
        for smeared, step in zip(group.smeared, steps_of(group), strict=True)
    )


def drawn(kind):
    """The elements of a kind as their attributes and text."""
    svg = Svg()
    misread_picture(groups(), "a toy group")._draw(svg)
    found = [element for element in svg.elements if element.startswith(f"<{kind} ")]
    return [dict(re.findall(r'(\w+)="([^"]*)"', one)) | {"text": re.sub("<[^>]*>", "", one)} for one in found]


def test_a_bar_of_8_steps_ends_at_the_line_named_8_and_every_row_has_its_scale():
    texts, lines = drawn("text"), drawn("line")
    assert [sum(one["text"] == name for one in texts) for name in ("+8", "0", "−8")] == [4, 5, 4]
    ends = {float(one["y"]) for one in drawn("rect")}
    eight = [float(one["y"]) for one in texts if one["text"] == "+8"]
    assert eight[1] in ends  # missing_bias
    assert set(eight) <= {float(one["y1"]) for one in lines}


def test_the_weights_numbers_stand_below_their_bars():
    numbers = [one for one in drawn("text") if one["text"] in ("0", "32", "64", "96", "127")][-5:]
    bars = sorted({float(one["x"]) + float(one["width"]) / 2 for one in drawn("rect") if float(one["y"]) > 20})
    assert [one["text"] for one in numbers] == ["0", "32", "64", "96", "127"]
    ticks = [float(one["x1"]) for one in drawn("line")[-5:]]
    assert ticks == [bars[at] for at in (0, 32, 64, 96, 127)]


def test_overrun_and_other_weights_differ_in_more_than_hue():
    classes = {one["class"].split()[1] for one in drawn("rect")}
    assert classes == {"solid", "fill"}


def test_the_png_is_the_same_each_time():
    assert misread_picture(groups(), "a toy group").png() == misread_picture(groups(), "a toy group").png()
