"""The scenes of lab 01's group: the shipped model's weights and what becomes of them when their size changes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab_engine.config import GROUP
from lab_engine.errors import NanoqwenError
from lab_engine.group_trace import GroupTrace, running_group, trace_group
from lab_engine.int4 import pack_words, plain_scale, quantize_groups
from widgets.playground import Preset
from widgets.words import hex_word, percent, significant

LAST = 100
"""The step of clip 1."""

OUTLIER, TINY, LARGER, HUGE = 8, 1e-7, 3e-7, 4.6e5
"""The outlier over the largest other weight; the largest weight of the scaled groups."""


@dataclass(frozen=True)
class Scene:
    """A preset and the group that it shows."""

    preset: Preset
    trace: GroupTrace


def shipped_scenes() -> list[Scene]:
    """The running group as it is, and changed so that each kind of loss is seen."""
    group = running_group()
    plain = trace_group(group)
    return [
        _scene("running group", plain, _ask_running(plain)),
        _signed(group),
        _outlier(group),
        _scene("all zero", trace_group(torch.zeros(GROUP)), _ask_zero()),
        _scene("tiny", trace_group(_scaled(group, TINY)), _ask_tiny(group)),
        _scene("huge", trace_group(_scaled(group, HUGE)), _ask_huge(group)),
    ]


def own_scenes(weights: Sequence[float] | Tensor) -> list[Scene]:
    """A learner's 128 weights under both plain scales."""
    plain = trace_group(weights)
    if len(plain.weights) != GROUP:
        raise NanoqwenError(f"OneGroup: found {len(plain.weights)} weights, expected {GROUP}")
    group = torch.tensor(plain.weights)
    return [_scene("own group", plain, _ask_running(plain)), _signed(group)]


def _scene(name: str, trace: GroupTrace, ask: str, weight: int | None = None) -> Scene:
    """The scene at clip 1, with the largest weight chosen."""
    chosen = trace.weights.index(trace.extreme) if weight is None else weight
    return Scene(Preset(name, ask, {"step": LAST, "weight": chosen}), trace)


def _scaled(group: Tensor, largest: float) -> Tensor:
    return group * (largest / group.abs().max())


def _error(trace: GroupTrace, at: int = LAST) -> str:
    return percent(trace.clips[at].relative_rms, 1)


def _ask_running(trace: GroupTrace) -> str:
    if trace.clips[LAST].refusal:
        return "The scale is refused at clip 1. Drag the line down: from where on does fp16 hold it?"
    return (
        f"One scale for {len(trace.weights)} weights. At clip 1 no weight is cut and the error is {_error(trace)}. "
        "Drag the line down: smaller steps, but weights are cut. Where is the error least?"
    )


def _signed(group: Tensor) -> Scene:
    trace = trace_group(group, "absmax8")
    step = "which fp16 cannot hold" if trace.clips[LAST].refusal else f"so the error is {_error(trace)}"
    ask = (
        "Here code −8 is the largest weight with its sign, so a positive one makes the scale negative and turns the "
        f"levels over. A step is max/8, {step}.{_searched(group, trace)}"
    )
    return _scene("signed extreme", trace, ask)


def _searched(group: Tensor, trace: GroupTrace) -> str:
    """Which clip the engine itself takes, if it is one of the trace's."""
    try:
        scale = float(quantize_groups(group)[1])
    except NanoqwenError:
        return ""
    clips = [clip.clip for clip in trace.clips if clip.scale == scale != 0]
    return f" The engine's search keeps {clips[0]:.2f}, the best of the six scales that it tries." if clips else ""


def _outlier(group: Tensor) -> Scene:
    changed = group.clone()
    at = int(group.abs().argmax())
    changed[at] = OUTLIER * group.abs().sort().values[-2] * group[at].sign()
    trace = trace_group(changed)
    clip = trace.clips[LAST]
    codes = torch.tensor(clip.codes)
    others = torch.arange(len(changed)) != at
    lost = (codes * clip.scale - changed)[others].norm() / changed[others].norm()
    zeros = int((codes[others] == 0).sum())
    ask = (
        f"One weight is {OUTLIER} × the largest other, and the step grows with it: {zeros} of the other {GROUP - 1} "
        f"become 0. Their error is {percent(float(lost))}; the error of all, {_error(trace)}, hides it."
    )
    return _scene("outlier", trace, ask, clip.worst)


def _ask_zero() -> str:
    word = hex_word(int(pack_words(torch.zeros(1, 8, dtype=torch.int8))) & 0xFFFFFFFF)
    return f"Scale 0, codes 0. What does the file hold? No zeros: a nibble is code + 8, so every word is {word}."


def _ask_tiny(group: Tensor) -> str:
    codes, scale = quantize_groups(_scaled(group, LARGER), "absmax7")
    return (
        f"The running group, scaled to {significant(TINY, 1)}. Its scale would be {significant(TINY / 7)}, and "
        f"fp16 rounds that to 0. Scaled to {significant(LARGER, 1)}, its scale is {significant(float(scale))} and the "
        f"largest code {int(codes.abs().max())}, not 7."
    )


def _ask_huge(group: Tensor) -> str:
    scale = float(plain_scale(_scaled(group, HUGE)))
    return (
        f"The running group, scaled to {significant(HUGE)}. Its scale would be {significant(scale)}; fp16 ends at "
        "65504, so the engine refuses the group. Which clip is the first that fits?"
    )
