"""pyproject.toml names the packages, constraints.txt pins them, environment.yml repeats the names: they agree."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import bootstrap

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert len(found) > 100
    by_name = {canonicalize_name(pin.name): pin for pin in found}
    assert len(by_name) == len(found), "a package is pinned twice"
    return by_name


def direct_requirements() -> list[Requirement]:
    return [Requirement(line) for part in (PROJECT["dependencies"], *EXTRAS.values()) for line in part]


def conda_pip_lines() -> list[str]:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    [pip] = [part["pip"] for part in environment["dependencies"] if isinstance(part, dict)]
    return list(pip)


def test_constraints_are_exact_versions_without_a_local_part() -> None:
    for pin in pins().values():
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), pin


def test_constraints_leave_nvidia_packages_to_pytorch() -> None:
    assert not [name for name in pins() if name.startswith("nvidia-")]


def test_every_direct_requirement_is_pinned_and_only_there() -> None:
    for requirement in direct_requirements():
        assert not requirement.specifier, f"{requirement}: the version belongs in constraints.txt"
        assert canonicalize_name(requirement.name) in pins()


def test_a_pin_never_has_a_narrower_marker_than_its_requirement() -> None:
    for requirement in direct_requirements():
        pin = pins()[canonicalize_name(requirement.name)]
        for platform in ("linux", "darwin", "win32"):
            wanted = requirement.marker is None or requirement.marker.evaluate({"sys_platform": platform})
            pinned = pin.marker is None or pin.marker.evaluate({"sys_platform": platform})
            assert pinned or not wanted, f"{requirement} on {platform}"


def test_gpu_packages_are_not_asked_for_on_macos() -> None:
    gpu = [Requirement(line) for line in EXTRAS["gpu"]]
    assert {"triton", "cupy-cuda13x", "cuda-core"} <= {requirement.name for requirement in gpu}
    assert not any(r.marker is None or r.marker.evaluate({"sys_platform": "darwin"}) for r in gpu)


def installed_closure() -> Iterator[str]:
    """Yield every package that the three extras pull in on this machine, read from the installed metadata."""
    waiting = direct_requirements()
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen or (requirement.marker and not requirement.marker.evaluate()):
            continue
        seen.add(key)
        yield key[0]
        try:
            lines = requires(requirement.name) or []
        except PackageNotFoundError:  # an optional part that is missing here
            continue
        for line in lines:
            needed = Requirement(line)
            marker, needed.marker = needed.marker, None
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)):
                waiting.append(needed)


def test_the_whole_closure_is_pinned() -> None:
    pinned_by_pytorch = ("nvidia-", "cuda-toolkit")
    missing = {name for name in installed_closure() if name not in pins() and not name.startswith(pinned_by_pytorch)}
    assert missing == set()


def test_environment_yml_names_what_pyproject_names() -> None:
    names = [line for line in conda_pip_lines() if not line.startswith("-")]
    assert sorted(str(Requirement(name)) for name in names) == sorted(str(r) for r in direct_requirements())


def test_environment_yml_installs_the_project_with_the_constraints() -> None:
    assert conda_pip_lines()[0] == "-c constraints.txt"
    assert conda_pip_lines()[-1] == "-e .[lab,gpu,dev]"
    assert set(bootstrap.TEST_EXTRAS) == set(EXTRAS)


def test_no_version_stands_in_environment_yml_but_that_of_python() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    conda = [part for part in environment["dependencies"] if isinstance(part, str)]
    assert conda == [f"python{PROJECT['requires-python']}", "pip"]
