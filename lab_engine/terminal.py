"""`nanoqwen generate`, `chat` and `convert`, as a person at a terminal or a program at a pipe sees them."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

from tqdm import tqdm

from lab_engine.errors import NanoqwenError, PromptError
from lab_engine.generation import Generation, stream

if TYPE_CHECKING:
    from lab_engine.decoder import Decoder


def generate(
    decoder: Decoder, prompt: str | None, ids: list[int] | None, suffix: str | None, max_new_tokens: int, as_json: bool
) -> None:
    """Print the prompt and its continuation as it comes; with a suffix, what stands between, then the suffix.

    Give a prompt or its ids. as_json prints one object at the end instead.
    """
    tokenizer = decoder.tokenizer
    stop = tokenizer.stop_token_ids if suffix is None else tokenizer.fim_stop_token_ids
    if ids is None:
        assert prompt is not None
        ids = tokenizer.encode(prompt) if suffix is None else tokenizer.encode_fim(prompt, suffix)
    before = tokenizer.decode(ids) if prompt is None else prompt
    if as_json:
        result = stream(decoder, ids, max_new_tokens, stop, lambda _: None)
        print(json.dumps(_as_dict(decoder, result), indent=2))
        return
    echo = _Echo(before)
    result = stream(decoder, ids, max_new_tokens, stop, echo)
    echo(_dim(suffix or "", sys.stdout))
    if not (before + result.text + (suffix or "")).endswith("\n"):
        _write("\n")
    if sys.stderr.isatty():
        _say(_summary(decoder, result))


def chat(decoder: Decoder, max_new_tokens: int) -> None:
    """Read messages line by line until the end of stdin; print each answer as it comes.

    A message that does not fit is refused with one line: a person goes on, a pipe ends with the error.
    """
    decoder.tokenizer.encode_chat([{"role": "user", "content": ""}])  # a model without a template says so at once
    interactive = sys.stdin.isatty()
    if interactive:
        _prepare_line_editing()
        _say(f"{decoder.model_name}: /reset starts anew, /quit or Ctrl-D ends, Ctrl-C stops an answer")
    messages: list[dict[str, str]] = []
    while (line := _read_line(interactive)) not in (None, "/quit"):
        if line == "/reset":
            messages = []
        elif line:
            try:
                messages = _answer(decoder, [*messages, {"role": "user", "content": line}], max_new_tokens)
            except NanoqwenError as error:
                if not interactive:
                    raise
                print(f"nanoqwen: {error}", file=sys.stderr)


@contextmanager
def conversion_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr as `convert` wants to report; a conversion that fails clears it and prints one line."""
    with tqdm(unit="weight", unit_scale=True, desc=name, leave=False) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show
        bar.leave = True


def _answer(decoder: Decoder, messages: list[dict[str, str]], max_new_tokens: int) -> list[dict[str, str]]:
    """Print the answer to the last message; the messages with the answer, as far as Ctrl-C let it come."""
    pieces: list[str] = []

    def write(piece: str) -> None:
        pieces.append(piece)
        _write(piece)

    ids = decoder.tokenizer.encode_chat(messages)
    if len(ids) >= decoder.config.max_positions:
        raise PromptError(
            f"chat: the conversation has {len(ids)} tokens, the model {decoder.config.max_positions} positions; "
            "start anew with /reset"
        )
    try:
        stream(decoder, ids, max_new_tokens, decoder.tokenizer.stop_token_ids, write)
    except KeyboardInterrupt:
        _say(" (stopped)")
    _write("\n")
    return [*messages, {"role": "assistant", "content": "".join(pieces)}]


def _read_line(interactive: bool) -> str | None:
    """The next line without its end, None at the end of stdin; PromptError where it is not UTF-8."""
    try:
        return input("> " if interactive else "").strip()
    except EOFError:
        return None
    except UnicodeDecodeError:
        raise PromptError("stdin: not UTF-8 text; expected valid UTF-8") from None


def _prepare_line_editing() -> None:
    with suppress(ImportError):  # Windows has none
        importlib.import_module("readline")  # its import gives input() arrow keys and a history


class _Echo:
    """Writes the text before the first piece right before that piece: errors come before any output."""

    def __init__(self, before: str) -> None:
        self._before: str | None = before

    def __call__(self, piece: str) -> None:
        if self._before is not None:
            piece, self._before = _dim(self._before, sys.stdout) + piece, None
        _write(piece)


def _write(piece: str) -> None:
    sys.stdout.write(piece)
    sys.stdout.flush()


def _say(message: str) -> None:
    print(_dim(message, sys.stderr), file=sys.stderr, flush=True)


def _dim(text: str, file: TextIO) -> str:
    """Grey on a terminal; unchanged elsewhere."""
    return f"\x1b[2m{text}\x1b[22m" if text and file.isatty() else text


def _summary(decoder: Decoder, result: Generation) -> str:
    parts = [f"{decoder.model_name} on {decoder.backend.name} ({decoder.backend.describe()})"]
    if result.ttft_ms is not None:
        parts.append(f"{result.prompt_tokens} prompt tokens in {result.ttft_ms:.0f} ms")
    if result.ms_per_token is not None:
        parts.append(f"{len(result.token_ids)} tokens at {1000 / result.ms_per_token:.0f} tok/s")
    return " · ".join(parts)


def _as_dict(decoder: Decoder, result: Generation) -> dict[str, object]:
    where = {"backend": decoder.backend.name, "device": str(decoder.backend.device), "model": decoder.model_name}
    return {**asdict(result), **where}
