r"""Text to token ids and back: plain text, chat, fill-in-the-middle, and text that streams.

Control tokens (<|im_end|>, <|fim_prefix|>, ...: all added tokens of tokenizer.json) come from `encode_chat` and
`encode_fim` alone: the same characters in a prompt, a prefix or a message stay ordinary text. Line ends stay as they
are: "\r\n" gives other ids than "\n" and comes back as "\r\n". Text is normalised to NFC where tokenizer.json says so
(Qwen's does). A model may have more rows of logits than the tokenizer knows ids: 152,064 and 151,665 in
Qwen2.5-Coder-7B.
"""

from __future__ import annotations

import codecs
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab_engine.chat_template import check_messages, hide_spellings, render_chat
from lab_engine.errors import TokenizerError
from lab_engine.tokenizer_spec import spec_from_hf_folder
from lab_engine.vocabulary import Vocabulary, checked_field

FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
FIM_STOPS = ("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>")
OLD_FIM_MARKER = re.compile("<fim_(?:prefix|suffix|middle)>")


class Tokenizer:
    """A model's tokenizer, built from the spec that `to_spec` gives (its fields: `lab_engine.tokenizer_spec`).

    vocab_size: the known ids are 0 ... vocab_size - 1. stop_token_ids: the ids that end a text, from the model's
    generation_config and its eos_token. fim_stop_token_ids: these and <|fim_pad|>, <|repo_name|>, <|file_sep|>,
    as far as they exist. TokenizerError says which part of the spec is broken.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self._json = checked_field(spec, "tokenizer", dict)
        self._vocabulary = Vocabulary.from_json(self._json)
        self._control_ids = self._vocabulary.control_ids
        self._control = _pattern_of(self._control_ids)
        self.vocab_size = len(self._vocabulary.tokens)
        self.chat_template: str | None = checked_field(spec, "chat_template", str, type(None))
        self.special_tokens: dict[str, str] = checked_field(spec, "special_tokens", dict)
        self.stop_token_ids = self._stops(checked_field(spec, "stop_token_ids", list))
        self.fim_stop_token_ids = self.stop_token_ids.union(
            self._control_ids[name] for name in FIM_STOPS if name in self._control_ids
        )

    @classmethod
    def from_hf_folder(cls, path: str | Path) -> Tokenizer:
        """Read a Hugging Face folder; TokenizerError names the file that is missing or broken."""
        spec = spec_from_hf_folder(Path(path))
        try:
            return cls(spec)
        except TokenizerError as error:
            raise TokenizerError(f"{path}: {error}") from None

    def to_spec(self) -> dict[str, Any]:
        """The spec that makes an equal tokenizer, of plain JSON values (shared with this object: do not change it)."""
        return {
            "tokenizer": self._json,
            "chat_template": self.chat_template,
            "stop_token_ids": sorted(self.stop_token_ids),
            "special_tokens": self.special_tokens,
        }

    def encode(self, text: str) -> list[int]:
        """The ids of a plain text; PromptError where it is not Unicode text (half a surrogate pair)."""
        return self._vocabulary.encode(text)

    def encode_with_control_tokens(self, text: str) -> list[int]:
        """The ids of a text whose spellings of control tokens are meant: never for text that somebody else wrote."""
        return self._encode_pieces(text, {})

    def encode_fim(self, prefix: str, suffix: str) -> list[int]:
        """<|fim_prefix|> prefix <|fim_suffix|> suffix <|fim_middle|>: the model writes what belongs between.

        Warns where the text holds a marker in the old spelling without pipes, which is ordinary text to the model.
        TokenizerError where the tokenizer has no such markers.
        """
        if old := OLD_FIM_MARKER.search(f"{prefix}\n{suffix}"):
            message = f"{old[0]} is an old spelling and stays ordinary text; give prefix and suffix without markers"
            warnings.warn(message, stacklevel=2)
        before, between, after = map(self._control_id, (FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE))
        return [before, *self.encode(prefix), between, *self.encode(suffix), after]

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """The ids of [{"role": "user", "content": "..."}, ...], up to where the assistant's answer begins.

        Equal to transformers' apply_chat_template(messages, add_generation_prompt=True), but for a control token
        spelled in a content, which stays text here. Roles: system, user, assistant. PromptError names the message
        that is wrong, TokenizerError says that the model has no template or a broken one.
        """
        check_messages(messages)
        if self.chat_template is None:
            raise TokenizerError("this model has no chat template; give it plain text (nanoqwen generate)")
        hidden, spellings = hide_spellings(messages, self._control, self.chat_template)
        return self._encode_pieces(render_chat(self.chat_template, hidden, self.special_tokens), spellings)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids as a stream prints it: special tokens left out, invalid UTF-8 as U+FFFD."""
        return b"".join(map(self.printed_bytes, ids)).decode("utf-8", errors="replace")

    def token_text(self, token_id: int) -> str:
        r"""One token for a reader: special tokens as spelled, a byte that is no whole character as \xf0."""
        return self._vocabulary.token_bytes(token_id).decode("utf-8", errors="backslashreplace")

    def printed_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds to a text, none for a special token; TokenizerError where the id is not known."""
        return self._vocabulary.printed_bytes(token_id)

    def _control_id(self, name: str) -> int:
        if name not in self._control_ids:
            raise TokenizerError(f"the tokenizer has no {name}, so this model cannot fill in the middle")
        return self._control_ids[name]

    def _encode_pieces(self, text: str, spellings: dict[int, str]) -> list[int]:
        ids: list[int] = []
        for piece in self._control.split(text):
            control_id = self._control_ids.get(piece)
            ids += self.encode(piece.translate(spellings)) if control_id is None else [control_id]
        return ids

    def _stops(self, ids: list[int]) -> frozenset[int]:
        for token_id in ids:
            if type(token_id) is not int or not 0 <= token_id < self.vocab_size:
                raise TokenizerError(f"stop_token_ids: found {token_id!r}, expected ids of 0 to {self.vocab_size - 1}")
        eos = self.special_tokens.get("eos_token")
        if eos is not None and (not isinstance(eos, str) or eos not in self._control_ids):
            raise TokenizerError(f"eos_token: found {eos!r}, expected one of the added tokens of tokenizer.json")
        return frozenset(ids if eos is None else [*ids, self._control_ids[eos]])


class StreamingDetokenizer:
    """Text as tokens arrive, never half a character: push(id) gives what is complete by now, flush() what is left.

    Special tokens print nothing. The pieces joined equal `Tokenizer.decode` of all ids, invalid bytes included: these
    become U+FFFD where Python's decoder puts it, and a character cut off by the end becomes one.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that this token completes, often none; TokenizerError for an unknown id, which changes nothing."""
        return self._decoder.decode(self._tokenizer.printed_bytes(token_id))

    def flush(self) -> str:
        """What is left of a character that never became whole: U+FFFD, or nothing. Another text may follow."""
        return self._decoder.decode(b"", final=True)


def _pattern_of(control_ids: dict[str, int]) -> re.Pattern[str]:
    """A group that matches any control token, the longest first: split() then gives text, token, text, ..."""
    longest_first = sorted(control_ids, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")
