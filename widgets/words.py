"""Words that every playground uses for tokens, counts and bytes."""

import json
import math
import re
from decimal import ROUND_HALF_UP, Decimal

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


def percent(share: float, digits: int = 0) -> str:
    """A share as percents; "< 1 %" is very little, "0 %" nothing at all."""
    least = 10**-digits
    if share == 0:
        return "0 %"
    return f"< {least:.{digits}f} %" if 0 < share < least / 200 else f"{_rounded(100 * share, digits)} %"


def significant(value: float, digits: int = 3) -> str:
    """A number of any size with so many significant digits, half up: `0.2813`, `65714`, `5.960e−8`; a real minus."""
    if value == 0:
        return "0"
    exact = Decimal(abs(value))
    rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), ROUND_HALF_UP)
    exponent = rounded.adjusted()
    if -4 <= exponent <= 5:
        size = f"{exact.quantize(Decimal(1).scaleb(min(0, exponent - digits + 1)), ROUND_HALF_UP):f}"
    else:
        size = f"{rounded.scaleb(-exponent):.{digits - 1}f}e{exponent}".replace("-", "−")
    return ("−" if value < 0 else "") + size


def signed(number: int | str) -> str:
    """A number, or one as text, with a real minus: `−7`, `−0.5`."""
    return str(number).replace("-", "−")


def hex_word(value: int, size: int = 4) -> str:
    """A number of so many bytes with all its digits: `0xFA4DB871`. Dumps of bytes, without 0x, have small letters."""
    return f"0x{value:0{2 * size}X}"


def span(first: int, last: int) -> str:
    """`7` or `0–5`."""
    return str(first) if first == last else f"{first}–{last}"


def _rounded(value: float, digits: int) -> str:
    """Half up, as JavaScript rounds; Python would round a half to the even side."""
    return f"{math.floor(value * 10**digits + 0.5) / 10**digits:.{digits}f}"
