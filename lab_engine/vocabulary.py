"""The vocabulary of a tokenizer.json: token id to bytes, and plain text to token ids.

A token is a run of bytes. tokenizer.json spells each byte as one printable character (byte 0x20 is "Ġ"), so a token may
hold half a UTF-8 character. Added tokens (<|im_end|>, <|fim_prefix|>, ...) are called control tokens here: their
spelling is the bytes, and no text is ever encoded to one.
"""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass
from typing import Any

import tokenizers

from lab_engine.errors import PromptError, TokenizerError

PROBE = "Probe:\té\r\n  🙂"  # must come back unchanged from its own ids


def byte_alphabet() -> dict[str, int]:
    """The 256 characters that tokenizer.json spells bytes with, each with its byte (GPT-2's table).

    A printable byte is its own Latin-1 character; the others, in order, are U+0100, U+0101, ...

    >>> byte_alphabet()["A"], byte_alphabet()["Ġ"], byte_alphabet()["Ċ"]
    (65, 32, 10)
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTE_OF = byte_alphabet()


@dataclass(frozen=True)
class Vocabulary:
    """What tokenizer.json says, checked.

    tokens: by id, as tokenizer.json spells them. control_ids: the added tokens, spelling to id. unprinted: the ids of
    those that tokenizer.json calls special. bpe: the library's tokenizer without the added tokens.
    """

    tokens: tuple[str, ...]
    control_ids: dict[str, int]
    unprinted: frozenset[int]
    bpe: tokenizers.Tokenizer

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Vocabulary:
        """Read a tokenizer.json; TokenizerError unless it is a byte-level BPE whose ids are 0 ... n - 1."""
        added = _added_tokens(data)
        control_ids = {token["content"]: token["id"] for token in added}
        vocabulary = cls(
            tokens=_tokens_by_id(data, control_ids),
            control_ids=control_ids,
            unprinted=frozenset(token["id"] for token in added if token.get("special")),
            bpe=_text_bpe(data, control_ids),
        )
        back = b"".join(map(vocabulary.token_bytes, vocabulary.encode(PROBE))).decode(errors="replace")
        if back != PROBE:
            raise TokenizerError(f"tokenizer.json: {PROBE!r} comes back as {back!r}, expected a byte-level BPE")
        return vocabulary

    def encode(self, text: str) -> list[int]:
        """The ids of a text, never a control token; PromptError where it is not Unicode text."""
        if not isinstance(text, str):
            raise PromptError(f"prompt: found a {type(text).__name__}, expected text")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            found = f"character {error.start} is U+{ord(text[error.start]):04X}"
            raise PromptError(f"prompt: {found}, half a surrogate pair; expected valid UTF-8") from None
        ids: list[int] = self.bpe.encode(text, add_special_tokens=False).ids
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; TokenizerError where the id is not known."""
        token = self.tokens[self._checked(token_id)]
        return token.encode() if token in self.control_ids else bytes(map(BYTE_OF.__getitem__, token))

    def printed_bytes(self, token_id: int) -> bytes:
        """`token_bytes`, but nothing for a special token."""
        return b"" if self._checked(token_id) in self.unprinted else self.token_bytes(token_id)

    def _checked(self, token_id: int) -> int:
        try:
            index = operator.index(token_id)
        except TypeError:
            raise TokenizerError(f"token id: found {token_id!r}, expected an integer") from None
        if not 0 <= index < len(self.tokens):
            raise TokenizerError(
                f"token id {index}: the tokenizer knows {len(self.tokens)} ids, 0 to {len(self.tokens) - 1} "
                "(rows of logits beyond them are padding, never tokens)"
            )
        return index


def checked_field(data: Any, name: str, *kinds: type) -> Any:
    """data[name] where it is of one of these types; TokenizerError says what was found instead."""
    value = data.get(name, KeyError) if isinstance(data, dict) else KeyError
    if not isinstance(value, kinds):
        found = "nothing" if value is KeyError else f"a {type(value).__name__}"
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise TokenizerError(f"tokenizer field {name}: found {found}, expected {expected}")
    return value


def _added_tokens(data: dict[str, Any]) -> list[dict[str, Any]]:
    added: list[dict[str, Any]] = checked_field(data, "added_tokens", list)
    for token in added:
        text = checked_field(token, "content", str)
        checked_field(token, "id", int)
        flags = [flag for flag in ("lstrip", "rstrip", "single_word") if token.get(flag)]
        if not text or flags:
            found = f"has {flags[0]} = true, expected false" if flags else "is empty"
            raise TokenizerError(f"tokenizer.json: the added token {text!r} {found}")
    return added


def _tokens_by_id(data: dict[str, Any], control_ids: dict[str, int]) -> tuple[str, ...]:
    model = checked_field(data, "model", dict)
    vocab: dict[str, int] = checked_field(model, "vocab", dict)
    if model.get("type") != "BPE":
        raise TokenizerError(f"tokenizer.json: the model is a {model.get('type')!r}, expected a byte-level BPE")
    if missing := BYTE_OF.keys() - vocab.keys():
        raise TokenizerError(
            f"tokenizer.json: no token for byte 0x{BYTE_OF[min(missing)]:02X}, expected a byte-level BPE"
        )
    if strange := set().union(*(vocab.keys() - control_ids.keys())) - BYTE_OF.keys():
        raise TokenizerError(f"tokenizer.json: a token holds the character {min(strange)!r}, which spells no byte")
    return _in_order(vocab, control_ids)


def _in_order(vocab: dict[str, int], control_ids: dict[str, int]) -> tuple[str, ...]:
    ids = {**control_ids, **vocab}
    by_id = {token_id: name for name, token_id in ids.items() if type(token_id) is int}
    other = next((name for name, token_id in control_ids.items() if ids[name] != token_id), None)
    hole = next((token_id for token_id in range(len(ids)) if token_id not in by_id), None)
    if other is not None:
        raise TokenizerError(
            f"tokenizer.json: {other!r} has the ids {ids[other]} and {control_ids[other]}, expected one"
        )
    if hole is not None:
        raise TokenizerError(f"tokenizer.json: no token has the id {hole}, expected 0 to {len(ids) - 1}, each once")
    return tuple(by_id[token_id] for token_id in range(len(ids)))


def _text_bpe(data: dict[str, Any], control_ids: dict[str, int]) -> tokenizers.Tokenizer:
    """The library's tokenizer without the added tokens, so that no text can become one.

    Its own switch, `encode_special_tokens`, stops only tokens called special, and Qwen's FIM markers are not.
    A saved truncation or padding goes too: it would cut prompts silently.
    """
    vocab = {token: token_id for token, token_id in data["model"]["vocab"].items() if token not in control_ids}
    plain = {**data, "added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    try:
        return tokenizers.Tokenizer.from_str(json.dumps({**plain, "model": {**data["model"], "vocab": vocab}}))
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception
        message = " ".join(str(error).split())
        raise TokenizerError(f"tokenizer.json: the tokenizers library refuses it: {message}") from None
