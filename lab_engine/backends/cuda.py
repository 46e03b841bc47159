"""The CUDA backend, for NVIDIA Hopper: so far the matrix products of a decode step, without attention and cache.

Each product is one kernel of kernels/gemv_mma.cu, with what comes before it (the norm) and after it (bias, silu * up,
the sum with the residual stream, argmax). All vectors are float32 on the GPU and stay where they are, so every call can
be captured in a CUDA graph. h is the residual stream (hidden_size,).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

import torch
from torch import Tensor

from lab_engine import gemv_mma
from lab_engine.config import ModelConfig
from lab_engine.errors import BackendError
from lab_engine.gemv_mma import MmaMatrix, interleave, pack_tiles, plan
from lab_engine.gpu import multiprocessors
from lab_engine.weights import Int4Matrix, Matrix

NOT_YET = "this version has the matrix products of a decode step, but not yet its attention and KV cache"

_PIECE_WEIGHTS = 1 << 24  # joined, moved and packed at once: 8 MiB


class CudaBackend:
    """The operations that a token needs besides attention. `dependent`: launch without waiting for the kernel before.

    Bad shapes, dtypes and devices are refused by name as NanoqwenError.
    """

    name = "cuda"

    def __init__(self, config: ModelConfig) -> None:
        """Raises BackendError where the products cannot run here."""
        if problem := missing():
            raise BackendError(f"backend cuda: cannot run here: {problem}")
        self.device = torch.device("cuda")
        self._eps = config.rms_norm_eps

    def load_matrix(self, parts: Sequence[Matrix]) -> MmaMatrix:
        """The parts as one matrix in tiles for this GPU; two parts are gate and up, whose rows come in turn."""
        return load_tiles(parts, multiprocessors(), self.device)

    def load_vector(self, vector: Tensor) -> Tensor:
        """A norm weight or bias in float32."""
        return vector.to(self.device, torch.float32)

    def qkv(
        self, matrix: MmaMatrix, h: Tensor, norm: Tensor, bias: Tensor, out: Tensor, *, dependent: bool = False
    ) -> None:
        """out (rows,) = W · norm(h) + bias."""
        gemv_mma.qkv(h, norm, self._eps, matrix, bias, out, dependent)

    def o(self, matrix: MmaMatrix, x: Tensor, h: Tensor, *, dependent: bool = False) -> None:
        """h += W · x."""
        gemv_mma.o(x, matrix, h, dependent)

    def gate_up(self, matrix: MmaMatrix, h: Tensor, norm: Tensor, out: Tensor, *, dependent: bool = False) -> None:
        """out (intermediate_size,) = silu(gate) * up, of W · norm(h)."""
        gemv_mma.gate_up(h, norm, self._eps, matrix, out, dependent)

    def down(self, matrix: MmaMatrix, x: Tensor, h: Tensor, *, dependent: bool = False) -> None:
        """h += W · x."""
        gemv_mma.down(x, matrix, h, dependent)

    def lm_head(
        self, matrix: MmaMatrix, h: Tensor, norm: Tensor, logits: Tensor, token_id: Tensor, *, dependent: bool = False
    ) -> None:
        """logits (vocab_size,) = W · norm(h); token_id int64 (1,): that of the largest, the lowest of equals."""
        gemv_mma.lm_head(h, norm, self._eps, matrix, logits, token_id, dependent)


def load_tiles(parts: Sequence[Matrix], sms: int, device: torch.device) -> MmaMatrix:
    """Join the rows of all parts, and pack them on a device for that many SMs, a few blocks of the kernel at a time.

    Besides the parts and the result, memory for 16 M weights is taken. Raises BackendError for a part that is not
    packed, or that does not fit the others.
    """
    packed = _checked(parts)
    chosen = plan(sum(part.shape[0] for part in packed), packed[0].shape[1], sms)
    block_rows = chosen.rows * chosen.tiles
    owners = chosen.blocks // chosen.parts  # of other rows: a block, or the blocks that share a long row
    owner_bytes = chosen.parts * chosen.tiles * chosen.groups * chosen.unit_bytes
    tiles = torch.empty(owners, owner_bytes, dtype=torch.uint8, device=device)
    step = max(_PIECE_WEIGHTS // (block_rows * chosen.k), 1)
    for first in range(0, owners, step):
        rows = range(first * block_rows, min((first + step) * block_rows, chosen.n))
        words = _joined([part.words for part in packed], rows).to(device)
        scales = _joined([part.scales for part in packed], rows).to(device)
        tiles[first : first + step] = pack_tiles(words, scales, replace(chosen, n=len(rows))).view(-1, owner_bytes)
    return MmaMatrix(tiles.flatten(), chosen, torch.zeros(2, dtype=torch.int64, device=device))


def _joined(parts: Sequence[Tensor], rows: range) -> Tensor:
    """These rows of the joined matrix; where there are two parts, of their rows in turn."""
    if len(parts) == 2:
        half = slice(rows.start // 2, rows.stop // 2)
        return interleave(parts[0][half], parts[1][half])
    pieces, before = [], 0
    for part in parts:
        pieces.append(part[max(rows.start - before, 0) : max(rows.stop - before, 0)])
        before += len(part)
    return torch.cat(pieces)


def _checked(parts: Sequence[Matrix]) -> list[Int4Matrix]:
    packed = [part for part in parts if isinstance(part, Int4Matrix)]
    if len(packed) != len(parts) or not packed:
        raise BackendError(
            "matrix: found floating weights, expected packed INT4; nanoqwen convert makes a file of them"
        )
    shapes = [part.shape for part in packed]
    if len({k for _, k in shapes}) > 1:
        raise BackendError(f"matrix: found parts {shapes} to join, expected rows of one length")
    if len(shapes) == 2 and shapes[0] != shapes[1]:
        raise BackendError(f"matrix: found gate {shapes[0]} and up {shapes[1]}, expected equal shapes")
    return packed


def missing() -> str | None:
    """Why this machine cannot run the products, in one line; None where it can."""
    if not torch.cuda.is_available():
        return "needs an NVIDIA Hopper GPU, and PyTorch sees none"
    major, minor = torch.cuda.get_device_capability()
    if major != 9:
        return f"needs an NVIDIA Hopper GPU (9.0), found {torch.cuda.get_device_name()} ({major}.{minor})"
    if find_spec("cuda") is None or find_spec("cuda.core") is None:
        return "needs cuda-core; on Linux: .venv/bin/python -m pip install -c constraints.txt -e .[gpu]"
    return None


def available() -> tuple[bool, str]:
    """Not for decoding yet; the reason says what is there."""
    absent = missing()
    return False, NOT_YET if absent is None else f"{NOT_YET}; {absent}"
