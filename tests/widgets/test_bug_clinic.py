"""The picture of the clinic shows ten numbered symptoms, every one as the engine has it, and names no cause."""

import re

import pytest

from lab_engine.attention_clinic import CAUSES, Curve, Row, symptoms
from lab_engine.paged_attention import BUGS
from widgets.bug_clinic import clinic_picture
from widgets.still import WIDTH, Svg


@pytest.fixture(scope="module")
def picture():
    return clinic_picture()


@pytest.fixture(scope="module")
def shown():
    return symptoms()


def drawn(picture, kind):
    """The elements of a kind as their attributes and text."""
    svg = Svg()
    picture._draw(svg)
    found = [element for element in svg.elements if element.startswith(f"<{kind} ")]
    return [dict(re.findall(r'(\w+)="([^"]*)"', one)) | {"text": re.sub("<[^>]*>", "", one)} for one in found]


def test_no_cause_is_named_in_any_form(picture):
    everything = repr(picture) + picture.value
    assert not any(name in everything for name in {*CAUSES, *BUGS, *BUGS.values()})


def test_all_ten_are_numbered_in_order(picture):
    numbers = [one["text"] for one in drawn(picture, "text") if one["class"] == "big b"]
    assert numbers == [str(number) for number in range(1, 11)]
    assert re.findall(r"^(\d+)  \w", repr(picture), re.MULTILINE) == numbers


def test_a_curve_has_a_bar_for_every_error_and_a_row_for_every_weight_that_shows(picture, shown):
    errors = sum(
        error > 0 for one in shown if isinstance(one.shown, Curve) for head in one.shown.errors for error in head
    )
    weights = 0
    for one in shown:
        if isinstance(one.shown, Row):
            both = one.shown.right + one.shown.wrong
            weights += sum(40 * weight / max(both) >= 0.5 for weight in both)
    bars = [one for one in drawn(picture, "rect") if one["class"].endswith("solid")]
    assert len(bars) == errors + weights


def test_the_text_says_where_curves_are_wrong(picture, shown):
    number = next(one.number for one in shown if isinstance(one.shown, Curve) and not any(one.shown.errors[0]))
    block = repr(picture).split(f"\n{number}  error")[1].splitlines()
    assert block[1] == "   head 0  " + "." * 64
    assert block[2] == "   head 1  " + "#" * 64


def test_texts_are_shown_right_and_wrong_with_the_place_of_their_departure(picture):
    text = repr(picture)
    assert "prompt of 16 tokens, “…t__(self, name: str,” · first wrong with 17 in the cache" in text
    assert "   with a bug   ac|!!!!!!!" in text
    assert '   with a bug  (config):↵    """Load the Jinja|2 en' in text


def test_no_percent_of_the_text_is_near_a_half(shown):
    """Else another machine might round it the other way."""
    for one in shown:
        if isinstance(one.shown, Row):
            for weight in one.shown.right + one.shown.wrong:
                assert abs((100 * weight) % 1 - 0.5) > 1e-3


def test_nothing_is_drawn_outside_the_picture(picture):
    for one in drawn(picture, "rect"):
        assert float(one["x"]) >= 0
        assert float(one["x"]) + float(one["width"]) <= WIDTH + 0.5
        assert 0 <= float(one["y"]) <= picture._height
    for one in drawn(picture, "text"):
        if not {"e", "c"} & set(one["class"].split()):
            size = 7.23 if "m" in one["class"].split() else 5.9
            assert float(one["x"]) + size * len(one["text"]) <= WIDTH


def test_the_picture_is_the_same_each_time(picture):
    assert picture.png() == picture.png()
    assert repr(clinic_picture()) == repr(picture)
