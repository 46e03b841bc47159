"""The recording `gemv_token`: the products of a decode step, compared with float64 in every Qwen2.5-Coder and timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lab_engine.config import QWEN2_5_CODER, ModelConfig
from lab_engine.errors import RecordingError
from lab_engine.gpu import REPLAYS, median_and_spread
from tools import h200_machine

if TYPE_CHECKING:
    from lab_engine.backends.cuda import CudaBackend
    from lab_engine.gemv_gpu import GemvToken
    from lab_engine.gemv_token import TokenWeights

SOURCES = tuple(
    f"lab_engine/kernels/{name}"
    for name in ("gemv_mma.cu", "gemv_mma.cuh", "gemv_mma_ring.cuh", "gemv_mma_x.cuh", "nibbles.cuh")
)

DEVICE = "cuda"
EDGES = {"plain": False, "dependent": True}
REPEATS = 20
DIGITS = 4  # of a time, behind the point
HEADS = 4  # calls of lm_head in one graph: each reads 281 MB, of which no cache holds much until the next
ODD = 7  # rows that every part is cut by, so that no tile is whole
LOAD = 1000  # tokens, almost a second


def record() -> tuple[dict[str, Any], dict[str, int]]:
    """Take the recording on this machine: its data, and the clocks while tokens run."""
    import torch

    h200_machine.check_device()
    found = {}
    for size, config in QWEN2_5_CODER.items():
        found[size] = correctness(size, config)
        torch.cuda.empty_cache()
    times, clocks = speed(QWEN2_5_CODER["7B"])
    shapes = {what: {size: errors[what] for size, errors in found.items()} for what in found["7B"]}
    return {**times, **shapes, "bit_identical": True, "repeats": REPEATS}, clocks


def correctness(size: str, config: ModelConfig) -> dict[str, dict[str, float]]:
    """The errors of one layer and lm_head by stage: fused (`bench_shapes`) and plain, with all rows and with fewer.

    RecordingError where one is wrong, or where two runs of the layer differ in a bit.
    """
    from lab_engine.gemv_gpu import plain_errors, stage_errors, without_last_rows

    backend, weights, token = loaded(config, 1)
    odd = without_last_rows(weights, ODD)
    found = {
        "bench_shapes": stage_errors(backend, weights),
        "odd_rows": stage_errors(backend, odd),
        "plain_shapes": plain_errors(weights),
        "plain_odd_rows": plain_errors(odd),
    }
    for what, errors in found.items():
        for stage, error in errors.items():
            check(f"{size}, {what}, {stage}", error)
    check_bits(size, token)
    return found


def loaded(config: ModelConfig, layers: int) -> tuple[CudaBackend, TokenWeights, GemvToken]:
    """A model of random weights, and a token of it on the GPU."""
    from lab_engine.backends.cuda import CudaBackend
    from lab_engine.gemv_gpu import GemvToken
    from lab_engine.gemv_token import random_hidden, random_weights

    backend, weights = CudaBackend(config), random_weights(config, layers, DEVICE)
    return backend, weights, GemvToken(backend, weights, random_hidden(config, DEVICE))


def check(what: str, error: float) -> None:
    """RecordingError for an error beyond the tolerance, NaN included."""
    from lab_engine.gemv_gpu import TOLERANCE

    if not error <= TOLERANCE:
        raise RecordingError(f"{what}: wrong by {error:.1e}, expected {TOLERANCE:.0e} or less")


def check_bits(size: str, token: GemvToken) -> None:
    """RecordingError where REPEATS runs of a token, plain and dependent in turn, do not leave the same bits."""
    left = []
    for run in range(REPEATS):
        token.run(dependent=bool(run % 2))
        left.append([x.clone() for x in (token.qkv, token.h, token.activation, token.logits, token.token_id)])
    if not all(one.equal(first) for run in left for one, first in zip(run, left[0], strict=True)):
        raise RecordingError(f"{size}: two runs of the same token differ; expected the same bits")


def speed(config: ModelConfig) -> tuple[dict[str, Any], dict[str, int]]:
    """Times of every stage and of the whole token, ours and PyTorch's; and the clocks under that load."""
    from lab_engine.gemv_gpu import TOLERANCE, read_bandwidth

    backend, weights, token = loaded(config, config.num_layers)
    data = {
        "layers": config.num_layers,
        "replays": REPLAYS,
        "tolerance": TOLERANCE,
        "read_bytes_per_second": round(read_bandwidth()),
        "forms": forms(backend, weights, token),
        "token": token_times(weights, token),
        "peer": peer(weights),
    }
    return data, clocks_under_load(token)


def forms(backend: CudaBackend, weights: TokenWeights, token: GemvToken) -> dict[str, Any]:
    """By stage: the times of a call in a graph of all layers' calls, bytes of weights, and the first layer's error."""
    from lab_engine.gemv import gemv_bytes, gemv_shapes
    from lab_engine.gemv_gpu import stage_errors

    errors, found = stage_errors(backend, weights), {}
    for stage, shape in gemv_shapes(weights.config).items():
        layers = [0] * HEADS if stage == "lm_head" else list(range(len(weights.layers)))
        times = {edge: stage_times(token, stage, layers, dependent) for edge, dependent in EDGES.items()}
        counted = gemv_bytes(*shape)
        found[stage] = {**times, "bytes": counted.weights + counted.scales, "error": errors[stage]}
    return found


def stage_times(token: GemvToken, stage: str, layers: Sequence[int], dependent: bool) -> Mapping[str, float]:
    """Microseconds of one stage, over the matrices of these layers in turn."""
    return microseconds([partial(token.run_stage, stage, layer, dependent=dependent) for layer in layers])


def token_times(weights: TokenWeights, token: GemvToken) -> dict[str, Any]:
    """Milliseconds by edge; and `errors`, the larger of both, of what the timed replays left."""
    from lab_engine.gemv_gpu import token_errors

    found: dict[str, Any] = {"errors": {}}
    for edge, dependent in EDGES.items():
        found[edge] = milliseconds(partial(token.run, dependent=dependent))
        for what, error in token_errors(token, weights).items():
            check(f"token, {edge}, {what}", error)
            found["errors"][what] = max(error, found["errors"].get(what, 0.0))
    return found


def peer(weights: TokenWeights) -> dict[str, Any]:
    """PyTorch's products: of every stage, and of the token."""
    from lab_engine.gemv_peer import peer_stages, token_work

    stages = peer_stages(weights)
    times = {stage: microseconds(calls * (HEADS if stage == "lm_head" else 1)) for stage, calls in stages.items()}
    return {**times, "token": milliseconds(token_work(stages))}


def microseconds(calls: Sequence[Callable[[], object]]) -> Mapping[str, float]:
    """A call, of all of them in one graph: the median over the replays, and the largest less the smallest."""
    from lab_engine.gpu import replay_seconds

    seconds = replay_seconds(lambda: [call() for call in calls], REPLAYS)
    return median_and_spread(seconds, len(calls), digits=DIGITS)


def milliseconds(run: Callable[[], object]) -> Mapping[str, float]:
    """The whole graph: the median over the replays, and the largest less the smallest."""
    from lab_engine.gpu import replay_seconds

    return median_and_spread(replay_seconds(run, REPLAYS), unit="ms", digits=DIGITS)


def clocks_under_load(token: GemvToken) -> dict[str, int]:
    """The clocks while tokens run."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token.run(dependent=True)

    def work() -> None:
        for _ in range(LOAD):
            graph.replay()
        torch.cuda.synchronize()

    return h200_machine.clocks_under(work)
