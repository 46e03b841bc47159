"""How many of PyTorch's threads a piece of work gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread_of_two() -> Iterator[None]:
    """On two cores one thread does it all; elsewhere nothing changes. For many short operations, one after the other.

    Waking the second thread for each of them costs more than it saves: quantizing and packing 2**20 weights again and
    again took 200 to 250 MB of fp16 weights a second with one thread of an AMD EPYC and 110 to 180 MB with two.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads == 2 else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
