"""A time limit for a learner's endless loop that works on every system, in a notebook too.

The function runs where it was called, so that print, input and the debugger work as usual. A watching thread asks
CPython to raise TimeUp in that thread. A loop in Python ends at once; a single long call into C (time.sleep, a huge
matmul) ends first.
"""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ASK_AGAIN_S = 0.25


class TimeUp(BaseException):
    """The time is over. No Exception, so that a learner's `except Exception` does not swallow it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeUp inside the block after so many seconds. Without CPython's C API there is no limit."""
    caller = threading.get_ident()
    done = threading.Event()

    def watch() -> None:
        wait = seconds
        while not done.wait(wait):
            _raise_in(caller, TimeUp)
            wait = ASK_AGAIN_S  # a bare `except:` may have swallowed it

    watcher = threading.Thread(target=watch, name="time limit", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        _stop(caller, done, watcher)


def _stop(caller: int, done: threading.Event, watcher: threading.Thread) -> None:
    while True:
        try:
            done.set()
            watcher.join()
            _raise_in(caller, None)  # takes back one that was asked for but has not arrived
            return
        except TimeUp:  # it arrived here: the block was finished, so the result counts
            continue


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    api = getattr(ctypes, "pythonapi", None)
    if api is not None:
        api.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None if error is None else ctypes.py_object(error))
