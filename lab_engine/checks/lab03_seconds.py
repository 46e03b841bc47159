"""Lab 03, gemv_seconds: how long a matrix-vector product takes, from its bytes, its instructions and its edge."""

import math
import numbers
from dataclasses import replace
from typing import Any

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import describe, first_true, number, numbers_row
from lab_engine.checks.verdict import Row
from lab_engine.gemv import GPUS, H200, Gpu


def gemv_seconds(n: int, k: int, gpu: Gpu, int_ops_per_weight: float, edge_s: float) -> float:
    """Seconds of y = W x for INT4 weights (n, k), each read and unpacked once.

    Memory brings gpu.bandwidth bytes a second: half a byte a weight, and 2 bytes of scale for
    each 128 weights; x and y are too small to count. A weight costs int_ops_per_weight integer
    instructions; each of gpu.sms multiprocessors does gpu.int_lanes of them in a clock, and
    has gpu.clock_hz clocks a second. Reading and unpacking overlap. Before the first byte the
    kernel waits edge_s seconds for the one before it.

    The matrix `o` of the 7B on the H200, unpacked by lop3: 3.82 µs.
    >>> f"{1e6 * gemv_seconds(3584, 3584, H200, 0.63, 2.4e-6):.2f}"
    '3.82'
    """
    memory = n * k * (1 / 2 + 2 / 128) / gpu.bandwidth
    instructions = n * k * int_ops_per_weight / (gpu.sms * gpu.int_lanes * gpu.clock_hz)
    return max(memory, instructions) + edge_s


RTOL = 2e-3
"""Relative: 3.82 µs with its three digits passes, and 0.5156 bytes; the scales are 3 % of the bytes."""


def _judge(args: Args, expected: float, yours: Any) -> Mismatch | None:
    if not isinstance(yours, numbers.Real) or isinstance(yours, bool):
        return Mismatch(f"returned {describe(yours)}; expected a float, in seconds", about_form=True)
    found = float(yours)
    if _close(found, expected):
        return None
    return Mismatch(
        expected=numbers_row("expected µs", [1e6 * expected]),
        yours=numbers_row("your µs", [1e6 * found]),
        differ=(0,),
        hint=_hint(args, expected, found),
    )


def _close(yours: float, expected: float) -> bool:
    return math.isclose(yours, expected, rel_tol=RTOL)


def _hint(args: Args, expected: float, yours: float) -> str:
    """The wrong answers that people give, computed from the two times and the edge."""
    n, k, gpu, ops, edge = args
    weights = n * k
    memory, nibbles = weights * 0.515625 / gpu.bandwidth, weights / 2 / gpu.bandwidth
    instructions = weights * ops / gpu.int_rate
    rest = yours - edge
    scales = memory - nibbles
    return first_true(
        (_close(yours, expected * 1e6) or _close(yours, expected * 1e3), "In seconds, not in µs or ms."),
        (_close(rest, memory + instructions), "The two overlap: the longer one counts, not the sum."),
        (any(_close(yours, t) for t in _with_edge_inside(memory, instructions, edge)), _OUTSIDE),
        (_close(rest, max(nibbles, instructions)), "0.5156 bytes a weight: each 128 weights have an fp16 scale."),
        (any(_close(rest, max(t, instructions)) for t in (2 * nibbles, 2 * nibbles + scales)), _HALF_A_BYTE),
        (any(_close(rest, max(t, instructions)) for t in (4 * nibbles, 4 * nibbles + scales)), _HALF_A_BYTE),
        (
            _close(rest, memory),
            f"The longer one counts: with {_lanes(gpu)} the instructions take longer than the bytes.",
        ),
        (_close(rest, instructions), "The longer one counts: here the bytes take longer than the instructions."),
        (_close(rest, max(memory, instructions * gpu.sms)), "All SMs work: divide by `gpu.sms` too."),
        (
            any(_close(rest, max(memory, t)) for t in (instructions / 2, instructions * gpu.int_lanes)),
            f"{_lanes(gpu)} do as many instructions in a clock.",
        ),
    )


def _with_edge_inside(memory: float, instructions: float, edge: float) -> tuple[float, ...]:
    """Where the edge is left out, overlaps with everything, or is added to one of the two."""
    return (
        max(memory, instructions, edge),
        max(memory + edge, instructions),
        max(memory, instructions),
    )


def _lanes(gpu: Gpu) -> str:
    return f"{gpu.int_lanes} integer lanes an SM, `gpu.int_lanes`,"


def _show(args: Args) -> tuple[Row, ...]:
    n, k, gpu, ops, edge = args
    limits = f"bandwidth {gpu.bandwidth:.4g}, sms {gpu.sms}, clock_hz {gpu.clock_hz:.4g}, int_lanes {gpu.int_lanes}"
    return (
        Row("argument", ("n", "k", "int_ops_per_weight", "edge_s")),
        Row("value", tuple(map(number, (n, k, ops, edge)))),
        Row("gpu", (), f"{gpu.name}: {limits}"),
    )


_OUTSIDE = "Nothing flows while the edge is waited for: it comes on top of the longer time."
_HALF_A_BYTE = "The weights are INT4: half a byte each, and 2 bytes of scale for 128."
_BY_HAND = "Two times, from bytes and from instructions; the longer one; then the edge."
_EDGE = 2.4e-6
_O, _DOWN, _LM_HEAD = (3584, 3584), (3584, 18_944), (152_064, 3584)


def _case(name: str, shape: tuple[int, int], gpu: Gpu, ops: float, edge: float) -> Case:
    return Case(name, (*shape, gpu, ops, edge), _BY_HAND)


CASES = (
    _case("o", _O, H200, 0.63, _EDGE),
    _case("down at 4.5 instructions a weight", _DOWN, H200, 4.5, _EDGE),
    _case("lm_head without an edge", _LM_HEAD, H200, 0.63, 0.0),
    _case("down on an RTX 4090", _DOWN, GPUS["RTX 4090"], 0.63, 5e-6),
    _case("o on an A100 at 6 instructions a weight", _O, GPUS["A100"], 6.0, 1e-6),
    _case("lm_head at 3 instructions a weight", _LM_HEAD, H200, 3.0, 1e-6),
    _case("16 integer lanes", _DOWN, replace(H200, name="16 lanes", int_lanes=16), 0.63, 1e-6),
    _case("an edge longer than all else", (1024, 1024), H200, 1.0, _EDGE),
    _case("no instructions at all", (1024, 384), GPUS["H100"], 0.0, 1e-7),
)


EXERCISE = Exercise(
    lab="03_gemv",
    solution=gemv_seconds,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "Two times, and one `max`: n × k × 0.515625 bytes at the bandwidth, n × k × int_ops_per_weight instructions "
        "at the rate of all lanes of all SMs.",
        "That rate is gpu.sms × gpu.int_lanes × gpu.clock_hz. The edge is added after the `max`.",
    ),
)
