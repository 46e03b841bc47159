"""A recording `gemv` in the form of data/h200/gemv.json, with times like those of an H200: for tests, not for labs."""

from lab_engine.config import QWEN2_5_CODER
from lab_engine.gemv import gemv_bytes, gemv_shapes
from lab_engine.recordings import Provenance, Recording

SHAPES = gemv_shapes(QWEN2_5_CODER["7B"])
TIMES_US = {
    "naive": (92.0, 88.0, 160.0, 430.0, 540.0),
    "coalesced": (8.39, 7.16, 32.1, 22.7, 117.0),
    "lop3": (6.69, 5.70, 22.2, 13.5, 79.6),
    "prmt": (7.6, 6.5, 27.0, 18.2, 98.0),
    "rows": (6.59, 5.73, 20.7, 12.5, 70.3),
    "ring": (6.57, 5.80, 20.1, 12.4, 70.0),
    "mma": (5.84, 5.12, 19.0, 11.9, 68.6),
    "dp4a_separate": (7.1, 6.3, 20.6, 14.6, 69.6),
    "dp4a_fused": (6.05, 5.29, 19.5, 13.5, 68.5),
    "dp4a_limbs": (6.2, 5.4, 19.7, 13.6, 68.9),
    "triton_naive": (110.0, 99.0, 210.0, 480.0, 700.0),
    "triton_coalesced": (11.0, 9.2, 48.0, 30.0, 180.0),
    "triton_best": (7.0, 6.1, 23.0, 15.0, 80.0),
}
"""µs of qkv, o, gate_up, down, lm_head: made up, but like those of our first experiment where it had such a kernel."""
PER_WEIGHT = {
    "naive": (4.875, 9.5),
    "coalesced": (3.219, 6.625),
    "lop3": (1.156, 3.0),
    "prmt": (2.844, 4.219),
    "rows": (0.91, 2.84),
    "ring": (0.787, 2.469),
    "mma": (0.797, 1.211),
    "dp4a_separate": (1.121, 1.531),
    "dp4a_fused": (1.121, 1.516),
    "dp4a_limbs": (1.387, 1.961),
    "triton_naive": (3.75, 9.375),
    "triton_coalesced": (3.688, 8.0),
    "triton_best": (1.836, 3.441),
}
"""Integer instructions and all instructions a weight, as in machine code for Hopper."""


def gemv_recording() -> Recording:
    """A new one at each call, so that a test may change it."""
    parts = {"launch": 1.1, "quantize": 0.0, "read": 2.74, "unpack": 1.2}
    data = {
        "shapes": {name: {"n": n, "k": k, "bytes": _bytes(n, k)} for name, (n, k) in SHAPES.items()},
        "replays": 51,
        "layers": 28,
        "edge_us": {"plain": 1.1, "dependent": 0.75},
        "read_bytes_per_second": 4.65e12,
        "rungs": {name: _rung(name) for name in TIMES_US},
        "parts": {name: {"fp16": parts} for name in SHAPES},
        "peer": {"_weight_int4pack_mm": {name: {"us": 9.0, "us_spread": 0.1} for name in SHAPES}},
    }
    clocks = {"sm": 1980, "memory": 3201}
    provenance = Provenance(
        "NVIDIA H200", "580.0", "13.0", {"torch": "2.11"}, clocks, "2026-01-01", "made up", "0" * 40, {}
    )
    return Recording("gemv", provenance, data)


def _bytes(n: int, k: int) -> int:
    found = gemv_bytes(n, k)
    return found.weights + found.scales


def _rung(name: str) -> dict[str, object]:
    integer, total = PER_WEIGHT[name]
    return {
        "us": {stage: {"us": us, "us_spread": 0.05} for stage, us in zip(SHAPES, TIMES_US[name], strict=True)},
        "error": {"largest": 3e-4, "cases": 40},
        "launch": {"threads": 256, "shared_bytes": 0, "registers": 40, "spill_bytes": 0},
        "sass": {
            "loop": [],
            "weights_per_loop": 32,
            "per_weight": {"total": total, "integer": integer, "loads": 0.05},
        },
        "memcheck": "0 errors",
        "racecheck": "0 hazards",
        "ncu": None,
    }
