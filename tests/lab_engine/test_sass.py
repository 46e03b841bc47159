"""SASS: every way of unpacking, compiled for Hopper without a GPU, really uses the instructions that the lab names."""

import os
import platform
import sys

import pytest

from lab_engine import sass
from lab_engine.errors import ToolchainError
from lab_engine.unpack import COMPILED


@pytest.fixture(scope="module")
def kernels():
    """The compiled kernels of unpack.cu; CI has the tools, elsewhere they may be missing."""
    try:
        return sass.disassemble(sass.compile_cubin("unpack.cu"))
    except ToolchainError as error:
        if os.environ.get("CI") and (sys.platform, platform.machine()) == ("linux", "x86_64"):
            raise
        pytest.skip(str(error))


def test_every_method_has_its_three_kernels(kernels):
    names = {f"{kind}_{method}" for method in COMPILED for kind in ("words", "loop16", "loop32")}
    assert set(kernels) == names | {"raw_prmt"}


def test_lop3_takes_nine_instructions_a_word(kernels):
    assert sass.instructions_per_word(kernels, "lop3") == {"HADD2": 2, "HFMA2": 2, "LOP3.LUT": 4, "SHF.R.U32.HI": 1}


@pytest.mark.parametrize(("method", "logic"), [("prmt", 2), ("prmt_bit3", 1)])
def test_prmt_takes_ten_look_ups_a_word(kernels, method, logic):
    counts = sass.instructions_per_word(kernels, method)
    copies = sum(counts.pop(op) for op in list(counts) if op.startswith(("IMAD", "MOV", "UMOV")))
    assert counts == {"PRMT": 10, "LOP3.LUT": logic, "SHF.R.U32.HI": 3}
    # An instruction holds one constant, and each look-up names two: the compiler copies the other into a register.
    assert 0 <= copies <= 4


def test_shift_mask_converts_each_weight_and_pays_four_instructions_for_it(kernels):
    counts = sass.instructions_per_word(kernels, "shift_mask")
    assert (counts["I2F.F16"], counts["PRMT"]) == (8, 4)
    assert 32 <= sum(counts.values()) <= 34  # the compiler may join a shift and a subtraction


@pytest.mark.parametrize("method", COMPILED)
def test_the_kernel_that_stores_loads_one_word_and_stores_eight_halves_at_once(kernels, method):
    opcodes = [line.opcode for line in kernels[f"words_{method}"]]
    assert [op for op in opcodes if op.startswith(("LDG", "STG"))] == ["LDG.E", "STG.E.128"]


def test_a_listing_counts_bytes_and_keeps_the_text(kernels):
    lines = kernels["raw_prmt"]
    assert [line.address for line in lines] == [16 * i for i in range(len(lines))]
    assert [line.opcode for line in lines].count("PRMT") == 1
    assert all(line.opcode in line.text and ";" not in line.text for line in lines)
    assert any(line.text.startswith("@P0 EXIT") and line.opcode == "EXIT" for line in lines)


# Where something is missing or wrong


@pytest.mark.usefixtures("kernels")
def test_source_that_does_not_compile_gives_the_compilers_words_in_one_line(monkeypatch):
    monkeypatch.setattr(sass, "read_source", lambda _: "__global__ void broken() { undefined_name; }")
    with pytest.raises(ToolchainError, match=r"compiling bad\.cu for sm_90a: .*undefined_name") as caught:
        sass.compile_cubin("bad.cu")
    assert "\n" not in str(caught.value)


def test_a_missing_compiler_is_named_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(ToolchainError, match=r"cuda\.core.*pip install"):
        sass.compile_cubin("unpack.cu")


def test_a_missing_disassembler_is_named_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sass.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ToolchainError, match=r"cuobjdump.*install triton"):
        sass.find_cuobjdump()


@pytest.mark.usefixtures("kernels")
def test_bytes_that_are_no_machine_code_are_refused():
    with pytest.raises(ToolchainError, match="could not read the code"):
        sass.disassemble(b"no cubin")
