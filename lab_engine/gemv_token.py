"""The matrix products of a token as a decode step fuses them, with random weights and in float64.

    qkv      W · norm(h) + bias
    o        h + W · attention         the first q_size numbers of qkv stand in for attention, which is not a product
    gate_up  silu(gate) * up           gate and up: the two halves of W · norm(h)
    down     h + W · activation
    lm_head  W · norm(h)               the id of the largest logit, the lowest of equals

Shapes: h float32 (hidden_size,); a matrix is a list of packed parts whose rows follow one another. Nothing here needs a
GPU, and all of it runs where its tensors are. What breaks a test with it: weights that are not 0 on average make h
grow through the layers, until h alone decides the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lab_engine.config import GROUP, ModelConfig
from lab_engine.weights import Int4Matrix, LayerWeights

_SPREAD = 17.5**0.5  # of the codes -7..7, of which 0 comes twice as often as each other one
_ROWS = 1 << 13  # multiplied at once: 8192 rows of the 32B's down are 1.8 GB in float64


@dataclass(frozen=True)
class TokenWeights:
    """What the products of a token read. Each matrix is a list of Int4Matrix: q, k, v; gate, up; or one part.

    There may be fewer layers than config says.
    """

    config: ModelConfig
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    lm_head: list[Int4Matrix]


def random_weights(config: ModelConfig, layers: int, device: str, seed: int = 0) -> TokenWeights:
    """Weights of 0 on average that keep the size of what they multiply, with another scale in every group."""
    generator = torch.Generator(device).manual_seed(seed)
    hidden, intermediate = config.hidden_size, config.intermediate_size

    def matrix(k: int, *rows: int) -> list[Int4Matrix]:
        return [random_matrix(n, k, generator) for n in rows]

    def vector(n: int, mean: float) -> Tensor:
        return mean + 0.1 * torch.randn(n, generator=generator, device=device)

    def layer() -> LayerWeights:
        return LayerWeights(
            input_norm=vector(hidden, 1.0),
            qkv=matrix(hidden, config.q_size, config.kv_size, config.kv_size),
            qkv_bias=vector(config.q_size + 2 * config.kv_size, 0.0),
            o=matrix(config.q_size, hidden),
            post_attention_norm=vector(hidden, 1.0),
            gate_up=matrix(hidden, intermediate, intermediate),
            down=matrix(intermediate, hidden),
        )

    made = tuple(layer() for _ in range(layers))
    return TokenWeights(config, made, vector(hidden, 1.0), matrix(hidden, config.vocab_size))


def random_matrix(n: int, k: int, generator: torch.Generator) -> Int4Matrix:
    """Codes -7..7 as random words, and scales that differ by a factor of up to 3, where the generator is."""
    device = generator.device
    words = torch.empty(n, k // 8, dtype=torch.int32, device=device).random_(-(2**31), 2**31, generator=generator)
    any_bit = words | words >> 1 | words >> 2 | words >> 3
    words |= (~any_bit & 0x11111111) << 3  # a nibble of 0 would be the code -8, and the mean of all -0.5
    scales = torch.rand(n, k // GROUP, generator=generator, device=device) + 0.5
    return Int4Matrix(words, (scales / (_SPREAD * k**0.5)).to(torch.float16))


def random_hidden(config: ModelConfig, device: str, seed: int = 1) -> Tensor:
    """A residual stream that enters the first layer: float32 (hidden_size,)."""
    return torch.randn(config.hidden_size, generator=torch.Generator(device).manual_seed(seed), device=device)


def product(parts: Sequence[Int4Matrix], x: Tensor) -> Tensor:
    """All parts times x, in float64: (rows,)."""
    x, pieces = x.double(), []
    for part in parts:
        for start in range(0, part.shape[0], _ROWS):
            rows = slice(start, start + _ROWS)
            pieces.append(Int4Matrix(part.words[rows], part.scales[rows]).float().double() @ x)
    return torch.cat(pieces)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm in float64."""
    return F.rms_norm(x.double(), weight.shape, weight.double(), eps)


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up of the joined product, gate first."""
    gate, up = gate_up.chunk(2)
    return F.silu(gate) * up


@dataclass(frozen=True)
class TokenReference:
    """What a token should give: the residual stream after the last layer, and all logits, float64."""

    hidden: Tensor
    logits: Tensor


def reference_token(weights: TokenWeights, hidden: Tensor) -> TokenReference:
    """All products and norms of a token in float64, from h float32 (hidden_size,)."""
    config, h = weights.config, hidden.double()
    for layer in weights.layers:
        qkv = product(layer.qkv, norm(h, layer.input_norm, config.rms_norm_eps)) + layer.qkv_bias
        h = h + product(layer.o, qkv[: config.q_size])
        gate_up = product(layer.gate_up, norm(h, layer.post_attention_norm, config.rms_norm_eps))
        h = h + product(layer.down, silu_mul(gate_up))
    return TokenReference(h, product(weights.lm_head, norm(h, weights.norm, config.rms_norm_eps)))


def relative_error(found: Tensor, expected: Tensor) -> float:
    """|found - expected| / |expected|, both as Euclidean lengths; NaN where a number is NaN."""
    return float((found.double() - expected).norm() / expected.norm())


def is_largest(token_id: int, logits: Tensor, tolerance: float) -> bool:
    """Whether a token id is that of the largest logit, or of one nearer to it than tolerance * the largest size."""
    if not 0 <= token_id < len(logits):
        return False
    return bool(logits.max() - logits[token_id] <= tolerance * logits.abs().max())
