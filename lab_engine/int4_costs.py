"""What INT4 costs: the error of every matrix, and bytes, logits and text for group sizes, methods and INT8.

    relative error = rms(w' - w) / rms(w)        w' = what the codes stand for

The errors are computed here in a few seconds. What they do to logits and text takes minutes: `tools/measure_int4.py`
measured it once and data/int4_costs.json holds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lab_engine import data_path
from lab_engine.config import GROUP
from lab_engine.errors import FileFormatError, NanoqwenError
from lab_engine.int4 import METHODS, quantize_groups
from lab_engine.weights import WeightSource

COSTS_FILE = "int4_costs.json"
MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
_METHODS = {4: METHODS, 8: ("absmax127",)}
_SCALE_BYTES = 2


@dataclass(frozen=True)
class Variant:
    """One way to round a matrix: 4 bits by a method of quantize_groups, or 8 bits by `absmax127` (scale max|w|/127).

    group: weights that share a scale; None for a whole row. Raises NanoqwenError for bits, a method of these bits, or a
    group that there is not.
    """

    bits: int
    method: str
    group: int | None = GROUP

    def __post_init__(self) -> None:
        if self.bits not in _METHODS:
            raise NanoqwenError(f"bits: found {self.bits!r}, expected 4 or 8")
        if self.method not in (known := _METHODS[self.bits]):
            raise NanoqwenError(f"method of INT{self.bits}: found {self.method!r}, expected {' or '.join(known)}")
        if self.group is not None and (type(self.group) is not int or self.group < 1):
            raise NanoqwenError(f"group: found {self.group!r}, expected a number of weights, or None for a whole row")

    @property
    def name(self) -> str:
        """`INT4 search, group 128`, `INT4 absmax7, whole row`."""
        size = "whole row" if self.group is None else f"group {self.group}"
        return f"INT{self.bits} {self.method}, {size}"

    def bytes_of(self, rows: int, k: int) -> int:
        """Bytes of a matrix (rows, k): its codes, and 2 for the fp16 scale of each group."""
        return rows * k * self.bits // 8 + rows * (k // (self.group or k)) * _SCALE_BYTES

    def apply(self, weight: Tensor) -> Tensor:
        """The weights that the codes stand for: floating (rows, k) -> float32 (rows, k).

        Raises NanoqwenError where k is no multiple of the group, for NaN or inf, and for a scale over 65504.
        """
        if weight.ndim != 2 or 0 in weight.shape or weight.shape[1] % (self.group or 1):
            whole = f" with k a multiple of {self.group}" if self.group else ""
            raise NanoqwenError(f"weight of shape {tuple(weight.shape)}: expected (rows, k){whole}")
        rows, k = weight.shape
        groups = weight.detach().float().reshape(rows, -1, self.group or k)
        q, scales = _int8_groups(groups) if self.bits == 8 else quantize_groups(groups, self.method)
        return (q.float() * scales.float().unsqueeze(-1)).reshape(rows, k)


INT8 = Variant(8, "absmax127")
VARIANTS = (
    *(Variant(4, method, group) for method in ("absmax7", "search") for group in (32, 64, GROUP, None)),
    INT8,
)
"""The variants of the table: group sizes for the plain and for the shipped method, and INT8 beside them."""


def _int8_groups(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Codes -127..127 for scales max|w| / 127, rounded to fp16 first."""
    scales = (groups.abs().amax(dim=-1) / 127).half()
    if not torch.isfinite(scales).all():
        raise NanoqwenError(
            f"largest weight {float(groups.abs().max()):g}: found a scale that is no finite fp16 number"
        )
    divisor = scales.float().unsqueeze(-1)
    q = (groups / torch.where(divisor == 0, torch.inf, divisor)).round().clamp(-127, 127)
    return q.to(torch.int8), scales


def relative_error(weight: Tensor, rounded: Tensor) -> float:
    """rms(rounded - weight) / rms(weight), summed in float64; 0 for a matrix of zeros that stays one."""
    error, size = _squares(weight, rounded)
    return (error / size) ** 0.5 if error else 0.0


def _squares(weight: Tensor, rounded: Tensor) -> tuple[float, float]:
    return float((rounded.double() - weight.double()).square().sum()), float(weight.double().square().sum())


@dataclass(frozen=True)
class MatrixError:
    """The relative error of one matrix. layer is None for the embedding, which is also the output head."""

    layer: int | None
    matrix: str
    error: float


def matrix_errors(source: WeightSource, variant: Variant = Variant(4, "search")) -> tuple[MatrixError, ...]:
    """The error of every matrix, layer by layer, then the embedding; about two seconds for the shipped model."""
    return tuple(
        MatrixError(layer, matrix, relative_error(weight, variant.apply(weight)))
        for layer, matrix, weight in _matrices(source)
    )


def total_error(source: WeightSource, variant: Variant) -> float:
    """The relative error of all matrices taken as one list of weights."""
    parts = [_squares(weight, variant.apply(weight)) for _, _, weight in _matrices(source)]
    error, size = (sum(column) for column in zip(*parts, strict=True))
    return float((error / size) ** 0.5)


def bytes_per_weight(source: WeightSource, variant: Variant) -> float:
    """Bytes of codes and scales over the weights of all matrices: 0.5 + 2 / group for INT4."""
    shapes = [weight.shape for _, _, weight in _matrices(source)]
    return sum(variant.bytes_of(*shape) for shape in shapes) / sum(rows * k for rows, k in shapes)


def _matrices(source: WeightSource) -> Iterator[tuple[int | None, str, Tensor]]:
    for layer in range(source.config.num_layers):
        for matrix in MATRICES:
            block = "self_attn" if matrix in "qkvo" else "mlp"
            yield layer, matrix, source.matrix(f"model.layers.{layer}.{block}.{matrix}_proj.weight").float()
    yield None, "embed", source.matrix("model.embed_tokens.weight").float()


def normal_error(method: str = "absmax7", group: int = GROUP) -> float:
    """The relative error of normal weights: what theory expects of a matrix. Seeded.

    absmax7: 11.7 % in groups of 128, 10.8 % of 64, 9.7 % of 32; absmax8 in groups of 128: 10.3 %.
    """
    groups = torch.randn(8192, group, generator=torch.Generator().manual_seed(0)) * 0.02
    q, scales = quantize_groups(groups, method)
    return relative_error(groups, q.float() * scales.float().unsqueeze(-1))


@dataclass(frozen=True)
class Cost:
    """What a variant costs the shipped model, against its 16-bit weights on held-out Python.

    relative_error of all matrices, matrix_error of the one that Costs names; mean_kl in nats a token; bits_per_byte
    of the text; top1_agreement: the share of tokens, 0 to 1, whose most likely successor stays the same.
    """

    variant: Variant
    bytes_per_weight: float
    relative_error: float
    matrix_error: float
    mean_kl: float
    bits_per_byte: float
    top1_agreement: float


@dataclass(frozen=True)
class Costs:
    """data/int4_costs.json. baseline: bits a byte of the 16-bit weights; provenance: how and from what it was made."""

    rows: tuple[Cost, ...]
    baseline: float
    matrix: str
    provenance: Mapping[str, Any]

    @property
    def badge_source(self) -> str:
        """`python -m tools.measure_int4, 32,000 bytes of held-out Python`."""
        text = self.provenance["text"]
        return f"{self.provenance['command']}, {text['bytes']:,} bytes of {text['what']}"


def load_costs() -> Costs:
    """The measured table. Raises FileFormatError for a file that is not one."""
    path = data_path(COSTS_FILE)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = tuple(Cost(**{**row, "variant": Variant(**row["variant"])}) for row in data["rows"])
        return Costs(rows, data["baseline_bits_per_byte"], data["matrix"], data["provenance"])
    except (ValueError, KeyError, TypeError) as error:
        found = f"{type(error).__name__}: {error}"
        raise FileFormatError(f"{path}: not a table of costs ({found}); run python -m tools.measure_int4") from None
