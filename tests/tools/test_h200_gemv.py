"""The recording `gemv`, with stand-ins for the GPU: what it compares, what it computes, what it refuses."""

import csv
import io
import json
import re
import subprocess
import threading
from types import SimpleNamespace

import pytest
import torch

from lab_engine import gemv_gpu, gemv_ladder, gemv_peer, gpu
from lab_engine.errors import RecordingError, ToolchainError
from lab_engine.gemv_ladder import RUNGS, reference
from lab_engine.kernels import FOLDER
from tools import h200_gemv, h200_gemv_check, h200_gemv_code, h200_gemv_ncu, h200_machine
from tools.h200_gemv import make_stage, rung_times


@pytest.fixture
def layers():
    return make_stage("o", 24, 256, layers=3, device="cpu")


@pytest.fixture
def replays(monkeypatch):
    """Run twice, as for a warm-up and a capture; replays take 2, 4, 4, 4 … µs a call. Holds the calls of a run."""
    calls = []

    def replay_seconds(run, replays):
        run()
        run()
        return [calls[-1] * 2e-6] + [calls[-1] * 4e-6] * (replays - 1)

    monkeypatch.setattr(gpu, "replay_seconds", replay_seconds)
    return calls


def loads(monkeypatch, change=lambda y, _: y):
    """Rungs multiply by unpacking; change(y, how many matrices were loaded before) is what they give."""
    loaded = []

    def load(name, words, scales):
        place = len(loaded)
        loaded.append(name)
        return lambda x: change(reference(words, scales, x).float(), place)

    monkeypatch.setattr(gemv_ladder, "load", load)


def test_a_stage_holds_a_matrix_a_layer_and_of_lm_head_one(layers):
    assert len(layers.matrices) == len(layers.expected) == 3
    assert not torch.equal(layers.matrices[0].words, layers.matrices[1].words)
    head = make_stage("lm_head", 40, 128, layers=3, device="cpu")
    assert (len(head.matrices), head.rounds, layers.rounds) == (1, h200_gemv.HEAD_CALLS, 1)


def test_a_time_is_microseconds_a_call(layers, replays, monkeypatch):
    loads(monkeypatch)
    replays.append(3)
    assert rung_times("rows", layers) == {"us": 4.0, "us_spread": 2.0}


@pytest.mark.parametrize("wrong", [0, 2])
@pytest.mark.parametrize("factor", [1.01, float("nan")])
def test_no_time_counts_where_the_output_of_one_layer_is_wrong(layers, replays, monkeypatch, wrong, factor):
    """At the first layer and at the last: a NaN that is not the first is the one that max drops."""
    loads(monkeypatch, lambda y, place: y * factor if place == wrong else y)
    replays.append(3)
    with pytest.raises(RecordingError, match=r"rows, o: wrong by (1\.0e-02|nan), expected 1e-03 or less"):
        rung_times("rows", layers)


def test_outputs_are_those_of_the_last_run(layers, replays, monkeypatch):
    """The warm-up's are right, the captured ones are not."""
    runs = []

    def spoilt_later(y, place):
        runs.append(place)
        return y if len(runs) <= 3 else y + 1

    loads(monkeypatch, spoilt_later)
    replays.append(3)
    with pytest.raises(RecordingError, match="rows, o: wrong by"):
        rung_times("rows", layers)


def test_the_peer_multiplies_the_same_matrices_with_x_in_bfloat16(layers, replays, monkeypatch):
    seen = []

    def load(parts):
        def multiply(x):
            seen.append((x.dtype, tuple(x.shape)))
            return reference(parts[0].words, parts[0].scales, x[0]).to(torch.bfloat16)[None]

        return multiply

    monkeypatch.setattr(gemv_peer, "load", load)
    replays.append(3)
    assert h200_gemv.peer({"o": layers}) == {"_weight_int4pack_mm": {"o": {"us": 4.0, "us_spread": 2.0}}}
    assert set(seen) == {(torch.bfloat16, (1, 256))}


def test_an_edge_is_a_hundredth_of_a_graph_of_a_hundred_nodes(monkeypatch):
    launched = []
    kernels = SimpleNamespace(launch=lambda name, *_, dependent: launched.append((name, dependent)))
    monkeypatch.setattr(gpu, "Kernels", lambda _: kernels)
    monkeypatch.setattr(gpu, "multiprocessors", lambda: 132)

    def replay_seconds(run, _):
        launched.clear()
        run()
        return [100e-6 if launched[0][1] else 120e-6]

    monkeypatch.setattr(gpu, "replay_seconds", replay_seconds)
    assert h200_gemv.edges() == {"plain": 1.2, "dependent": 1.0}
    assert launched == [("edge_dependent", True)] * 100


def test_a_rung_beyond_its_tolerance_at_an_odd_shape_stops_the_recording(monkeypatch):
    for found, fits in ((9e-4, True), (1.1e-3, False), (float("nan"), False)):
        monkeypatch.setattr(h200_gemv_check, "errors_of", lambda _, found=found: (found, 40))
        if fits:
            assert h200_gemv.errors("rows") == {"largest": 9e-4, "cases": 40, "tolerance": 1e-3}
        else:
            with pytest.raises(RecordingError, match=r"rows: wrong by .*, expected 1e-03 or less"):
                h200_gemv.errors("rows")


def test_both_sanitizers_see_every_rung_and_what_they_find_is_written_as_it_is(monkeypatch):
    found = {"memcheck": "0 errors", "racecheck": "2 hazards"}
    monkeypatch.setattr(h200_gemv_check, "sanitize", lambda _, tool: found[tool])
    monkeypatch.setattr(h200_gemv_check, "check_memcheck", lambda: None)
    assert h200_gemv.checks(["rows", "ring"]) == {"rows": found, "ring": found}


def test_a_memcheck_that_overlooks_a_read_past_the_end_counts_nothing(monkeypatch):
    def check_memcheck() -> None:
        raise ToolchainError("memcheck: did not see it")

    monkeypatch.setattr(h200_gemv_check, "sanitize", lambda _, tool: "0 " + tool)
    monkeypatch.setattr(h200_gemv_check, "check_memcheck", check_memcheck)
    assert h200_gemv.checks(["rows"]) == {"rows": {"memcheck": "memcheck: did not see it", "racecheck": "0 racecheck"}}


def test_a_sanitizer_that_gives_no_count_is_written_with_its_words(monkeypatch):
    def sanitize(name: str, tool: str) -> str:
        raise ToolchainError(f"{tool} of {name}: not found")

    monkeypatch.setattr(h200_gemv_check, "sanitize", sanitize)
    monkeypatch.setattr(h200_gemv_check, "check_memcheck", lambda: None)
    assert h200_gemv.checks(["rows"])["rows"]["memcheck"] == "memcheck of rows: not found"


def test_a_rung_that_is_wrong_is_left_out_and_said(capsys):
    def measure(name: str) -> int:
        if name == "ring":
            raise RecordingError("ring: wrong by 1.0e-01")
        return len(name)

    assert h200_gemv._without_wrong(("rows", "ring"), measure) == {"rows": 4}
    assert "ring is left out: ring: wrong by" in capsys.readouterr().out


def test_another_gpu_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr(h200_machine, "nvidia_smi", lambda *_: ["NVIDIA H100"])
    with pytest.raises(RecordingError, match="device NVIDIA H100: expected an NVIDIA H200"):
        h200_gemv.record()


def test_the_clocks_are_asked_for_while_the_gpu_works(monkeypatch):
    """nvidia-smi answers only after three turns of work have begun behind the question: a slow answer is no fault."""
    turns, enough = [], threading.Event()

    def work():
        turns.append(None)
        if len(turns) == 4:
            enough.set()

    def clocks_mhz():
        assert turns, "asked of an idle GPU"
        assert enough.wait(10)
        return {"sm": 1800, "memory": 3201}

    monkeypatch.setattr(h200_machine, "clocks_mhz", clocks_mhz)
    assert h200_machine.clocks_under(work) == {"sm": 1800, "memory": 3201}


def test_the_shapes_are_those_of_the_7b_and_their_bytes_by_hand():
    assert h200_gemv.shapes()["gate_up"] == (37888, 3584)
    assert h200_gemv.weight_bytes(37888, 3584) == 37888 * (3584 // 2 + 3584 // 128 * 2)


def test_all_sources_of_all_rungs_are_recorded_with_what_they_include():
    found, new = set(), {rung.source for rung in RUNGS.values()} | {"edge.cu", "read.cu"}
    while new:
        found |= new
        included = {name for source in new for name in re.findall(r'#include "(.+?)"', (FOLDER / source).read_text())}
        new = included - found
    assert set(h200_gemv.SOURCES) == {f"lab_engine/kernels/{name}" for name in found}


# The code


@pytest.mark.parametrize("name", list(RUNGS))
def test_launch_and_loop_of_a_rung_are_plain_numbers(name):
    try:
        found = h200_gemv_code.code(name, (37888, 3584), 132)
    except ToolchainError as error:
        pytest.skip(str(error))
    assert json.loads(json.dumps(found)) == found
    launch, sass = found["launch"], found["sass"]
    assert launch["spill_bytes"] == 0
    assert 16 <= launch["registers"] <= 255
    assert launch["threads"] % 32 == 0
    assert launch["shared_bytes"] <= 227 << 10
    assert sass["per_weight"]["total"] == pytest.approx(len(sass["loop"]) / sass["weights_per_loop"], abs=1e-4)
    assert set(sass["loop"][0]) == {"address", "opcode", "text"}


def test_code_without_registers_is_refused():
    with pytest.raises(RecordingError, match="says nothing of registers"):
        h200_gemv_code.resources(b"no cubin")


# The counters


def csv_text(*rows):
    columns = {
        "ID": "0", "Kernel Name": "gemv_rows", "gpu__time_duration.sum": "17",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "81.24",
        "smsp__issue_active.avg.per_cycle_active": "0.756",
        "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "5.5",
        "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": "1,002.5",
        "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio": "9999",
    }  # fmt: skip
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerow(dict.fromkeys(columns, "%"))
    writer.writerows(columns | row for row in rows)
    return "==PROF== Connected\nthe program's own words\n" + out.getvalue()


def test_counters_are_those_of_the_kernel_of_the_rung(monkeypatch):
    longer = {"gpu__time_duration.sum": "20", "smsp__issue_active.avg.per_cycle_active": "0.5"}
    rows = h200_gemv_ncu.rows_of(csv_text({"Kernel Name": "gemv_ring"}, {}, longer))
    assert h200_gemv_ncu.counters(rows, "gemv_rows") == {"dram_percent": 81.2, "issue_percent": 50.0, "stall": "wait"}
    assert h200_gemv_ncu.counters(rows, "gemv_lop3") is None


def test_a_counter_that_ncu_does_not_give_is_null():
    rows = [{"Kernel Name": "gemv_rows", "gpu__time_duration.sum": "1"}]
    assert h200_gemv_ncu.counters(rows, "gemv_rows") == {"dram_percent": None, "issue_percent": None, "stall": None}


@pytest.mark.parametrize("text", ["", "n/a", "(!) n/a", "nan"])
def test_what_ncu_writes_instead_of_a_number_is_null(text):
    stall = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    row = {"Kernel Name": "gemv_rows", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": text}
    row |= {"smsp__issue_active.avg.per_cycle_active": text, stall.format("wait"): text}
    found = h200_gemv_ncu.counters([row], "gemv_rows")
    assert found == {"dram_percent": None, "issue_percent": None, "stall": None}
    row[stall.format("barrier")] = "0.5"
    assert h200_gemv_ncu.counters([row], "gemv_rows")["stall"] == "barrier"


def test_without_ncu_or_its_counters_there_is_no_profile(monkeypatch, capsys):
    monkeypatch.setattr(h200_gemv_ncu.shutil, "which", lambda _: None)
    assert h200_gemv_ncu.profile((8, 128)) == {}
    monkeypatch.setattr(h200_gemv_ncu.shutil, "which", lambda _: "/bin/ncu")
    refused = subprocess.CompletedProcess([], 1, "==ERROR== no permission\n", "")
    monkeypatch.setattr(h200_gemv_ncu.subprocess, "run", lambda *_, **__: refused)
    assert set(h200_gemv_ncu.profile((8, 128)).values()) == {None}
    assert "no permission" in capsys.readouterr().out


def test_a_rung_that_is_wrong_at_an_odd_shape_is_left_out_whatever_its_times(monkeypatch, capsys):
    def errors(name):
        if name == "lop3":
            raise RecordingError("lop3: wrong by 1.0e-01")
        return {"largest": 1e-6}

    monkeypatch.setattr(h200_gemv_ncu, "profile", lambda _: {})
    monkeypatch.setattr(gpu, "multiprocessors", lambda: 132)
    monkeypatch.setattr(h200_gemv, "errors", errors)
    monkeypatch.setattr(h200_gemv, "code", lambda *shape: {"launch": shape, "sass": {}})
    monkeypatch.setattr(h200_gemv, "checks", lambda names: {name: {"memcheck": "0 errors"} for name in names})
    found = h200_gemv._rungs({"rows": {"o": 5.0}, "lop3": {"o": 4.0}}, lambda _: None)
    launch = ("rows", (37888, 3584), 132)
    assert found == {
        "rows": {
            "us": {"o": 5.0}, "error": {"largest": 1e-6}, "launch": launch, "sass": {}, "memcheck": "0 errors",
            "ncu": None,
        }
    }  # fmt: skip
    assert "lop3 is left out" in capsys.readouterr().out


def test_the_recording_has_every_field_that_the_lab_reads(monkeypatch, capsys):
    us, stages = {"us": 2.0, "us_spread": 0.1}, h200_gemv.shapes()
    stand_ins = {
        "make_stage": lambda name, *_: SimpleNamespace(name=name),
        "edges": lambda: {"plain": 1.1, "dependent": 0.9},
        "peer": lambda found: {"_weight_int4pack_mm": dict.fromkeys(found, us)},
        "rung_times": lambda *_: us,
        "clocks_under_load": lambda stage: {"sm": 1800, "memory": 3201} if stage.name == "gate_up" else {},
        "parts": lambda: {stage: {"fp16": {"launch": 1.0}} for stage in stages},
        "errors": lambda _: {"largest": 1e-6, "cases": 40, "tolerance": 1e-3},
        "code": lambda *_: {"launch": {"threads": 128}, "sass": {"weights_per_loop": 32}},
        "checks": lambda names: {name: {"memcheck": "0 errors", "racecheck": "0 hazards"} for name in names},
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(h200_gemv, name, stand_in)
    monkeypatch.setattr(h200_machine, "check_device", lambda: None)
    monkeypatch.setattr(h200_gemv_ncu, "profile", lambda _: {"rows": {"dram_percent": 81.0}})
    monkeypatch.setattr(gpu, "multiprocessors", lambda: 132)
    monkeypatch.setattr(gemv_gpu, "read_bandwidth", lambda: 4.65e12)
    data, clocks = h200_gemv.record()
    assert clocks == {"sm": 1800, "memory": 3201}
    assert list(data["shapes"]) == ["qkv", "o", "gate_up", "down", "lm_head"]
    assert data["shapes"]["o"] == {"n": 3584, "k": 3584, "bytes": 3584 * 3584 * 66 // 128}
    assert (data["replays"], data["layers"], data["read_bytes_per_second"]) == (51, 28, 4_650_000_000_000)
    assert list(data["rungs"]) == list(RUNGS)
    fields = ["us", "error", "launch", "sass", "memcheck", "racecheck", "ncu"]
    assert all(list(rung) == fields for rung in data["rungs"].values())
    assert all(list(rung["us"]) == list(data["shapes"]) for rung in data["rungs"].values())
    assert (data["rungs"]["rows"]["ncu"], data["rungs"]["ring"]["ncu"]) == ({"dram_percent": 81.0}, None)
    assert {*data} == {"shapes", "replays", "layers", "edge_us", "read_bytes_per_second", "rungs", "parts", "peer"}
    assert json.loads(json.dumps(data)) == data
    assert "compute-sanitizer" in capsys.readouterr().out
