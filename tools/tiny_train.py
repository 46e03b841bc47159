"""The parts of tiny-coder's training loop: which windows a step sees, the loss, the optimizers, the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tools.tiny_model import TinyCoder
from tools.tiny_tokenizer import MAX_POSITIONS

WARMUP_STEPS = 150
SNAP = 512


@dataclass
class Progress:
    """What a checkpoint carries besides tensors: the next step, the schedule's length, the curves, the best result."""

    step: int = 0
    total_steps: int | None = None
    seconds: float = 0.0
    loss_curve: list[tuple[int, float]] = field(default_factory=list)
    bpb_curve: list[tuple[int, float]] = field(default_factory=list)
    best_bpb: float = math.inf


class Windows:
    """The training ids on the device; pass p is a seeded permutation of their windows from a seeded phase.

    A window moves forward to the next start of a text where one begins within SNAP tokens: a prompt stands at position
    0 too, without anything before it.
    """

    def __init__(
        self, ids: np.ndarray[Any, np.dtype[np.uint16]], batch: int, seed: int, device: str, end_id: int
    ) -> None:
        self.text_starts = np.append(np.flatnonzero(ids == end_id) + 1, ids.size)
        self.stream = torch.from_numpy(ids.astype(np.int16)).to(device)
        self.batch, self.seed = batch, seed
        self.steps_per_pass = (ids.size - 2 * MAX_POSITIONS - SNAP - 1) // MAX_POSITIONS // batch
        if self.steps_per_pass < 1:
            raise ValueError(f"{ids.size} tokens are too few for a batch of {batch} windows of {MAX_POSITIONS}")
        self.offsets = torch.arange(MAX_POSITIONS + 1, device=device)
        self.current: tuple[int, Tensor] | None = None

    def order(self, number: int) -> Tensor:
        """Start positions of pass `number`, shuffled."""
        if self.current is None or self.current[0] != number:
            rng = np.random.default_rng([self.seed, number])
            phase = int(rng.integers(MAX_POSITIONS))
            starts = self.snapped(phase + MAX_POSITIONS * rng.permutation(self.steps_per_pass * self.batch))
            self.current = (number, torch.from_numpy(starts).to(self.stream.device))
        return self.current[1]

    def snapped(self, starts: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The starts, moved to the next start of a text where it is near."""
        nearest = self.text_starts[np.searchsorted(self.text_starts, starts)]
        return np.where(nearest - starts < SNAP, nearest, starts)

    def at(self, step: int) -> Tensor:
        """(batch, 2049) int64 ids of a step."""
        number, place = divmod(step, self.steps_per_pass)
        starts = self.order(number)[place * self.batch : (place + 1) * self.batch]
        return self.stream[starts[:, None] + self.offsets].long()


def token_nats(model: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    """(batch, length) float32 cross-entropy of each next token of ids (batch, length + 1)."""
    logits = model(ids[:, :-1]).float()
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(ids.shape[0], -1)


def make_optimizers(
    model: TinyCoder, muon_lr: float, adamw_lr: float, weight_decay: float
) -> list[torch.optim.Optimizer]:
    """Muon for the 2-D matrices inside the layers, AdamW for everything else; "lr" holds the peak as "peak_lr"."""
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "layers" in name]
    embedding = [p for name, p in named if p.ndim == 2 and "layers" not in name]
    vectors = [p for _, p in named if p.ndim == 1]
    muon = torch.optim.Muon(matrices, lr=muon_lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
    groups = [{"params": embedding, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=adamw_lr, betas=(0.9, 0.95), fused=embedding[0].is_cuda)
    for group in (*muon.param_groups, *adamw.param_groups):
        group["peak_lr"] = group["lr"]
    return [muon, adamw]


def rate(step: int, total_steps: int | None) -> float:
    """The share of the peak rate at a step: linear warm-up, then linear to zero (flat while the length is unknown)."""
    warmup = WARMUP_STEPS if total_steps is None else max(1, min(WARMUP_STEPS, total_steps // 10))
    rising = min(1.0, (step + 1) / warmup)
    return rising if total_steps is None else min(rising, (total_steps - step) / (total_steps - warmup + 1))
