"""The recording `gemv`: every rung of the ladder in the shapes of the 7B, beside PyTorch's product; all checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lab_engine.errors import NanoqwenError, RecordingError
from lab_engine.gpu import REPLAYS, median_and_spread
from tools import h200_gemv_ncu, h200_machine
from tools.h200_gemv_code import code

if TYPE_CHECKING:
    from torch import Tensor

    from lab_engine.weights import Int4Matrix

SOURCES = tuple(
    f"lab_engine/kernels/{name}"
    for name in (
        "edge.cu gemv_coalesced.cu gemv_dot.cuh gemv_dp4a.cu gemv_index.cuh gemv_lop3.cu gemv_mma.cu gemv_mma.cuh "
        "gemv_mma_ring.cuh gemv_mma_x.cuh "
        "gemv_naive.cu gemv_prmt.cu gemv_ring.cu gemv_rows.cu gemv_triton.py gemv_x.cuh nibbles.cuh read.cu unpack.cuh"
    ).split()
)
MODEL = "7B"
HEAD_CALLS = 4  # of lm_head in one graph: each reads 281 MB, which no cache holds until the next
NODES = 100
LOAD = 2000  # replays of all layers, a second
EDGES = {"plain": False, "dependent": True}
TOOLS = ("memcheck", "racecheck")
PROCESSES = 13  # of compute-sanitizer at once: most of their time is PyTorch's start

Gemv = Callable[["Tensor"], "Tensor"]


@dataclass(frozen=True)
class Stage:
    """The matrices of all layers of one stage, the x of all of them, and what each of them gives in float64."""

    name: str
    matrices: tuple[Int4Matrix, ...]
    x: Tensor
    expected: tuple[Tensor, ...]

    @property
    def rounds(self) -> int:
        """How often the matrices are multiplied in one graph."""
        return HEAD_CALLS if self.name == "lm_head" else 1


def record() -> tuple[dict[str, Any], dict[str, int]]:
    """Take the recording on this machine: its data, and the clocks while the rung `rows` runs.

    A rung whose product is wrong, at any shape, is left out. What compute-sanitizer finds is written as it is.
    """
    from lab_engine import gemv_gpu
    from lab_engine.config import QWEN2_5_CODER
    from lab_engine.gemv_ladder import RUNGS

    h200_machine.check_device()
    say = _Clock()
    layers = QWEN2_5_CODER[MODEL].num_layers
    stages = {name: make_stage(name, *shape, layers) for name, shape in shapes().items()}
    say("weights and their products in float64")
    data: dict[str, Any] = {
        "shapes": {name: {"n": n, "k": k, "bytes": weight_bytes(n, k)} for name, (n, k) in shapes().items()},
        "replays": REPLAYS,
        "layers": layers,
        "edge_us": edges(),
        "read_bytes_per_second": round(gemv_gpu.read_bandwidth()),
        "peer": peer(stages),
    }
    say("edges, bandwidth, peer")
    us = _without_wrong(RUNGS, lambda name: {stage.name: rung_times(name, stage) for stage in stages.values()})
    say(f"rungs: {us}")
    clocks = clocks_under_load(stages[h200_gemv_ncu.STAGE])
    data["parts"] = parts()
    say("parts")
    data["rungs"] = _rungs(us, say)
    return data, clocks


def _rungs(us: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """What there is to say of every timed rung that is right at all shapes, besides its times: nothing is timed here.

    us: by rung, what becomes its field `us`.
    """
    from lab_engine.gpu import multiprocessors

    typical = shapes()[h200_gemv_ncu.STAGE]
    profiles = h200_gemv_ncu.profile(typical)
    say("ncu")
    with ThreadPoolExecutor(1) as pool:
        checked = pool.submit(checks, tuple(us))
        rest = _without_wrong(us, lambda name: {"error": errors(name), **code(name, typical, multiprocessors())})
        say("errors, code")
        found = checked.result()
    say("compute-sanitizer")
    return {name: {"us": us[name], **one, **found[name], "ncu": profiles.get(name)} for name, one in rest.items()}


def _without_wrong(names: Iterable[str], measure: Callable[[str], Any]) -> dict[str, Any]:
    """What `measure` gives for each rung; one that is wrong or cannot run is said on stdout and left out."""
    found = {}
    for name in names:
        try:
            found[name] = measure(name)
        except NanoqwenError as error:
            print(f"{name} is left out: {error}", flush=True)
    return found


def shapes() -> dict[str, tuple[int, int]]:
    """(n, k) of the 7B by stage."""
    from lab_engine.config import QWEN2_5_CODER
    from lab_engine.gemv import gemv_shapes

    return gemv_shapes(QWEN2_5_CODER[MODEL])


def weight_bytes(n: int, k: int) -> int:
    """Of the nibbles and the scales of a matrix."""
    from lab_engine.gemv import gemv_bytes

    counted = gemv_bytes(n, k)
    return counted.weights + counted.scales


def make_stage(name: str, n: int, k: int, layers: int, device: str = "cuda") -> Stage:
    """Random matrices, as many as there are layers, of lm_head one; and x of the size of activations after a norm."""
    import torch

    from lab_engine.gemv_token import product, random_matrix

    generator = torch.Generator(device).manual_seed(n + k)
    matrices = tuple(random_matrix(n, k, generator) for _ in range(1 if name == "lm_head" else layers))
    x = torch.randn(k, generator=generator, device=device).to(torch.float16)
    return Stage(name, matrices, x, tuple(product([matrix], x) for matrix in matrices))


def rung_times(name: str, stage: Stage) -> dict[str, float]:
    """Microseconds a call of a rung, whose outputs after the last replay are compared with float64."""
    from lab_engine.gemv_ladder import RUNGS, load
    from tools.h200_gemv_check import TOLERANCES

    gemvs = [load(name, matrix.words, matrix.scales) for matrix in stage.matrices]
    return timed(f"{name}, {stage.name}", gemvs, stage, stage.x, TOLERANCES[RUNGS[name].activation])


def peer(stages: dict[str, Stage]) -> dict[str, Any]:
    """PyTorch's INT4 product of the same matrices, with x in bfloat16: microseconds a call by stage."""
    import torch

    from lab_engine import gemv_peer

    found = {}
    for stage in stages.values():
        gemvs = [_flat(gemv_peer.load([matrix])) for matrix in stage.matrices]
        x = stage.x[None].to(torch.bfloat16)
        found[stage.name] = timed(f"{gemv_peer.NAME}, {stage.name}", gemvs, stage, x, gemv_peer.TOLERANCE)
    return {gemv_peer.NAME: found}


def _flat(multiply: Gemv) -> Gemv:
    return lambda x: multiply(x)[0]


def timed(what: str, gemvs: Sequence[Gemv], stage: Stage, x: Tensor, tolerance: float) -> dict[str, float]:
    """Time a graph of all calls; RecordingError unless every output of its last replay is right."""
    import torch

    from lab_engine.gemv_token import relative_error
    from lab_engine.gpu import replay_seconds

    outputs: list[Tensor] = []

    def run() -> None:
        outputs[:] = [gemv(x) for _ in range(stage.rounds) for gemv in gemvs]

    seconds = replay_seconds(run, REPLAYS)
    expected = stage.expected * stage.rounds
    error = float(torch.tensor([relative_error(*pair) for pair in zip(outputs, expected, strict=True)]).max())
    if not error <= tolerance:  # NaN as well
        raise RecordingError(f"{what}: wrong by {error:.1e}, expected {tolerance:.0e} or less, so no time counts")
    return median_and_spread(seconds, len(outputs))


def edges() -> dict[str, float]:
    """Microseconds from one empty kernel to the next in a graph, by how they are launched; a block a multiprocessor."""
    from lab_engine.gpu import Kernels, median_us, multiprocessors, replay_seconds

    kernels, blocks = Kernels("edge.cu"), multiprocessors()

    def launch(edge: str) -> None:
        for _ in range(NODES):
            kernels.launch(f"edge_{edge}", blocks, 128, dependent=EDGES[edge])

    return {edge: round(median_us(replay_seconds(partial(launch, edge), REPLAYS), NODES), 2) for edge in EDGES}


def parts() -> dict[str, Any]:
    """By stage and variant: where the time of INT8 and of fp16 goes, as the engine measures it."""
    from lab_engine.gemv_parts import measure_parts

    return {stage: measure_parts(*shape) for stage, shape in shapes().items()}


def errors(name: str) -> dict[str, Any]:
    """The largest relative error of a rung over all cases; RecordingError beyond its tolerance."""
    from lab_engine.gemv_ladder import RUNGS
    from tools.h200_gemv_check import TOLERANCES, errors_of

    largest, cases = errors_of(name)
    tolerance = TOLERANCES[RUNGS[name].activation]
    if not largest <= tolerance:
        raise RecordingError(f"{name}: wrong by {largest:.1e}, expected {tolerance:.0e} or less")
    return {"largest": largest, "cases": cases, "tolerance": tolerance}


def checks(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """What memcheck and racecheck count, by rung, or why they gave no count: written as it is, and a test wants 0.

    A memcheck that overlooks a read past the end of a tensor counts nothing.
    """
    from tools.h200_gemv_check import check_memcheck

    jobs = [(name, tool) for tool in reversed(TOOLS) for name in names]  # racecheck takes longer
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    with ThreadPoolExecutor(PROCESSES) as pool:
        blind = pool.submit(_said, check_memcheck)
        for (name, tool), verdict in zip(jobs, pool.map(lambda job: _verdict(*job), jobs), strict=True):
            found[name][tool] = (tool == "memcheck" and blind.result()) or verdict
    return found


def _verdict(name: str, tool: str) -> str:
    from tools.h200_gemv_check import sanitize

    return _said(lambda: sanitize(name, tool)) or ""


def _said(run: Callable[[], str | None]) -> str | None:
    """What it returns, or the words of its ToolchainError."""
    from lab_engine.errors import ToolchainError

    try:
        return run()
    except ToolchainError as error:
        return str(error)


def clocks_under_load(stage: Stage) -> dict[str, int]:
    """The clocks while the rung `rows` runs, a second and longer."""
    import torch

    from lab_engine.gemv_ladder import load

    gemvs = [load("rows", matrix.words, matrix.scales) for matrix in stage.matrices]
    [gemv(stage.x) for gemv in gemvs]  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [gemv(stage.x) for gemv in gemvs]

    def work() -> None:
        for _ in range(LOAD):
            graph.replay()
        torch.cuda.synchronize()

    clocks = h200_machine.clocks_under(work)
    del outputs  # they had to live as long as the graph
    return clocks


class _Clock:
    """Prints what is done, and after how many seconds."""

    def __init__(self) -> None:
        self.start = time.monotonic()

    def __call__(self, what: str) -> None:
        print(f"{time.monotonic() - self.start:6.1f} s  {what}", flush=True)
