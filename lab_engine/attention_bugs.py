"""Ten real mistakes of attention over pages: what each one does where, in the one code path of paged_attention.py.

A kernel takes a decision at nine places; Behaviour names them, and its defaults are right. A bug is another Behaviour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lab_engine.errors import NanoqwenError


@dataclass(frozen=True)
class Behaviour:
    """What the code does at each place where a real one went wrong; the defaults are right.

    cause: what goes wrong, in one line. tail_score: the score that a slot without a token gets; None leaves its own.
    """

    cause: str = ""
    tail_score: float | None = -math.inf
    clears_tail_v: bool = True
    counts_current_token: bool = True
    rounds_pages_up: bool = True
    knows_newest_page: bool = True
    groups_are_neighbours: bool = True
    scores_in_fp16: bool = False
    rescales: bool = True
    guards_empty_parts: bool = True


RIGHT = Behaviour()

BEHAVIOURS = {
    "no_tail_mask": Behaviour(
        "the empty slots of the tail take part in the softmax", tail_score=None, clears_tail_v=False
    ),
    "mask_to_zero": Behaviour("the empty slots get the score 0 instead of -inf", tail_score=0.0, clears_tail_v=False),
    "nan_in_v": Behaviour(
        "the empty slots get the weight 0, but their V is multiplied all the same: 0 * NaN is NaN", clears_tail_v=False
    ),
    "stale_page": Behaviour(
        "the page table arrives one step late: a page just taken is still another request's", knows_newest_page=False
    ),
    "length_minus_one": Behaviour("the current token is left out", counts_current_token=False),
    "floor_pages": Behaviour("the number of pages is rounded down, so the tail is never read", rounds_pages_up=False),
    "no_rescale": Behaviour("the sums are not rescaled when a later page has a larger maximum", rescales=False),
    "head_modulo": Behaviour(
        "query head h reads KV head h % num_kv_heads instead of h // ratio", groups_are_neighbours=False
    ),
    "fp16_scores": Behaviour("q . k is rounded to fp16 before the scale: inf beyond 65,504", scores_in_fp16=True),
    "empty_split": Behaviour(
        "the combine multiplies the part of a worker that saw nothing by 0: 0 * NaN is NaN", guards_empty_parts=False
    ),
}

BUGS: dict[str, str] = {name: behaviour.cause for name, behaviour in BEHAVIOURS.items()}
"""The mistakes that `bug` can switch on, each with one line of what goes wrong."""


def behaviour_of(bug: str | None) -> Behaviour:
    """The behaviour with a bug, by name, or the right one; NanoqwenError for any other value."""
    if bug is None:
        return RIGHT
    if not isinstance(bug, str) or bug not in BEHAVIOURS:
        raise NanoqwenError(f"bug {bug!r}: expected one of {', '.join(BEHAVIOURS)}")
    return BEHAVIOURS[bug]
