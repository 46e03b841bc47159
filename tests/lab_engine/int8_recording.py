"""The made-up recording `gemv` with all its parts, like those of an H200; in lm_head the separate kernel never wins."""

from lab_engine.gemv_int8 import LAUNCHES, RUNGS, VARIANTS
from lab_engine.recordings import Recording
from tests.lab_engine.gemv_recording import SHAPES, gemv_recording

PARTS_US = {
    "qkv": ((0.0, 2.9, 2.59), (0.5, 2.9, 1.5), (0.55, 2.9, 1.5), (0.6, 2.9, 1.9)),
    "o": ((0.0, 2.5, 2.13), (0.5, 2.5, 1.2), (0.55, 2.5, 1.14), (0.6, 2.5, 1.4)),
    "gate_up": ((0.0, 15.6, 4.0), (0.5, 15.6, 2.2), (0.6, 15.6, 2.2), (0.7, 15.6, 2.4)),
    "down": ((0.0, 8.4, 3.0), (0.9, 8.4, 1.6), (2.2, 8.4, 1.8), (2.4, 8.4, 1.8)),
    "lm_head": ((0.0, 66.0, 2.2), (0.5, 66.0, 2.3), (0.4, 66.0, 1.0), (0.5, 66.0, 1.3)),
}
"""µs by stage and variant: quantize, read, unpack."""
EDGE = 1.1


def int8_recording() -> Recording:
    """A recording with all parts; a new one at each call."""
    recording = gemv_recording()
    recording.data["parts"] = {
        stage: {
            name: dict(zip(("launch", "quantize", "read", "unpack"), (EDGE, *us), strict=True))
            for name, us in zip(VARIANTS, PARTS_US[stage], strict=True)
        }
        for stage in SHAPES
    }
    for stage in SHAPES:
        for name, us in zip(VARIANTS, PARTS_US[stage], strict=True):
            recording.data["rungs"][RUNGS[name]]["us"][stage]["us"] = LAUNCHES[name] * EDGE + sum(us)
    return recording
