"""A time limit for a learner's endless loop that works on every system, in a notebook too.

The function runs where it was called, so that print, input and the debugger work as usual. A watching thread asks
CPython to raise TimeUp in that thread. A loop in Python ends at once; a single long call into C (time.sleep, a huge
matmul) ends first.
"""

import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

ASK_AGAIN_S = 0.25

T = TypeVar("T")


class TimeUp(BaseException):
    """The time is over. No Exception, so that a learner's `except Exception` does not swallow it."""


def call_with_limit(seconds: float, function: Callable[..., T], *args: object) -> T:
    """Return function(*args), or raise TimeUp after so many seconds. Without CPython's C API there is no limit."""
    watch = _Watch(threading.get_ident(), seconds)
    try:
        watch.begin.release()
        return function(*args)
    finally:
        # TimeUp may arrive at any call, also at those that end the watch: all of them may be repeated.
        while True:
            try:
                watch.end()
                break
            except TimeUp:
                continue


class _Watch:
    """A thread that raises TimeUp in another one when the time is over, and again if a bare `except:` swallowed it.

    They share two locks and a flag, and nothing of threading's Python code, which TimeUp could leave half done. The
    time runs from begin.release() on: the thread must have started by then, see PyThreadState_SetAsyncExc.
    """

    def __init__(self, watched: int, seconds: float) -> None:
        self._watched, self._seconds = watched, seconds
        self._running = True
        self.begin, self._over = threading.Lock(), threading.Lock()
        self.begin.acquire()
        self._over.acquire()
        threading.Thread(target=self._run, name="time limit", daemon=True).start()

    def _run(self) -> None:
        self.begin.acquire()
        wait = self._seconds
        while not self._over.acquire(timeout=wait):
            _raise_in(self._watched, TimeUp)
            wait = ASK_AGAIN_S
        self._running = False

    def end(self) -> None:
        """No TimeUp comes after this returned. It may be called again if it was interrupted."""
        for lock in (self.begin, self._over):
            if lock.locked():
                lock.release()
        while self._running:
            time.sleep(0.0001)
        _raise_in(self._watched, None)  # takes back one that was asked for but has not arrived


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    api = getattr(ctypes, "pythonapi", None)
    if api is not None:
        api.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None if error is None else ctypes.py_object(error))
