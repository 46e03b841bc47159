"""The picture of a broken cache: the engine's texts and slots, and no others."""

import re

import pytest

from lab_engine.kv_mistakes import KV_MISTAKES, trace_kv_mistake
from widgets.kv_broken import kv_broken_picture
from widgets.still import WIDTH, Svg


@pytest.fixture(scope="module")
def traces():
    return {name: trace_kv_mistake(name) for name in KV_MISTAKES}


def drawn(trace, kind):
    """The elements of a kind as their attributes and text."""
    svg = Svg()
    kv_broken_picture(trace)._draw(svg)
    found = [element for element in svg.elements if element.startswith(f"<{kind} ")]
    return [dict(re.findall(r'(\w+)="([^"]*)"', one)) | {"text": re.sub("<[^>]*>", "", one)} for one in found]


def test_the_text_holds_both_texts_and_marks_the_first_wrong_token(traces):
    lines = repr(kv_broken_picture(traces["shared_half_page"])).splitlines()
    assert lines[2].startswith("A right  (self, item):↵        self.items.append(item)")
    assert lines[3].startswith("  wrong  (self,| key, default=None):")
    assert lines[5] == "  wrong" + lines[4].removeprefix("B right")  # B is right, so nothing is marked
    assert lines[7].split() == "id 9 · count 2 · A B B B B* B* B* B* . . . . . . . . . .".split()


def test_the_state_says_who_is_wrong_and_what_the_pages_show(traces):
    def state(name):
        return repr(kv_broken_picture(traces[name])).splitlines()[-2]

    assert state("floor_pages") == (
        "A wrong from new token 3 on · B wrong from new token 3 on · A: 48 of 50 tokens read · B: 32 of 34 tokens read"
    )
    assert state("double_free").endswith("page 5: two owners, count 1, 5 slots written twice")
    assert state("shared_half_page") == (
        "A wrong from new token 3 on · B is right · page 9: two owners, count 2, 4 slots written twice · "
        "both write the same text"
    )


@pytest.mark.parametrize(("name", "marked"), [("floor_pages", 4), ("double_free", 5), ("shared_half_page", 4)])
def test_marked_slots_are_those_that_nobody_reads_or_two_wrote(traces, name, marked):
    slots = [one for one in drawn(traces[name], "rect") if float(one["height"]) > 18]
    wrong = [one for one in slots if one["class"] == "cw fill"]
    assert len(slots) == 16 * len(traces[name].pages) + (2 if name == "shared_half_page" else 1)  # and the key's
    assert len(wrong) == marked + 1


def test_the_key_is_true_whoever_wrote_first(traces):
    """After the double free B wrote slot 4 before A did; A wrote the others first."""
    writers = ["›".join(write.sequence for write in slot) for slot in traces["double_free"].pages[0].slots]
    assert {"A›B", "B›A"} <= set(writers)
    said = [one["text"] for one in drawn(traces["double_free"], "text")]
    assert {"A›B", "B›A", "the second wrote over the first"} <= set(said)


@pytest.mark.parametrize("name", KV_MISTAKES)
def test_a_wrong_token_is_told_by_a_box_or_a_line_too(traces, name):
    boxes = [one for one in drawn(traces[name], "rect") if one["height"] == "16.0"]
    departed = [text for text in traces[name].texts if text.departs is not None]
    assert len(boxes) == len(departed)
    wrong_words = [one for one in drawn(traces[name], "text") if one["class"] == "m cw ink"]
    underlined = [one for one in drawn(traces[name], "line") if one["class"] == "axis"]
    assert len(wrong_words) == len(underlined) + len(boxes)


@pytest.mark.parametrize("name", KV_MISTAKES)
def test_nothing_is_drawn_outside_the_picture(traces, name):
    picture = kv_broken_picture(traces[name])
    for one in drawn(traces[name], "rect"):
        assert float(one["x"]) >= 0
        assert float(one["x"]) + float(one["width"]) <= WIDTH
        assert float(one["y"]) + float(one["height"]) <= picture._height
    assert picture.png() == kv_broken_picture(traces[name]).png()
