"""Lab 01, quantize_rows: 128 weights become 128 codes of 4 bits and one fp16 scale."""

import torch
from torch import Tensor

from lab_engine.checks.case import Args, Case
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.quantized_groups import SMALLEST, Compared, GroupJudge, weights_rows
from lab_engine.checks.values import first_true
from lab_engine.checks.verdict import Row


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize to INT4 in groups of 128: the reader computes codes × scale.

    weight: float32 (rows, k). Returns codes, int8 (rows, k), and scales, float16
    (rows, k // 128). The scale of a group is max |w| / 7 rounded to float16. The codes are
    w / that scale, rounded to nearest, then clipped to -7…7 (a scale that fp16 rounds down
    makes larger ones). A group whose scale is 0 has codes 0. ValueError that names k and 128
    if k is not divisible by 128, and one that names the scale if a scale is not finite.

    >>> toy = torch.tensor([[-0.43, -0.07, 0.02, 0.19, 0.31, -0.25, 0.13, 0.4375] * 16])
    >>> codes, scales = quantize_rows(toy)
    >>> codes[0, :8].tolist(), scales.tolist()
    ([-7, -1, 0, 3, 5, -4, 2, 7], [[0.0625]])
    """
    rows, k = weight.shape
    if k % 128:
        raise ValueError(f"k = {k} is not divisible by the group of 128")
    groups = weight.reshape(rows, k // 128, 128)
    scales = (groups.abs().amax(dim=-1) / 7).to(torch.float16)
    if not scales.isfinite().all():
        raise ValueError("a scale is not finite: the largest float16 is 65504")
    step = scales.float()[..., None]
    codes = torch.where(step > 0, groups / step, 0.0).round().clamp(-7, 7)
    return codes.to(torch.int8).reshape(rows, k), scales


GROUP = 128
TOY = (-0.43, -0.07, 0.02, 0.19, 0.31, -0.25, 0.13, 0.4375)


def _hint_for_codes(compared: Compared) -> str:
    codes, level, off = compared.codes, compared.level, compared.codes_off
    codes_of_zeros = compared.scales.repeat_interleave(GROUP, dim=1)[off] == 0
    short = (codes.double() - level)[off]
    return first_true(
        (bool(codes_of_zeros.all()), "x/0 is inf and clips to 7: a group whose scale is 0 has codes 0."),
        (bool((codes.double() - level - 8).abs().max() < 1), "Return q from −7 to 7: the + 8 comes when you pack."),
        (_undivided(compared), _DIVIDE),
        (bool(codes.abs().max() > 7), "The codes go from −7 to 7: clip."),
        (bool(short.abs().max() < 1.01), "Round to nearest: 4.96 is nearest to 5, not to 4."),
    )


def _hint_for_scales(compared: Compared) -> str:
    exact, scales = compared.exact, compared.scales.double()
    ratio = scales[exact > 1e-5] / exact[exact > 1e-5]
    most_positive = compared.weight.double().reshape(*exact.shape, GROUP).amax(dim=-1) / 7
    return first_true(
        (bool((scales == 1).all()), _DIVIDE if _undivided(compared) else _NO_SCALE),
        (exact.shape[1] > 1 and torch.equal(scales, scales[:, :1].expand_as(scales)), _ROW_SCALE),
        (bool((scales[exact == 0] > 0).any()), "The file must say 0: the scale of a group of zeros is 0."),
        (
            bool((scales[exact < SMALLEST / 2] > 0).any()),
            "Round to nearest: below half of float16's smallest number is 0.",
        ),
        (bool((ratio < 0).any()), "The sign belongs to the code: the scale is max |w| / 7."),
        (torch.allclose(scales, most_positive, rtol=2e-3, atol=1e-7), _ABSOLUTE),
        (bool(((ratio * 8 / 7 - 1).abs() < 0.01).all()), "The largest weight must be a level: max |w| / 7, not / 8."),
    )


def _undivided(compared: Compared) -> bool:
    return torch.equal(compared.codes.double(), compared.weight.double().round())


def _hint_without_value(case: Case, error: BaseException | None) -> str:
    weight = case.args[0]
    refused = isinstance(error, ValueError) and bool(weight.abs().max() > 65504)
    return case.hint if refused or (error is not None and weight.shape[0] > 1) else ""


def _show(args: Args) -> tuple[Row, ...]:
    return weights_rows(args[0])


def _group(largest: float, place: int = 5) -> Tensor:
    """128 different weights within ±0.9 times |largest|, and largest itself at `place`."""
    group = torch.tensor([((53 * i) % GROUP) / GROUP * 1.8 - 0.9 + 0.003 for i in range(GROUP)]) * abs(largest)
    group[place] = largest
    return group


def _row(*largest: float) -> Tensor:
    return torch.cat([_group(value) for value in largest])[None]


def _plus_minus(value: float) -> Tensor:
    return torch.tensor([value, -value] * (GROUP // 2))


def _normal(rows: int, k: int) -> Tensor:
    return torch.randn(rows, k, generator=torch.Generator().manual_seed(11)) * 0.02


_ABSOLUTE = "−0.4375 sets the scale too: the largest |w|, not the largest w."
_ROW_SCALE = "The second group became all 0: one scale a row is too coarse. Each 128 weights have their own."
_DIVIDE = "The reader computes q × scale: divide by the scale before you round."
_NO_SCALE = "The reader computes q × scale: return the scale that you divided by."
_SCALE = "The scale is max |w| / 7, so that the largest weight is code 7 or −7."
_INFINITE = "fp16 ends at 65504: refuse a scale that is not finite, by a ValueError that names the scale."
_ENDS = torch.cat([_group(0.25, 0), _group(0.5, GROUP - 1)])[None]
_LATE_NAN = _normal(2, 256).index_put((torch.tensor([1]), torch.tensor([137])), torch.tensor(torch.nan))
_WITH_NAN = torch.cat([_group(0.25).index_fill(0, torch.tensor([3]), torch.nan), _group(0.5)])[None]
_HALF_WAY = torch.tensor([7.0, -6.5, -3.5, 0.5, 1.5, 2.5, 5.5, -0.5] * 16)[None] / 16

CASES = (
    Case("the toy group", (torch.tensor(TOY * 16)[None],), _SCALE),
    Case("largest weight negative", (_row(-0.4375),), _ABSOLUTE),
    Case("groups 0.4375 and 0.004", (_row(0.4375, 0.004),), _ROW_SCALE),
    Case("three rows of 384", (_normal(3, 384),), "Reshape to (rows, k // 128, 128): each group has its own scale."),
    Case("the largest first, and last", (_ENDS,), "A group is all of its 128 weights, the first and the last too."),
    Case("a group of zeros", (_row(0.0, 0.25),), "0/0 is NaN: a group whose scale is 0 has codes 0."),
    Case(
        "a group up to ±1e-7",
        (_row(1e-7, 0.25),),
        "1e-7 / 7 is 0 in float16: then the codes are 0 too.",
    ),
    Case(
        "a group of ±3e-7",
        (torch.cat([_group(0.25), _plus_minus(3e-7)])[None],),
        "The reader has only the fp16 scale: round the scale first, then divide by it.",
    ),
    Case("a scale rounded down", (_row(5.8e-7, 0.25),), "The float16 scale can be too small: clip the codes to −7…7."),
    Case("half-way weights", (_HALF_WAY,), "Round to nearest; half-way either way."),
    Case("the largest legal weight", (_row(458_528.0, 0.25),), "65504 is the limit of the scale, not of the weight."),
    Case("a weight of 4.6e5", (_row(4.6e5, 0.25),), _INFINITE, ("scale",)),
    Case("a NaN", (_WITH_NAN,), "NaN is not finite either: ask the scale, `isfinite`.", ("scale",)),
    Case("a NaN in row 1, group 1", (_LATE_NAN,), "Ask every scale, not the first: `isfinite().all()`.", ("scale",)),
    *(
        Case(
            f"k = {k}",
            (_normal(2, k),),
            f"{k} is no whole number of groups: refuse it by a ValueError that names k and 128.",
            (str(k), "128"),
        )
        for k in (192, 100)
    ),
)


EXERCISE = Exercise(
    lab="01_int4",
    solution=quantize_rows,
    cases=CASES,
    judge=GroupJudge(GROUP, 7, _hint_for_codes, _hint_for_scales, _ROW_SCALE),
    show=_show,
    first_hints=(
        "Reshape to (rows, groups, 128). Which number of a group becomes the code 7?",
        "Compute the float16 scale first, then go on with its float value: that is all the reader will have.",
    ),
    hint_without_value=_hint_without_value,
)
