"""PyTorch's own INT4 product on an NVIDIA GPU, `_weight_int4pack_mm`: what our kernels are compared with.

It takes and gives bfloat16, in which scales are rounded too. The operators are private; torchao uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from lab_engine.config import GROUP
from lab_engine.errors import NanoqwenError, ToolchainError
from lab_engine.gemv_token import STAGES, TokenWeights, product, relative_error
from lab_engine.int4 import unpack_words
from lab_engine.weights import Int4Matrix

Work = Callable[[], object]

NAME = "_weight_int4pack_mm"
TOLERANCE = 2e-2
"""Relative error up to which its product counts as right: two roundings to 8 bits, of the scales and of x."""

_INNER_TILES = 8  # the layout that torchao chooses
_ROWS = 1 << 14  # unpacked at once; whole tiles of 8 rows, so that pieces can be packed apart and joined


def load(parts: Sequence[Int4Matrix]) -> Callable[[Tensor], Tensor]:
    """Pack all parts for the operator; the result takes x bfloat16 (1, k) and gives (1, rows), capturable.

    Raises ToolchainError where PyTorch has no such operator.
    """
    words, scales = (torch.cat([getattr(part, name) for part in parts]) for name in ("words", "scales"))
    if not hasattr(torch.ops.aten, NAME):
        raise ToolchainError(f"peer: PyTorch {torch.__version__} has no {NAME}")
    packed = torch.cat([_packed(words[start : start + _ROWS]) for start in range(0, len(words), _ROWS)])
    by_group = scales.to(torch.bfloat16).T
    scales_and_zeros = torch.stack([by_group, torch.zeros_like(by_group)], dim=-1).contiguous()

    def multiply(x: Tensor) -> Tensor:
        out: Tensor = torch.ops.aten._weight_int4pack_mm(x, packed, GROUP, scales_and_zeros)
        return out

    return multiply


def nibble_pairs(words: Tensor) -> Tensor:
    """int32 `value_shuffle` words (rows, k // 8) -> uint8 (rows, k // 2): weight 2i in the high half of byte i."""
    nibbles = (unpack_words(words) + 8).to(torch.uint8)
    return nibbles[:, ::2] << 4 | nibbles[:, 1::2]


def _packed(words: Tensor) -> Tensor:
    packed: Tensor = torch.ops.aten._convert_weight_to_int4pack(nibble_pairs(words), _INNER_TILES)
    return packed


def peer_stages(weights: TokenWeights) -> dict[str, list[Work]]:
    """PyTorch's products by stage, one call a layer, each from an input of its own; ToolchainError where it has none.

    Norms, biases and sums are left out: the peer does less than ours.
    """
    found = {stage: [_peer_call(getattr(layer, stage)) for layer in weights.layers] for stage in STAGES}
    return found | {"lm_head": [_peer_call(weights.lm_head)]}


def _peer_call(parts: list[Int4Matrix]) -> Work:
    multiply = load(parts)
    x = torch.randn(1, parts[0].shape[1], device=parts[0].words.device).to(torch.bfloat16)
    error = relative_error(multiply(x)[0], product(parts, x[0]))
    if not error <= TOLERANCE:
        raise NanoqwenError(f"peer {NAME}: wrong by {error:.1e}, expected {TOLERANCE:.0e} or less")
    return lambda: multiply(x)


def token_work(stages: Mapping[str, Sequence[Work]]) -> Work:
    """The calls of a token in their order: layer by layer, then lm_head."""
    layers = zip(*(stages[stage] for stage in STAGES), strict=True)
    calls = [call for layer in layers for call in layer] + list(stages["lm_head"])
    return lambda: [call() for call in calls]
