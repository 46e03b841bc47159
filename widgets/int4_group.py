"""Lab 01's group: 128 weights, the sixteen levels of their one scale, and the line where the levels end, to be dragged.

The engine rounds the group at 101 clips (`lab_engine/group_trace.py`); a step of the playground is a clip in percent.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import traitlets
from torch import Tensor

from lab_engine.config import GROUP
from lab_engine.group_trace import CLIPS, ClipTrace, GroupTrace
from lab_engine.nanoqwen_file import LAYOUTS
from widgets.int4_group_png import group_png
from widgets.int4_group_presets import Scene, own_scenes, shipped_scenes
from widgets.int4_group_text import group_sentence, group_text
from widgets.playground import Badge, Playground, Preset, Value


@cache
def _shipped() -> tuple[list[Preset], dict[str, Any]]:
    return _presets_and_data(shipped_scenes())


def _presets_and_data(scenes: list[Scene]) -> tuple[list[Preset], dict[str, Any]]:
    groups = {scene.preset.name: group_data(scene.trace) for scene in scenes}
    return [scene.preset for scene in scenes], {"groups": groups}


class OneGroup(Playground):
    """128 weights under one scale. `step` is the clip in percent of the largest weight, `weight` the chosen one.

    `OneGroup()` shows the running group of the labs and what becomes of it when its size changes; `OneGroup(weights)`
    shows 128 numbers of your own. Raises NanoqwenError where they are not 128 finite numbers.
    """

    title = "One group"
    lab = "lab 01"
    ask = "One scale for 128 weights. Drag the line: where is the error least?"
    badge = Badge(
        "computed", "the engine's own rounding (int4.round_to_scales) of the checkpoint's weights, at 101 clips"
    )
    script = "int4_group.js"
    fields = ("preset", "step", "weight")

    weight = traitlets.Int(0).tag(sync=True)

    def __init__(self, weights: Sequence[float] | Tensor | None = None, **state: Value | None) -> None:
        presets, data = _shipped() if weights is None else _presets_and_data(own_scenes(weights))
        if weights is not None:
            self.given = "weights"
        super().__init__(data, presets, **state)

    def step_count(self) -> int:
        """One for each percent, and 0."""
        return CLIPS

    @traitlets.validate("weight")
    def _check_weight(self, proposal: Any) -> int:
        weight = proposal["value"]
        if not 0 <= weight < GROUP:
            raise traitlets.TraitError(f"weight is {weight}, expected 0 to {GROUP - 1}")
        return int(weight)

    @property
    def group(self) -> Mapping[str, Any]:
        """The data of the chosen group."""
        groups: dict[str, Any] = self._trace["groups"]
        return dict(groups.get(self.preset) or next(iter(groups.values())))

    @property
    def sentence(self) -> str:
        """`clip 0.87 × max · scale 0.0350 (0x2879) · error 12.4 % · worst weight 24: … · weight 3: code −1`."""
        return group_sentence(self.group, self.step, self.weight)

    def text_picture(self) -> str:
        """How many weights each code has, the chosen weight, the error at some clips."""
        return group_text(self.group, self.step, self.weight)

    def png(self) -> bytes:
        """The same picture as the browser's wide one."""
        return group_png(self.group, self.step, self.weight)


def group_data(trace: GroupTrace) -> dict[str, Any]:
    """A trace as JSON-ready data; equal codes of neighbouring clips are held once."""
    texts = ["".join(f"{code + 8:x}" for code in clip.codes) for clip in trace.clips]
    codes = list(dict.fromkeys(text for text in texts if text))
    reach = abs(trace.extreme) if trace.rule == "absmax7" else trace.extreme
    refusals = [clip.refusal for clip in trace.clips if clip.refusal]
    return {
        "weights": list(trace.weights),
        "order": list(LAYOUTS["value_shuffle"]),
        "reach": reach or 1.0,
        "codes": codes,
        "clips": [
            _clip_data(clip, codes.index(text) if text else None) for clip, text in zip(trace.clips, texts, strict=True)
        ],
        "best": trace.best,
        "refusal": refusals[0] if refusals else "",
    }


def _clip_data(clip: ClipTrace, codes: int | None) -> list[Any]:
    bits = f"{clip.bits:04X}"
    if codes is None:
        return [bits, None, None, None, None, None]
    return [bits, clip.scale, float(f"{clip.relative_rms:.6g}"), float(f"{clip.mse:.6g}"), clip.worst, codes]
