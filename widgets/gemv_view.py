"""What the roofline shows: a setting of format, stage, batch and GPU, the engine's times for it, and a recorded ladder.

The browser computes the same from the same data (`static/gemv_model.js`); a test compares the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from lab_engine.config import GROUP, QWEN2_5_CODER
from lab_engine.gemv import (
    EDGE_S,
    GPUS,
    UNPACK_OPS,
    Activation,
    GemvTime,
    Gpu,
    gemv_shapes,
    gemv_time,
    in_turn,
    lane_slots,
    recorded_gpu,
)
from lab_engine.recordings import Recording

OPS = (0.25, 8.0)
"""Ends of the axis of instructions a weight."""
RATES = (0.1, 8.0)
"""Ends of the axis of TB/s."""
BATCHES = 256
EDGES = {0.0: "none", 1.1: "an empty graph node", 1e6 * EDGE_S: "a dependency", 5.2: "an eager launch"}
"""µs before and after a product, from our first experiment on an H200; taken to be the same on the other GPUs."""
WAITS = {
    "long_scoreboard": "a load from memory",
    "short_scoreboard": "a load from shared memory",
    "not_selected": "its turn to issue",
    "math_pipe_throttle": "a unit that computes",
    "lg_throttle": "room for one more load",
    "barrier": "the other warps",
    "wait": "the instruction before",
}
"""Nsight Compute's stall reasons (Kernel Profiling Guide, "Warp Stall Reasons"), in the lab's words."""

_CONFIG = QWEN2_5_CODER["7B"]
_SHAPES = gemv_shapes(_CONFIG)
_LAYER = [name for name in _SHAPES if name != "lm_head"]
STAGES: dict[str, tuple[tuple[int, int, int], ...]] = {name: ((1, *shape),) for name, shape in _SHAPES.items()} | {
    "token": (*((_CONFIG.num_layers, *_SHAPES[name]) for name in _LAYER), (1, *_SHAPES["lm_head"]))
}
"""(how many, n, k) of the products of a stage of the 7B; token: all 113 of a decode step, one after another."""


@dataclass(frozen=True)
class Rung:
    """A kernel of the ladder: instructions a weight in its machine code, recorded µs by stage, counters on gate_up."""

    number: int
    name: str
    integer: float
    total: float
    slots: float
    us: dict[str, float]
    counters: tuple[str, ...]


def rungs_of(recording: Recording) -> tuple[Rung, ...]:
    """The rungs of a recording whose machine code was counted."""
    counted = [(name, rung) for name, rung in recording.data["rungs"].items() if rung.get("sass")]
    return tuple(_rung(number, name, rung) for number, (name, rung) in enumerate(counted, start=1))


def _rung(number: int, name: str, rung: Mapping[str, Any]) -> Rung:
    counts, us = rung["sass"]["per_weight"], {stage: time["us"] for stage, time in rung["us"].items()}
    if set(us) >= set(_SHAPES):
        us["token"] = _CONFIG.num_layers * sum(us[stage] for stage in _LAYER) + us["lm_head"]
    return Rung(number, name, counts["integer"], counts["total"], lane_slots(counts), us, _counter_words(rung))


def counters(rung: Mapping[str, Any]) -> tuple[str, str, str]:
    """Of a recorded rung: memory busy, clocks with an instruction, what warps wait for most; – if not profiled."""
    found = rung["ncu"] or {}
    shares = (found.get(key) for key in ("dram_percent", "issue_percent"))
    memory, issue = ("–" if share is None else f"{share:.0f} %" for share in shares)
    stall = str(found.get("stall") or "–")
    return memory, issue, WAITS.get(stall, stall)


def _counter_words(rung: Mapping[str, Any]) -> tuple[str, ...]:
    memory, issue, wait = counters(rung)
    if not rung["ncu"]:
        return ("not profiled",)
    return f"memory busy {memory}, clocks with an instruction {issue}", f"a warp waits most for {wait}"


@dataclass(frozen=True)
class Scene:
    """All that one picture shows. edge in µs; `rung` is the name of the chosen one, "" for the model's own point."""

    gpus: Mapping[str, Gpu]
    rungs: Sequence[Rung]
    gpu: str
    stage: str
    bits: int
    group: int
    activation: str
    edge: float
    batch: int
    ops: float
    rung: str

    @property
    def chip(self) -> Gpu:
        """The chosen GPU."""
        return self.gpus[self.gpu]

    def time(self, ops: float) -> GemvTime:
        """What the model says at so many integer instructions a weight."""
        format_ = {"bits": self.bits, "group": self.group, "batch": self.batch}
        activation = cast("Activation", self.activation)
        times = [
            (count, gemv_time((n, k), self.chip, ops, self.edge * 1e-6, activation=activation, **format_))
            for count, n, k in STAGES[self.stage]
        ]
        return in_turn([time for count, time in times for _ in range(count)])

    @property
    def now(self) -> GemvTime:
        """At the chosen instructions a weight."""
        return self.time(self.ops)

    @property
    def told(self) -> GemvTime:
        """What the model says of the chosen rung; without one, `now`."""
        return self.time(self.chosen.slots) if self.chosen else self.now

    @property
    def unpacks(self) -> bool:
        """Whether weights are packed at all."""
        return self.bits < 16

    @property
    def on_ladder(self) -> bool:
        """Whether the setting is that of the recorded kernels: INT4, groups of 128, one column."""
        return (self.bits, self.group, self.batch) == (4, GROUP, 1)

    @property
    def shown_rungs(self) -> Sequence[Rung]:
        """Those with a place in the picture."""
        return self.rungs if self.on_ladder else ()

    @property
    def chosen(self) -> Rung | None:
        """The chosen rung, if it is shown."""
        return next((rung for rung in self.shown_rungs if rung.name == self.rung), None)

    def recorded(self, rung: Rung) -> float | None:
        """Recorded seconds, on the GPU that they were recorded on."""
        us = rung.us.get(self.stage) if self.gpu == "H200" else None
        return None if us is None else us * 1e-6

    def seconds(self, rung: Rung) -> float:
        """Where the rung's point stands: recorded if possible, else by the model."""
        return self.recorded(rung) or self.time(rung.slots).seconds

    def rate(self, seconds: float) -> float:
        """TB/s that so many seconds amount to."""
        return self.now.bytes.total / seconds / 1e12


def roofline_gpus(recording: Recording) -> dict[str, Gpu]:
    """The GPUs of the engine; the H200 as it was when the recording was made."""
    return {**GPUS, "H200": recorded_gpu(recording)}


def roofline_data(gpus: Mapping[str, Gpu], rungs: Sequence[Rung]) -> dict[str, Any]:
    """What the browser computes with, JSON-ready."""
    return {
        "gpus": {name: _gpu_data(gpu) for name, gpu in gpus.items()},
        "stages": {name: [list(product) for product in products] for name, products in STAGES.items()},
        "edges": [{"us": us, "name": name} for us, name in EDGES.items()],
        "ways": UNPACK_OPS,
        "rungs": [asdict(rung) for rung in rungs],
    }


def _gpu_data(gpu: Gpu) -> dict[str, Any]:
    rates = {"bandwidth": gpu.bandwidth, "intRate": gpu.int_rate, "fp16": gpu.fp16_flops, "int8": gpu.int8_flops}
    return {"name": gpu.name, **rates, "source": f"{gpu.name}, {gpu.kind}: {gpu.source}"}
