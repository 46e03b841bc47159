"""Lab 08, quantize_int8: a quantization that a learner plugs into the decoder."""

import torch
from torch import Tensor

from lab_engine.checks.case import Args, Case
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.quantized_groups import Compared, GroupJudge, weights_rows
from lab_engine.checks.values import error_text, first_true
from lab_engine.checks.verdict import Row


def quantize_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize to INT8 in groups of 64: the reader computes codes × scale.

    weight: float32 (rows, k). Returns codes, int8 (rows, k), scales, float16 (rows, k // 64).
    The scale of a group is max |w| / 127 rounded to float16. The codes are w / that scale,
    rounded to nearest, then clipped to -127…127 (a scale that fp16 rounds down makes larger
    ones). A group whose scale is 0 has codes 0. ValueError that names k and 64 if k is not
    divisible by 64.

    Example: 64 weights of which the largest is 0.5 get the scale 0.003937 and 0.5 the code 127.
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


def _hint_for_codes(compared: Compared) -> str:
    codes, level, off = compared.codes, compared.level, compared.codes_off
    scale_of_code = compared.scales.repeat_interleave(GROUP, dim=1)
    return first_true(
        (bool((scale_of_code[off] == 0).all()), "x / 0 is inf or NaN: a group whose scale is 0 has codes 0."),
        (_undivided(compared), _DIVIDE),
        (_flipped(compared), _SIGN),
        (bool(codes.abs().max() <= 7 < level.abs().max()), "8 bits now: codes go from −127 to 127."),
        (bool((codes - level)[off].abs().max() < 1.01), _NEAREST),
    )


def _hint_for_scales(compared: Compared) -> str:
    exact, scales = compared.exact, compared.scales
    real = exact > 1e-5
    ratio = scales.double()[real] / exact[real]
    a_row = exact.shape[1] > 1 and torch.equal(scales, scales[:, :1].expand_as(scales))
    return first_true(
        (bool((scales == 1).all()), _DIVIDE if _undivided(compared) else _NO_SCALE),
        (_flipped(compared), _SIGN),
        (a_row, _ROW_SCALE),
        (bool(((ratio - 127 / 7).abs() < 0.1).all()), "8 bits now: the largest weight becomes 127, not 7."),
        (bool((scales[exact == 0] > 0).any()), "The file must say 0: the scale of a group of zeros is 0."),
        (bool((ratio < 0).any()), "The sign belongs to the code: the scale is max |w| / 127."),
    )


def _undivided(compared: Compared) -> bool:
    return torch.equal(compared.codes.double(), compared.weight.double().round())


def _flipped(compared: Compared) -> bool:
    return bool((compared.codes[compared.codes_off & (compared.weight > 0)] < 0).any())


def _hint_without_value(_case: Case, error: BaseException | None) -> str:
    return _GROUP_OF_64 if error is not None and "128" in error_text(error) else ""


def _show_int8(args: Args) -> tuple[Row, ...]:
    return weights_rows(args[0])


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
_SIGN = "The sign flipped: int8 ends at 127. Divide by 127, and clip to −127…127."
_DIVIDE = "The reader computes q × scale: divide by the scale before you round."
_NO_SCALE = "The reader computes q × scale: return the scale that you divided by."
_NEAREST = "Round to nearest, and divide by the float16 scale: the reader has no other."
_SCALE = "The scale is max |w| / 127, so the largest weight is code 127 or −127."
_GROUP_OF_64 = "The group is 64 weights: reshape to (rows, k // 64, 64)."
_HALF_WAY = torch.tensor([[127.0, *(i - 31.5 for i in range(GROUP - 1))]]) / 256

INT8_CASES = (
    Case(
        "largest weight positive",
        (_weights(0.5),),
        f"{_GROUP_OF_64} {_SCALE}",
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
    judge=GroupJudge(GROUP, 127, _hint_for_codes, _hint_for_scales, _ROW_SCALE),
    show=_show_int8,
    first_hints=(
        "Each group of 64 has one scale. Which of its numbers becomes the code 127?",
        "The group is 64 and the largest code 127: reshape to (rows, k // 64, 64), scale = max |w| / 127 as float16.",
    ),
    hint_without_value=_hint_without_value,
)
