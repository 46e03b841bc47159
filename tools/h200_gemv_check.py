"""Is every rung of the GEMV ladder right on this machine's GPU?

    python -m tools.h200_gemv_check              all rungs: errors, then compute-sanitizer
    python -m tools.h200_gemv_check rows ring    only these

A rung is compared with float64 at odd shapes, has to give the same bits every time, and writes into memory that held
NaN, so that a number that it leaves out is seen. compute-sanitizer then watches each of its memory accesses. What would
blind it: PyTorch's cache, in which a tensor has neighbours that one may read, and a kernel without "gemv" in its name.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor

from lab_engine import gemv_ladder
from lab_engine.errors import NanoqwenError, ToolchainError
from lab_engine.gemv_token import random_matrix, relative_error
from lab_engine.weights import Int4Matrix

NS, KS = (1, 7, 33, 130, 1056, 9001), (128, 384, 3584, 18944)
"""Rows and columns. 9001: more rows than an H200's blocks take at once, and a last tile that is not whole."""

WATCHED = ((33, 384), (7, 3584), (5, 18944), (130, 128))
"""Shapes for compute-sanitizer, which makes a kernel many times slower."""

SIZES = (1.0, 300.0)
"""Of x: standard deviations. Real activations reach hundreds, and fp16 sums must hold their products."""

TOLERANCES = {"fp16": 1e-3, "int8": 3e-2, "int16 limbs": 2e-4}
"""Relative L2 error up to which a rung counts as right, by what x is in its products."""

REPEATS = 4
TOOLS = {"memcheck": ("--padding", "65536"), "racecheck": ()}
"""Of compute-sanitizer, with options. padding: bytes behind every allocation that nobody may read, more than a row."""

KERNELS = "gemv"
"""In the name of every kernel to be watched."""

SECONDS = 60
"""Of one run of compute-sanitizer: if it takes longer, a kernel hangs."""

_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+ (?:errors?|hazards?))")
_PROCESSES = 8


def errors_of(name: str) -> tuple[float, int]:
    """The largest relative L2 error of a rung against float64, and in how many cases: each n, k and size of x.

    An error is that of all outputs of one k and size together: where a matrix has one row, its sum may be close to 0 by
    chance, and every error large beside it. NaN where an output was not written. Raises NanoqwenError where a repeat
    differs in a bit.
    """
    errors = [_error(name, k, size) for k in KS for size in SIZES]
    return float(torch.tensor(errors).max()), len(NS) * len(errors)  # Python's max could hide a NaN


def sanitize(name: str, tool: str) -> str:
    """What a tool of compute-sanitizer counts while a rung runs: "0 errors" of memcheck, "0 hazards" of racecheck.

    Raises ToolchainError with the end of its output where it gives no count, takes longer than SECONDS, or where the
    rung itself failed.
    """
    done = _sanitized(tool, "--watched", name)
    found = _SUMMARY.search(done.stdout)
    if found is None or done.returncode:
        raise ToolchainError(f"{tool} of {name}: {_end(done)}")
    return found[1]


def check_memcheck() -> None:
    """ToolchainError unless memcheck sees a rung read past the end of a tensor: else "0 errors" would say nothing."""
    done = _sanitized("memcheck", "--cut", "naive")
    if "Invalid __global__ read" not in done.stdout:
        raise ToolchainError(f"memcheck: did not see naive read behind words cut short: {_end(done)}")


def run_watched(name: str) -> None:
    """One product at each of WATCHED; all else happens on the CPU, so that no other kernel is watched."""
    generator = torch.Generator().manual_seed(0)
    for n, k in WATCHED:
        matrix, x = matrix_of_all_codes(n, k, generator), torch.randn(k, generator=generator).to(torch.float16)
        y = gemv_ladder.load(name, matrix.words.cuda(), matrix.scales.cuda())(x.cuda()).cpu()
        _check_error(name, relative_error(y, gemv_ladder.reference(matrix.words, matrix.scales, x)))


def run_cut(name: str) -> None:
    """A product whose words lose the second half of their memory after they were checked."""
    matrix = random_matrix(7, 3584, torch.Generator().manual_seed(0))
    words, x = matrix.words.cuda(), torch.ones(3584, dtype=torch.float16)
    gemv = gemv_ladder.load(name, words, matrix.scales.cuda())
    cut(words)
    gemv(x.cuda()).cpu()


def cut(tensor: Tensor) -> None:
    """Move the first half of a tensor's bytes to memory of half the size; its shape stays."""
    tensor.untyped_storage().resize_(tensor.nbytes // 2)


def matrix_of_all_codes(n: int, k: int, generator: torch.Generator) -> Int4Matrix:
    """As random_matrix, whose codes are -7 to 7, but the first word of each row holds eight times -8."""
    matrix = random_matrix(n, k, generator)
    matrix.words[:, 0] = 0
    return matrix


def _sanitized(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Libraries ask the driver for functions that it may lack, which memcheck would count as errors of their own.
    options = ["--tool", tool, *TOOLS[tool], "--kernel-name", f"kns={KERNELS}", "--report-api-errors", "no"]
    command = ["compute-sanitizer", *options, sys.executable, "-m", __spec__.name, *arguments]
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # each tensor is an allocation of its own
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{tool} {' '.join(arguments)}: {error}") from None


def _end(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stdout + done.stderr)[-2000:].split())


def _error(name: str, k: int, size: float) -> float:
    found, expected = zip(*(_product(name, n, k, size) for n in NS), strict=True)
    return relative_error(torch.cat(found), torch.cat(expected))


def _product(name: str, n: int, k: int, size: float) -> tuple[Tensor, Tensor]:
    """What a rung gives, the same REPEATS times, and what float64 gives."""
    generator = torch.Generator("cuda").manual_seed(n * k)
    matrix = matrix_of_all_codes(n, k, generator)
    x = (size * torch.randn(k, generator=generator, device="cuda")).to(torch.float16)
    with _nan_memory():
        gemv = gemv_ladder.load(name, matrix.words, matrix.scales)  # mma takes its y here
        first, *others = (gemv(x).clone() for _ in range(REPEATS))
    if not all(torch.equal(first.view(torch.int32), other.view(torch.int32)) for other in others):
        raise NanoqwenError(f"{name} at n = {n}, k = {k}: two runs differ in their bits")
    return first, gemv_ladder.reference(matrix.words, matrix.scales, x)


@contextmanager
def _nan_memory() -> Iterator[None]:
    """NaN in all memory that PyTorch hands out meanwhile."""
    torch.use_deterministic_algorithms(True)  # which fills what torch.empty gives
    try:
        assert torch.empty(1, device="cuda").isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def _check_error(name: str, error: float) -> None:
    most = TOLERANCES[gemv_ladder.RUNGS[name].activation]
    if not error <= most:
        raise NanoqwenError(f"{name}: relative L2 error {error:.1e}, expected {most:.0e} or less")


def main(names: Sequence[str]) -> int:
    """Check the rungs; 1 where one is wrong, or where memcheck is blind."""
    wrong = 0
    for name in names:
        try:
            error, cases = errors_of(name)
            _check_error(name, error)
            print(f"{name:18} error {error:.2e} in {cases} cases, the same bits every time", flush=True)
        except (NanoqwenError, ImportError) as problem:
            wrong += 1
            print(f"{name:18} {problem}", flush=True)
    try:
        check_memcheck()
    except ToolchainError as problem:
        wrong += 1
        print(problem, flush=True)
    jobs = [(name, tool) for name in names for tool in TOOLS]
    with ThreadPoolExecutor(_PROCESSES) as pool:
        for (name, tool), verdict in zip(jobs, pool.map(lambda job: _verdict(*job), jobs), strict=True):
            wrong += not verdict.startswith("0 ")
            print(f"{name:18} {tool}: {verdict}", flush=True)
    return int(wrong > 0)


def _verdict(name: str, tool: str) -> str:
    try:
        return sanitize(name, tool)
    except ToolchainError as problem:
        return str(problem)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watched"]:
        run_watched(sys.argv[2])
    elif sys.argv[1:2] == ["--cut"]:
        run_cut(sys.argv[2])
    else:
        sys.exit(main(sys.argv[1:] or list(gemv_ladder.RUNGS)))
