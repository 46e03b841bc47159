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

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lab_engine.config import GROUP, ModelConfig
from lab_engine.weights import Int4Matrix, LayerWeights

STAGES = ("qkv", "o", "gate_up", "down")
"""The products of a layer in their order; lm_head follows the last one."""

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


@dataclass(frozen=True)
class Reference:
    """Stages in float64, of inputs of any dtype: h (hidden_size,), attention (q_size,), activation as gate_up gives."""

    weights: TokenWeights

    def qkv(self, layer: int, h: Tensor) -> Tensor:
        """(q_size + 2 kv_size,)."""
        found = self.weights.layers[layer]
        return product(found.qkv, self._norm(h, found.input_norm)) + found.qkv_bias

    def o(self, layer: int, attention: Tensor, h: Tensor) -> Tensor:
        """The residual stream after attention: (hidden_size,)."""
        return h.double() + product(self.weights.layers[layer].o, attention)

    def gate_up(self, layer: int, h: Tensor) -> Tensor:
        """(intermediate_size,)."""
        found = self.weights.layers[layer]
        gate, up = product(found.gate_up, self._norm(h, found.post_attention_norm)).chunk(2)
        return F.silu(gate) * up

    def down(self, layer: int, activation: Tensor, h: Tensor) -> Tensor:
        """The residual stream after the layer: (hidden_size,)."""
        return h.double() + product(self.weights.layers[layer].down, activation)

    def logits(self, h: Tensor) -> Tensor:
        """(vocab_size,)."""
        return product(self.weights.lm_head, self._norm(h, self.weights.norm))

    def token(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """All stages of all layers: the residual stream after the last one, and the logits."""
        for layer in range(len(self.weights.layers)):
            h = self.o(layer, self.qkv(layer, h)[: self.weights.config.q_size], h)
            h = self.down(layer, self.gate_up(layer, h), h)
        return h, self.logits(h)

    def _norm(self, h: Tensor, weight: Tensor) -> Tensor:
        h = h.double()
        return h * torch.rsqrt(h.square().mean() + self.weights.config.rms_norm_eps) * weight.double()


def product(parts: Sequence[Int4Matrix], x: Tensor) -> Tensor:
    """All parts times x, in float64: (rows,)."""
    x, pieces = x.double(), []
    for part in parts:
        for start in range(0, part.shape[0], _ROWS):
            rows = slice(start, start + _ROWS)
            pieces.append(Int4Matrix(part.words[rows], part.scales[rows]).float().double() @ x)
    return torch.cat(pieces)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """|found - expected| / |expected|, both as Euclidean lengths; NaN where a number is NaN."""
    return float((found.double() - expected).norm() / expected.norm())


def choice_error(token_id: int, logits: Tensor) -> float:
    """0 where a token id is the lowest of those with the largest logit; inf where it is not, or where one is NaN."""
    largest = (logits == logits.max()).nonzero()
    return 0.0 if len(largest) and token_id == int(largest[0]) else math.inf
