"""Backends: the operations of a decode step on one kind of machine, behind one Protocol.

The model is written once, in decoder.py; a backend only computes. `auto` takes the fastest that works here.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol

# Not by the name torch: importing backends/torch.py binds that name here to the submodule.
import torch as pytorch
from torch import Tensor

from lab_engine.config import ModelConfig
from lab_engine.errors import BackendError
from lab_engine.weights import Matrix

NAMES = ("cuda", "triton", "torch")
"""Fastest first: the order in which `auto` tries them."""


class Backend(Protocol):
    """What decoder.py needs; T is the number of tokens of a pass, 1 in a decode step."""

    name: str
    device: pytorch.device
    dtype: pytorch.dtype

    def load_matrix(self, parts: list[Matrix]) -> Any:
        """One matrix whose rows are those of the parts in turn, in the form that `linear` and `embed` take."""

    def load_vector(self, vector: Tensor) -> Tensor:
        """A norm weight or bias, float32, where the backend computes."""

    def embed(self, matrix: Any, token_ids: Tensor) -> Tensor:
        """Rows token_ids int64 (T,) of the embedding: the residual stream, float32 (T, hidden_size)."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """RMSNorm of float32 (T, hidden_size); the result has the backend's dtype."""

    def linear(self, x: Tensor, matrix: Any) -> Tensor:
        """x (T, k) @ matrix.T, float32 accumulation: (T, rows)."""

    def logits(self, x: Tensor, matrix: Any) -> Tensor:
        """x (1, k) @ matrix.T for the output head: float32 (rows,), precise enough to tell near ties apart."""

    def rope_and_append(
        self, qkv: Tensor, bias: Tensor, cos: Tensor, sin: Tensor, layer_data: Tensor, slots: Tensor
    ) -> Tensor:
        """Add the bias, turn q and k by their positions, write k and v to the cache, return q.

        qkv (T, (num_q_heads + 2 num_kv_heads) * head_dim); cos, sin float32 (T, 1, head_dim / 2); layer_data: the
        cache's (2, num_kv_heads, num_pages, 16, head_dim); slots int64 (T,). q: (T, num_q_heads, head_dim).
        """

    def paged_attention(self, q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, length: int) -> Tensor:
        """Causal attention of the last T tokens: (T, num_q_heads, head_dim); contract as paged_attention.py.

        page_table int32 (pages,): the sequence's own memory where the backend is on the CPU, so nothing may write it.
        """

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up of (T, 2 * intermediate_size), gate first: (T, intermediate_size)."""

    def argmax(self, logits: Tensor) -> int:
        """The id of the largest logit; ties go to the lowest id."""

    def describe(self) -> str:
        """One line for a person: how this backend multiplies INT4 weights here."""


@dataclass(frozen=True)
class Availability:
    """Whether a backend runs on this machine, and why or why not in one line."""

    name: str
    available: bool
    reason: str


def availability() -> list[Availability]:
    """Every backend, fastest first, with what this machine says to it."""
    return [_available(name) for name in NAMES]


def _available(name: str) -> Availability:
    """Ask the backend's own module; a backend without one is not part of this version."""
    try:
        module = importlib.import_module(f"lab_engine.backends.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"lab_engine.backends.{name}":
            return Availability(name, False, f"needs the package {error.name}, which is not installed")
        return Availability(name, False, _without_module(name))
    return Availability(name, *module.available())


def _without_module(name: str) -> str:
    if not pytorch.cuda.is_available():
        return "needs an NVIDIA GPU, and PyTorch sees none"
    return f"this version of the lab has no {name} kernels yet; the GPU {pytorch.cuda.get_device_name()} stays unused"


def make_backend(name: str, config: ModelConfig, dtype: pytorch.dtype | None) -> Backend:
    """The backend by name, or the fastest that works for `auto`; BackendError says what this machine lacks."""
    if name not in (*NAMES, "auto"):
        raise BackendError(f"backend {name!r}: expected auto, {', '.join(NAMES)}")
    for option in availability():
        if option.available and name in ("auto", option.name):
            module = importlib.import_module(f"lab_engine.backends.{option.name}")
            backend: Backend = module.make(config, dtype)
            return backend
        if option.name == name:
            raise BackendError(f"backend {name}: cannot run here: {option.reason}; use --backend torch or auto")
    raise BackendError("no backend works on this machine; run nanoqwen doctor")
