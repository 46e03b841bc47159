"""All matrix products of a token of the 7B, with their norms, on a Hopper GPU: one CUDA graph, no attention."""

from __future__ import annotations

from statistics import median

from lab_engine.backends.cuda import CudaBackend
from lab_engine.bench.models import QWEN_7B
from lab_engine.bench.result import Measurement
from lab_engine.config import ModelConfig
from lab_engine.gemv import gemv_bytes, gemv_shapes
from lab_engine.gemv_gpu import TOLERANCE, GemvToken, read_bandwidth, token_errors
from lab_engine.gemv_peer import NAME, peer_stages, token_work
from lab_engine.gemv_token import random_hidden, random_weights
from lab_engine.gpu import REPLAYS, replay_seconds

_DEVICE = "cuda"


def gemv_token_7b(_: str) -> Measurement:
    """Random weights; what the timed replays left is compared with float64. The peer leaves norms and sums out."""
    weights = random_weights(QWEN_7B, QWEN_7B.num_layers, _DEVICE)
    token = GemvToken(CudaBackend(QWEN_7B), weights, random_hidden(QWEN_7B, _DEVICE))
    times = replay_seconds(lambda: token.run(dependent=True), REPLAYS)
    errors = token_errors(token, weights)
    peer = replay_seconds(token_work(peer_stages(weights)), REPLAYS)
    num_bytes = token_bytes(QWEN_7B)
    return Measurement(
        value=1e3 * median(times),
        passed=all(error <= TOLERANCE for error in errors.values()),
        how=f"median of {REPLAYS} replays, {QWEN_7B.num_layers} layers and lm_head, {num_bytes} bytes of weights, "
        f"residual stream within {errors['h']:.1e} of float64",
        limit=1e3 * num_bytes / read_bandwidth(),
        peer=(f"PyTorch {NAME}, products alone", 1e3 * median(peer)),
    )


def token_bytes(config: ModelConfig) -> int:
    """Bytes of nibbles and scales that the products of a token read.

    >>> token_bytes(QWEN_7B)
    3645616128
    """
    total = 0
    for stage, shape in gemv_shapes(config).items():
        found = gemv_bytes(*shape)
        total += (found.weights + found.scales) * (1 if stage == "lm_head" else config.num_layers)
    return total
