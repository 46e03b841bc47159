"""Lab 03's roofline: what limits a matrix-vector product, and how long it takes, at a setting that one chooses.

The engine's model (`lab_engine/gemv.py`) gives text and PNG; the browser computes the same by itself
(`static/gemv_model.js`, compared with the engine state by state), so that a drag waits for nobody.
"""

from typing import Any, ClassVar

import traitlets

from lab_engine.config import GROUP
from lab_engine.gemv import ACTIVATION_BYTES, BITS, EDGE_S, GPUS, GROUPS, UNPACK_OPS
from lab_engine.recordings import Recording, load_recording, require
from widgets.gemv_png import roofline_png
from widgets.gemv_text import roofline_sentence, roofline_text
from widgets.gemv_view import BATCHES, EDGES, OPS, STAGES, Scene, roofline_data, roofline_gpus, rungs_of
from widgets.playground import Badge, Playground, Preset, Value

EDGE = 1e6 * EDGE_S


class Roofline(Playground):
    """One product of the 7B under its limits: reading, unpacking, multiplying, and the edge on top.

    `ops` is how many integer instructions unpack a weight, `edge` the µs before and after, `batch` the columns of x.
    `rung` is the chosen kernel of the ladder, "" none. Without a recording it shows the project's own, `gemv`.
    """

    title = "Roofline"
    lab = "lab 03"
    ask = "Drag the point, choose what is multiplied and where. Which of the limits does it hit?"
    badge = Badge(
        "computed",
        "bytes and instructions over the rates of the GPU: a floor for the time. Other GPUs than the H200, and tensor "
        "cores: data sheets. The edge is quoted from our first experiment on an H200, and the same elsewhere",
    )
    script = "gemv.js"
    fields: ClassVar[tuple[str, ...]] = (
        "preset", "gpu", "stage", "bits", "group", "activation", "edge", "batch", "ops", "rung",
    )  # fmt: skip

    gpu = traitlets.Enum(tuple(GPUS), "H200").tag(sync=True)
    stage = traitlets.Enum(tuple(STAGES), "o").tag(sync=True)
    bits = traitlets.Enum(BITS, 4).tag(sync=True)
    group = traitlets.Enum(GROUPS, GROUP).tag(sync=True)
    activation = traitlets.Enum(tuple(ACTIVATION_BYTES), "fp16").tag(sync=True)
    edge = traitlets.Enum(tuple(EDGES), EDGE).tag(sync=True)
    batch = traitlets.Int(1).tag(sync=True)
    ops = traitlets.Float(UNPACK_OPS["lop3"]).tag(sync=True)
    rung = traitlets.Unicode("").tag(sync=True)

    def __init__(self, recording: Recording | None = None, **state: Value | None) -> None:
        if recording is not None:
            require(recording, "gemv", ("read_bytes_per_second", "rungs"))
            self.given = "recording"
        self._recording = recording or load_recording("gemv")
        self._gpus, self._rungs = roofline_gpus(self._recording), rungs_of(self._recording)
        super().__init__(roofline_data(self._gpus, self._rungs), roofline_presets(), **state)

    def _make_spec(self) -> dict[str, Any]:
        spec = super()._make_spec()
        spec["badge"]["source"] += f". H200, numbered points and counters, recorded: {self._recording.badge_source}"
        return spec

    def step_count(self) -> int:
        """One: what is stepped is the batch."""
        return 1

    @property
    def scene(self) -> Scene:
        """What is shown, as the engine has it."""
        return Scene(self._gpus, self._rungs, **{name: getattr(self, name) for name in self.fields if name != "preset"})

    @traitlets.validate("batch")
    def _check_batch(self, proposal: Any) -> int:
        return int(_between("batch", proposal["value"], 1, BATCHES))

    @traitlets.validate("ops")
    def _check_ops(self, proposal: Any) -> float:
        return _between("ops", proposal["value"], *OPS)

    @traitlets.validate("rung")
    def _check_rung(self, proposal: Any) -> str:
        name, names = proposal["value"], [rung.name for rung in self._rungs]
        if name and name not in names:
            raise traitlets.TraitError(f'rung is "{name}", expected "" or one of: {", ".join(names)}')
        return str(name)

    @property
    def sentence(self) -> str:
        """`o on H200 · INT4 g128 × fp16, batch 1 · 0.63 instr. · limit edge: 3.82 µs = 1.42 + 2.40 edge · …`."""
        return roofline_sentence(self.scene)

    def text_picture(self) -> str:
        """The roof, the point under it, where the time goes, the bytes, the ladder, and a kernel's counters."""
        return roofline_text(self.scene)

    def png(self) -> bytes:
        """The same picture as the browser's wide one."""
        return roofline_png(self.scene)


def _between(name: str, value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise traitlets.TraitError(f"{name} is {value}, expected {low} to {high}")
    return value


def roofline_presets() -> list[Preset]:
    """Five settings, each with a surprise."""
    base: dict[str, Value] = {
        "gpu": "H200", "stage": "o", "bits": 4, "group": GROUP, "activation": "fp16", "edge": EDGE, "batch": 1,
        "ops": UNPACK_OPS["lop3"], "rung": "",
    }  # fmt: skip
    return [
        Preset(
            "o alone",
            "Drag the point to fewer instructions: how much faster does o get? Then take the edge away.",
            base,
        ),
        Preset(
            "INT8 activations",
            "x is half as large. By how much do the bytes of down fall, and the time? Compare with fp16.",
            base | {"stage": "down", "activation": "int8"},
        ),
        Preset(
            "unpack budget: I2F",
            "Each weight is converted on its own. How few instructions would be free? And on an RTX 4090?",
            base | {"stage": "down", "ops": UNPACK_OPS["shift_mask"]},
        ),
        Preset(
            "batch",
            "Play: x gets more columns. Up to which one do they cost next to nothing? And with FP16 weights?",
            base | {"stage": "down"},
        ),
        Preset(
            "all of a token",
            "113 products in turn. What share of the time is their edges, and what does a cheaper one bring?",
            base | {"stage": "token"},
        ),
    ]
