"""Take the measurements of data/h200 on an NVIDIA H200.

    python3 -m tools.record_h200 [NAME…] [--out FOLDER] [--commit HASH]

Writes FOLDER/NAME.json for each name (default: all, to data/h200). Run it in the project's folder. `unpack` needs
NumPy, CuPy, cuda-core and cuobjdump; `copy` needs the project's packages, PyTorch with CUDA and 4 GB of disk;
`paged_attention` needs PyTorch with CUDA, Triton and 40 GB of the GPU's memory; `gemv_token` needs the project's
packages, PyTorch with CUDA, cuda-core and 20 GB of the GPU's memory; `gemv` needs Triton and compute-sanitizer too.
Without git there, --commit or NANOQWEN_COMMIT says which commit is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab_engine.errors import NanoqwenError, RecordingError
from lab_engine.recordings import Provenance, Recording, parse_recording, source_hash
from tools import h200_attention, h200_copy, h200_gemv, h200_gemv_token, h200_machine, h200_unpack


@dataclass(frozen=True)
class Recorder:
    """How one recording is taken.

    sources: what it measures, by paths from the project's folder. measure: returns the data, and the clocks in MHz
    under its load. cuda: the version of the CUDA runtime that it uses.
    """

    sources: tuple[str, ...]
    measure: Callable[[], tuple[dict[str, Any], dict[str, int]]]
    cuda: Callable[[], str]


RECORDERS = {
    "unpack": Recorder(h200_unpack.SOURCES, h200_unpack.record, h200_machine.cupy_cuda),
    "copy": Recorder(h200_copy.SOURCES, h200_copy.record, h200_machine.torch_cuda),
    "paged_attention": Recorder(h200_attention.SOURCES, h200_attention.record, h200_machine.torch_cuda),
    "gemv": Recorder(h200_gemv.SOURCES, h200_gemv.record, h200_machine.torch_cuda),
    "gemv_token": Recorder(h200_gemv_token.SOURCES, h200_gemv_token.record, h200_machine.torch_cuda),
}


def commit(given: str) -> str:
    """The commit that is measured: what was given, else NANOQWEN_COMMIT, else what git says."""
    if known := given or os.environ.get("NANOQWEN_COMMIT", ""):
        return known
    try:
        command = ["git", "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        raise RecordingError("commit: git cannot say it here; give --commit HASH or set NANOQWEN_COMMIT") from None


def provenance(name: str, clocks_mhz: dict[str, int], measured_commit: str) -> Provenance:
    """What this machine is, after a measurement."""
    device, driver = h200_machine.nvidia_smi("name", "driver_version")
    return Provenance(
        device=device,
        driver=driver,
        cuda=RECORDERS[name].cuda(),
        versions=h200_machine.installed_versions(),
        clocks_mhz=clocks_mhz,
        date=datetime.now(UTC).date().isoformat(),
        command=f"python3 -m tools.record_h200 {name}",
        commit=measured_commit,
        sources={source: source_hash(source) for source in RECORDERS[name].sources},
    )


def record(name: str, folder: Path, measured_commit: str) -> Path:
    """Take one recording, check it as a reader would, and write it."""
    if name not in RECORDERS:
        raise RecordingError(f"recording {name!r}: expected one of {', '.join(RECORDERS)}")
    data, clocks_mhz = RECORDERS[name].measure()
    path = folder / f"{name}.json"
    text = json.dumps(asdict(Recording(name, provenance(name, clocks_mhz, measured_commit), data)), indent=1) + "\n"
    parse_recording(text, path)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def main() -> int:
    """Record what the command line names; one line for each file, and for what goes wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(RECORDERS), metavar="NAME", help=", ".join(RECORDERS))
    parser.add_argument("--out", type=Path, default=Path("data/h200"), metavar="FOLDER")
    parser.add_argument("--commit", default="")
    arguments = parser.parse_args()
    try:
        measured_commit = commit(arguments.commit)
        for name in arguments.names:
            print(record(name, arguments.out, measured_commit))
    except NanoqwenError as error:
        print(f"record_h200: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
