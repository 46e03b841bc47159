"""The benchmarks of `nanoqwen bench`: each measures this machine, beside what it allows, and checks its own output.

A benchmark is one function `measure(backend) -> Measurement` and one line in BENCHMARKS or GPU_BENCHMARKS. Numbers are
medians of several runs; limits come from bytes or operations and from rates measured here, in the same process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lab_engine.backends import make_backend
from lab_engine.backends.cuda import NOT_YET, missing
from lab_engine.bench.attention import attention_7b
from lab_engine.bench.cache import cache_step_256
from lab_engine.bench.decode import decode_05b, decode_tiny, prefill_05b
from lab_engine.bench.files import open_4gb, open_memory, pack_fp16, verify_file
from lab_engine.bench.gemv import gemv_token_7b
from lab_engine.bench.machine import LoadMeter, device, gpu, versions
from lab_engine.bench.models import QWEN_7B
from lab_engine.bench.result import Benchmark, Measurement, Result
from lab_engine.bench.startup import first_token_tiny, memory_05b, memory_tiny
from lab_engine.errors import BackendError, NanoqwenError

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["BENCHMARKS", "GPU_BENCHMARKS", "LATER_NAMES", "Benchmark", "Measurement", "Result", "as_table", "run"]

BENCHMARKS = (
    Benchmark("decode/tiny-coder", "tok/s", True, decode_tiny),
    Benchmark("decode/qwen2.5-coder-0.5b", "tok/s", True, decode_05b),
    Benchmark("prefill512/qwen2.5-coder-0.5b", "tok/s", True, prefill_05b),
    Benchmark("first_token/tiny-coder", "s", False, first_token_tiny),
    Benchmark("memory_over_weights/tiny-coder", "bytes", False, memory_tiny),
    Benchmark("memory_over_weights/qwen2.5-coder-0.5b", "bytes", False, memory_05b),
    Benchmark("pack/fp16", "bytes/s", True, pack_fp16),
    Benchmark("open/4gb", "s", False, open_4gb),
    Benchmark("open_memory/4gb", "bytes", False, open_memory),
    Benchmark("verify/fp", "bytes/s", True, verify_file),
    Benchmark("attention2048/qwen2.5-coder-7b", "s", False, attention_7b),
    Benchmark("cache_step/256", "s", False, cache_step_256),
)
GPU_BENCHMARKS = (Benchmark("gemv_token/qwen2.5-coder-7b", "ms", False, gemv_token_7b),)
"""What `--backend cuda` measures where a Hopper GPU is."""
_ON_GPU = {benchmark.name: benchmark for benchmark in GPU_BENCHMARKS}

LATER_NAMES = tuple(f"{what}/qwen2.5-coder-7b" for what in "decode128 decode512 decode8192 prefill512".split())
"""What it will measure once it decodes; named here so that asking for one says why not yet."""


def run(names: Sequence[str], backend: str, say: Callable[[str], None]) -> list[Result]:
    """Measure the named benchmarks, or all of this backend; say(line) tells what is going on.

    NanoqwenError for an unknown name or backend, and for one that cannot run here.
    """
    results = []
    for benchmark in _chosen(names, backend):
        say(f"{benchmark.name} …")
        results.append(_measure(benchmark, backend, say))
    return results


def _chosen(names: Sequence[str], backend: str) -> Sequence[Benchmark]:
    """The benchmarks to run; an unknown backend or name, or a pair that cannot run here, is refused."""
    if backend == "cuda" and set(names) <= set(_ON_GPU):  # they need its products only, and ask the GPU themselves
        if problem := missing():
            raise BackendError(f"backend cuda: cannot run here: {problem}")
        return [_ON_GPU[name] for name in names] or GPU_BENCHMARKS
    make_backend(backend, QWEN_7B, None)
    known = {benchmark.name: benchmark for benchmark in BENCHMARKS}
    for name in names:
        if name in _ON_GPU or name in LATER_NAMES:
            reason = missing() if name in _ON_GPU else NOT_YET
            raise BackendError(
                f"benchmark {name}: needs --backend cuda" + (f", which cannot run here: {reason}" if reason else "")
            )
        if name not in known:
            raise NanoqwenError(f"benchmark {name!r}: expected one of {', '.join([*known, *_ON_GPU, *LATER_NAMES])}")
    return [known[name] for name in names] or BENCHMARKS


def _measure(benchmark: Benchmark, backend: str, say: Callable[[str], None]) -> Result:
    """Without a value where the output was wrong or something is missing: say(line) tells why, the others go on."""
    meter = LoadMeter()
    try:
        found = benchmark.measure(backend)
        problem = None if found.passed else "the output was wrong, so there is no value"
    except NanoqwenError as error:
        problem = f"not measured: {error}"
        found = Measurement(value=math.nan, passed=False, how=problem)
    if problem:
        say(f"{benchmark.name}: {problem}")
    return Result(
        name=benchmark.name,
        value=found.value if found.passed else None,
        unit=benchmark.unit,
        limit=found.limit,
        peer=None if found.peer is None else dict(zip(("name", "value"), found.peer, strict=True)),
        load=meter.read(),
        passed=found.passed,
        kind="measured",
        device=gpu() if benchmark.name in _ON_GPU else device(),
        versions=versions(),
        how=found.how,
    )


def as_table(results: Sequence[Result]) -> Table:
    """For a person: each value beside its limit and its peer."""
    from rich.table import Table

    table = Table("benchmark", title=results[0].device if results else device(), title_justify="left")
    for heading in ("value", "limit", "share", "peer"):
        table.add_column(heading, justify="right")
    table.add_column("machine")
    for result in results:
        higher = next(known.higher_is_better for known in (*BENCHMARKS, *GPU_BENCHMARKS) if known.name == result.name)
        value = "failed" if result.value is None else _with_unit(result.value, result.unit)
        limit = "–" if result.limit is None else _with_unit(result.limit, result.unit)
        peer = f"{result.peer['name']}: {_with_unit(result.peer['value'], result.unit)}" if result.peer else "–"
        busy = f"busy: {result.load['other_cores']} cores" if result.load["busy"] else "quiet"
        table.add_row(result.name, value, limit, _share(result, higher), peer, busy)
    return table


def _share(result: Result, higher_is_better: bool) -> str:
    if result.value is None or result.limit is None:
        return "–"
    return f"{(result.value / result.limit if higher_is_better else result.limit / result.value):.0%}"


def _with_unit(value: float, unit: str) -> str:
    if unit == "ms":
        return f"{value:.3f} ms"
    if unit == "s":
        return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.2f} ms"
    if unit.startswith("bytes"):
        number = f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"
        return number + unit.removeprefix("bytes")
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"
