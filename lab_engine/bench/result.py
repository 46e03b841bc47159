"""What a benchmark returns, and what `nanoqwen bench` prints of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """What one benchmark function found, in the unit of its Benchmark.

    limit: what the bytes (or operations) and this machine's own measured rate allow, None where nothing bounds it.
    peer: another way to do the same, measured in the same run. passed: the output of this run was right.
    how: what was timed and how often.
    """

    value: float
    passed: bool
    how: str
    limit: float | None = None
    peer: tuple[str, float] | None = None


@dataclass(frozen=True)
class Benchmark:
    """A name, its unit, and the function that measures it with a backend (a name, or auto)."""

    name: str
    unit: str
    higher_is_better: bool
    measure: Callable[[str], Measurement]


@dataclass(frozen=True)
class Result:
    """One object of `nanoqwen bench --json`; value is None when the output was wrong.

    load: {"busy": bool, "other_cores": float}: how many cores other programs took meanwhile.
    """

    name: str
    value: float | None
    unit: str
    limit: float | None
    peer: dict[str, Any] | None
    load: dict[str, Any]
    passed: bool
    kind: str
    device: str
    versions: dict[str, str]
    how: str

    def to_dict(self) -> dict[str, Any]:
        """For json.dumps."""
        return asdict(self)
