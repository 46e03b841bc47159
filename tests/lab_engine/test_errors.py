"""Values that come in from outside: a plain int, or one line that names them."""

import doctest

import numpy as np
import pytest
import torch

import lab_engine.errors
from lab_engine.errors import NanoqwenError, whole_number


def test_the_docstrings_example_is_true():
    assert doctest.testmod(lab_engine.errors).failed == 0


@pytest.mark.parametrize("value", [7, np.int8(7), np.array(7), torch.tensor(7)], ids=repr)
def test_any_integer_type_becomes_an_int(value):
    assert type(whole_number("slot", value, 7, 7)) is int


@pytest.mark.parametrize(
    ("value", "bounds", "message"),
    [
        (1.5, (), "slot: found 1.5, expected a whole number"),
        (False, (), "slot: found False, expected a whole number"),
        (np.zeros((2, 1)), (), "slot: found array([[0.], [0.]]), expected a whole number"),
        (-1, (), "slot: found -1, expected 0 or more"),
        (0, (1,), "slot: found 0, expected 1 or more"),
        (16, (0, 15), "slot: found 16, expected 0 to 15"),
        (0, (0, -1), "slot: found 0, but there is none"),
    ],
)
def test_what_is_no_whole_number_in_its_range_is_told_in_one_line(value, bounds, message):
    with pytest.raises(NanoqwenError) as caught:
        whole_number("slot", value, *bounds)
    assert str(caught.value) == message
