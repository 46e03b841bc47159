"""Streaming text: nothing is printed before it is a whole character, and all of it equals decode."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_engine.errors import TokenizerError
from lab_engine.tokenizer import StreamingDetokenizer, Tokenizer
from lab_engine.vocabulary import BYTE_OF

CHARACTER_OF = {byte: character for character, byte in BYTE_OF.items()}
# As in Qwen2.5's vocabulary a common emoji is one token, while rarer ones and some letters are split in the middle.
MERGED = [
    *(b"\xf0\x9f", b"\xf0\x9f\x99", "🙂".encode()),
    *(b"\xeb\x98", b"\xe9\xbe", b"\xcc\x81", b"he", b"hel", b" h", b"\r\n", b"\xe2\x80", b"\xe2\x80\x8d"),
]
NAMES = {"<|endoftext|>": True, "<|im_end|>": True, "<|fim_middle|>": False}


def spelled(token: bytes) -> str:
    return "".join(CHARACTER_OF[byte] for byte in token)


def hand_made_spec() -> dict[str, Any]:
    """A vocabulary whose token n is byte n, for n below 256; then MERGED, then NAMES (True: special)."""
    tokens = [bytes([byte]) for byte in range(256)] + MERGED
    added = [
        {"id": len(tokens) + n, "content": name, "special": special, "normalized": False, "single_word": False}
        | {"lstrip": False, "rstrip": False}
        for n, (name, special) in enumerate(NAMES.items())
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    model = {
        "type": "BPE",
        "vocab": {spelled(token): n for n, token in enumerate(tokens)},
        "merges": [[spelled(token[:-1]), spelled(token[-1:])] for token in MERGED],
    }
    parts = {"model": model, "added_tokens": added, "pre_tokenizer": byte_level, "decoder": byte_level}
    return {
        "tokenizer": {"version": "1.0", "normalizer": None, "post_processor": None, **parts},
        "chat_template": None,
        "stop_token_ids": [],
        "special_tokens": {"eos_token": "<|im_end|>"},
    }


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(hand_made_spec())


def id_of(tokenizer: Tokenizer, token: bytes) -> int:
    (token_id,) = tokenizer.encode_with_control_tokens(token.decode())
    return token_id


def stream(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """What each push prints, and then what flush prints."""
    detokenizer = StreamingDetokenizer(tokenizer)
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]


HALF_LETTER = 256 + MERGED.index(b"\xe9\xbe")  # the first two bytes of 龘
ANY_IDS = st.lists(st.integers(0, 256 + len(MERGED) + len(NAMES) - 1), max_size=40)
TEXTS = st.lists(
    st.sampled_from(
        ["🙂", "🫠", "👨‍👩‍👧", "똻", "한", "\u1112\u1161\u11ab", "e\u0301", "龘", "hello", "\r\n", "<|im_end|>"]
    )
    | st.text(),
    max_size=10,
).map("".join)


@pytest.mark.parametrize(
    ("character", "tokens"), [("🫠", 3), ("똻", 2), ("龘", 2), ("🙂", 1), ("é", 2), ("\U0010ffff", 4)]
)
def test_nothing_is_printed_before_the_character_is_whole(tokenizer: Tokenizer, character: str, tokens: int) -> None:
    ids = tokenizer.encode(character)
    assert len(ids) == tokens
    assert stream(tokenizer, ids) == [""] * (tokens - 1) + [character, ""]


def test_half_a_character_before_a_space_becomes_one_replacement_character(tokenizer: Tokenizer) -> None:
    assert stream(tokenizer, [HALF_LETTER, id_of(tokenizer, b" h")]) == ["", "\ufffd h", ""]


def test_half_a_character_at_the_end_is_flushed_once(tokenizer: Tokenizer) -> None:
    assert stream(tokenizer, [HALF_LETTER]) == ["", "\ufffd"]
    detokenizer = StreamingDetokenizer(tokenizer)
    detokenizer.push(HALF_LETTER)
    assert [detokenizer.flush(), detokenizer.flush()] == ["\ufffd", ""]


def test_after_a_flush_another_text_starts_clean(tokenizer: Tokenizer) -> None:
    detokenizer = StreamingDetokenizer(tokenizer)
    detokenizer.push(HALF_LETTER)
    detokenizer.flush()
    assert "".join(map(detokenizer.push, [0x98, *b"ok"])) + detokenizer.flush() == "\ufffdok"


@pytest.mark.parametrize(
    "damaged",
    [b"\xff", b"\x80\x80", b"\xf0\x9f\x92A", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe9\xbe\xe9\xbe"],
)
def test_invalid_bytes_become_what_pythons_decoder_makes_of_them(tokenizer: Tokenizer, damaged: bytes) -> None:
    ids = [*b"a", *damaged, *b"z"]
    assert "".join(stream(tokenizer, ids)) == ids_as_bytes(ids).decode(errors="replace") == tokenizer.decode(ids)


def ids_as_bytes(ids: list[int]) -> bytes:
    return b"".join(bytes([n]) if n < 256 else MERGED[n - 256] for n in ids)


@given(text=TEXTS)
@settings(deadline=None, max_examples=200)
def test_a_streamed_text_is_the_text_and_every_piece_of_it_is_whole(tokenizer: Tokenizer, text: str) -> None:
    pieces = stream(tokenizer, tokenizer.encode(text))
    assert "".join(pieces) == text
    assert pieces[-1] == ""
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


@given(ids=ANY_IDS)
@settings(deadline=None, max_examples=300)
def test_any_ids_stream_to_what_decode_gives(tokenizer: Tokenizer, ids: list[int]) -> None:
    special = {id_of(tokenizer, name.encode()) for name, special in NAMES.items() if special}
    middle = id_of(tokenizer, b"<|fim_middle|>")
    printed = b"".join(b"<|fim_middle|>" if n == middle else ids_as_bytes([n]) for n in ids if n not in special)
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids) == printed.decode(errors="replace")


def test_special_tokens_print_nothing_even_inside_a_character(tokenizer: Tokenizer) -> None:
    end = id_of(tokenizer, b"<|im_end|>")
    assert stream(tokenizer, [HALF_LETTER, end, 0x98]) == ["", "", "龘", ""]


def test_text_that_spells_a_special_token_is_printed_in_full(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("print('<|im_end|>')")
    assert not tokenizer.stop_token_ids & set(ids)
    assert "".join(stream(tokenizer, ids)) == "print('<|im_end|>')"


def test_a_padding_row_of_the_logits_is_refused_and_the_text_goes_on(tokenizer: Tokenizer) -> None:
    detokenizer = StreamingDetokenizer(tokenizer)
    detokenizer.push(HALF_LETTER)
    with pytest.raises(TokenizerError, match=f"token id 900: the tokenizer knows {tokenizer.vocab_size} ids"):
        detokenizer.push(900)
    assert detokenizer.push(0x98) == "龘"
