"""Quantizers in groups that do one thing differently, for the exercises of labs 01 and 08."""

import torch


def quantizer(
    group,
    largest,
    *,
    limit=None,
    clip=True,
    rounding=torch.round,
    scale_of=None,
    divide=True,
    guard=True,
    check_k=True,
    check_scale=True,
    cast=True,
):
    """Groups of `group` with scale max|w| / largest; codes are clipped to ±limit (largest unless given)."""
    limit = limit or largest

    def quantize(weight):
        rows, k = weight.shape
        if check_k and k % group:
            raise ValueError(f"K = {k} is not divisible by {group}")
        groups = weight.reshape(rows, -1, group)
        top = scale_of(groups) if scale_of else groups.abs().amax(-1)
        scales = (top / largest).half()
        if check_scale and not scales.isfinite().all():
            raise ValueError("scale over 65504")
        step = scales.float() if cast else top / largest
        codes = groups / step[..., None] if divide else groups
        if guard:
            codes = torch.where(scales[..., None] == 0, torch.zeros_like(codes), codes)
        codes = rounding(codes)
        if clip:
            codes = codes.clamp(-limit, limit)
        return codes.to(torch.int32).to(torch.int8).reshape(rows, k), scales

    return quantize


def a_scale_a_row(groups):
    """The scale_of of one scale for all groups of a row."""
    return groups.abs().amax((-1, -2))[:, None].expand(groups.shape[:2])


def one_scale_a_row_stored_once(largest):
    """One scale a row, and stored so."""

    def quantize(weight):
        scales = (weight.abs().amax(1, keepdim=True) / largest).half()
        codes = (weight / scales.float()).nan_to_num(0).round().clamp(-largest, largest)
        return codes.to(torch.int8), scales

    return quantize
