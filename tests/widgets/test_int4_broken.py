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
    bars = [element for element in svg.elements if element.startswith("<rect")]
    assert len(bars) == sum(bool(step) for group in groups() for step in steps_of(group))
    assert sum("cw solid" in bar for bar in bars) == sum(
        smeared and step != 0
        for group in groups()
        for smeared, step in zip(group.smeared, steps_of(group), strict=True)
    )


def test_the_png_is_the_same_each_time():
    assert misread_picture(groups(), "a toy group").png() == misread_picture(groups(), "a toy group").png()
