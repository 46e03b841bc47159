"""A GPU for tests of copies: it keeps copies in host memory, and its clock counts bytes. Copies end at synchronize."""

import torch

import lab_engine.device_copy

PINNED, PAGEABLE = 1e-9, 7e-9
"""Seconds a byte."""


class StandInGpu:
    """damage: what a copy's bytes become on the way."""

    def __init__(self, monkeypatch, damage=lambda copied: copied):
        self.now = self.pending = 0.0
        self.pinned = None
        self.damage = damage
        monkeypatch.setattr("torch.cuda.is_available", lambda: True)
        monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a stand-in")
        monkeypatch.setattr("torch.cuda.synchronize", self.synchronize)
        monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: self.copy(tensor))  # noqa: PLW0108  a method of the tensor
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: self.pin(tensor))  # noqa: PLW0108
        monkeypatch.setattr(lab_engine.device_copy.time, "perf_counter", lambda: self.now)

    def synchronize(self):
        self.now, self.pending = self.now + self.pending, 0.0

    def pin(self, tensor):
        self.pinned = tensor.clone()
        return self.pinned

    def copy(self, tensor):
        self.pending += tensor.nbytes * (PINNED if tensor is self.pinned else PAGEABLE)
        return self.damage(tensor.clone())
