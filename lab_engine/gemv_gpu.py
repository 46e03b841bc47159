"""The products of a token on this machine's GPU: are they right, and how long do they take beside PyTorch's?

A stage is timed over the matrices of all layers, one call after another inside a CUDA graph, so no weight is found in
the GPU's own cache and no time is the host's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lab_engine import gemv_ladder
from lab_engine.errors import NanoqwenError
from lab_engine.gemv_token import (
    STAGES,
    Reference,
    TokenWeights,
    choice_error,
    product,
    random_matrix,
    relative_error,
)
from lab_engine.gpu import COLD_BYTES, Kernels, call_us, multiprocessors, replay_seconds
from lab_engine.weights import Int4Matrix, LayerWeights

if TYPE_CHECKING:
    from lab_engine.backends.cuda import CudaBackend

TOLERANCE = 1e-3
"""Relative error up to which a stage, and the residual stream after a token, count as right."""


class GemvToken:
    """All products of a token, with their norms, on buffers that stay where they are: `run` may be captured in a graph.

    h float32 (hidden_size,) is the residual stream, qkv (q_size + 2 kv_size,), activation (intermediate_size,),
    logits (vocab_size,), token_id int64 (1,). start is what enters the first layer.
    """

    def __init__(self, backend: CudaBackend, weights: TokenWeights, start: Tensor) -> None:
        """Load the weights into the backend; they are not kept here."""
        config = weights.config
        self.backend, self.start = backend, start
        self.layers = tuple(_loaded(backend, layer) for layer in weights.layers)
        self.norm, self.lm_head = backend.load_vector(weights.norm), backend.load_matrix(weights.lm_head)
        self.h = torch.empty_like(start)
        self.qkv = start.new_empty(config.q_size + 2 * config.kv_size)
        self.attention = self.qkv[: config.q_size]
        self.activation = start.new_empty(config.intermediate_size)
        self.logits = start.new_empty(config.vocab_size)
        self.token_id = torch.zeros(1, dtype=torch.int64, device=start.device)

    def run(self, *, dependent: bool) -> None:
        """From start to token_id; dependent: every kernel but the first, which has a copy before it."""
        self.h.copy_(self.start)
        for layer in range(len(self.layers)):
            for stage in STAGES:
                self.run_stage(stage, layer, dependent=dependent and (layer, stage) != (0, "qkv"))
        self.run_stage("lm_head", 0, dependent=dependent)

    def run_stage(self, stage: str, layer: int, *, dependent: bool) -> None:
        """One kernel, on what the buffers hold."""
        found, ops = self.layers[layer], self.backend
        if stage == "qkv":
            ops.qkv(found.qkv, self.h, found.input_norm, found.qkv_bias, self.qkv, dependent=dependent)
        elif stage == "o":
            ops.o(found.o, self.attention, self.h, dependent=dependent)
        elif stage == "gate_up":
            ops.gate_up(found.gate_up, self.h, found.post_attention_norm, self.activation, dependent=dependent)
        elif stage == "down":
            ops.down(found.down, self.activation, self.h, dependent=dependent)
        else:
            ops.lm_head(self.lm_head, self.h, self.norm, self.logits, self.token_id, dependent=dependent)


def _loaded(backend: CudaBackend, layer: LayerWeights) -> LayerWeights:
    return LayerWeights(
        input_norm=backend.load_vector(layer.input_norm),
        qkv=backend.load_matrix(layer.qkv),
        qkv_bias=backend.load_vector(layer.qkv_bias),
        o=backend.load_matrix(layer.o),
        post_attention_norm=backend.load_vector(layer.post_attention_norm),
        gate_up=backend.load_matrix(layer.gate_up),
        down=backend.load_matrix(layer.down),
    )


def stage_errors(backend: CudaBackend, weights: TokenWeights) -> dict[str, float]:
    """The error of each stage, in the first layer and lm_head, against float64 of the same random inputs.

    Relative Euclidean errors, NaN where a stage gives one; inf where lm_head chose another id than its logits say.
    """
    layer, head, reference = weights.layers[0], weights.lm_head, Reference(weights)
    device = layer.input_norm.device
    generator = torch.Generator(device).manual_seed(2)

    def random(n: int) -> Tensor:
        return torch.randn(n, generator=generator, device=device)

    h, attention, activation = (random(parts[0].shape[1]) for parts in (layer.qkv, layer.o, layer.down))
    found = {stage: random(_rows(getattr(layer, stage)) // (2 if stage == "gate_up" else 1)) for stage in STAGES}
    logits, token_id = random(_rows(head)), torch.zeros(1, dtype=torch.int64, device=device)
    expected = {  # first: o and down add to what they find
        "qkv": reference.qkv(0, h),
        "o": reference.o(0, attention, found["o"]),
        "gate_up": reference.gate_up(0, h),
        "down": reference.down(0, activation, found["down"]),
    }
    backend.qkv(backend.load_matrix(layer.qkv), h, layer.input_norm, layer.qkv_bias, found["qkv"])
    backend.o(backend.load_matrix(layer.o), attention, found["o"])
    backend.gate_up(backend.load_matrix(layer.gate_up), h, layer.post_attention_norm, found["gate_up"])
    backend.down(backend.load_matrix(layer.down), activation, found["down"])
    backend.lm_head(backend.load_matrix(head), h, weights.norm, logits, token_id)
    errors = {stage: relative_error(found[stage], expected[stage]) for stage in STAGES}
    choice = choice_error(int(token_id), logits)
    return errors | {"lm_head": relative_error(logits, reference.logits(h)) + choice}


def plain_errors(weights: TokenWeights) -> dict[str, float]:
    """As stage_errors, of the bare product W x with x in float16: the form that is a rung of the ladder."""
    layer, found = weights.layers[0], {}
    for stage, parts in {**{stage: getattr(layer, stage) for stage in STAGES}, "lm_head": weights.lm_head}.items():
        words, scales = (torch.cat([getattr(part, name) for part in parts]) for name in ("words", "scales"))
        generator = torch.Generator(words.device).manual_seed(3)
        x = torch.randn(parts[0].shape[1], generator=generator, device=words.device).to(torch.float16)
        found[stage] = relative_error(gemv_ladder.load("mma", words, scales)(x), product(parts, x))
    return found


def without_last_rows(weights: TokenWeights, cut: int) -> TokenWeights:
    """The first layer alone, every part of every matrix `cut` rows shorter: for kernels that expect whole tiles."""
    layer = weights.layers[0]
    matrices: dict[str, Any] = {stage: [_shorter(part, cut) for part in getattr(layer, stage)] for stage in STAGES}
    biases = torch.split(layer.qkv_bias, [part.shape[0] for part in layer.qkv])
    bias = torch.cat([part[: len(part) - cut] for part in biases])
    head = [_shorter(part, cut) for part in weights.lm_head]
    return replace(weights, layers=(replace(layer, qkv_bias=bias, **matrices),), lm_head=head)


def _shorter(part: Int4Matrix, cut: int) -> Int4Matrix:
    return Int4Matrix(part.words[: len(part.words) - cut], part.scales[: len(part.scales) - cut])


def _rows(parts: Sequence[Int4Matrix]) -> int:
    return sum(part.shape[0] for part in parts)


def token_errors(token: GemvToken, weights: TokenWeights) -> dict[str, float]:
    """How wrong is what the last token left: the residual stream after the last layer (`h`), and the logits.

    inf for the logits where the chosen id is not that of the largest, the lowest of equals.
    """
    h, logits = Reference(weights).token(token.start)
    choice = choice_error(int(token.token_id), token.logits)
    return {"h": relative_error(token.h, h), "logits": relative_error(token.logits, logits) + choice}


def cold_matrices(n: int, k: int) -> tuple[list[Int4Matrix], Tensor]:
    """Random matrices (n, k) on the GPU, in turn never found in its cache, and an x float16 (k,)."""
    generator = torch.Generator("cuda").manual_seed(0)
    matrices = [random_matrix(n, k, generator) for _ in range(4)]
    while sum(matrix.num_bytes for matrix in matrices) < COLD_BYTES:
        matrices.append(random_matrix(n, k, generator))
    return matrices, torch.randn(k, generator=generator, device="cuda").to(torch.float16)


class LadderBench:
    """One matrix shape for every rung of the ladder, in as many copies as no cache of a GPU holds."""

    def __init__(self, n: int = 3584, k: int = 18944) -> None:
        """The default is the 7B's `down`. Raises ToolchainError where there is no GPU."""
        multiprocessors()
        self.matrices, self.x = cold_matrices(n, k)
        self.expected = product(self.matrices[:1], self.x)

    def run(self, name: str) -> tuple[float, float, float]:
        """A rung's relative error, microseconds a product, and bytes of weights and scales a second."""
        rungs = [gemv_ladder.load(name, matrix.words, matrix.scales) for matrix in self.matrices]
        error = relative_error(rungs[0](self.x), self.expected)
        us = call_us([partial(rung, self.x) for rung in rungs])
        return error, us, self.matrices[0].num_bytes / us * 1e6


@cache
def read_bandwidth() -> float:
    """Bytes a second that this GPU reads at best: 2 GiB of random words, the best of 9 replays."""
    kernels, out = Kernels("read.cu"), torch.zeros(1, dtype=torch.int32, device="cuda")
    words = torch.empty(1 << 29, dtype=torch.int32, device="cuda").random_()

    def read() -> None:
        kernels.launch("read_all", 4 * multiprocessors(), 512, words, out, words.numel() // 4)

    read()
    if int(out) != _xor(words):
        raise NanoqwenError("read.cu: the XOR of what it read is wrong, so there is no rate")
    return words.nbytes / min(replay_seconds(read, 9))


def _xor(words: Tensor) -> int:
    """The XOR of a power of two of words, by halving."""
    while len(words) > 1:
        half = len(words) // 2
        words = words[:half] ^ words[half:]
    return int(words)
