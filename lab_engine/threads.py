"""How many of PyTorch's threads a piece of work gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_at_one: set[int] = set()  # the threads of Python that have one thread of two for now


@contextmanager
def one_thread_of_two() -> Iterator[None]:
    """On two cores one thread does it all; elsewhere nothing changes. For many short operations, one after the other.

    Waking the second thread for each of them costs more than it saves: quantizing and packing 2**20 weights again and
    again took 200 to 250 MB of fp16 weights a second with one thread of an AMD EPYC and 110 to 180 MB with two.
    Each thread of Python has a number of its own and takes it, when it begins, from the last that any thread set. So a
    thread that begins while another is in here finds one where there are two; both leave with two.
    """
    me = threading.get_ident()
    with _lock:
        threads = torch.get_num_threads()
        entered = me not in _at_one and (threads == 2 or (threads == 1 and bool(_at_one)))
        if entered:
            _at_one.add(me)
            torch.set_num_threads(1)
    try:
        yield
    finally:
        if entered:
            with _lock:
                _at_one.remove(me)
                torch.set_num_threads(2)
