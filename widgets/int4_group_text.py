"""Lab 01's group in letters: the state sentence, what becomes of a weight, and a picture of codes and errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from widgets.words import percent, signed, significant

Data = Mapping[str, Any]

BAR = 48
"""Most letters in a bar of the text picture."""


@dataclass(frozen=True)
class Clip:
    """One clip position of a group's data; codes is empty where the engine refuses the scale."""

    bits: str
    scale: float
    error: float
    mse: float
    worst: int
    codes: tuple[int, ...]


@dataclass(frozen=True)
class Rounded:
    """A weight under a clip; cut: it is off by more than half a step, because the levels end before it."""

    weight: float
    code: int
    level: float
    error: float
    cut: bool


def clip_at(group: Data, step: int) -> Clip:
    """The data of a step."""
    bits, scale, error, mse, worst, at = group["clips"][step]
    codes = () if at is None else tuple(int(digit, 16) - 8 for digit in group["codes"][at])
    return Clip(bits, scale, error, mse, worst, codes)


def is_moved(group: Data, step: int) -> bool:
    """Whether the line has left clip 1, where all presets begin; only then a picture says where the error is least."""
    return step != len(group["clips"]) - 1


def rounded(group: Data, clip: Clip, index: int) -> Rounded:
    """What becomes of a weight under a clip that is not refused."""
    weight, code = group["weights"][index], clip.codes[index]
    error = code * clip.scale - weight
    return Rounded(weight, code, code * clip.scale, error, abs(error) > 0.50001 * abs(clip.scale))


def group_sentence(group: Data, step: int, weight: int) -> str:
    """`clip 0.87 × max · scale 0.0350 (0x2879) · error 12.4 % · worst weight 24: 0.281 → 0.245 · weight 3: code −1`."""
    clip = clip_at(group, step)
    parts = [f"clip {step / 100:.2f} × max"]
    if not clip.codes:
        parts += [f"scale inf (0x{clip.bits})", "refused: fp16 ends at 65504", f"weight {weight}: no code"]
        return " · ".join(parts)
    worst = rounded(group, clip, clip.worst)
    return " · ".join([
        *parts,
        f"scale {significant(clip.scale)} (0x{clip.bits})",
        f"error {percent(clip.error, 1)}",
        f"worst weight {clip.worst}: {significant(worst.weight)} → {significant(worst.level)}",
        f"weight {weight}: code {signed(clip.codes[weight])}",
    ])  # fmt: skip


def group_text(group: Data, step: int, weight: int) -> str:
    """How many weights each code has, the chosen weight, the error at six clips; the least once the line has moved."""
    clip = clip_at(group, step)
    rows = _code_rows(group, clip) if clip.codes else [f"refused: {group['refusal']}"]
    return "\n".join([*rows, "", *_weight_rows(group, clip, weight), "", *_error_rows(group, step)])


def _code_rows(group: Data, clip: Clip) -> list[str]:
    rows = ["code     value   weights"]
    for code in range(7, -9, -1):
        count = clip.codes.count(code)
        bar = "#" * min(count, BAR) + ("…" if count > BAR else "")
        rows.append(f"{signed(code):>4} {significant(code * clip.scale):>9}   {count:3d} {bar}".rstrip())
    cut = sum(rounded(group, clip, index).cut for index in range(len(clip.codes)))
    return [*rows, f"off by over ½ step: {cut} of {len(clip.codes)}"]


def _weight_rows(group: Data, clip: Clip, index: int) -> list[str]:
    weight = significant(group["weights"][index], 4)
    if not clip.codes:
        return [f"weight {index} = {weight}"]
    one = rounded(group, clip, index)
    ratio = f" ÷ {significant(clip.scale, 4)} = {significant(one.weight / clip.scale)}" if clip.scale else ", scale 0"
    level = f"code × scale = {significant(one.level, 4)}, error {significant(one.error)}"
    return [f"weight {index} = {weight}{ratio} → code {signed(one.code)}", level]


def _error_rows(group: Data, step: int) -> list[str]:
    shown = range(50, 101, 10)
    errors = [group["clips"][at][2] for at in shown]
    best = group["best"]
    least = f"least {percent(group['clips'][best][2], 1):>9} at clip {best / 100:.2f}"
    return [
        "clip  " + "".join(f"{at / 100:>9.2f}" for at in shown),
        "error " + "".join(f"{'refused' if error is None else percent(error, 1):>9}" for error in errors),
        *([least] if is_moved(group, step) else []),
    ]
