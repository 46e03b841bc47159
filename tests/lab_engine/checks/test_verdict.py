import dataclasses
import pickle
import re
from html.parser import HTMLParser

import pytest

from lab_engine.checks import Row, Verdict, exercises
from lab_engine.checks.values import different_sequences, number, window
from lab_engine.checks.verdict_style import STYLE

PACK = Verdict(
    exercise="pack",
    status="failed",
    passed=2,
    total=40,
    case="negative <weights>",
    given=(Row("weight, q", ("−1", "3", "0")),),
    expected=Row("expected nibble", ("7", "11", "8"), "0x8B7"),
    yours=Row("your nibble", ("0", "3", "8"), "0x830"),
    differ=(0, 1),
    hint="What does a nibble hold for `q` = 0?",
)
PASSED = Verdict("pack", "passed", 40, 40, cases="random, all zero")
NOT_STARTED = Verdict("pack", "not started", 0, 40)


def test_a_failed_verdict_prints_the_case_the_difference_and_the_hint():
    assert str(PACK) == (
        "pack: failed on case 3 of 40, after 2 that passed\n"
        "  case: negative <weights>\n"
        "    weight, q        −1   3  0\n"
        "    expected nibble   7  11  8  0x8B7\n"
        "    your nibble       0   3  8  0x830\n"
        "                     ^^  ^^\n"
        "  Hint: What does a nibble hold for q = 0?"
    )


def test_the_other_two_verdicts_are_one_line():
    assert str(PASSED) == "pack: passed 40 of 40 cases: random, all zero"
    assert str(NOT_STARTED) == "pack: not started yet (write the body of pack, then run the cell again)"


def test_the_html_underlines_the_differing_values_and_escapes_the_rest():
    html = PACK._repr_html_()
    assert re.findall(r'<td class="bad">(.*?)</td>', html) == ["0", "3"]
    assert "negative &lt;weights&gt;" in html
    assert "<code>q</code>" in html
    assert '<td class="w">0x830</td>' in html
    assert '<div class="nl-verdict cw" role="status">' in html
    assert '<div class="nl-verdict c2" role="status">' in PASSED._repr_html_()
    assert '<div class="nl-verdict c4" role="status">' in NOT_STARTED._repr_html_()


def test_a_row_without_values_is_a_line_of_its_own():
    verdict = dataclasses.replace(PACK, given=(*PACK.given, Row("scale", (), "1e−07, of a row & a group")))
    assert "\n    scale            1e−07, of a row & a group\n" in str(verdict)
    assert '<td class="line" colspan="4">1e−07, of a row &amp; a group</td></tr>' in verdict._repr_html_()


class Balance(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, _attrs):
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("verdict", [PACK, PASSED, NOT_STARTED])
def test_the_html_is_well_formed_and_fetches_nothing(verdict):
    parser = Balance()
    html = verdict._repr_html_()
    parser.feed(html)
    assert parser.open == []
    assert not re.search(r"https?:|url\(|@import|<script|\bid=", html)


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("theme", "surface"), [(0, "#ffffff"), (1, "#212121")])
def test_text_has_enough_contrast_in_light_and_dark(theme, surface):
    block = re.findall(r"\.nl\{(.*?)\}", STYLE, re.DOTALL)[theme]
    inks = dict(re.findall(r"--(nl-(?:muted|wrong-ink|c2-ink|c4-ink)):(#\w{6})", block))
    assert len(inks) == 4
    for name, ink in inks.items():
        low, high = sorted([luminance(ink), luminance(surface)])
        assert (high + 0.05) / (low + 0.05) >= 4.5, name


def test_equal_verdicts_draw_the_same():
    exercise = exercises("08_decoder")["top_p_probs"]
    first, second = (exercise.check(lambda logits, *_: logits) for _ in range(2))
    assert first == second
    assert (str(first), first._repr_html_()) == (str(second), second._repr_html_())
    assert pickle.loads(pickle.dumps(first)) == first


def test_numbers_are_short_and_have_a_true_minus():
    assert [number(v) for v in (-3, 3674976256, 0.00393677, -1e-7, 0.5, float("nan"), float("-inf"))] == [
        "−3",
        "3,674,976,256",
        "0.003937",
        "−1e−07",
        "0.5",
        "NaN",
        "−inf",
    ]


@pytest.mark.parametrize(
    ("length", "first", "shown"), [(4, 3, (0, 4)), (8, 7, (0, 8)), (37, 0, (0, 8)), (37, 36, (29, 37))]
)
def test_a_window_holds_the_first_difference(length, first, shown):
    place = window(length, first)
    assert (place.start, place.stop) == shown
    assert place.start <= first < place.stop


def test_lists_of_unequal_length_differ_where_one_ends():
    mismatch = different_sequences("ids", [3], [3, 9], "")
    assert mismatch.expected.values == ("3", "–")
    assert mismatch.yours.values == ("3", "9")
    assert mismatch.differ == (1,)
