"""The course as data: its labs in order, what each opens, and what of it runs on which machine. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HARDWARE = ("no GPU", "T4", "RTX 30/40", "H100, H200")
"""The machines of the hardware table. The triton backend needs Ampere or newer, the cuda backend Hopper."""

_EVERYWHERE = ("runs",) * 4
_RECORDED = "runs; GPU recorded"
_TRITON = (_RECORDED, _RECORDED, "runs; Triton live", "runs; all live")
_HOPPER = (_RECORDED, _RECORDED, _RECORDED, "runs; all live")
_SIMULATED = ("simulated", "simulated", "simulated", "live")


@dataclass(frozen=True)
class Lab:
    """A notebook of labs/: its stem, the stages or part that it opens, what one can do afterwards, minutes.

    hardware: for each machine of HARDWARE, what of the lab it can do.
    """

    stem: str
    opens: str
    afterwards: str
    minutes: int
    hardware: tuple[str, str, str, str]

    @property
    def ready(self) -> bool:
        """Whether its notebook exists."""
        return (Path(__file__).resolve().parent.parent / "labs" / f"{self.stem}.ipynb").exists()


COURSE = (
    Lab("00_tour", "the whole step, from outside", "follow one token from prompt to text", 30, _EVERYWHERE),
    Lab(
        "01_int4", "the weights of qkv, o, gate_up, down", "quantize, pack and unpack a weight by hand", 75, _EVERYWHERE
    ),
    Lab("02_nanoqwen_file", "the file they lie in", "read the file byte by byte, refuse a broken one", 60, _EVERYWHERE),
    Lab("03_gemv", "qkv, o, gate_up, down, lm_head", "place a kernel on the roofline", 60, _TRITON),
    Lab("04_kv_pages", "where attention's past lies", "turn a token into page id, slot, address", 45, _EVERYWHERE),
    Lab("05_paged_attention", "attention", "do softmax page by page, name a tail bug", 60, _TRITON),
    Lab("06_warp_roles", "attention inside the GPU", "find a race and a deadlock", 60, _SIMULATED),
    Lab("07_graph_capture", "the gaps between the stages", "capture a step, say what it froze", 50, _HOPPER),
    Lab("08_decoder", "all of it, put together", "swap quantization, sampler, attention", 60, _EVERYWHERE),
)
"""The labs in order."""
