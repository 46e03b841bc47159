"""Stills, charts, live tables, hints and what a machine says of itself."""

import pytest

import widgets.machine
from lab_engine.checks import exercises
from widgets.charts import Bars, error_bars
from widgets.evidence import Badge, Table
from widgets.hints import FoldedHints
from widgets.live_table import LiveTable, table_in
from widgets.machine import backends_table, progress_table, self_check

TABLE = Table("Speed", ("what", "ms"), (("decode", "2.41"), ("limit", "1.13")), Badge("measured", "here"), "a note")


def chart(errors=(0.5, 0.0, 2e-4, 30.0), first=14):
    return error_bars("Errors", "Look.", errors, first)


def test_the_text_of_an_error_chart_says_where_and_not_how_much():
    assert repr(chart()) == repr(chart((0.6, 0.0, 1e-4, 31.0)))
    assert repr(chart()).splitlines() == [
        "Errors",
        "",
        "  14  #..#",
        "      # error   . none",
        "",
        "wrong at 2 of 4 lengths · right at 15, 16",
        "computed: the engine's own decoder in float32",
    ]


def test_an_error_chart_in_letters_has_a_row_a_page():
    rows = repr(chart([1.0] * 40, first=1)).splitlines()[2:5]
    assert rows == ["   1  " + "#" * 16, "  17  " + "#" * 16, "  33  " + "#" * 8]


def test_the_picture_follows_the_values_and_is_the_same_twice():
    assert chart().png() == chart().png()
    assert chart().png() != chart((0.5, 0.0, 0.1, 30.0)).png()


def test_the_page_s_svg_holds_a_mark_for_every_value_and_follows_the_theme():
    shown = chart().value
    assert (shown.count('class="cw fill"'), shown.count('class="c2 solid"')) == (2, 2)
    assert "--jp-layout-color1" in shown
    assert 'aria-label="wrong at 2 of 4 lengths' in shown


def test_the_scale_of_bars_holds_the_largest_value():
    bars = Bars((0.01, 5.0), 1, (), 0.01, "x", "y")
    assert bars.decades == 3
    assert bars.y(5.0) > bars.y(10.0) == min(bars.y(10.0), bars.y(5.0))
    assert bars.y(0.0) == bars.y(0.01)


def test_a_live_table_has_one_text_for_all_machines_and_its_numbers_in_picture_and_page():
    live = LiveTable(TABLE, "Speed: in the picture")
    assert repr(live) == "Speed: in the picture"
    assert "2.41" in live.value
    assert table_in(live.png()) == TABLE


def test_a_picture_of_anything_else_holds_no_table():
    assert table_in(chart().png()) is None


def test_a_stored_picture_can_be_drawn_again_from_itself():
    png = LiveTable(TABLE, "").png()
    assert LiveTable(table_in(png), "").png() == png


@pytest.mark.parametrize("shown", [chart(), LiveTable(TABLE, "text")], ids=["still", "live table"])
def test_a_bundle_holds_text_and_picture_and_no_html_that_nbval_would_compare(shown):
    assert {"text/plain", "image/png"} <= set(shown._repr_mimebundle_())
    assert "text/html" not in shown._repr_mimebundle_()


def test_the_self_check_names_a_package_that_is_too_old_or_missing(monkeypatch):
    assert repr(self_check()) == "Moving pictures: yes"
    found = {"jupyterlab": "4.6.6", "ipywidgets": "7.7.5", "jupyterlab_widgets": "", "anywidget": "0.11.0"}
    monkeypatch.setattr(widgets.machine, "_version", found.get)
    assert repr(self_check()).splitlines() == [
        "Moving pictures: no",
        "ipywidgets: found 7.7.5, run make lab again",
        "jupyterlab_widgets: found none, run make lab again",
    ]


def test_the_backends_are_those_of_the_doctor():
    table = backends_table().table
    assert [row[0] for row in table.rows] == ["cuda", "triton", "torch"]
    assert table.rows[-1][1] == "yes"


def test_progress_changes_the_picture_and_never_the_text(tmp_path, monkeypatch):
    monkeypatch.setenv("NANOQWEN_PROGRESS", str(tmp_path / "progress.json"))
    before = progress_table()
    lab00 = exercises("00_tour")
    lab00["bytes_per_step"].check(lab00["bytes_per_step"].solution)
    after = progress_table()
    assert (before.table.rows[0][1], after.table.rows[0][1]) == ("0 of 2", "1 of 2")
    assert repr(before) == repr(after)
    assert before.png() != after.png()


def test_hints_are_folded_and_the_last_is_the_solution_s_source():
    exercise = exercises("00_tour")["greedy"]
    shown = FoldedHints(exercise)._repr_html_()
    assert shown.count("<details>") == 3
    assert "while (token := int(logits.argmax())) not in stop_ids:" in shown
    assert "while" not in repr(FoldedHints(exercise))
