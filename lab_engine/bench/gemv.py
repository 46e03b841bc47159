"""All matrix products of a token of the 7B, with their norms, on a Hopper GPU: one CUDA graph, no attention."""

from __future__ import annotations

from statistics import median

from lab_engine.bench.models import QWEN_7B
from lab_engine.bench.result import Measurement
from lab_engine.gemv import gemv_bytes, gemv_shapes
from lab_engine.gemv_peer import NAME

_REPLAYS = 51


def gemv_token_7b(_: str) -> Measurement:
    """Random weights; what the timed replays left is compared with float64. The peer leaves norms and sums out."""
    from lab_engine.backends.cuda import CudaBackend, GemvToken
    from lab_engine.gemv_gpu import TOLERANCE, in_turn, peer_stages, read_bandwidth, token_errors
    from lab_engine.gemv_token import random_hidden, random_weights
    from lab_engine.gpu import replay_seconds

    weights = random_weights(QWEN_7B, QWEN_7B.num_layers, "cuda")
    token = GemvToken(CudaBackend(), weights, random_hidden(QWEN_7B, "cuda"))
    times = replay_seconds(lambda: token.run(dependent=True), _REPLAYS)
    errors = token_errors(token, weights)
    peer = replay_seconds(in_turn(peer_stages(weights)), _REPLAYS)
    return Measurement(
        value=1e3 * median(times),
        passed=all(error <= TOLERANCE for error in errors.values()),
        how=f"median of {_REPLAYS} replays, {QWEN_7B.num_layers} layers and lm_head, {token_bytes()} bytes of weights, "
        f"residual stream within {errors['h']:.1e} of float64",
        limit=1e3 * token_bytes() / read_bandwidth(),
        peer=(f"PyTorch {NAME}, products alone", 1e3 * median(peer)),
    )


def token_bytes() -> int:
    """Bytes of nibbles and scales that a token of the 7B reads: 3.65 GB."""
    total = 0
    for stage, shape in gemv_shapes(QWEN_7B).items():
        found = gemv_bytes(*shape)
        total += (found.weights + found.scales) * (1 if stage == "lm_head" else QWEN_7B.num_layers)
    return total
