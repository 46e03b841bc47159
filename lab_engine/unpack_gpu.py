"""The kernels of kernels/unpack.cu on this machine's GPU, through CuPy.

`unpack` and `prmt` return what the GPU computes; `loop` keeps all threads of every SM unpacking in registers, so that
its time is the time of instructions alone. Nothing here is imported where there is no GPU to ask.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab_engine.errors import ToolchainError
from lab_engine.ptx import Words
from lab_engine.sass import ARCH, SHORT_LOOP
from lab_engine.unpack import COMPILED, WEIGHTS

THREADS, BLOCKS_PER_SM = 1024, 2  # 2048 threads: all that an SM holds
ROUNDS = 4096
WORDS_PER_BLOCK = THREADS * ROUNDS * SHORT_LOOP


@dataclass(frozen=True)
class Loop:
    """One run of a timing loop. ms: of the whole GPU; spans int64 (blocks, 3): SM, its clock at start and at stop."""

    ms: float
    spans: NDArray[np.int64]

    @property
    def words_per_second(self) -> float:
        """Words that the whole GPU unpacked a second."""
        return len(self.spans) * WORDS_PER_BLOCK / self.ms * 1e3


class UnpackGpu:
    """The GPU of this machine with the kernels of unpack.cu of the project, compiled by sass.compile_cubin."""

    def __init__(self, cubin: bytes) -> None:
        """Load the kernels; cubin: for `gpu_arch()`. Raises ToolchainError where CuPy or the GPU is missing."""
        self._cupy = cupy = _cupy()
        self._kernels = _load(cupy, cubin)
        self._blocks = BLOCKS_PER_SM * cupy.cuda.Device().attributes["MultiProcessorCount"]
        self._words = cupy.asarray(np.arange(self._blocks * THREADS, dtype=np.uint32) * np.uint32(0x9E3779B9))
        self._spans = cupy.zeros((self._blocks, 3), np.int64)

    def unpack(self, words: Words, method: str) -> NDArray[np.float16]:
        """words_METHOD: uint32 (n,) -> float16 (n, 8)."""
        halves = self._cupy.zeros((words.size, WEIGHTS), np.float16)
        self._each(f"words_{method}", words.size, self._cupy.asarray(words), halves)
        return self._host(halves)

    def prmt(self, a: int, b: int) -> Words:
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
        kernel = self._kernels[f"loop{SHORT_LOOP}_{method}"]
        kernel((self._blocks,), (THREADS,), (np.int32(ROUNDS), self._words, self._spans))

    def _each(self, name: str, count: int, *arguments: Any) -> None:
        """Run a kernel with one thread for each of `count` elements, its last argument."""
        self._kernels[name]((-(-count // 256),), (256,), (*arguments, np.int32(count)))

    def _host(self, array: Any) -> NDArray[Any]:
        return np.asarray(self._cupy.asnumpy(array))


def _load(cupy: Any, cubin: bytes) -> dict[str, Any]:
    """The kernels by name; CuPy reads a file, and only when a kernel is asked for."""
    names = ["raw_prmt", *(f"{kind}_{method}" for kind in ("words", f"loop{SHORT_LOOP}") for method in COMPILED)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "unpack.cubin"
        path.write_bytes(cubin)
        module = cupy.RawModule(path=str(path))
        try:
            return {name: module.get_function(name) for name in names}
        except cupy.cuda.driver.CUDADriverError as error:
            raise ToolchainError(f"{error}; compile them for this GPU, {gpu_arch()}") from None


def gpu_arch() -> str:
    """What to compile for on this machine's GPU: sm_90a on Hopper, such as sm_75 on a T4. ToolchainError: no GPU."""
    capability = str(_cupy().cuda.Device().compute_capability)
    return ARCH if capability == "90" else f"sm_{capability}"


def _cupy() -> Any:
    """CuPy, on a machine where it finds a GPU."""
    try:
        import cupy
    except ImportError as error:
        raise ToolchainError(
            f"{error}; on Linux: .venv/bin/python -m pip install -c constraints.txt -e .[gpu]"
        ) from None
    if not cupy.cuda.is_available():
        raise ToolchainError("no NVIDIA GPU found")
    return cupy


def clocks_per_word(spans: NDArray[np.int64], words_per_block: int = WORDS_PER_BLOCK) -> float:
    """The clocks of an SM from its first start to its last stop over the words of its blocks; median of all SMs."""
    found = []
    for sm in np.unique(spans[:, 0]):
        _, starts, stops = spans[spans[:, 0] == sm].T
        found.append((stops.max() - starts.min()) / (starts.size * words_per_block))
    return float(statistics.median(found))
