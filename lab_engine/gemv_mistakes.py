"""Three mistakes in an INT4 matrix-vector product: what each does to y, and which test sees it.

    uncoalesced          a thread a row: the numbers are right, a load uses 4 of 32 bytes     costs time
    missing_correction   n = q + 8 is multiplied: every weight is 8 steps too large           a constant
    scale_of_group_0     one scale for the whole row                                          a factor a group
    size_of_group_0      the same where scales have no sign: only their size is wrong         a smaller factor

Scales of the shipped file have both signs (int4.quantize_rows, `search`), so that the scale of another group turns
half of the weights round. In a file whose scales are all positive the third mistake is the fourth, and easily missed.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.config import GROUP
from lab_engine.errors import NanoqwenError
from lab_engine.gemv_loads import LoadTrace, trace_loads
from lab_engine.int4 import CODES_PER_WORD, pack_words, quantize_rows, unpack_words
from lab_engine.int4_mistakes import normal_weights
from lab_engine.loading import open_source
from lab_engine.weights import Int4Matrix, WeightSource

GEMV_MISTAKES = {
    "uncoalesced": "a thread takes a whole row, so neighbouring lanes read addresses a row apart",
    "missing_correction": "the unpacked nibbles are n = q + 8, and the 8 is never taken away",
    "scale_of_group_0": "the scale of a row's first group is used for the whole row",
    "size_of_group_0": "the size of the first group's scale is used for the whole row, and each group keeps its sign",
}
"""Every mistake by name, with what went wrong in one line."""

LANES = 32
_WORDS_A_LANE = 4  # 16 bytes


def gemv(packed: Int4Matrix, x: Tensor, mistake: str = "none") -> Tensor:
    """y = W x as a kernel computes it, float32 (n,): the sums in its order, right or with a mistake.

    packed: (n, k); x: floating (k,). Right, a warp takes a row: each lane adds its runs of 32 weights, then the lanes
    are added in five halvings. `uncoalesced`, a thread adds the words of its row one after the other.
    """
    return multiply(*misread_codes(unpack_words(packed.words), packed.scales, mistake), x, mistake)


def group_terms(packed: Int4Matrix, x: Tensor, mistake: str = "none") -> Tensor:
    """What each group of a row adds to y, in float64 (n, k // 128): exact to 1e-15, so without the order of sums."""
    codes, scales = misread_codes(unpack_words(packed.words), packed.scales, mistake)
    sums = (codes.double() * x.double()).reshape(len(codes), -1, GROUP).sum(-1)
    return sums * scales.double()


def misread_codes(q: Tensor, scales: Tensor, mistake: str) -> tuple[Tensor, Tensor]:
    """Codes (n, k) and scales (n, k // 128) as the product takes them, float32; q: int8 codes, as they are meant."""
    codes, scales = q.float(), scales.float()
    if mistake == "missing_correction":
        return codes + 8, scales
    if mistake == "scale_of_group_0":
        return codes, scales[:, :1].expand_as(scales)
    if mistake == "size_of_group_0":
        return codes, scales[:, :1].abs() * scales.sign()
    if mistake in ("none", "uncoalesced"):
        return codes, scales
    raise NanoqwenError(f"mistake {mistake!r}: expected one of none, {', '.join(GEMV_MISTAKES)}")


def multiply(codes: Tensor, scales: Tensor, x: Tensor, mistake: str) -> Tensor:
    """The product of `gemv` from what `misread_codes` gave."""
    per_word = scales.repeat_interleave(GROUP // CODES_PER_WORD, dim=1)
    words = (codes * x.float()).reshape(*per_word.shape, CODES_PER_WORD).sum(-1) * per_word
    if mistake == "uncoalesced":
        return words.cumsum(1)[:, -1]
    words = F.pad(words, (0, -words.shape[1] % (LANES * _WORDS_A_LANE)))
    lanes = words.reshape(len(codes), -1, LANES, _WORDS_A_LANE).sum((1, 3))
    while lanes.shape[1] > 1:
        lanes = lanes[:, : lanes.shape[1] // 2] + lanes[:, lanes.shape[1] // 2 :]
    return lanes[:, 0]


# How far y is off -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GemvError:
    """Relative error |y' − y| / |y| of a mistake, with activations of mean 0.

    positive: of normal weights whose scales are all positive (`absmax7`); signed: of the same weights with scales of
    both signs (`search`); shipped: the smallest, median and largest of all matrices of the shipped model.
    """

    mistake: str
    positive: float
    signed: float
    shipped: tuple[float, float, float]


_VECTORS = 1024  # a constant adds sum(x), the same for all rows: only many x make its mean square certain


def gemv_errors() -> tuple[GemvError, ...]:
    """The table, one entry a mistake: what is measured is y' − y, so the rounding of the weights is not in it."""
    plain, searched = (_packed(normal_weights(), method) for method in ("absmax7", "search"))
    matrices = shipped_matrices()

    def entry(mistake: str) -> GemvError:
        shipped = [mistake_error(matrix, mistake) for matrix in matrices]
        middle = statistics.median(shipped)
        return GemvError(
            mistake,
            mistake_error(plain, mistake),
            mistake_error(searched, mistake),
            (min(shipped), middle, max(shipped)),
        )

    return tuple(map(entry, GEMV_MISTAKES))


def mistake_error(packed: Int4Matrix, mistake: str) -> float:
    """|(W' − W) x| / |W x| over many normal x, the same each time."""
    right = packed.float()
    codes, scales = misread_codes(unpack_words(packed.words), packed.scales, mistake)
    wrong = codes * scales.repeat_interleave(GROUP, dim=1)
    x = torch.randn(right.shape[1], _VECTORS, generator=torch.Generator().manual_seed(0))
    return float(((wrong - right) @ x).norm() / (right @ x).norm())


def constant_share(packed: Int4Matrix) -> float:
    """How much of the squared error of `missing_correction` is one number for all rows: near 1 if all scales are alike.

    Row r is off by the sum over its groups of 8 * scale * sum(x): scales of both signs leave nothing in common.
    """
    x = torch.randn(packed.shape[1], _VECTORS, generator=torch.Generator().manual_seed(0))
    off = 8 * packed.scales.float() @ x.reshape(-1, GROUP, _VECTORS).sum(1)
    return float(off.mean(0).square().mean() / off.square().mean())


def _packed(weight: Tensor, method: str) -> Int4Matrix:
    q, scales = quantize_rows(weight, method)
    return Int4Matrix(pack_words(q), scales)


def shipped_matrices() -> list[Int4Matrix]:
    """Every matrix of the shipped model: seven a layer and the embedding, which is the output head too."""
    source, _ = open_source(data_path(SHIPPED_MODEL))
    per_layer = ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down")
    names = [f"model.layers.{i}.{name}_proj.weight" for i in range(source.config.num_layers) for name in per_layer]
    return [int4_matrix(source, name) for name in (*names, "model.embed_tokens.weight")]


def int4_matrix(source: WeightSource, name: str) -> Int4Matrix:
    """A packed matrix of a source; NanoqwenError for floating weights."""
    matrix = source.matrix(name)
    if not isinstance(matrix, Int4Matrix):
        raise NanoqwenError(f"{name}: found floating weights, expected INT4; convert the checkpoint first")
    return matrix


# Which test sees it ---------------------------------------------------------------------------------------------------

VISIBLE = 1e-3
"""A test fails from this relative error on: the order of float32 sums stays far below."""


@dataclass(frozen=True)
class GemvTest:
    """A test of a GEMV that somebody might write: k weights a row; are scales equal, does each group of x sum to 0?"""

    name: str
    k: int = 4 * GROUP
    equal_scales: bool = False
    sums_to_0: bool = False

    def sees(self, mistake: str) -> bool:
        """Whether y with the mistake differs from y without."""
        dice = torch.Generator().manual_seed(7)
        q = torch.randint(-8, 8, (16, self.k), generator=dice, dtype=torch.int8)
        scales = 0.01 + 0.01 * torch.rand(16, self.k // GROUP, generator=dice)
        x = torch.randn(self.k // GROUP, GROUP, generator=dice)
        packed = Int4Matrix(pack_words(q), (torch.full_like(scales, 0.01) if self.equal_scales else scales).half())
        x = (x - x.mean(1, keepdim=True) if self.sums_to_0 else x).flatten()
        right = group_terms(packed, x).sum(1)
        return bool((gemv(packed, x, mistake) - right).norm() > VISIBLE * right.norm())


TESTS = (
    GemvTest("one group", k=GROUP),
    GemvTest("equal scales", equal_scales=True),
    GemvTest("x that sums to 0", sums_to_0=True),
    GemvTest("several scales"),
)
SECTORS = "count of sectors"


def seen_by(mistake: str) -> tuple[str, ...]:
    """The names of all tests that see a mistake; the last one counts what a load moves instead of comparing numbers."""
    load = request(mistake)
    found = [test.name for test in TESTS if test.sees(mistake)]
    return (*found, *([SECTORS] if load.moved > load.used else []))


def request(mistake: str, k: int = 3584) -> LoadTrace:
    """What the first load of a warp moves and uses of a matrix with rows of k weights."""
    return trace_loads("naive" if mistake == "uncoalesced" else "coalesced", 4096, k)
