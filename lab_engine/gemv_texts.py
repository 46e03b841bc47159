"""What an INT4 matrix-vector product with a mistake does to the shipped model: y by row and group, and the text.

Everything is computed in float32, and y in float64. Only products of one token have the mistake: those of every step,
and the logits of a prompt. Longer prompts and the rows of the embedding are read by other kernels, rightly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.backends.torch import TorchBackend, TorchMatrix
from lab_engine.errors import NanoqwenError
from lab_engine.gemv_mistakes import GEMV_MISTAKES, group_terms, int4_matrix, misread_codes, multiply
from lab_engine.int4 import unpack_words
from lab_engine.loading import open_source
from lab_engine.mistakes import Mistake, exact_decoder
from lab_engine.running_example import RUNNING_EXAMPLE
from lab_engine.weights import Int4Matrix, Matrix

MATRIX = "model.layers.0.mlp.down_proj.weight"
ROWS = 16
NEW_TOKENS = 24


@dataclass(frozen=True)
class GemvMistakeTrace:
    """One mistake on the shipped model.

    terms: by row and group of the first ROWS rows of `matrix`, how far that group's part of y is off, as a share of
    the root mean square of y. right, wrong: what the running example is continued to, token by token, when every
    product of one token has the mistake; departs: the first wrong one, or None; margin: the smallest lead of a chosen
    token on the way of both texts.
    """

    mistake: str
    cause: str
    matrix: str
    terms: tuple[tuple[float, ...], ...]
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    departs: int | None
    margin: float

    @property
    def rows(self) -> tuple[float, ...]:
        """How far each row of y is off: the sum of its groups."""
        return tuple(sum(row) for row in self.terms)


def trace_gemv_mistake(name: str) -> GemvMistakeTrace:
    """Run the shipped model with and without a mistake (see GEMV_MISTAKES); the same on every machine."""
    if name not in GEMV_MISTAKES:
        raise NanoqwenError(f"mistake {name!r}: expected one of {', '.join(GEMV_MISTAKES)}")
    packed = int4_matrix(open_source(data_path(SHIPPED_MODEL))[0], MATRIX)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(packed.shape[1])).half()
    right = group_terms(packed, x)
    off = (group_terms(packed, x, name) - right) / right.sum(1).square().mean().sqrt()
    (right_texts, right_margin), (wrong_texts, wrong_margin) = _written("none"), _written(name)
    pairs = enumerate(zip(right_texts, wrong_texts, strict=True))
    return GemvMistakeTrace(
        mistake=name,
        cause=GEMV_MISTAKES[name],
        matrix=MATRIX,
        terms=tuple(tuple(row) for row in off[:ROWS].tolist()),
        right=right_texts,
        wrong=wrong_texts,
        departs=next((at for at, (a, b) in pairs if a != b), None),
        margin=min(right_margin, wrong_margin),
    )


@cache
def _written(mistake: str) -> tuple[tuple[str, ...], float]:
    """NEW_TOKENS tokens of the running example, and the smallest lead of one of them over the second best."""
    source, tokenizer = open_source(data_path(SHIPPED_MODEL))
    switch = Mistake(mistake, GEMV_MISTAKES.get(mistake, ""), "03_gemv", backend=_backend(mistake))
    decoder = exact_decoder(source, tokenizer, 12, switch)
    texts: list[str] = []
    leads: list[float] = []
    logits = decoder.prefill(tokenizer.encode(RUNNING_EXAMPLE.prompt))
    for _ in range(NEW_TOKENS):
        known = logits[: tokenizer.vocab_size]
        token_id, (first, second) = decoder.backend.argmax(known), known.topk(2).values.tolist()
        texts.append(tokenizer.token_text(token_id))
        leads.append(first - second)
        logits = decoder.step(token_id)
    return tuple(texts), min(leads)


@dataclass(frozen=True)
class _Unpacked(TorchMatrix):
    """A matrix and what a broken GEMV makes of its codes and scales, float32."""

    codes: Tensor
    scales: Tensor


def _backend(mistake: str) -> type[TorchBackend]:
    class GemvBackend(TorchBackend):
        """A backend whose products of one token are `gemv` with the mistake."""

        def load_matrix(self, parts: list[Matrix]) -> TorchMatrix:
            """All parts below each other, as the product takes them."""
            packed = [part for part in parts if isinstance(part, Int4Matrix)]
            q = unpack_words(torch.cat([part.words for part in packed]))
            return _Unpacked(
                parts, len(q), None, None, *misread_codes(q, torch.cat([p.scales for p in packed]), mistake)
            )

        def linear(self, x: Tensor, matrix: TorchMatrix) -> Tensor:
            """The mistake for one token, the engine's own product for more."""
            if len(x) > 1 or not isinstance(matrix, _Unpacked):
                return super().linear(x, matrix)
            return multiply(matrix.codes, matrix.scales, x[0], mistake)[None]

    return GemvBackend
