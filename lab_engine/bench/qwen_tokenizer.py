"""A tokenizer of the size of Qwen2.5's, of made-up words: what a 7B file carries beside its weights."""

from __future__ import annotations

import random
from typing import Any

from lab_engine.vocabulary import BYTE_OF

TEXT_TOKENS = 151_643
"""Bytes and merged tokens; source: tokenizer.json of Qwen2.5-Coder-7B on the hub."""

CONTROL_TOKENS = 22
"""<|endoftext|>, <|im_start|>, the markers of fill-in-the-middle, of tool calls and of pictures."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz_Ġ"
_LONGEST_PART = 4  # of tokens that are joined further: a token has about 6 characters, as in Qwen2.5
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def qwen_sized_tokenizer(text_tokens: int = TEXT_TOKENS) -> dict[str, Any]:
    """The spec of a byte-level BPE with Qwen2.5's rules for splitting text; the same each time."""
    vocab, merges = dict(BYTE_OF), []
    parts, choice = list(_LETTERS), random.Random(0).choice
    while len(vocab) < text_tokens:
        left, right = choice(parts), choice(parts)
        if left + right not in vocab:
            vocab[left + right] = len(vocab)
            merges.append([left, right])
            if len(left + right) <= _LONGEST_PART:
                parts.append(left + right)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": _SPLIT}, "behavior": "Isolated", "invert": False}
    data = {
        "version": "1.0",
        "added_tokens": [_control(f"<|control_{n}|>", text_tokens + n) for n in range(CONTROL_TOKENS)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }
    return {"tokenizer": data, "chat_template": None, "stop_token_ids": [text_tokens], "special_tokens": {}}


def _control(content: str, token_id: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": content, "special": True, **flags}
