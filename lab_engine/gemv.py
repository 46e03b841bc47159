"""What a matrix-vector product costs: y (n) = W (n, k) x (k), one decode step's work, by stage of a layer.

    memory        every weight and scale is read once: bytes / bandwidth
    instructions  every weight is unpacked: weights * integer instructions a weight / (SMs * lanes * clock)
    arithmetic    a multiply and an add a weight and column: it counts from a batch of some fifty columns on
    edge          what passes before the first byte flows and after the last: nothing else happens meanwhile

The first three overlap, so the longest of them counts, and the edge comes on top. Only shapes, no tensors.
What breaks the model: loads that waste sectors, too few loads in flight, work that no count of instructions shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from lab_engine.config import GROUP, ModelConfig
from lab_engine.errors import NanoqwenError
from lab_engine.recordings import Recording

Activation = Literal["fp16", "int8"]
ACTIVATION_BYTES: dict[str, int] = {"fp16": 2, "int8": 1}
BITS, GROUPS = (4, 8, 16), (32, 64, 128, 256)
SCALE_BYTES, OUTPUT_BYTES = 2, 4  # scales are float16, y is float32
EDGE_S = 2.4e-6
"""One dependency edge on an idle H200: the launch, x on its way to every SM, the sum over the warps. Quoted from our
first experiment; an empty kernel in a graph takes about 1.1e-6 of it."""

UNPACK_OPS = {"shift_mask": 4.0, "prmt": 1.875, "lop3": 0.625, "int8": 0.375}
"""Integer instructions a weight of the ways to unpack, in machine code for the H200 (the recording `unpack`). Of
shift_mask they are 3.125, but its conversion (I2F) a weight has 16 lanes, not 64, and takes as long as 4. int8 makes
bytes of 16 q for dp4a and for tensor cores: 1 shift and 2 lop3 a word."""


@dataclass(frozen=True)
class Gpu:
    """What of a processor the model needs.

    bandwidth: bytes a second. sms, clock_hz, int_lanes: multiprocessors, their clock, and the 32-bit integer
    instructions that one of them finishes in a clock. fp16_flops, int8_flops: operations a second of the tensor cores
    without sparsity, sums in 32 bits. inf stands for a limit that is not known. kind: the badge of these numbers.
    """

    name: str
    bandwidth: float
    sms: int
    clock_hz: float
    int_lanes: int = 64
    fp16_flops: float = math.inf
    int8_flops: float = math.inf
    kind: Literal["quoted", "computed", "measured", "recorded"] = "computed"
    source: str = ""

    @property
    def int_rate(self) -> float:
        """Integer instructions a second of all SMs, each counted for every lane that takes part."""
        return self.sms * self.int_lanes * self.clock_hz


_SHEETS = (
    Gpu("H200", 4.8e12, 132, 1.83e9, 64, 989.5e12, 1979e12, "quoted", "NVIDIA H200 data sheet (FP16 without sparsity)"),
    Gpu("H100 SXM", 3.35e12, 132, 1.83e9, 64, 989.5e12, 1979e12, "quoted", "NVIDIA H100 data sheet and whitepaper"),
    Gpu("A100 80GB", 2.039e12, 108, 1.41e9, 64, 312e12, 624e12, "quoted", "NVIDIA A100 80GB data sheet"),
    Gpu("RTX 4090", 1.008e12, 128, 2.52e9, 64, 165.2e12, 660.6e12, "quoted", "NVIDIA Ada architecture whitepaper"),
)
DATA_SHEETS = dict(zip(("H200", "H100", "A100", "RTX 4090"), _SHEETS, strict=True))
"""As their makers give them. Clocks are those that the data sheet's tensor rate amounts to; a GPU under load may run
slower. 64 integer lanes: CUDA C++ Programming Guide, throughput of native arithmetic instructions, 8.0, 8.9 and 9.0."""

H200 = replace(
    DATA_SHEETS["H200"],
    bandwidth=4.68e12,
    clock_hz=1.82e9,
    source="bandwidth and clock under load: our first experiment on an H200; tensor cores: NVIDIA H200 data sheet",
)
GPUS = {**DATA_SHEETS, "H200": H200}
"""What predictions use: the H200 as measured, the others by their data sheets."""


def this_cpu() -> Gpu:
    """This machine's processor. Its read bandwidth is measured now (0.5 s); no limit of instructions is known."""
    from lab_engine.bench import machine

    cpu, bandwidth = machine.device(), machine.read_bandwidth()
    return Gpu(cpu, bandwidth, 1, math.inf, kind="measured", source="dot product of two arrays of 256 MiB, best of 9")


def gemv_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """(n, k) by stage; qkv and gate_up are joined matrices.

    >>> from lab_engine.bench.models import QWEN_7B
    >>> gemv_shapes(QWEN_7B)["down"]
    (3584, 18944)
    """
    hidden, intermediate = config.hidden_size, config.intermediate_size
    return {
        "qkv": (config.q_size + 2 * config.kv_size, hidden),
        "o": (hidden, config.q_size),
        "gate_up": (2 * intermediate, hidden),
        "down": (hidden, intermediate),
        "lm_head": (config.vocab_size, hidden),
    }


@dataclass(frozen=True)
class GemvBytes:
    """Bytes that must move: weights and their scales, x (batch, k), y (batch, n)."""

    weights: int
    scales: int
    activation: int
    output: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.scales + self.activation + self.output


def gemv_bytes(
    n: int, k: int, bits: int = 4, group: int = GROUP, activation: Activation = "fp16", batch: int = 1
) -> GemvBytes:
    """Count bytes; weights of 16 bits have no scales. NanoqwenError for a row that is not whole groups.

    >>> gemv_bytes(3584, 18944)
    GemvBytes(weights=33947648, scales=1060864, activation=37888, output=14336)
    """
    if bits not in BITS:
        raise NanoqwenError(f"bits: found {bits}, expected one of {', '.join(map(str, BITS))}")
    if bits < 16 and k % group:
        raise NanoqwenError(f"k: found {k}, expected a multiple of the group {group}")
    scales = 0 if bits == 16 else SCALE_BYTES * n * (k // group)
    return GemvBytes(n * k * bits // 8, scales, batch * k * ACTIVATION_BYTES[activation], batch * n * OUTPUT_BYTES)


def intensity(bits: int = 4, group: int = GROUP) -> float:
    """FLOP a byte of weights and scales that one column of x brings: a multiply and an add a weight.

    >>> round(intensity(), 2), round(intensity(8), 2), intensity(16)
    (3.88, 1.97, 1.0)
    """
    return 2 / (bits / 8 + (0 if bits == 16 else SCALE_BYTES / group))


def ridge_batch(gpu: Gpu, bits: int = 4, group: int = GROUP, activation: Activation = "fp16") -> float:
    """Columns from which the tensor cores take longer than the weights' bytes."""
    flops = gpu.fp16_flops if activation == "fp16" else gpu.int8_flops
    return flops / gpu.bandwidth / intensity(bits, group)


def gemv_seconds(n: int, k: int, gpu: Gpu, int_ops_per_weight: float, edge_s: float) -> float:
    """Seconds of an INT4 product with a scale for 128 weights: the longer of reading and unpacking, then the edge.

    x and y are left out: a third of a percent of the bytes of the smallest matrix.

    >>> o, down = (3584, 3584), (3584, 18944)
    >>> f"{1e6 * gemv_seconds(*o, H200, 0.63, 2.4e-6):.2f} {1e6 * gemv_seconds(*down, H200, 4.5, 2.4e-6):.1f}"
    '3.82 22.3'
    """
    memory = n * k * (1 / 2 + 2 / 128) / gpu.bandwidth
    instructions = n * k * int_ops_per_weight / (gpu.sms * gpu.int_lanes * gpu.clock_hz)
    return max(memory, instructions) + edge_s


Limit = Literal["bandwidth", "instructions", "arithmetic", "edge"]


@dataclass(frozen=True)
class GemvTime:
    """Seconds of each part of one product or of several in turn, of all of it, and the bytes that it moves."""

    bytes: GemvBytes
    memory: float
    instructions: float
    arithmetic: float
    edge: float
    seconds: float

    @property
    def limit(self) -> Limit:
        """What takes longest; on a tie the first of bandwidth, instructions, arithmetic, edge."""
        parts: dict[Limit, float] = {
            "bandwidth": self.memory,
            "instructions": self.instructions,
            "arithmetic": self.arithmetic,
            "edge": self.edge,
        }
        return max(parts, key=lambda name: parts[name])


def gemv_time(
    shape: tuple[int, int],
    gpu: Gpu,
    int_ops_per_weight: float,
    edge_s: float,
    *,
    bits: int = 4,
    group: int = GROUP,
    activation: Activation = "fp16",
    batch: int = 1,
) -> GemvTime:
    """All parts of a product of any format and batch, with x and y; a weight is unpacked once for all columns.

    The arithmetic runs on tensor cores at the data sheet's rate. Weights of 16 bits need no unpacking.
    """
    n, k = shape
    moved = gemv_bytes(n, k, bits, group, activation, batch)
    flops = gpu.fp16_flops if activation == "fp16" else gpu.int8_flops
    unpack = 0 if bits == 16 else n * k * int_ops_per_weight / gpu.int_rate
    memory, arithmetic = moved.total / gpu.bandwidth, 2 * n * k * batch / flops
    return GemvTime(moved, memory, unpack, arithmetic, edge_s, max(memory, unpack, arithmetic) + edge_s)


def in_turn(times: Sequence[GemvTime]) -> GemvTime:
    """Products one after another: every part added up. In each of them its own longest part counts."""
    moved = GemvBytes(*(sum(getattr(time.bytes, field.name) for time in times) for field in fields(GemvBytes)))
    parts = (sum(getattr(time, field.name) for time in times) for field in fields(GemvTime)[1:])
    return GemvTime(moved, *parts)


# Beside a recording ---------------------------------------------------------------------------------------------------


def recorded_gpu(recording: Recording) -> Gpu:
    """The H200 with the bandwidth and the clock of a recording `gemv`."""
    clock, bandwidth = recording.provenance.clocks_mhz["sm"] * 1e6, recording.data["read_bytes_per_second"]
    return replace(H200, bandwidth=bandwidth, clock_hz=clock, kind="recorded", source=recording.badge_source)


def lane_slots(per_weight: dict[str, float]) -> float:
    """Integer instructions a weight that a loop is worth: its own, or half of all its instructions, if that is more.

    An SM issues 4 * 32 = 128 instructions a clock (counted a lane), of which 64 may be integer ones.
    """
    return max(per_weight["integer"], per_weight["total"] / 2)


def recorded_edge(recording: Recording) -> float:
    """Seconds that a kernel which only reads takes beyond its bytes, on `o`, where they are fewest.

    An empty kernel (edge_us) is not enough: a product also waits for x, for its first weights, and for its last sum.
    """
    parts, moved = recording.data["parts"]["o"]["fp16"], recording.data["shapes"]["o"]["bytes"]
    return float((parts["launch"] + parts["read"]) * 1e-6 - moved / recording.data["read_bytes_per_second"])


def predict(recording: Recording, rung: str, stage: str) -> float:
    """Seconds that the model gives a rung, from the instructions in its own machine code and the recorded edge."""
    shape, found = recording.data["shapes"][stage], recording.data["rungs"][rung]
    slots = lane_slots(found["sass"]["per_weight"])
    return gemv_seconds(shape["n"], shape["k"], recorded_gpu(recording), slots, recorded_edge(recording))


@dataclass(frozen=True)
class ModelError:
    """A prediction beside its measurement, in seconds."""

    predicted: float
    recorded: float

    @property
    def error(self) -> float:
        """(predicted − recorded) / recorded: −0.2 where the kernel took a quarter longer than the model says."""
        return self.predicted / self.recorded - 1


def model_errors(recording: Recording) -> dict[str, dict[str, ModelError]]:
    """By rung, then by stage: every rung of which machine code was counted."""
    return {
        name: {
            stage: ModelError(predict(recording, name, stage), time["us"] * 1e-6) for stage, time in rung["us"].items()
        }
        for name, rung in recording.data["rungs"].items()
        if rung.get("sass")
    }


TOLERANCE = 0.20
_LONG = ("gate_up", "lm_head")
HOLDS = {"mma": (*_LONG, "down"), "dp4a_separate": _LONG, "dp4a_fused": _LONG, "dp4a_limbs": _LONG}
"""Where |error| is at most TOLERANCE on an H200: long matrices, and kernels with enough loads in flight.

Everywhere else the model is a floor that the kernel does not reach. Short matrices end before the stream is at full
speed. The other rungs wait for their loads, or spend instructions outside the loop: a row of 3584 weights is three and
a half turns of it.
"""
