"""Errors meant for the person at the keyboard: one line that names the thing and says what to do.

The command line prints the message and exits with status 2; a notebook shows it as it is.
"""

import reprlib
from math import inf
from operator import index
from typing import SupportsIndex


class NanoqwenError(ValueError):
    """Base of every error that bad input can cause."""


class ConfigError(NanoqwenError):
    """A model configuration that is missing a field, or that this engine does not support."""


class CheckpointError(NanoqwenError):
    """A Hugging Face checkpoint that cannot be converted."""


class FileFormatError(NanoqwenError):
    """A .nanoqwen file that is damaged, truncated or of another version."""


class TokenizerError(NanoqwenError):
    """A tokenizer file that is missing or broken, or a token id that it does not know."""


class PromptError(NanoqwenError):
    """A prompt or token count that the model cannot take."""


class OutOfPages(NanoqwenError):
    """The page pool has no free page id left."""


class BackendError(NanoqwenError):
    """A backend that is unknown, or that this machine cannot run."""


class PtxError(NanoqwenError):
    """PTX text that cannot be read, or an instruction that the emulator does not know."""


class ToolchainError(NanoqwenError):
    """A CUDA compiler or disassembler that is missing here, or that refused its input."""


class RecordingError(NanoqwenError):
    """A recording that does not say where it comes from, or that is older than its kernel."""


def whole_number(name: str, value: SupportsIndex, least: float = 0, most: float = inf) -> int:
    """A count, an id or a place as an int from least to most; NanoqwenError where it is none, bool included.

    Called where a value comes in: a NumPy integer that stays one would wrap around in later sums.
    """
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None:
        shown = " ".join(reprlib.repr(value).split())  # an array's repr has several lines
        raise NanoqwenError(f"{name}: found {shown}, expected a whole number")
    if number < least or number > most:
        asked = f"expected {least} or more" if most == inf else f"expected {least} to {most}"
        raise NanoqwenError(f"{name}: found {number}, {asked if least <= most else 'but there is none'}")
    return number


def counted(count: int, noun: str) -> str:
    """A count and its noun.

    >>> counted(1, "page"), counted(0, "page")
    ('1 page', '0 pages')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"
