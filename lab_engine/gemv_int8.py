"""FP16 or INT8 activations? Recorded parts of a product's time, at any cost of a launch, and each variant's error.

    time = launches * (cost of a launch) + quantizing x + reading + unpacking and multiplying

dp4a_separate launches two kernels, the others one. Times come from the recording `gemv`: in a CUDA graph of all layers
a variant takes what its rung took there, and `parts` says how much of it is unpacking. Errors are computed here by the
kernels' own arithmetic (`gemv_dp4a.py`) on random weights and a random x.
What breaks the model: launches that hide behind a kernel that still runs. It adds every launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from lab_engine.errors import RecordingError
from lab_engine.gemv_dp4a import LIMBS
from lab_engine.gemv_parts import VARIANTS
from lab_engine.recordings import Recording, require

FP16, SEPARATE = "fp16", "dp4a_separate"
LAUNCHES = {name: 2 if name == SEPARATE else 1 for name in VARIANTS}
RUNGS = {name: "rows" if name == FP16 else name for name in VARIANTS}
"""The rung of the ladder that a variant is."""
TOKEN = "token"
"""All products of a decode step, one after another."""
EAGER_US = 5.25
"""Quoted from our first experiment: one launch from PyTorch without a CUDA graph."""
ROWS = 64
"""Rows of the random matrices that errors are computed on."""


@dataclass(frozen=True)
class Work:
    """What the kernels of a variant do beside being launched, in µs: quantize x, read, unpack and multiply."""

    launches: int
    quantize: float
    read: float
    unpack: float

    @property
    def us(self) -> float:
        """All of it, without launches."""
        return self.quantize + self.read + self.unpack

    def time(self, launch_us: float) -> float:
        """µs, where a launch costs so many."""
        return self.launches * launch_us + self.us


@dataclass(frozen=True)
class StageTimes:
    """One stage of the 7B. products: how many a decode step or the stage takes; errors: relative, by variant."""

    products: int
    work: Mapping[str, Work]
    errors: Mapping[str, float]

    def fastest(self, launch_us: float) -> str:
        """The variant that takes least; of equal ones the first."""
        return min(self.work, key=lambda name: self.work[name].time(launch_us))

    @property
    def crossover(self) -> float:
        """The cost of a launch, µs, below which dp4a_separate is faster than fp16; negative where it never is."""
        fp16, separate = self.work[FP16], self.work[SEPARATE]
        return (fp16.us - separate.us) / (separate.launches - fp16.launches)


@dataclass(frozen=True)
class Int8Trace:
    """Stages by name, with `token` as the last, and named costs of a launch in µs."""

    stages: Mapping[str, StageTimes]
    launches: Mapping[str, float]


def trace_int8(recording: Recording) -> Int8Trace:
    """What the recording `gemv` holds about FP16 and INT8; RecordingError names a part that is missing."""
    require(recording, "gemv", ("shapes", "layers", "edge_us", "rungs", "parts"))
    data = recording.data
    try:
        # An empty kernel, in the graph with the most calls: the others hold more of what a replay itself costs.
        node_us = min(parts[FP16]["launch"] for parts in data["parts"].values())
        stages = {
            stage: StageTimes(1, _works(data, stage, node_us), errors(one["k"]))
            for stage, one in data["shapes"].items()
        }
        layers = data["layers"]
        launches = {"dependent": data["edge_us"]["dependent"], "graph node": node_us, "eager": EAGER_US}
    except KeyError as error:
        raise RecordingError(f"recording gemv: no {error} in it; run python3 -m tools.record_h200 gemv") from None
    return Int8Trace(stages | {TOKEN: _token(stages, layers)}, launches)


@cache
def errors(k: int) -> dict[str, float]:
    """Relative Euclidean error by variant of products with 64 rows of k random weights and a random normal x."""
    import torch

    from lab_engine.gemv_dp4a import reference_fp16, reference_int8
    from lab_engine.gemv_token import product, random_matrix, relative_error

    generator = torch.Generator().manual_seed(0)
    matrix, x = random_matrix(ROWS, k, generator), torch.randn(k, generator=generator).half()
    expected = product([matrix], x)
    by_limbs = {limbs: reference_int8(matrix.words, matrix.scales, x, limbs) for limbs in set(LIMBS.values())}
    found = {FP16: reference_fp16(matrix.words, matrix.scales, x)}
    found |= {name: by_limbs[limbs] for name, limbs in LIMBS.items()}
    return {name: relative_error(y, expected) for name, y in found.items()}


def _works(data: Mapping[str, Any], stage: str, node_us: float) -> dict[str, Work]:
    """Parts that add up to the recorded time of each rung. Reading is the same for all; quantizing is what is left."""
    unpack = {name: data["parts"][stage][name]["unpack"] for name in VARIANTS}
    left = {
        name: data["rungs"][RUNGS[name]]["us"][stage]["us"] - LAUNCHES[name] * node_us - unpack[name]
        for name in VARIANTS
    }
    return {
        name: Work(LAUNCHES[name], max(0.0, left[name] - left[FP16]), left[FP16], unpack[name]) for name in VARIANTS
    }


def _token(stages: Mapping[str, StageTimes], layers: int) -> StageTimes:
    """28 layers and lm_head. Errors: the largest of a stage."""
    counts = {stage: 1 if stage == "lm_head" else layers for stage in stages}

    def summed(name: str, part: str) -> float:
        return float(sum(count * getattr(stages[stage].work[name], part) for stage, count in counts.items()))

    products = sum(counts.values())
    work = {
        name: Work(LAUNCHES[name] * products, summed(name, "quantize"), summed(name, "read"), summed(name, "unpack"))
        for name in VARIANTS
    }
    worst = {name: max(stage.errors[name] for stage in stages.values()) for name in VARIANTS}
    return StageTimes(products, work, worst)
