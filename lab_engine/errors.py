"""Errors meant for the person at the keyboard: one line that names the thing and says what to do.

The command line prints the message and exits with status 2; a notebook shows it as it is.
"""


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
