"""The ladder without a GPU: what the kernels compile to, which addresses they use, what their wrapper refuses."""

import os
import platform
import re
import sys
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab_engine import gemv_ladder, int4, sass
from lab_engine.errors import NanoqwenError, ToolchainError
from lab_engine.gemv_ladder import RUNGS, launch_shape, linear_words, load, reference
from lab_engine.index_text import functions
from lab_engine.kernels import FOLDER, read_source

OWN = ("naive", "coalesced", "lop3", "prmt", "rows", "ring")
INDEX = functions()


@pytest.fixture(scope="module")
def code():
    """A function: the SASS of a rung for a GPU; CI has the tools, elsewhere they may be missing."""
    compiled: dict[tuple[str, str], tuple[sass.SassLine, ...]] = {}

    def lines(name: str, arch: str = sass.ARCH) -> tuple[sass.SassLine, ...]:
        if (name, arch) not in compiled:
            try:
                cubin = sass.compile_cubin(RUNGS[name].source, arch)
                compiled[name, arch] = sass.disassemble(cubin)[RUNGS[name].kernel]
            except ToolchainError as error:
                if os.environ.get("CI") and (sys.platform, platform.machine()) == ("linux", "x86_64"):
                    raise
                pytest.skip(str(error))
        return compiled[name, arch]

    return lines


def loop(lines: tuple[sass.SassLine, ...]) -> Counter[str]:
    """Opcodes of the longest loop: from where a branch goes back, to that branch."""
    longest: tuple[sass.SassLine, ...] = ()
    for at, line in enumerate(lines):
        target = re.search(r"\bBRA\b.*?(0x[0-9a-f]+)", line.text)
        if target and int(target[1], 16) < line.address:
            body = tuple(other for other in lines[: at + 1] if other.address >= int(target[1], 16))
            longest = max(longest, body, key=len)
    return Counter(line.opcode for line in longest)


def count(opcodes: Counter[str], start: str) -> int:
    return sum(number for opcode, number in opcodes.items() if opcode.startswith(start))


# What the kernels compile to


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80", "sm_89"])
@pytest.mark.parametrize("name", OWN)
def test_a_rung_compiles_and_keeps_everything_in_registers(code, name, arch):
    if RUNGS[name].needs_hopper and arch != sass.ARCH:
        pytest.skip("Hopper only")
    opcodes = Counter(line.opcode for line in code(name, arch))
    assert not count(opcodes, "LDL")
    assert not count(opcodes, "STL")


def test_naive_loads_a_word_and_converts_each_weight(code):
    body = loop(code("naive"))
    assert not count(body, "LDG.E.128")
    assert count(body, "LDG.E.CONSTANT") == 1
    assert count(body, "I2F") == 8


def test_coalesced_loads_16_bytes_of_weights_for_32_conversions(code):
    body = loop(code("coalesced"))
    assert count(body, "LDG.E.128.CONSTANT") == 1  # .CONSTANT: of weights, which no kernel writes
    assert count(body, "LDG.E.128") == 5  # and four of x
    assert count(body, "I2F") == 32


def test_lop3_multiplies_pairs_and_converts_nothing(code):
    body = loop(code("lop3"))
    assert count(body, "I2F") == 0
    assert count(body, "LOP3") >= 16
    # 8 to unpack the shifted pairs, 16 products: the compiler writes some as HMUL2 or as HFMA2.MMA.
    assert count(body, "HFMA2") + count(body, "HMUL2") >= 24
    assert count(body, "LDG.E.128.CONSTANT") == 1


def test_prmt_looks_up_ten_times_a_word(code):
    body = loop(code("prmt"))
    assert count(body, "PRMT") == 40
    assert count(body, "I2F") == 0


def test_rows_has_all_loads_of_a_batch_in_flight_before_the_first_product(code):
    lines = code("rows")
    loads = [at for at, line in enumerate(lines) if line.opcode == "LDG.E.128.CONSTANT"]
    products = [at for at, line in enumerate(lines) if line.opcode == "HMUL2"]
    assert len(loads) == 4 * INDEX["rows_rows"]()
    assert max(loads) < min(products)
    assert count(loop(lines), "LDS.128") == 16  # 4 pieces of x an iteration, for all rows


def test_ring_copies_in_bulk_and_waits_at_barriers(code):
    opcodes = Counter(line.opcode for line in code("ring"))
    assert count(opcodes, "UBLKCP") > 0
    assert count(opcodes, "SYNCS") > 0
    assert not count(opcodes, "LDG.E.128.CONSTANT")  # every weight comes through shared memory


# The addresses are those of gemv_index.cuh


@pytest.mark.parametrize("name", OWN)
def test_a_kernel_touches_the_words_only_where_the_index_functions_say(name):
    text = re.sub(r"//.*", "", read_source(f"gemv_{name}.cu"))
    access = RUNGS[name].access
    text = re.sub(r"const unsigned\* __restrict__ words\b", "", text).replace("produce(words, ", "")  # handed on
    assert len(re.findall(r"\bwords\b", text)) == 1
    assert len(re.findall(rf"\bwords\b(?=[^;]*\b{access}_byte\()", text)) == 1
    assert set(re.findall(r"\b(\w+)_byte\(", text)) == {access}


@pytest.mark.parametrize("name", OWN)
def test_only_weights_and_scales_are_promised_to_be_constant(name):
    [parameters] = re.findall(r"gemv_\w+\(([^)]*)\)\s*\{", read_source(f"gemv_{name}.cu"))
    promised = [text.split()[-1] for text in parameters.split(",") if "__restrict__" in text]
    assert promised == ["words", "scales"]


# Launches


@pytest.mark.parametrize("n", [1, 7, 33, 130, 4608])
@pytest.mark.parametrize("name", OWN)
def test_a_launch_covers_every_row_with_no_block_to_spare(name, n):
    shape, access = launch_shape(name, n, 3584, sms=132), RUNGS[name].access
    if access == "ring":
        assert shape.grid == min(132, -(-n // INDEX["ring_rows"]()))
        return
    tiles = -(-n // 16) if access == "rows" else shape.grid  # a block of rows takes further tiles
    assert shape.grid == min(3 * 132, tiles) or access != "rows"
    first, last = INDEX[f"{access}_row"](tiles - 1, 0, 0, 0), INDEX[f"{access}_rows"]() - 1
    assert first < n <= INDEX[f"{access}_row"](tiles - 1, shape.threads // 32 - 1, 31, last) + 1


def test_only_x_and_the_ring_take_shared_memory():
    taken = {name: launch_shape(name, 3584, 18944, sms=132).shared_bytes for name in OWN}
    x = 20 * 1024 * 2  # 18.5 iterations of 1024 fp16, in whole batches of four
    assert taken == dict.fromkeys(OWN[:4], 0) | {"rows": x, "ring": x + 8 * 4 * 2048}


def test_the_rungs_are_in_the_order_of_the_course():
    assert list(RUNGS) == [
        *OWN, "mma", "dp4a_separate", "dp4a_fused", "dp4a_limbs",
        "triton_naive", "triton_coalesced", "triton_best",
    ]  # fmt: skip
    assert all(rung.name == name for name, rung in RUNGS.items())


@pytest.mark.parametrize("name", OWN)
def test_the_named_kernel_is_in_its_source(name):
    assert f"{RUNGS[name].kernel}(" in (FOLDER / RUNGS[name].source).read_text(encoding="utf-8")


# The matrix


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=8))
def test_linear_words_undo_the_shuffle(numbers):
    words = torch.tensor(numbers, dtype=torch.int32)
    assert torch.equal(int4.shuffle_words(linear_words(words)), words)
    assert torch.equal(linear_words(int4.shuffle_words(words)), words)


def test_the_reference_is_the_sum_over_groups():
    generator = torch.Generator().manual_seed(0)
    q = torch.randint(-8, 8, (3, 256), generator=generator, dtype=torch.int8)
    scales = torch.rand(3, 2, generator=generator).to(torch.float16)
    x = torch.randn(256, generator=generator).to(torch.float16)
    by_hand = [sum(float(scales[row, i // 128]) * int(q[row, i]) * float(x[i]) for i in range(256)) for row in range(3)]
    assert reference(int4.pack_words(q), scales, x).tolist() == pytest.approx(by_hand, rel=1e-12)


def matrix(n: int = 2, k: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(n, k // 8, dtype=torch.int32), torch.ones(n, k // 128, dtype=torch.float16)


@pytest.mark.parametrize("name", OWN)
def test_without_a_gpu_one_line_says_so(name):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ToolchainError, match="no NVIDIA GPU found"):
        load(name, *matrix())


def test_an_unknown_rung_is_answered_with_the_known_ones():
    with pytest.raises(NanoqwenError, match=r"rung 'fastest': expected one of naive, coalesced, lop3"):
        load("fastest", *matrix())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w, s: (w[:, :-1], s), r"words: found \(2, 31\) torch.int32 on cpu, expected \(2, 32\) torch.int32"),
        (lambda w, s: (w.float(), s), r"words: found \(2, 32\) torch.float32"),
        (lambda w, s: (w.T.contiguous().T, s), r"words: expected contiguous memory; pass words.contiguous\(\)"),
        (lambda w, s: (w, s.float()), r"scales: found \(2, 2\) torch.float32 on cpu, expected \(2, 2\) torch.float16"),
        (lambda w, s: (w, s[0]), r"scales: found \(2,\), expected \(n, k / 128\), neither of them 0"),
        (lambda w, s: (w[:0], s[:0]), r"scales: found \(0, 2\)"),
        (lambda w, s: (shifted(w), s), r"words: starts 4 bytes past a multiple of 16; pass words.clone\(\)"),
    ],
)
def test_a_matrix_that_the_kernels_would_misread_is_refused(change, message):
    with pytest.raises(NanoqwenError, match=message):
        gemv_ladder.check_matrix(*change(*matrix()))


def shifted(words: torch.Tensor) -> torch.Tensor:
    """The same words at an address 4 bytes past a multiple of 16."""
    room = torch.zeros(words.numel() + 1, dtype=words.dtype)
    return room[1:].view(words.shape).copy_(words)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(255, dtype=torch.float16), r"x: found \(255,\) torch.float16 on cpu, expected \(256,\)"),
        (torch.zeros(256), r"x: found \(256,\) torch.float32"),
        (torch.zeros(512, dtype=torch.float16)[::2], "x: expected contiguous memory"),
        (torch.zeros(264, dtype=torch.float16)[1:257], "x: starts 2 bytes past a multiple of 16"),
    ],
)
def test_an_x_that_the_kernels_would_misread_is_refused(x, message):
    with pytest.raises(NanoqwenError, match=message):
        gemv_ladder.check_x(x, 256, matrix()[0])


def test_a_group_of_scales_may_begin_anywhere():
    words, _ = matrix(2, 384)
    scales = torch.ones(7, dtype=torch.float16)[1:].view(2, 3)
    assert gemv_ladder.check_matrix(words, scales) == (2, 384)
