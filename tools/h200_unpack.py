"""The recording `unpack`: every way of lab_engine/kernels/unpack.cuh on the GPU, compared, timed and disassembled.

The GPU runs the very machine code that is disassembled, and every output is compared with the emulator before anything
is written.
"""

from __future__ import annotations

import hashlib
import statistics
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab_engine import ptx, sass
from lab_engine.errors import RecordingError
from lab_engine.unpack import COMPILED, METHODS, WEIGHTS, every_half_word, unpack_all
from lab_engine.unpack_gpu import BLOCKS_PER_SM, ROUNDS, THREADS, Loop, UnpackGpu, clocks_per_word
from tools import h200_machine

SOURCES = ("lab_engine/kernels/unpack.cuh", "lab_engine/kernels/unpack.cu")

TABLES = {
    "n < 8": (0xC5C6C7C8, 0xBCC0C2C4),
    "n >= 8": (0x42403C00, 0x47464544),
    "bytes 0 to 7": (0x03020100, 0x07060504),
    "bytes with and without a sign": (0x7F80FF01, 0x00C0817E),
}
"""Pairs of registers that the bare prmt runs on, with all 65,536 selectors."""

REPEATS = 15


def record() -> tuple[dict[str, Any], dict[str, int]]:
    """Take the recording on this machine: its data, and the clocks under the load of the timing loops."""
    h200_machine.check_device()
    cubin = sass.compile_cubin("unpack.cu")
    listing = sass.disassemble(cubin)
    gpu = UnpackGpu(cubin)
    data = measure(gpu, listing)
    for _ in range(300):  # a few seconds of work, in which to read the clocks
        gpu.start_loop("lop3")
    clocks = h200_machine.clocks_mhz()
    gpu.loop("lop3")  # waits for all of it
    return data, clocks


def measure(gpu: UnpackGpu, listing: dict[str, tuple[sass.SassLine, ...]]) -> dict[str, Any]:
    """Everything that the recording holds; RecordingError where the GPU and the emulator differ in one word."""
    methods = {method: _outputs(gpu, method) | _code(listing, method) for method in COMPILED}
    prmt = {name: _raw_prmt(gpu, *pair) for name, pair in TABLES.items()}
    loops: dict[str, list[Loop]] = {method: [] for method in COMPILED}
    for repeat in range(REPEATS + 1):  # in turn, so that a clock that drifts reaches all of them
        for method in COMPILED:
            loop = gpu.loop(method)
            if repeat:  # the first warms up
                loops[method].append(loop)
    timing = {
        "sms": len(np.unique(loops["lop3"][0].spans[:, 0])),
        "threads_per_sm": THREADS * BLOCKS_PER_SM,
        "words_per_thread": ROUNDS * sass.SHORT_LOOP,
        "repeats": REPEATS,
        "other_instructions_per_word": sass.XORS,
        "methods": {method: _times(loops[method]) for method in COMPILED},
    }
    return {"methods": methods, "prmt": prmt, "timing": timing}


def _outputs(gpu: UnpackGpu, method: str) -> dict[str, Any]:
    """Digests of the fp16 bytes of every half-word in the low and in the high half."""
    found = {}
    for half, words in zip(("low", "high"), np.split(every_half_word(), 2), strict=True):
        what = f"{method}, half-words in the {half} half"
        found[half] = _compared(gpu.unpack(words, method), unpack_all(words, method), what)
    return {"layout": METHODS[method].layout, "outputs": found}


def _raw_prmt(gpu: UnpackGpu, a: int, b: int) -> dict[str, Any]:
    state = {"a": np.array([a], np.uint32), "b": np.array([b], np.uint32), "s": np.arange(1 << 16, dtype=np.uint32)}
    emulated = ptx.run(ptx.parse("prmt.b32 d, a, b, s;"), state)["d"]
    return {"a": f"{a:#010x}", "b": f"{b:#010x}"} | _compared(gpu.prmt(a, b), emulated, f"prmt of {a:#x}, {b:#x}")


def _compared(found: NDArray[Any], emulated: NDArray[Any], what: str) -> dict[str, Any]:
    """The SHA-256 of the GPU's bytes and in how many words they differ from the emulator's: none, or RecordingError."""
    shape = (len(emulated), -1)
    bits = [array.view(np.uint8).reshape(shape) for array in (found, emulated)]
    different = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
    if different.size:
        raise RecordingError(
            f"{what}: the GPU and the emulator differ in {different.size} words, first {different[0]:#x}"
        )
    return {"sha256": hashlib.sha256(found.tobytes()).hexdigest(), "differences": int(different.size)}


def _code(listing: dict[str, tuple[sass.SassLine, ...]], method: str) -> dict[str, Any]:
    counts = sass.instructions_per_word(listing, method)
    return {
        "ptx_instructions_per_word": len(METHODS[method].instructions),
        "sass_instructions_per_word": counts,
        "sass_instructions_per_weight": sum(counts.values()) / WEIGHTS,
        "sass": [asdict(line) for line in listing[f"words_{method}"]],
    }


def _times(loops: list[Loop]) -> dict[str, Any]:
    """Medians over the repeats; the spread is the largest less the smallest."""
    clocks = [clocks_per_word(loop.spans) for loop in loops]
    return {
        "clocks_per_word_per_sm": round(statistics.median(clocks), 5),
        "clocks_per_word_per_sm_spread": round(max(clocks) - min(clocks), 5),
        "words_per_second": round(statistics.median(loop.words_per_second for loop in loops)),
        "sm_mhz": round(statistics.median(np.ptp(loop.spans[:, 1:], axis=1).max() / loop.ms / 1e3 for loop in loops)),
    }
