"""The recordings of lab 03: nothing in them is faster than its bytes allow, wrong, or unseen by compute-sanitizer."""

import math
from pathlib import Path

import pytest

from lab_engine.gemv_ladder import RUNGS
from lab_engine.recordings import load_recording

LADDER = load_recording("gemv").data
TOKEN = load_recording("gemv_token").data
PAGE = Path(__file__).resolve().parents[2] / "data" / "h200" / "README.md"


@pytest.mark.parametrize("name", RUNGS)
def test_compute_sanitizer_finds_nothing_in_a_rung(name):
    rung = LADDER["rungs"][name]
    assert (rung["memcheck"], rung["racecheck"]) == ("0 errors", "0 hazards")


@pytest.mark.parametrize("name", RUNGS)
def test_a_rung_is_right_and_not_faster_than_its_bytes(name):
    rung = LADDER["rungs"][name]
    assert 0 < rung["error"]["largest"] <= rung["error"]["tolerance"]
    assert rung["launch"]["spill_bytes"] == 0
    for stage, shape in LADDER["shapes"].items():
        assert rung["us"][stage]["us"] > 1e6 * shape["bytes"] / LADDER["read_bytes_per_second"]


def test_parts_of_a_product_add_up_to_what_the_rung_takes_within_a_tenth():
    for stage, variants in LADDER["parts"].items():
        for variant, parts in variants.items():
            whole = LADDER["rungs"]["rows" if variant == "fp16" else variant]["us"][stage]["us"]
            assert sum(parts.values()) == pytest.approx(whole, rel=0.1)


def test_what_the_page_says_of_a_launch_in_short_graphs_is_what_was_recorded():
    """A recording from longer graphs needs other words on the page."""
    page = PAGE.read_text(encoding="utf-8")
    calls = {stage: max(4, math.ceil((256 << 20) / shape["bytes"])) for stage, shape in LADDER["shapes"].items()}
    assert calls == {"qkv": 32, "o": 41, "gate_up": 4, "down": 8, "lm_head": 4}
    assert "32 of qkv, 41 of o,\n8 of down, 4 of gate_up and of lm_head" in page
    launch = {stage: f"{variants['fp16']['launch']:.1f}" for stage, variants in LADDER["parts"].items()}
    assert launch == {"qkv": "0.8", "o": "0.8", "gate_up": "2.6", "down": "2.0", "lm_head": "4.1"}
    assert "takes 0.8 µs in graphs of 32 and 41, 2.0 in one of 8,\n  2.6 and 4.1 in those of 4" in page
    assert f"and {LADDER['edge_us']['plain']} in a graph of 100" in page
    for stage in ("gate_up", "down", "lm_head"):
        separate, fp16 = (LADDER["parts"][stage][variant] for variant in ("dp4a_separate", "fp16"))
        assert separate["quantize"] == 0.0
        assert 1.25 <= separate["launch"] - fp16["launch"] < 1.55


def test_every_form_is_right_at_every_published_shape_and_bit_identical():
    assert TOKEN["bit_identical"] is True
    for errors in (*TOKEN["bench_shapes"].values(), *TOKEN["odd_rows"].values()):
        assert all(0 < error <= TOKEN["tolerance"] for error in errors.values())


def test_no_form_of_a_token_is_faster_than_its_bytes():
    for form in TOKEN["forms"].values():
        assert form["dependent"]["us"] > 1e6 * form["bytes"] / TOKEN["read_bytes_per_second"]
