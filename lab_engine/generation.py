"""One generation as its reader sees it: text as it arrives, then the tokens, the text and the times in one record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab_engine.tokenizer import StreamingDetokenizer

if TYPE_CHECKING:
    from lab_engine.decoder import Decoder


@dataclass(frozen=True)
class Generation:
    """What was generated and how long it took.

    ttft_ms: from the prompt's ids to the first token (the prefill); None where there is none.
    ms_per_token: mean over the tokens after the first (the decode steps); None below two tokens.
    """

    text: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    ttft_ms: float | None
    ms_per_token: float | None


def stream(
    decoder: Decoder,
    prompt_ids: list[int],
    max_new_tokens: int,
    stop_token_ids: frozenset[int],
    write: Callable[[str], None],
) -> Generation:
    """Generate greedily; write(text) gets each piece as soon as it is whole characters, the first at once.

    Errors of the prompt or the count come before the first write. The pieces joined are `Generation.text`.
    """
    detokenizer = StreamingDetokenizer(decoder.tokenizer)
    token_ids: list[int] = []
    pieces: list[str] = []
    first = last = start = time.perf_counter()

    def emit(piece: str) -> None:
        pieces.append(piece)
        write(piece)

    for token_id in decoder.generate(prompt_ids, max_new_tokens, stop_token_ids):
        last = time.perf_counter()
        first = first if token_ids else last
        token_ids.append(token_id)
        emit(detokenizer.push(token_id))
    emit(detokenizer.flush())
    steps = len(token_ids) - 1
    return Generation(
        text="".join(pieces),
        token_ids=tuple(token_ids),
        prompt_tokens=len(prompt_ids),
        ttft_ms=(first - start) * 1000 if token_ids else None,
        ms_per_token=(last - first) * 1000 / steps if steps > 0 else None,
    )
