"""Lab 03's loads: the 32 lanes of a warp, the bytes that each reads, and the sectors that memory moves for them.

The addresses are the kernels' own expressions (`lab_engine/kernels/gemv_index.cuh`). The engine evaluates them for
text, PNG and sentence, the browser for its picture, so that every lane and iteration is there without Python.
"""

from typing import Any, ClassVar

import traitlets

from lab_engine.gemv_loads import LANES, PATTERNS, iterations
from widgets.gemv_loads_data import KS, ROWS, SHIFTS, WARPS, loads_data
from widgets.gemv_loads_png import loads_png
from widgets.gemv_loads_text import Scene, loads_text
from widgets.playground import Badge, Playground, Preset


class WarpLoads(Playground):
    """One iteration of one warp: lanes, the bytes that they read, the 32-byte sectors that move.

    `pattern` is one of `lab_engine.gemv_loads.PATTERNS`, `k` the length of a row, `shift` how many bytes after a line
    the matrix begins; `warp` counts the first warps of the grid, `lane` is the chosen lane, `step` the iteration.
    """

    title = "The warp's loads"
    lab = "lab 03"
    ask = "Choose a lane and step through the iterations. Which bytes does it read, and how many move for nobody?"
    badge = Badge(
        "computed",
        "the index expressions of lab_engine/kernels/gemv_index.cuh, which the kernels call, on every lane; sectors of "
        f"32 bytes; a matrix of {ROWS} rows; without L1 and L2",
    )
    script = "gemv_loads.js"
    fields: ClassVar[tuple[str, ...]] = ("preset", "pattern", "k", "shift", "warp", "lane", "step")

    pattern = traitlets.Enum(tuple(PATTERNS), "coalesced").tag(sync=True)
    k = traitlets.Enum(KS, KS[0]).tag(sync=True)
    shift = traitlets.Enum(SHIFTS, 0).tag(sync=True)
    warp = traitlets.Int(0).tag(sync=True)
    lane = traitlets.Int(0).tag(sync=True)

    def __init__(
        self,
        *,
        preset: str | None = None,
        pattern: str | None = None,
        k: int | None = None,
        shift: int | None = None,
        warp: int | None = None,
        lane: int | None = None,
        step: int | None = None,
    ) -> None:
        places = {"pattern": pattern, "k": k, "shift": shift, "warp": warp, "lane": lane, "step": step}
        super().__init__(loads_data(), loads_presets(), preset=preset, **places)

    def step_count(self) -> int:
        """One an iteration; one a chunk of a bulk copy."""
        return iterations(self.pattern, self.k)

    @property
    def scene(self) -> Scene:
        """What is shown, as the engine has it."""
        return Scene(self.pattern, self.k, self.shift, self.warp, self.lane, self.step)

    @traitlets.validate("warp", "lane")
    def _check_place(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        most = {"warp": WARPS, "lane": LANES}[name] - 1
        if not 0 <= value <= most:
            raise traitlets.TraitError(f"{name} is {value}, expected 0 to {most}")
        return int(value)

    @traitlets.observe("pattern", "k")
    def _stay_in_the_row(self, _: Any) -> None:
        self.step = min(self.step, self.step_count() - 1)

    @property
    def sentence(self) -> str:
        """`coalesced, K 3584 · iteration 2 · lane 9: row 5, bytes 10128–10143, group 18 · 16 sectors, …`."""
        return self.scene.sentence()

    def text_picture(self) -> str:
        """Lanes and sectors in letters, the byte's expression with its numbers, the whole matrix."""
        return loads_text(self.scene)

    def png(self) -> bytes:
        """The same parts as the browser's wide picture."""
        return loads_png(self.scene)


def loads_presets() -> list[Preset]:
    """Five scenes, each one change away from the first."""

    def at(pattern: str, lane: int = 9, step: int = 2, **more: int) -> dict[str, Any]:
        return {"pattern": pattern, "k": 3584, "shift": 0, "warp": 5, "lane": lane, "step": step, **more}

    return [
        Preset(
            "a warp a row, 16 B",
            "32 lanes want 512 bytes side by side, and 16 sectors hold nothing else. Which bytes are lane 9's?",
            at("coalesced"),
        ),
        Preset(
            "uncoalesced: a thread a row, 4 B",
            "The product is right, and only slow. Which sector moves for lane 9, and who wants its other 28 bytes?",
            at("naive", warp=0),
        ),
        Preset(
            "a thread a row, 16 B",
            "Wider loads alone: four times the bytes. How many sectors move now, and what share of them is used?",
            at("naive16", warp=0),
        ),
        Preset(
            "shifted by 16 B",
            "The matrix begins 16 bytes later, nothing else changed, and a 17th sector moves. Which two are half used?",
            at("coalesced", shift=16),
        ),
        Preset(
            "the last iteration",
            "A row of 3584 weights is 3.5 iterations. Which lanes idle in the last? And of a row of 384?",
            at("coalesced", lane=16, step=3),
        ),
    ]
