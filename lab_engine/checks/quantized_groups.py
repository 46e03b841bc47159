"""Judges a quantization in groups: codes that are the nearest levels of their scale, scales that are max |w| / limit.

Codes and scales are compared apart, since 0 × 7 = 0 would hide a missing guard in their product. A half-way weight may
go either way, and a scale may be one unit in float16's last place off: any way of rounding passes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lab_engine.checks.case import Args, Mismatch
from lab_engine.checks.values import describe, number, numbers_row, window, window_note
from lab_engine.checks.verdict import Row

SMALLEST = 2.0**-24
"""float16's smallest number, and the unit of all numbers below 2**-14."""
CLOSE = 0.501
"""A code this near to w / scale is its nearest level, whatever rounding did in float32."""
_UNROUNDED = "You divided by the scale before it was rounded; the reader has only the fp16 one."


@dataclass(frozen=True)
class Compared:
    """One case in float64: the level that each weight lies at by the returned scales, the scale that was expected.

    weight, codes, level, codes_off: (rows, k). scales, exact, scales_off: (rows, groups).
    """

    weight: Tensor
    codes: Tensor
    scales: Tensor
    level: Tensor
    exact: Tensor
    codes_off: Tensor
    scales_off: Tensor


@dataclass(frozen=True)
class GroupJudge:
    """judge of an Exercise on float32 (rows, k) that returns codes int8 (rows, k) and scales float16 (rows, groups).

    size is the weights of a group, codes run from -limit to limit. The two functions name the likely mistake, or
    return an empty string. row_scale is the hint for one scale a row.
    """

    size: int
    limit: int
    hint_for_codes: Callable[[Compared], str]
    hint_for_scales: Callable[[Compared], str]
    row_scale: str

    def __call__(self, args: Args, expected: tuple[Tensor, Tensor], yours: Any) -> Mismatch | None:
        """Mismatch of the form, of a scale, or of a code; in this order, since a wrong scale makes wrong codes."""
        wrong_form = self._wrong_form(expected, yours)
        if wrong_form is not None:
            return wrong_form
        compared = self.compare(args[0], *yours)
        if compared.scales_off.any():
            return _different_scales(compared, self.hint_for_scales(compared))
        if compared.codes_off.any():
            hint = _UNROUNDED if self._fits_unrounded(compared) else self.hint_for_codes(compared)
            return _different_codes(compared, expected[0], hint)
        return None

    def compare(self, weight: Tensor, codes: Tensor, scales: Tensor) -> Compared:
        """Everything that a mismatch shows or a hint asks about."""
        step = scales.double().repeat_interleave(self.size, dim=1)
        level = torch.where(step != 0, weight.double() / step, 0.0)
        exact = weight.double().reshape(*scales.shape, self.size).abs().amax(dim=-1) / self.limit
        codes_off = (codes.double() - level.clamp(-self.limit, self.limit)).abs() > CLOSE
        unit = torch.where(exact.to(torch.float16) == 0, SMALLEST / 2, SMALLEST)
        scales_off = ~((scales.double() - exact).abs() <= unit + 1e-3 * exact)
        return Compared(weight, codes, scales, level, exact, codes_off, scales_off)

    def _fits_unrounded(self, compared: Compared) -> bool:
        step = compared.exact.repeat_interleave(self.size, dim=1)
        level = torch.where(step != 0, compared.weight.double() / step, 0.0)
        return bool(((compared.codes.double() - level).abs() <= CLOSE).all())

    def _wrong_form(self, expected: tuple[Tensor, Tensor], yours: Any) -> Mismatch | None:
        wanted = " and ".join(describe(tensor) for tensor in expected)
        if not isinstance(yours, tuple) or len(yours) != 2:
            return Mismatch(f"returned {describe(yours)}; expected (codes, scales): {wanted}", about_form=True)
        for part, want, have in zip(("codes", "scales"), expected, yours, strict=True):
            if not isinstance(have, Tensor) or have.dtype != want.dtype or have.shape != want.shape:
                message = f"{part} are {describe(have)}; expected {describe(want)}"
                return Mismatch(message, hint=self._hint_for_shape(part, want, have), about_form=True)
        return None

    def _hint_for_shape(self, part: str, want: Tensor, have: Any) -> str:
        if not isinstance(have, Tensor) or have.shape == want.shape:
            return ""
        if part == "codes":
            return "One code for each weight: (rows, k)."
        rows, groups = want.shape
        if groups > 1 and have.shape in ((rows, 1), (rows,)):
            return self.row_scale
        return f"One scale for each group of {self.size}: (rows, k // {self.size})."


def weights_rows(weight: Tensor, row: int = 0, column: int = 0) -> tuple[Row, Row]:
    """Up to eight weights of a row, `column` among them, and the place where they stand."""
    place = window(weight.shape[1], column)
    note = " · ".join(part for part in (f"row {row}", window_note("column", place, weight.shape[1])) if part)
    return numbers_row("weight", weight[row, place].tolist()), Row("place", (), note)


def _different_codes(compared: Compared, expected: Tensor, hint: str) -> Mismatch:
    row, column = divmod(int(compared.codes_off.flatten().nonzero()[0]), expected.shape[1])
    place = window(expected.shape[1], column)
    size = expected.shape[1] // compared.scales.shape[1]
    scale = compared.scales[row, column // size].item()
    return Mismatch(
        given=(*weights_rows(compared.weight, row, column), Row("scale", (), number(scale))),
        expected=numbers_row("expected code", expected[row, place].tolist()),
        yours=numbers_row("your code", compared.codes[row, place].tolist()),
        differ=_places(compared.codes_off[row, place]),
        hint=hint,
    )


def _different_scales(compared: Compared, hint: str) -> Mismatch:
    error = (compared.scales.double() - compared.exact).abs() / compared.exact.clamp(min=1e-8)
    row, group = divmod(int(error.nan_to_num(torch.inf).argmax()), error.shape[1])
    place = window(error.shape[1], group)
    largest = compared.weight[row].reshape(error.shape[1], -1).abs().amax(dim=-1)[place].tolist()
    return Mismatch(
        given=(numbers_row("largest |w| of a group", largest, f"row {row}"),),
        expected=numbers_row("expected scale", compared.exact[row, place].to(torch.float16).tolist()),
        yours=numbers_row("your scale", compared.scales[row, place].tolist()),
        differ=_places(compared.scales_off[row, place]),
        hint=hint,
    )


def _places(wrong: Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in wrong.nonzero().flatten())
