"""Words of all playgrounds, against values by hand. tests/widgets/test_tour.py has those of bytes and percents."""

import pytest

from widgets.words import hex_word, signed


@pytest.mark.parametrize(
    ("value", "size", "word"),
    [
        (0xFA4DB871, 4, "0xFA4DB871"),
        (10, 4, "0x0000000A"),
        (0x4C, 1, "0x4C"),
        (0x2C00, 2, "0x2C00"),
        (255, 8, "0x00000000000000FF"),
    ],
)
def test_a_number_of_so_many_bytes_has_all_its_digits_in_capitals(value, size, word):
    assert hex_word(value, size) == word


def test_a_minus_is_a_minus_in_a_number_and_in_its_text():
    assert (signed(-7), signed(0), signed("-0.5")) == ("−7", "0", "−0.5")
