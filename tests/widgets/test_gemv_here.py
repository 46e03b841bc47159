"""The live table of a product: its text is the same everywhere, its numbers belong together."""

from dataclasses import replace

import pytest

from lab_engine.gemv import Gpu
from lab_engine.gemv_cpu import FormatTime
from widgets import gemv_here

CPU = Gpu("a processor", 20e9, 1, float("inf"), kind="measured")
FOUND = (
    FormatTime("INT4, groups of 128", "a", 6_623_232, 5e-4, 2.9e-3),
    FormatTime("INT8, a scale a row", "b", 12_859_392, 1e-3, 9.2e-3),
    FormatTime("float32", "c", 51_380_224, 3e-3, 5.3e-7),
)


@pytest.fixture
def measured(monkeypatch):
    def use(found):
        monkeypatch.setattr(gemv_here, "this_cpu", lambda: CPU)
        monkeypatch.setattr(gemv_here, "time_formats", lambda n, k: found if (n, k) == (3584, 3584) else ())
        return gemv_here.gemv_here()

    return use


def test_rates_and_shares_are_those_of_the_bytes_and_times(measured):
    int4, _, dense = measured(FOUND).table.rows
    assert int4[2:] == ("6.6", "0.50", "0.33", "13.2", "66 %", "0.29 %")
    assert dense[3:7] == ("3.00", "2.57", "17.1", "86 %")


def test_the_text_is_constant_and_the_note_says_what_is_left_out(measured):
    whole, part = measured(FOUND), measured(FOUND[2:])
    assert repr(whole) == repr(part) == "One product on this machine, in three formats: in the picture"
    assert "left out" in part.table.note
    assert "left out" not in whole.table.note
    assert whole.table.badge.kind == "measured"


def test_no_share_is_over_100_percent_when_the_bandwidth_was_measured_on_a_busy_machine(measured, monkeypatch):
    monkeypatch.setitem(globals(), "CPU", replace(CPU, bandwidth=8e9))
    assert [row[6] for row in measured(FOUND).table.rows] == ["77 %", "75 %", "100 %"]
