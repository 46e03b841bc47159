"""How the command line ends: one line on stderr, the right status, and nothing half-written left behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def say(message: str) -> None:
    """One line on stderr, at once."""
    print(message, file=sys.stderr, flush=True)


def refuse(message: str) -> int:
    """Print an error as one line; its exit status."""
    say("nanoqwen: " + " ".join(message.split()))
    return 2


def open_closed_streams() -> None:
    """Give a closed stdin, stdout or stderr (`>&-`) the null device.

    Python has None there, and the next file that is opened would get its number, and with it what a library prints.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def drop_stdout() -> None:
    """Send what is still to be written nowhere: after a failed write Python would try again, and complain, at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def flush_stdout() -> int:
    """0, or the status for what is left unwritten: 1 where the reader has gone (`| head`), 2 on a full disk."""
    try:
        sys.stdout.flush()
    except OSError as error:
        drop_stdout()
        return 1 if isinstance(error, BrokenPipeError) else refuse(f"stdout: {error.strerror}")
    return 0


def leave_tidily_when_told_to() -> None:
    """A closed terminal or `kill` leaves through the `with` blocks, which remove half-written files."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP on purpose
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))


@contextmanager
def leaving_at_once_on_ctrl_c(message: str) -> Iterator[None]:
    """The hub's download threads cannot be stopped: an ordinary exit would wait until their files are complete."""

    def leave(*_: object) -> None:
        say(f"\n{message}")
        os._exit(130)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
