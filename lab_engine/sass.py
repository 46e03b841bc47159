"""SASS: the instructions that a GPU really executes, of the kernels in kernels/, on a machine with or without a GPU.

NVRTC, NVIDIA's compiler as a library, turns a source into a cubin (the machine code of one GPU model); cuobjdump turns
that into text. Both are optional packages: the `dev` extra has NVRTC, Triton's wheel holds cuobjdump.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab_engine.errors import ToolchainError
from lab_engine.kernels import FOLDER, read_source

ARCH = "sm_90a"
"""Hopper, with the instructions that only Hopper has."""

SHORT_LOOP, LONG_LOOP, XORS = 16, 32, 2
"""kernels/unpack.cu: words a turn of the two timing loops, and instructions a word in them that do not unpack."""

_KERNEL = re.compile(r"\s*Function : (\w+)")
_LINE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?P<text>(?:@!?U?P\w+ +)?(?P<opcode>[\w.]+).*?)\s*;")


@dataclass(frozen=True)
class SassLine:
    """One instruction. address: in bytes from the kernel's first; opcode: with its modifiers, such as LOP3.LUT."""

    address: int
    opcode: str
    text: str


def compile_cubin(source: str, arch: str = ARCH, defines: Mapping[str, int] | None = None) -> bytes:
    """Compile a file of kernels/ such as "unpack.cu" to machine code; needs no GPU. defines: macros, name -> value.

    Raises ToolchainError where cuda-core or NVRTC is missing, and with the compiler's words where it refuses.
    """
    text = read_source(source)
    try:
        from cuda.core import Program, ProgramOptions
    except ImportError as error:
        raise ToolchainError(
            f"compiling {source}: {error}; on Linux: .venv/bin/python -m pip install -c constraints.txt -e .[gpu]"
        ) from None
    try:
        macros = [(name, str(value)) for name, value in (defines or {}).items()] or None
        options = ProgramOptions(name=source, std="c++17", arch=arch, include_path=[str(FOLDER)], define_macro=macros)
        return bytes(Program(text, "c++", options).compile("cubin").code)
    except Exception as error:  # NVRTC, its loader and cuda-core each have errors of their own
        raise ToolchainError(f"compiling {source} for {arch}: {' '.join(str(error).split())}") from error


def disassemble(cubin: bytes) -> dict[str, tuple[SassLine, ...]]:
    """The instructions of every kernel of a cubin, without the padding behind the last one.

    Raises ToolchainError where no cuobjdump is found, or where it cannot read the code.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(cubin)
        command = [find_cuobjdump(), "-sass", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    kernels: dict[str, list[SassLine]] = {}
    for line in done.stdout.splitlines():
        if found := _KERNEL.match(line):
            lines = kernels.setdefault(found[1], [])
        elif (found := _LINE.match(line)) and found["opcode"] != "NOP":
            lines.append(SassLine(int(found[1], 16), found["opcode"], found["text"]))
    if done.returncode or not kernels:
        raise ToolchainError(f"{command[0]} could not read the code: {' '.join(done.stderr.split()) or 'no kernel'}")
    return {name: tuple(lines) for name, lines in kernels.items()}


def find_cuobjdump() -> str:
    """The path of cuobjdump: the one on PATH, else that of Triton's wheel."""
    triton = importlib.util.find_spec("triton")
    inside = Path(triton.origin or "").parent / "backends" / "nvidia" / "bin" if triton else None
    if found := shutil.which("cuobjdump") or (inside and shutil.which("cuobjdump", path=str(inside))):
        return found
    raise ToolchainError("cuobjdump: not on PATH and not in Triton's wheel; install triton or the CUDA toolkit")


def instructions_per_word(kernels: Mapping[str, Sequence[SassLine]], method: str) -> dict[str, float]:
    """Opcode -> how many instructions the compiled code spends to unpack one word; kernels: of unpack.cu.

    The two timing loops of a method differ in nothing but 16 words a turn, so the difference of their instruction
    counts over 16 is a word's share: set-up, loop and clock reads cancel, and no load or store is in it. What is left
    beside the unpacking are the two XORs that use up the result. A fraction is a constant loaded for several words.
    """
    long, short = (Counter(line.opcode for line in kernels[f"loop{n}_{method}"]) for n in (LONG_LOOP, SHORT_LOOP))
    counts = {op: (long[op] - short[op]) / (LONG_LOOP - SHORT_LOOP) for op in long | short}
    counts["LOP3.LUT"] -= XORS
    return {op: count for op, count in sorted(counts.items()) if count}
