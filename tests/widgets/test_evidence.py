import re
from typing import get_args

import pytest

from widgets.bundle import STATIC
from widgets.evidence import SIGNS, STYLE, WORDS, Badge, Table, badge_html, badge_text

BADGE = Badge("quoted", 'a "log" of <ours>')
ROWS = (("qkv", "1,960.48", "53.3 %"), ("o & up", "−2", "≤ 6"))
TABLE = Table("Bytes", ("stage", "MB", "share"), ROWS, BADGE, "Look at < 1.")


def test_every_kind_of_badge_has_the_word_and_sign_of_the_playgrounds():
    script = (STATIC / "shell.js").read_text(encoding="utf-8")
    found = dict(re.findall(r'^  (\w+): \["(\S[^"]*)", "[a-zA-Z0-9 ]+"\],$', script, re.MULTILINE))
    words = dict(re.findall(r'^  (\w+): \["[^"]*", "([a-zA-Z0-9 ]+)"\],$', script, re.MULTILINE))
    kinds = get_args(Badge.__annotations__["kind"])
    assert set(kinds) == set(WORDS) == set(SIGNS)
    assert ({kind: found[kind] for kind in kinds}, {kind: words[kind] for kind in kinds}) == (SIGNS, WORDS)


def test_a_badge_s_source_looks_alike_with_a_table_and_without():
    """Both style sheets give the same declarations; fonts have names in one of them."""
    sheet = (STATIC / "nl.css").read_text(encoding="utf-8")
    fonts = dict(re.findall(r"--(nl-t-\w+):([^;}]+)", sheet))
    source = r"\.nl \.nl-source\{(.*?)\}"
    plain = re.sub(r"var\(--(nl-t-\w+)\)", lambda one: fonts[one[1]], re.search(source, sheet)[1])
    assert plain == re.search(source, STYLE)[1]


def test_a_badge_names_its_source_and_escapes_it():
    assert badge_text(BADGE) == 'quoted: a "log" of <ours>'
    assert "a &quot;log&quot; of &lt;ours&gt;" in badge_html(BADGE)


def test_a_table_in_letters_sets_numbers_right_and_names_its_source():
    assert repr(TABLE).splitlines() == [
        "Bytes",
        "  stage         MB   share",
        "  qkv     1,960.48  53.3 %",
        "  o & up        −2     ≤ 6",
        "Look at < 1.",
        'quoted: a "log" of <ours>',
    ]


def test_a_table_as_html_has_every_cell_escaped_and_a_head():
    shown = TABLE._repr_html_()
    assert re.findall(r'<th(?: class="r")?>(.*?)</th>', shown) == ["stage", "MB", "share"]
    assert re.findall(r'<td( class="r")?>(.*?)</td>', shown)[3:] == [
        ("", "o &amp; up"),
        (' class="r"', "−2"),
        (' class="r"', "≤ 6"),
    ]
    assert "Look at &lt; 1." in shown


@pytest.mark.parametrize("cell", ["00_tour", "no", "a 1", ""])
def test_a_column_with_a_word_stands_at_the_left(cell):
    assert Table("t", ("x",), (("1",), (cell,))).numeric == (False,)


def test_a_badge_may_stand_in_a_cell():
    table = Table("t", ("x", "evidence"), (("1", Badge("simulated", "a model")),))
    assert "simulated: a model" in repr(table)
    assert "a model</span></td>" in table._repr_html_()


def test_a_row_of_another_length_is_refused_by_name():
    with pytest.raises(ValueError, match="table 't': expected 2 cells in a row, found \\('1',\\)"):
        Table("t", ("x", "y"), (("1",),))


def test_a_table_without_rows_is_its_title_and_its_note():
    table = Table("Here", ("way", "rate"), (), note="Not run here.")
    assert repr(table) == "Here\nNot run here."
    assert "<table>" not in table.card()
