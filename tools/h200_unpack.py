"""The recording `unpack`: every way of lab_engine/kernels/unpack.cuh on the GPU, compared, timed and disassembled.

The GPU runs the very machine code that is disassembled, and every output is compared with the emulator before anything
is written.
"""

from __future__ import annotations

import hashlib
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab_engine import ptx, sass
from lab_engine.errors import RecordingError
from lab_engine.unpack import METHODS, WEIGHTS, every_half_word, unpack_all
from tools import h200_machine

SOURCES = ("unpack.cuh", "unpack.cu")

TABLES = {
    "n < 8": (0xC5C6C7C8, 0xBCC0C2C4),
    "n >= 8": (0x42403C00, 0x47464544),
    "bytes 0 to 7": (0x03020100, 0x07060504),
    "bytes with and without a sign": (0x7F80FF01, 0x00C0817E),
}
"""Pairs of registers that the bare prmt runs on, with all 65,536 selectors."""

THREADS, BLOCKS_PER_SM = 1024, 2  # 2048 threads: all that an SM holds
ROUNDS = 4096
REPEATS = 15


@dataclass(frozen=True)
class Loop:
    """One run of a timing loop. ms: of the whole GPU; spans int64 (blocks, 3): SM, its clock at start and at stop."""

    ms: float
    spans: NDArray[np.int64]


class Gpu:
    """The GPU of this machine with the kernels of unpack.cu; cubin: their machine code, there as long as this lives."""

    def __init__(self, cubin: Path) -> None:
        try:
            import cupy
        except ImportError as error:
            raise RecordingError(f"running the kernels: {error}; install cupy-cuda13x") from None
        self._cupy = cupy
        self._module = cupy.RawModule(path=str(cubin))
        self._blocks = BLOCKS_PER_SM * cupy.cuda.Device().attributes["MultiProcessorCount"]
        self._words = cupy.asarray(np.arange(self._blocks * THREADS, dtype=np.uint32) * np.uint32(0x9E3779B9))
        self._spans = cupy.zeros((self._blocks, 3), np.int64)

    def unpack(self, words: ptx.Words, method: str) -> NDArray[np.float16]:
        """words_METHOD: uint32 (n,) -> float16 (n, 8)."""
        halves = self._cupy.zeros((words.size, WEIGHTS), np.float16)
        self._each(f"words_{method}", words.size, self._cupy.asarray(words), halves)
        return self._host(halves)

    def prmt(self, a: int, b: int) -> ptx.Words:
        """raw_prmt for all 65,536 selectors."""
        out = self._cupy.zeros(1 << 16, np.uint32)
        self._each("raw_prmt", out.size, np.uint32(a), np.uint32(b), out)
        return self._host(out)

    def loop(self, method: str) -> Loop:
        """loop16_METHOD: ROUNDS times 16 words a thread."""
        start, stop = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        start.record()
        self.start_loop(method)
        stop.record()
        stop.synchronize()
        return Loop(float(self._cupy.cuda.get_elapsed_time(start, stop)), self._host(self._spans))

    def start_loop(self, method: str) -> None:
        """Launch the loop and go on at once."""
        kernel = self._module.get_function(f"loop{sass.SHORT_LOOP}_{method}")
        kernel((self._blocks,), (THREADS,), (np.int32(ROUNDS), self._words, self._spans))

    def _each(self, name: str, count: int, *arguments: Any) -> None:
        """Run a kernel with one thread for each of `count` elements, its last argument."""
        self._module.get_function(name)((-(-count // 256),), (256,), (*arguments, np.int32(count)))

    def _host(self, array: Any) -> NDArray[Any]:
        return np.asarray(self._cupy.asnumpy(array))


def record() -> tuple[dict[str, Any], dict[str, int]]:
    """Take the recording on this machine: its data, and the clocks under the load of the timing loops."""
    h200_machine.check_device()
    cubin = sass.compile_cubin("unpack.cu")
    listing = sass.disassemble(cubin)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "unpack.cubin"
        path.write_bytes(cubin)
        gpu = Gpu(path)
        data = measure(gpu, listing)
        for _ in range(300):  # a few seconds of work, in which to read the clocks
            gpu.start_loop("lop3")
        clocks = h200_machine.clocks_mhz()
        gpu.loop("lop3")  # waits for all of it
    return data, clocks


def measure(gpu: Gpu, listing: dict[str, tuple[sass.SassLine, ...]]) -> dict[str, Any]:
    """Everything that the recording holds; RecordingError where the GPU and the emulator differ in one word."""
    methods = {method: _outputs(gpu, method) | _code(listing, method) for method in METHODS}
    prmt = {name: _raw_prmt(gpu, *pair) for name, pair in TABLES.items()}
    loops: dict[str, list[Loop]] = {method: [] for method in METHODS}
    for repeat in range(REPEATS + 1):  # in turn, so that a clock that drifts reaches all of them
        for method in METHODS:
            loop = gpu.loop(method)
            if repeat:  # the first warms up
                loops[method].append(loop)
    timing = {
        "sms": len(np.unique(loops["lop3"][0].spans[:, 0])),
        "threads_per_sm": THREADS * BLOCKS_PER_SM,
        "words_per_thread": ROUNDS * sass.SHORT_LOOP,
        "repeats": REPEATS,
        "other_instructions_per_word": sass.XORS,
        "methods": {method: _times(loops[method]) for method in METHODS},
    }
    return {"methods": methods, "prmt": prmt, "timing": timing}


def _outputs(gpu: Gpu, method: str) -> dict[str, Any]:
    """Digests of the fp16 bytes of every half-word in the low and in the high half."""
    found = {}
    for half, words in zip(("low", "high"), np.split(every_half_word(), 2), strict=True):
        what = f"{method}, half-words in the {half} half"
        found[half] = _compared(gpu.unpack(words, method), unpack_all(words, method), what)
    return {"layout": METHODS[method].layout, "outputs": found}


def _raw_prmt(gpu: Gpu, a: int, b: int) -> dict[str, Any]:
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
    words_per_block = THREADS * ROUNDS * sass.SHORT_LOOP
    words = len(loops[0].spans) * words_per_block
    clocks = [clocks_per_word(loop.spans, words_per_block) for loop in loops]
    return {
        "clocks_per_word_per_sm": round(statistics.median(clocks), 5),
        "clocks_per_word_per_sm_spread": round(max(clocks) - min(clocks), 5),
        "words_per_second": round(statistics.median(words / loop.ms * 1e3 for loop in loops)),
        "sm_mhz": round(statistics.median(np.ptp(loop.spans[:, 1:], axis=1).max() / loop.ms / 1e3 for loop in loops)),
    }


def clocks_per_word(spans: NDArray[np.int64], words_per_block: int) -> float:
    """The clocks of an SM from its first start to its last stop over the words of its blocks; median of all SMs."""
    found = []
    for sm in np.unique(spans[:, 0]):
        _, starts, stops = spans[spans[:, 0] == sm].T
        found.append((stops.max() - starts.min()) / (starts.size * words_per_block))
    return float(statistics.median(found))
