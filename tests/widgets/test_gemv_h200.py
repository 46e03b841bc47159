"""What lab 03 shows of the final kernels on an H200, from a made-up recording; and the ladder here, with a stand-in."""

from lab_engine import gemv_gpu
from lab_engine.errors import ToolchainError
from lab_engine.gemv_ladder import RUNGS
from lab_engine.recordings import Provenance, Recording, load_recording
from widgets.gemv_h200 import STAGES, forms_table, gpu_here, profile_table, token_table

BANDWIDTH = 4.68e12
BYTES = {"qkv": 8515584, "o": 6623232, "gate_up": 70017024, "down": 35008512, "lm_head": 281018496}
ORIGIN = Provenance(
    "NVIDIA H200", "580", "13.0", {}, {"sm": 1800, "memory": 3200}, "2026-01-02", "run", "abcdef012", {}
)


def recording():
    """qkv takes 8 µs plain and 4 dependent, o 16 and 8, …; PyTorch ten times the plain time."""
    forms, peer = {}, {}
    for place, stage in enumerate(STAGES):
        us = 4.0 * 2**place
        forms[stage] = {
            "plain": {"us": 2 * us, "us_spread": 0.1},
            "dependent": {"us": us, "us_spread": 0.1},
            "bytes": BYTES[stage],
            "error": 1e-5 * (place + 1),
        }
        peer[stage] = {"us": 20 * us, "us_spread": 1.0}
    token = {"plain": {"ms": 1.558, "ms_spread": 0.01}, "dependent": {"ms": 1.0, "ms_spread": 0.01}}
    data = {"forms": forms, "token": token, "peer": {**peer, "token": {"ms": 2.0, "ms_spread": 0.1}}}
    return Recording("gemv_token", ORIGIN, {**data, "layers": 28, "replays": 51})


def test_every_stage_stands_beside_its_floor_and_its_peer():
    """qkv: 8.52 MB at 4.68 TB/s take 1.82 µs; in 4 µs that is 2.13 TB/s, 45 %."""
    rows = {row[0]: row for row in forms_table(recording(), BANDWIDTH).rows}
    assert list(rows) == ["qkv", "o", "gate_up", "down", "lm_head"]
    assert rows["qkv"][1:] == ("8.52", "1.82", "8.00", "4.00", "2.13", "45 %", "80.00")
    assert rows["lm_head"][1:] == ("281.02", "60.05", "128.00", "64.00", "4.39", "94 %", "1280.00")
    assert "Largest error against float64: 5.0e-05" in forms_table(recording(), BANDWIDTH).note


def test_a_token_stands_beside_the_floor_of_its_bytes():
    """3.6456 GB at 4.68 TB/s: 0.779 ms."""
    rows = [row[1:] for row in token_table(recording(), BANDWIDTH).rows]
    assert rows == [
        ("0.779", "100 %", "2.57"),
        ("1.000", "78 %", "2.00"),
        ("1.558", "50 %", "1.28"),
        ("2.000", "39 %", "1.00"),
    ]
    assert token_table(recording(), BANDWIDTH).rows[0][0] == "floor: 3.646 GB ÷ 4.68 TB/s"


def test_recorded_numbers_carry_their_badge():
    for table in (forms_table(recording(), BANDWIDTH), token_table(recording(), BANDWIDTH)):
        assert table.badge.kind == "recorded"
        assert "NVIDIA H200" in table.badge.source
        assert all(table.numeric[1:])


class StandIn:
    """A GPU on which the first rungs run and those of Hopper do not."""

    def run(self, name):
        if RUNGS[name].needs_hopper:
            raise ToolchainError("ring: needs Hopper\nand more words")
        return 2.5e-4, 17.5, 2e12


def test_a_gpu_shows_each_rung_and_why_one_does_not_run(monkeypatch):
    monkeypatch.setattr(gemv_gpu, "LadderBench", StandIn)
    table = gpu_here().table
    assert [row[0] for row in table.rows] == list(RUNGS)
    assert table.rows[0][1:] == ("2.5e-04", "17.5", "2,000", "")
    assert {row[0] for row in table.rows if row[1] == "–"} == {
        name for name, rung in RUNGS.items() if rung.needs_hopper
    }
    assert {row[0]: row[4] for row in table.rows}["ring"] == "ring: needs Hopper"
    assert table.badge.kind == "measured"


def test_without_a_gpu_one_line_says_so(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    table = gpu_here().table
    assert (table.rows, table.badge, table.note) == ((), None, "Not run here: no NVIDIA GPU found")


def test_the_text_is_the_same_on_every_machine(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    absent = repr(gpu_here())
    monkeypatch.setattr(gemv_gpu, "LadderBench", StandIn)
    assert repr(gpu_here()) == absent


def test_the_counters_of_a_rung_are_said_in_words_and_a_missing_profile_is_a_dash():
    recording = load_recording("gemv")
    recording.data["rungs"]["ring"]["ncu"] = None
    recording.data["rungs"]["prmt"]["ncu"] = {"dram_percent": 1.4, "issue_percent": None, "stall": "no_such_reason"}
    rows = {row[0]: row[1:] for row in profile_table(recording).rows}
    assert list(rows) == list(RUNGS)
    found = recording.data["rungs"]["lop3"]["ncu"]
    assert rows["lop3"] == (f"{found['dram_percent']:.0f} %", f"{found['issue_percent']:.0f} %", "a load from memory")
    assert rows["ring"] == ("–", "–", "–")
    assert rows["prmt"] == ("1 %", "–", "no_such_reason")
