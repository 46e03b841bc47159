"""Words that every playground uses for tokens, counts and bytes."""

import json
import math
import re

_SPACES = re.compile(r"( {2,})")


def token_label(text: str) -> str:
    r"""A token's text as one reads it aloud: `" return"`, `"\n" + 8 spaces`."""
    parts = [part for part in _SPACES.split(text) if part]
    return " + ".join(_part_label(part) for part in parts) or '""'


def _part_label(part: str) -> str:
    return f"{len(part)} spaces" if _SPACES.fullmatch(part) else json.dumps(part, ensure_ascii=False)


def byte_count(count: int) -> str:
    """A number of bytes in B, kB or MB, as the browser writes it."""
    if count < 1024:
        return f"{count} B"
    return f"{_rounded(count / 1e3, 1)} kB" if count < 1e6 else f"{_rounded(count / 1e6, 2)} MB"


def percent(share: float) -> str:
    """A share as whole percents; "< 1 %" is very little, "0 %" nothing at all."""
    return "< 1 %" if 0 < share < 0.005 else f"{_rounded(100 * share, 0)} %"


def span(first: int, last: int) -> str:
    """`7` or `0–5`."""
    return str(first) if first == last else f"{first}–{last}"


def _rounded(value: float, digits: int) -> str:
    """Half up, as JavaScript rounds; Python would round a half to the even side."""
    return f"{math.floor(value * 10**digits + 0.5) / 10**digits:.{digits}f}"
