"""One group of weights, rounded to sixteen levels by each of 101 scales: what a scale keeps and what it costs.

    scale = clip × max|w| / 7   (absmax7)       scale = clip × w_max / −8   (absmax8, w_max: the largest, with its sign)

A clip below 1 makes the levels finer and cuts the largest weights; the best clip balances the two. Codes and scales
come from `int4.round_to_scales`, so they are what a file would hold. Codes reach from -8 to 7: of the weights with the
sign of -scale, one level more is kept.
What breaks it: a scale that fp16 rounds to 0 (all codes are 0) or cannot hold (the engine refuses it by name).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab_engine import data_path
from lab_engine.checkpoint import Checkpoint
from lab_engine.config import GROUP
from lab_engine.errors import NanoqwenError
from lab_engine.int4 import plain_scale, round_to_scales

CLIPS = 101
"""Clip positions of a trace: position i keeps i percent of the largest weight."""

RUNNING_GROUP = ("model.layers.0.mlp.gate_proj.weight", 5, 0)
"""Tensor, row and group of the 128 weights that all labs show."""

_RULES = ("absmax7", "absmax8")


@dataclass(frozen=True)
class ClipTrace:
    """A group under one scale. clip is the share of the largest weight that the outermost level keeps.

    scale is the fp16 number of the file, bits its 16 bits; codes are -8 to 7. mse is the mean squared error,
    relative_rms the root of it over the root mean square of the weights (0 for a group of zeros), worst the index of
    the largest error. Where the engine refuses the scale, refusal is its message, codes is empty, both errors are inf.
    """

    clip: float
    scale: float
    bits: int
    codes: tuple[int, ...]
    mse: float
    relative_rms: float
    worst: int
    refusal: str = ""


@dataclass(frozen=True)
class GroupTrace:
    """A group of float32 weights at CLIPS clip positions, 0 to 1. extreme is its largest weight, with its sign."""

    weights: tuple[float, ...]
    rule: str
    extreme: float
    clips: tuple[ClipTrace, ...]

    @property
    def best(self) -> int:
        """The position with the smallest error; of equal ones the least clipped."""
        return max(range(len(self.clips)), key=lambda at: (-self.clips[at].relative_rms, at))


def running_group() -> Tensor:
    """The 128 weights of the running example before quantization, bf16 numbers in float32."""
    name, row, group = RUNNING_GROUP
    return Checkpoint(data_path("tiny-coder")).tensor(name)[row].float().reshape(-1, GROUP)[group]


def trace_group(weights: Sequence[float] | Tensor, rule: str = "absmax7") -> GroupTrace:
    """Round one group of any length with the scales of all clip positions.

    rule is a method of `int4.quantize_rows`: absmax7 (clip 1 is max|w| / 7) or absmax8 (clip 1 makes the largest
    weight code -8). Raises NanoqwenError for an empty group, for what is no list of numbers, for NaN and inf.
    """
    if rule not in _RULES:
        raise NanoqwenError(f"rule {rule!r}: expected absmax7 or absmax8")
    group = _checked(weights)
    extreme = group[group.abs().argmax()]
    unclipped = plain_scale(group) if rule == "absmax7" else extreme / -8
    clips = tuple(_trace_clip(group, unclipped, at / (CLIPS - 1)) for at in range(CLIPS))
    return GroupTrace(tuple(group.tolist()), rule, float(extreme), clips)


def _checked(weights: Sequence[float] | Tensor) -> Tensor:
    try:
        group = torch.as_tensor(weights, dtype=torch.float32).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise NanoqwenError(f"weights: expected a list of numbers, found {type(weights).__name__} ({error})") from error
    if group.ndim != 1 or not len(group):
        raise NanoqwenError(f"weights of shape {tuple(group.shape)}: expected one group, a list of numbers")
    for index in (~torch.isfinite(group)).nonzero().flatten().tolist():
        raise NanoqwenError(f"weight {index} is {group[index]:g}: expected finite float32 numbers")
    return group


def _trace_clip(group: Tensor, unclipped: Tensor, clip: float) -> ClipTrace:
    scale = unclipped * clip
    try:
        codes, stored = round_to_scales(group, scale)
    except NanoqwenError as error:
        half = scale.to(torch.float16)
        return ClipTrace(clip, float(half), _bits(half), (), math.inf, math.inf, 0, str(error))
    errors = (codes.double() * stored.double() - group.double()).tolist()
    mse = math.fsum(error * error for error in errors) / len(errors)
    power = math.fsum(weight * weight for weight in group.tolist()) / len(errors)
    worst = max(range(len(errors)), key=lambda index: abs(errors[index]))
    relative = math.sqrt(mse / power) if power else 0.0
    return ClipTrace(clip, float(stored), _bits(stored), tuple(codes.tolist()), mse, relative, worst)


def _bits(half: Tensor) -> int:
    return int(half.view(torch.int16)) & 0xFFFF
