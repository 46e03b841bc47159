"""The torch backend: any machine.

On a CPU with AVX2 or AVX-512, INT4 matrices are packed for PyTorch's own INT4 kernel, which takes bfloat16
activations; a prompt of many tokens dequantizes a matrix once and multiplies in bfloat16. Elsewhere, and in
float32 (the exact mode of the tests), matrices are dequantized and multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lab_engine.backends.torch_attention import StepAttention
from lab_engine.config import GROUP, ModelConfig
from lab_engine.errors import BackendError
from lab_engine.int4 import dequantize_words, unpack_words
from lab_engine.weights import Int4Matrix, Matrix

PACKED_OPERATORS = ("_convert_weight_to_int4pack_for_cpu", "_weight_int4pack_mm_for_cpu")
"""Private operators of PyTorch: where one of them is missing, matrices are dequantized and multiplied."""

_ROWS = 64  # the packed kernel's largest row block: pieces of whole blocks can be packed apart and joined
_GEMV_TOKENS = 32  # from about 48 tokens on, dequantizing once and multiplying is faster on two AVX-512 cores
_REFINED_LOGITS = 256  # enough but for flat distributions, where the order hardly matters
_CHUNK_WEIGHTS = 1 << 24  # dequantize at most this many weights at once: 32 MiB in bfloat16
_LONG_PAST = 1024  # tokens: below, what StepAttention prepares costs as much as it saves
_PACK_WEIGHTS = 1 << 20  # pack this many at once: larger pieces miss the cache and leave holes in the heap


@dataclass(frozen=True)
class TorchMatrix:
    """Parts of a matrix as they came, and the same weights packed for PyTorch's INT4 kernel where it is used."""

    parts: list[Matrix]
    rows: int
    packed: Tensor | None
    scales_and_zeros: Tensor | None


class TorchBackend:
    """See the Backend protocol; dtype is that of activations and KV cache."""

    name = "torch"

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        """dtype bfloat16 uses the packed kernel where this CPU has one; float32 is exact."""
        self.device = torch.device("cpu")
        self.dtype = dtype
        self._packs = dtype == torch.bfloat16 and has_packed_kernel()
        self._num_q_heads, self._num_kv_heads = config.num_q_heads, config.num_kv_heads
        self._head_dim = config.head_dim
        self._step_attention = StepAttention(dtype)

    def describe(self) -> str:
        """How INT4 matrices are multiplied on this CPU."""
        capability = torch.backends.cpu.get_cpu_capability()
        how = "PyTorch's packed INT4 kernel" if self._packs else "dequantize and multiply"
        return f"{how}, {str(self.dtype).removeprefix('torch.')}, CPU {capability}, {torch.get_num_threads()} threads"

    def load_matrix(self, parts: list[Matrix]) -> TorchMatrix:
        """Keep the parts; pack a copy where the packed kernel is used."""
        rows = sum(part.shape[0] for part in parts)
        if not self._packs or not all(isinstance(part, Int4Matrix) for part in parts):
            return TorchMatrix(parts, rows, None, None)
        packed, scales_and_zeros = _pack([part for part in parts if isinstance(part, Int4Matrix)])
        return TorchMatrix(parts, rows, packed, scales_and_zeros)

    def load_vector(self, vector: Tensor) -> Tensor:
        """Norm weights and biases stay float32."""
        return vector

    def embed(self, matrix: TorchMatrix, token_ids: Tensor) -> Tensor:
        """Dequantize just the rows that are asked for."""
        (part,) = matrix.parts
        if isinstance(part, Int4Matrix):
            return Int4Matrix(part.words[token_ids], part.scales[token_ids]).float()
        return part[token_ids].float()

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """In float32, then rounded to the backend's dtype."""
        return F.rms_norm(x, weight.shape, weight, eps).to(self.dtype)

    def linear(self, x: Tensor, matrix: TorchMatrix) -> Tensor:
        """The packed kernel for few tokens, dequantize-and-multiply for many."""
        if matrix.packed is not None and x.shape[0] <= _GEMV_TOKENS:
            out: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, matrix.packed, GROUP, matrix.scales_and_zeros)
            return out if out.shape[1] == matrix.rows else out[:, : matrix.rows]
        pieces = [F.linear(x, piece) for piece in _dense_pieces(matrix.parts, self.dtype)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)

    def rope_and_append(
        self, qkv: Tensor, bias: Tensor, cos: Tensor, sin: Tensor, layer_data: Tensor, slots: Tensor
    ) -> Tensor:
        """In float32; q, k and v are rounded to the backend's dtype when they are stored."""
        num_q, num_kv = self._num_q_heads, self._num_kv_heads
        heads = (qkv + bias).view(-1, num_q + 2 * num_kv, self._head_dim)  # the sum is float32, as the bias is
        first, second = heads[:, : num_q + num_kv].chunk(2, dim=-1)
        halves = torch.addcmul(first * cos, second, sin, value=-1), torch.addcmul(second * cos, first, sin)
        turned = torch.cat(halves, dim=-1).to(self.dtype)
        kv = torch.stack([turned[:, num_q:], heads[:, num_q + num_kv :].to(self.dtype)])
        layer_data.flatten(2, 3).index_copy_(2, slots, kv.transpose(1, 2))
        return turned[:, :num_q]

    def paged_attention(self, q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, length: int) -> Tensor:
        """Gather the pages, cut the tail off, and use scaled_dot_product_attention.

        A step over a short past is computed in float32 and returns it: rounding probabilities and output to bfloat16
        would be an error of 5e-3, since they are largest there. In a prompt K and V are repeated for the heads of a
        group, which is faster than letting PyTorch do it.
        """
        num_tokens = q.shape[0]
        if num_tokens == 1 and length >= _LONG_PAST:
            return self._step_attention(q, k_pages, v_pages, page_table, length)
        k, v = (pages.index_select(1, page_table).flatten(1, 2)[None, :, :length] for pages in (k_pages, v_pages))
        if num_tokens == 1:
            grouped = q.view(1, self._num_kv_heads, -1, self._head_dim)
            out = F.scaled_dot_product_attention(grouped.float(), k.float(), v.float())
            return out.view(1, -1, self._head_dim)
        rows = q.transpose(0, 1)[None]
        k, v = (heads.repeat_interleave(rows.shape[1] // heads.shape[1], dim=1) for heads in (k, v))
        if num_tokens == length:
            out = F.scaled_dot_product_attention(rows, k, v, is_causal=True)
        else:
            mask = torch.ones(num_tokens, length, dtype=torch.bool).tril(length - num_tokens)
            out = F.scaled_dot_product_attention(rows, k, v, attn_mask=mask)
        return out[0].transpose(0, 1)

    def logits(self, x: Tensor, matrix: TorchMatrix) -> Tensor:
        """As linear, but the largest logits are computed again in float32.

        A bfloat16 product is rounded to bfloat16, whose step is 0.125 between 16 and 32: tokens would tie.
        Logits within 1/32 of the largest are refined: four to eight such steps.
        """
        logits = self.linear(x, matrix)[0].float()
        if self.dtype != torch.float32:
            top = _near_largest(logits)
            if len(top):
                logits[top] = self.embed(matrix, top) @ x[0].float()
        return logits

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """In the backend's dtype."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def argmax(self, logits: Tensor) -> int:
        """torch.argmax returns the first of several equal maxima, and the place of a NaN where there is one."""
        best = int(logits.argmax())
        if logits[best].isnan():
            raise BackendError("logits: found NaN, expected numbers; are the weights damaged? (inspect --verify)")
        return best


def _near_largest(logits: Tensor) -> Tensor:
    """Ids of the logits within 1/32 of the largest, at most _REFINED_LOGITS of them; none beside NaN or inf."""
    largest = logits.max()
    ids = (logits >= largest - largest.abs() / 32).nonzero().flatten()
    return ids if len(ids) <= _REFINED_LOGITS else logits.topk(_REFINED_LOGITS).indices


def _dense_pieces(parts: list[Matrix], dtype: torch.dtype) -> Iterator[Tensor]:
    """The rows of all parts in order, as dense matrices of at most _CHUNK_WEIGHTS weights.

    Small packed parts are unpacked below each other into one matrix: one product, and no joining of its results.
    """
    packed = [part for part in parts if isinstance(part, Int4Matrix)]
    small = sum(part.shape[0] * part.shape[1] for part in parts) <= _CHUNK_WEIGHTS
    if small and len(packed) == len(parts) and dtype == torch.bfloat16:
        yield _unpacked(packed, dtype)
        return
    for part in parts:
        step = max(_CHUNK_WEIGHTS // part.shape[1], 1)
        for start in range(0, part.shape[0], step):
            piece = slice(start, start + step)
            if isinstance(part, Int4Matrix):
                yield _unpacked([Int4Matrix(part.words[piece], part.scales[piece])], dtype)
            else:
                yield part[piece].to(dtype)


def _unpacked(parts: list[Int4Matrix], dtype: torch.dtype) -> Tensor:
    """Packed parts below each other as one dense matrix (rows, k)."""
    rows = [part.shape[0] for part in parts]
    dense = torch.empty(sum(rows), parts[0].shape[1], dtype=dtype)
    for part, piece in zip(parts, torch.split(dense, rows), strict=True):
        dequantize_words(part.words, part.scales, out=piece)
    return dense


def _pack(parts: list[Int4Matrix]) -> tuple[Tensor, Tensor]:
    """All parts in the byte order of `_weight_int4pack_mm_for_cpu`, which depends on the CPU.

    Returns packed uint8 (rows, k / 2), rows rounded up to whole blocks, and bfloat16 (k / 128, rows, 2) of scale
    and zero: w = (n - 8) * scale + 0.
    """
    words = torch.cat([part.words for part in parts])
    scales = torch.cat([part.scales for part in parts])
    padding = -words.shape[0] % _ROWS
    words, scales = F.pad(words, (0, 0, 0, padding)), F.pad(scales, (0, 0, 0, padding))
    step = max(_PACK_WEIGHTS // (words.shape[1] * 8) // _ROWS, 1) * _ROWS
    packed = torch.empty(words.shape[0], words.shape[1] * 4, dtype=torch.uint8)
    for start in range(0, words.shape[0], step):
        nibbles = unpack_words(words[start : start + step]).to(torch.int32) + 8
        packed[start : start + step] = torch.ops.aten._convert_weight_to_int4pack_for_cpu(nibbles, 1)
    by_group = scales.to(torch.bfloat16).T
    return packed, torch.stack([by_group, torch.zeros_like(by_group)], dim=-1).contiguous()


def has_packed_kernel() -> bool:
    """Whether PyTorch has a vectorised INT4 GEMV for this CPU. The operator is private: without it we fall back."""
    fast = torch.backends.cpu.get_cpu_capability().startswith(("AVX2", "AVX512"))
    return fast and all(hasattr(torch.ops.aten, name) for name in PACKED_OPERATORS)


def available() -> tuple[bool, str]:
    """Always; the reason says which path this CPU takes."""
    how = "PyTorch's packed INT4 kernel" if has_packed_kernel() else "dequantize and multiply, slow"
    return True, f"runs on any CPU; here: {how}"


def make(config: ModelConfig, dtype: torch.dtype | None) -> TorchBackend:
    """The backend for a model; dtype None means bfloat16 with the packed kernel, float32 without."""
    if dtype not in (None, torch.bfloat16, torch.float32):
        raise BackendError(f"dtype {dtype}: expected torch.bfloat16 or torch.float32; Qwen2 overflows float16")
    fastest = torch.bfloat16 if has_packed_kernel() else torch.float32
    return TorchBackend(config, dtype or fastest)
