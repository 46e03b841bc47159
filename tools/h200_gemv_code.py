"""How a rung of the GEMV's ladder is launched, what its code takes, and its inner loop: for the recording `gemv`."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab_engine.errors import RecordingError

_USAGE = re.compile(r"Function (\w+):\s*REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")


def code(name: str, shape: tuple[int, int], sms: int) -> dict[str, Any]:
    """`launch` and `sass` of a rung: for an (n, k) matrix on a GPU of that many SMs, compiled for Hopper now."""
    from lab_engine import gemv_sass
    from lab_engine.gemv_ladder import RUNGS

    loop = gemv_sass.rung_loop(name)
    used = resources(gemv_sass.rung_cubin(name))[RUNGS[name].kernel]
    sass = {
        "loop": [asdict(line) for line in loop.lines],
        "weights_per_loop": loop.weights,
        "per_weight": {kind: round(count, 4) for kind, count in loop.per_weight.items()},
    }
    return {"launch": block(name, *shape, sms) | used, "sass": sass}


def block(name: str, n: int, k: int, sms: int) -> dict[str, int]:
    """Threads of a block, and the dynamic shared memory that it asks for."""
    if name.startswith("triton"):
        from lab_engine.kernels.gemv_triton import LAUNCHES, compile_rung

        return {"threads": 32 * LAUNCHES[name].num_warps, "shared_bytes": int(compile_rung(name).metadata.shared)}
    if name.startswith("dp4a"):
        from lab_engine.gemv_dp4a import LIMBS, Launch, activation_bytes

        return {"threads": Launch(n, k, sms).threads, "shared_bytes": activation_bytes(k, LIMBS[name])}
    if name == "mma":
        from lab_engine.gemv_mma import THREADS, plan

        return {"threads": THREADS, "shared_bytes": plan(n, k, sms).shared_bytes}
    from lab_engine.gemv_ladder import launch_shape

    shape = launch_shape(name, n, k, sms)
    return {"threads": shape.threads, "shared_bytes": shape.shared_bytes}


def resources(cubin: bytes) -> dict[str, dict[str, int]]:
    """By kernel: `registers` of a thread, and `spill_bytes`, its stack and local memory. RecordingError where none."""
    from lab_engine.sass import find_cuobjdump

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(cubin)
        command = [find_cuobjdump(), "-res-usage", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {
        kernel: {"registers": int(registers), "spill_bytes": int(stack) + int(local)}
        for kernel, registers, stack, local in _USAGE.findall(done.stdout)
    }
    if not found:
        raise RecordingError(
            f"{command[0]}: says nothing of registers: {' '.join((done.stdout + done.stderr).split())}"
        )
    return found
