"""Lab 08, quantize_int8: a quantization that a learner plugs into the decoder."""

from typing import Any

import torch
from torch import Tensor

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import describe, first_true, number, numbers_row, window, window_note
from lab_engine.checks.verdict import Row


def quantize_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize to INT8 in groups of 64: the reader computes codes × scale.

    weight: float32 (rows, k). Returns codes, int8 (rows, k) in -127…127, and scales, float16 (rows, k // 64):
    the scale of a group is max |w| / 127 rounded to float16, the codes are w / that scale, rounded to nearest.
    A group whose scale is 0 has codes 0. ValueError that names k and 64 if k is not divisible by 64.

    Example: 64 weights of which the largest is 0.5 get the scale 0.003937 and, for 0.5, the code 127.
    """
    rows, k = weight.shape
    if k % 64:
        raise ValueError(f"k = {k} is not divisible by the group of 64")
    groups = weight.reshape(rows, k // 64, 64)
    scales = (groups.abs().amax(dim=-1) / 127).to(torch.float16)
    step = scales.float()[..., None]
    codes = torch.where(step > 0, groups / step, 0.0).round().clamp(-127, 127)
    return codes.to(torch.int8).reshape(rows, k), scales


GROUP = 64


def _judge_int8(args: Args, expected: tuple[Tensor, Tensor], yours: Any) -> Mismatch | None:
    (weight,) = args
    wrong_form = _wrong_form(expected, yours)
    if wrong_form is not None:
        return wrong_form
    codes, scales = yours
    far = _codes_off(weight, codes, scales)
    if far.any():
        return _different_codes(weight, expected[0], codes, scales, int(far.flatten().nonzero()[0]))
    exact = weight.double().reshape(*scales.shape, GROUP).abs().amax(dim=-1) / 127
    if _scales_off(exact, scales).any():
        return _different_scales(weight, exact, scales)
    return None


def _codes_off(weight: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
    """Where a code is not the level nearest to its weight; a half-way weight may go either way."""
    step = scales.double().repeat_interleave(GROUP, dim=1)
    level = torch.where(step > 0, weight.double() / step, 0.0).clamp(-127, 127)
    return (codes.double() - level).abs() > 0.501


def _scales_off(exact: Tensor, scales: Tensor) -> Tensor:
    """Half of float16's smallest number, or one unit in its last place, is allowed: any way of rounding passes."""
    return ~((scales.double() - exact).abs() <= 3e-8 + 1e-3 * exact)


def _wrong_form(expected: tuple[Tensor, Tensor], yours: Any) -> Mismatch | None:
    wanted = " and ".join(f"{describe(tensor)}" for tensor in expected)
    if not isinstance(yours, tuple) or len(yours) != 2:
        return Mismatch(f"returned {describe(yours)}; expected (codes, scales): {wanted}")
    rows, k = expected[0].shape
    for part, want, have in zip(("codes", "scales"), expected, yours, strict=True):
        if not isinstance(have, Tensor) or have.dtype != want.dtype or have.shape != want.shape:
            hint = ""
            if part == "scales" and getattr(have, "shape", ()) in ((rows, 1), (rows,)) and k > GROUP:
                hint = _ROW_SCALE
            return Mismatch(f"{part} are {describe(have)}; expected {describe(want)}", hint=hint)
    return None


def _different_codes(weight: Tensor, expected: Tensor, codes: Tensor, scales: Tensor, at: int) -> Mismatch:
    row, column = divmod(at, weight.shape[1])
    place = window(weight.shape[1], column)
    shown = codes[row, place].tolist()
    off = _codes_off(weight, codes, scales)[row, place].tolist()
    return Mismatch(
        given=(_weights_row(weight, row, place),),
        expected=numbers_row("expected code", expected[row, place].tolist()),
        yours=numbers_row("your code", shown, f"scale {number(scales[row, column // GROUP].item())}"),
        differ=tuple(i for i, wrong in enumerate(off) if wrong),
        hint=_hint_for_codes(weight, codes, scales),
    )


def _hint_for_codes(weight: Tensor, codes: Tensor, scales: Tensor) -> str:
    if not scales.isfinite().all():
        return ""
    step = scales.double().repeat_interleave(GROUP, dim=1)
    level = torch.where(step > 0, weight.double() / step, 0.0)
    off = _codes_off(weight, codes, scales)
    flipped = codes[off & (weight > 0)] < 0
    undivided = torch.equal(codes.double(), weight.double().round())
    return first_true(
        (bool((step[off] == 0).all()), "x / 0 is inf or NaN: a group whose scale is 0 has codes 0."),
        (bool((scales == 1).all() and not undivided), _NO_SCALE),
        (undivided, "The reader computes q × scale: divide by the scale before you round."),
        (bool(flipped.any()), "The sign flipped: int8 ends at 127. Divide by 127, and clip to −127…127."),
        (bool(codes.abs().max() <= 7 < level.abs().max()), "8 bits now: codes go from −127 to 127."),
        (bool((codes - level)[off].abs().max() < 1.01), _NEAREST),
    )


def _different_scales(weight: Tensor, exact: Tensor, scales: Tensor) -> Mismatch:
    error = (scales.double() - exact).abs() / exact.clamp(min=1e-8)
    row = int(error.nan_to_num(torch.inf).amax(dim=1).argmax())
    place = window(scales.shape[1], int(error[row].argmax()))
    largest = weight[row].reshape(-1, GROUP).abs().amax(dim=-1)[place].tolist()
    wanted, found = exact[row, place].to(torch.float16).tolist(), scales[row, place].tolist()
    off = _scales_off(exact, scales)[row, place].tolist()
    return Mismatch(
        given=(numbers_row("largest |w| of a group", largest, f"row {row}"),),
        expected=numbers_row("expected scale", wanted),
        yours=numbers_row("your scale", found),
        differ=tuple(i for i, wrong in enumerate(off) if wrong),
        hint=_hint_for_scales(exact, scales),
    )


def _hint_for_scales(exact: Tensor, scales: Tensor) -> str:
    real = exact > 1e-5
    ratio = scales.double()[real] / exact[real]
    a_row = exact.shape[1] > 1 and torch.equal(scales, scales[:, :1].expand_as(scales))
    return first_true(
        (bool((scales == 1).all()), _NO_SCALE),
        (a_row, _ROW_SCALE),
        (bool(((ratio - 127 / 7).abs() < 0.1).all()), "8 bits now: the largest weight becomes 127, not 7."),
        (bool((scales[exact == 0] > 0).any()), "The file must say 0: the scale of a group of zeros is 0."),
        (bool((ratio < 0).any()), "The sign belongs to the code: the scale is max |w| / 127."),
    )


def _weights_row(weight: Tensor, row: int, place: slice) -> Row:
    note = " · ".join(part for part in (f"row {row}", window_note("column", place, weight.shape[1])) if part)
    return numbers_row("weight", weight[row, place].tolist(), note)


def _show_int8(args: Args) -> tuple[Row, ...]:
    (weight,) = args
    return (_weights_row(weight, 0, window(weight.shape[1], 0)),)


def _weights(*largest: float) -> Tensor:
    """Groups of 64 distinct values within ±0.9 times |largest|, and largest itself at place 5."""
    ramp = torch.tensor([((29 * i) % GROUP) / GROUP * 1.8 - 0.9 + 0.003 for i in range(GROUP)])
    groups = []
    for value in largest:
        group = ramp * abs(value)
        group[5] = value
        groups.append(group)
    return torch.cat(groups)[None]


def _normal(seed: int, rows: int, k: int) -> Tensor:
    return torch.randn(rows, k, generator=torch.Generator().manual_seed(seed)) * 0.02


_ROW_SCALE = "Group 2 became 0: one scale a row is too coarse for its small weights. Each 64 weights have their own."
_NO_SCALE = "The reader computes q × scale: return the scale that you divided by."
_NEAREST = "Round to nearest, and divide by the float16 scale: the reader has no other."
_SCALE = "The scale is max |w| / 127, so the largest weight is code 127 or −127."
_HALF_WAY = torch.tensor([[127.0, *(i - 31.5 for i in range(GROUP - 1))]]) / 256

INT8_CASES = (
    Case(
        "largest weight positive",
        (_weights(0.5),),
        "The group is 64 weights: reshape to (rows, k // 64, 64). " + _SCALE,
    ),
    Case("groups 0.5 and 0.001", (_weights(0.5, 0.001),), _ROW_SCALE),
    Case("largest weight negative", (_weights(-0.5, 0.25),), "−0.5 sets the scale too: take |w|."),
    Case("a group of zeros", (_weights(0.0, 0.5),), "0 / 0 is NaN: a group whose scale is 0 has codes 0."),
    Case("k = 192", (_normal(8, 3, 192),), "The group is 64 weights, not 128: k = 192 has three groups a row."),
    Case("k = 320", (_normal(9, 5, 320),), "The group is 64 weights; rows and groups need not be even in number."),
    Case("a tiny group", (_weights(1e-6, 0.5),), "1e-6 / 127 is 0 in float16, and x / 0 is inf."),
    Case("a scale rounded down", (_weights(1.1e-5, 0.5),), "The float16 scale can be too small: clip to −127…127."),
    Case("half-way weights", (_HALF_WAY,), "Round to nearest; half-way either way."),
    Case(
        "k = 96",
        (_normal(10, 2, 96),),
        "Name K and 64: refuse k = 96, which is no whole number of groups.",
        ("96", "64"),
    ),
)


EXERCISE = Exercise(
    lab="08_decoder",
    solution=quantize_int8,
    cases=INT8_CASES,
    judge=_judge_int8,
    show=_show_int8,
    first_hints=(
        "Each group of 64 has one scale. Which of its numbers becomes the code 127?",
        "The group is 64 and the largest code 127: reshape to (rows, k // 64, 64), scale = max |w| / 127 as float16.",
    ),
)
