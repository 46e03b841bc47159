"""Lab 03's question of the story: FP16 or INT8 activations? Recorded parts of every product, at any cost of a launch.

Python and the browser (`static/gemv_int8_model.js`) add the same recorded parts, so that a drag waits for nobody; a
test compares the two.
"""

from typing import Any, ClassVar

import traitlets

from lab_engine.gemv_int8 import EAGER_US, FP16, ROWS, SEPARATE, TOKEN, Int8Trace, StageTimes, trace_int8
from lab_engine.recordings import Recording, load_recording
from widgets.gemv_int8_png import int8_png
from widgets.gemv_int8_text import MOST, NAMES, int8_sentence, int8_text
from widgets.playground import Badge, Playground, Preset, Value
from widgets.words import significant


class Int8Times(Playground):
    """One product of the 7B with FP16 and with INT8 activations: launch, quantizing, reading, unpacking, and the error.

    `stage` is a product or `token`, all of them; `launch` what a launch costs in µs, 0 to 6. Without a recording it
    shows the project's own, `gemv`.
    """

    title = "FP16 or INT8"
    lab = "lab 03"
    ask = "Drag the cost of a launch. Which way to multiply is the fastest, and how wrong is it?"
    badge = Badge("recorded", "")
    script = "gemv_int8.js"
    fields: ClassVar[tuple[str, ...]] = ("preset", "stage", "launch")

    stage = traitlets.Unicode(TOKEN).tag(sync=True)
    launch = traitlets.Float(1.0).tag(sync=True)

    def __init__(self, recording: Recording | None = None, **state: Value | None) -> None:
        self.recording = recording or load_recording("gemv")
        if recording:
            self.given = "recording"
        self.times = trace_int8(self.recording)
        super().__init__(int8_data(self.times), int8_presets(self.times), **state)

    def _make_spec(self) -> dict[str, Any]:
        spec = super()._make_spec()
        spec["badge"]["source"] = (
            f"parts of the times: {self.recording.badge_source}. Errors are computed: the kernels' arithmetic on "
            f"{ROWS} random rows. The cost of an eager launch, {EAGER_US} µs, is quoted from our first experiment. "
            "A graph node is an empty kernel with its share of what a replay costs, as in these times; a dependent one "
            "was timed in a longer graph. A part that is too short to tell apart counts as 0. Every launch adds its "
            "cost: none hides behind a kernel that still runs"
        )
        return spec

    def step_count(self) -> int:
        """One: nothing is stepped."""
        return 1

    @traitlets.validate("stage")
    def _check_stage(self, proposal: Any) -> str:
        stage = proposal["value"]
        if stage not in self.times.stages:
            raise traitlets.TraitError(f'stage is "{stage}", expected one of: {", ".join(self.times.stages)}')
        return str(stage)

    @traitlets.validate("launch")
    def _check_launch(self, proposal: Any) -> float:
        launch = proposal["value"]
        if not 0 <= launch <= MOST:
            raise traitlets.TraitError(f"launch is {launch}, expected 0 to {MOST:g} µs")
        return float(launch)

    @property
    def sentence(self) -> str:
        """`down · launch 1.10 µs · FP16 12.5 µs, separate … · fastest: fused · separate wins below …`."""
        return int8_sentence(self.times, self.stage, self.launch)

    def text_picture(self) -> str:
        """A bar a variant in letters, its time, the difference to FP16, its error."""
        return int8_text(self.times, self.stage, self.launch)

    def png(self) -> bytes:
        """The same picture as the browser's wide one."""
        return int8_png(self.times, self.stage, self.launch)


def int8_data(times: Int8Trace) -> dict[str, Any]:
    """What the browser computes with, JSON-ready."""
    return {
        "names": {name: list(words) for name, words in NAMES.items()},
        "stages": {name: _stage_data(stage) for name, stage in times.stages.items()},
        "launches": [{"name": name, "us": us} for name, us in times.launches.items()],
        "most": MOST,
    }


def _stage_data(stage: StageTimes) -> dict[str, Any]:
    work = {
        name: {"launches": one.launches, "quantize": one.quantize, "read": one.read, "unpack": one.unpack}
        for name, one in stage.work.items()
    }
    return {"products": stage.products, "work": work, "errors": dict(stage.errors)}


def int8_presets(times: Int8Trace) -> list[Preset]:
    """Five settings; the numbers in their words are the recording's own."""
    token, node, eager = times.stages[TOKEN], times.launches["graph node"], times.launches["eager"]
    more, errors = token.work[SEPARATE].launches - token.products, times.stages["gate_up"].errors
    one, two = errors["dp4a_fused"] / errors[FP16], errors[FP16] / errors["dp4a_limbs"]
    return [
        Preset(
            "every launch eager",
            f"One kernel more a product is {more} launches more a token. What is left of separate's faster unpacking?",
            {"stage": TOKEN, "launch": eager},
        ),
        Preset(
            "in a CUDA graph",
            f"The same kernels, and a launch for {significant(node)} µs. Does the order of the four change?",
            {"stage": TOKEN, "launch": node},
        ),
        Preset(
            "where they are even",
            "Only the cost of a launch decides between FP16 and a separate kernel. Which wins in a graph, which eager?",
            {"stage": "down", "launch": _even(times.stages["down"], node)},
        ),
        Preset(
            "a small product",
            "x has half the bytes, and two dp4a take eight weights. How much faster is o? Where does its time go?",
            {"stage": "o", "launch": node},
        ),
        Preset(
            "what it costs in error",
            f"One limb errs {one:.0f} times as much as FP16, two {two:.0f} times less. How much longer do two take?",
            {"stage": "gate_up", "launch": node},
        ),
    ]


def _even(stage: StageTimes, otherwise: float) -> float:
    """The crossover, as far as the axis shows it."""
    even = round(stage.crossover, 2)
    return even if 0 < even < MOST else otherwise
