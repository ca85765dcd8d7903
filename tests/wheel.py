"""The wheel in an environment of its own, which has the packages that the wheel asks for and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Installed:
    """An environment, and where its packages are."""

    home: Path
    site: Path
    environment: dict[str, str]

    def run(self, *command: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command of this environment, without the checkout on its path."""
        program = str(self.home / "bin" / command[0])
        done = subprocess.run([program, *command[1:]], cwd=cwd, env=self.environment, capture_output=True, text=True)
        assert not check or done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done


def built(folder: Path, **environment: str) -> Path:
    """The wheel of this checkout."""
    isolation = ["--no-build-isolation"] if find_spec("hatchling") else []
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", *isolation, "-q", "-w", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if done.returncode and not isolation and "hatchling" in done.stderr:
        pytest.skip("hatchling, which builds the wheel, is neither installed nor within reach")
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def installed(folder: Path, *more: str) -> Installed:
    """The wheel in an empty environment; what it and ``more`` require, and nothing else, is lent by this one."""
    wheel = built(folder / "wheels")
    home = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    site = next((home / "lib").glob("python*")) / "site-packages"
    install = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--no-deps", "-q"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    (metadata,) = site.glob("stn_tune-*.dist-info/METADATA")
    lines = metadata.read_text(encoding="utf-8").splitlines()
    required = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    for name in closure([*required, *more]):
        lend(name, site)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return Installed(home, site, clean | {"COLUMNS": "80", "MPLCONFIGDIR": str(folder)})


def closure(requirements: list[str]) -> set[str]:
    """The names of all distributions that these requirements lead to, here."""
    found: set[str] = set()
    todo = [(Requirement(one), frozenset({""})) for one in requirements]
    seen = set()
    while todo:
        one, extras = todo.pop()
        if one.marker and not any(one.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        if (key := (one.name.lower(), frozenset(one.extras))) in seen:
            continue
        seen.add(key)
        try:
            requires = distribution(one.name).requires or []
        except PackageNotFoundError:  # of another platform's wheel, such as the CUDA libraries
            continue
        found.add(one.name)
        todo += [(Requirement(text), frozenset({"", *one.extras})) for text in requires]
    return found


def lend(name: str, site: Path) -> None:
    """Links a distribution's files into ``site``."""
    files = distribution(name).files or []
    for top in sorted({file.parts[0] for file in files} - {"..", "__pycache__"}):
        source = Path(str(distribution(name).locate_file(top)))
        if source.exists() and not (site / top).exists():
            (site / top).symlink_to(source)
