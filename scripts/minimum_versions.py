"""Tests with the oldest declared versions: python3.10 scripts/minimum_versions.py, or a newer Python.

Makes an environment with this Python in .venv-minimum, where every lower bound of pyproject.toml is the version that is
installed, and runs the quick tests and those of the integrations there, without Ray. pip's older builds of torch for
Linux bring gigabytes of CUDA.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

try:
    import tomllib
except ImportError:  # before Python 3.11
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv-minimum"
BESIDE = ["pyarrow<26"]
"""What Ray brings in its newest version, which would ask for newer ones than ours: pyarrow 26 needs NumPy 2."""
EXTRAS = ("bench", "lightning", "huggingface")
TOOLS = {"pytest", "pytest-timeout", "pytest-xdist", "hypothesis"}
"""What runs the tests: any version will do."""
BESIDE_INTEGRATIONS = {"pytorch-lightning", "peft", "tensorboardX"}
"""What their tests use, of the extra ``dev``."""


def requirements(project: Mapping[str, Any]) -> list[str]:
    """The dependencies and those of ``EXTRAS``, each pinned to its lower bound; and what the tests need."""
    extras = project["optional-dependencies"]
    dev = {re.split("[>=]", one)[0]: one for one in extras["dev"]}
    declared = [*project["dependencies"], *(one for extra in EXTRAS for one in extras[extra])]
    declared += [one for name, one in dev.items() if name in BESIDE_INTEGRATIONS]
    pinned = [one.replace(">=", "==") for one in declared]
    return pinned + BESIDE + [one for name, one in dev.items() if name in TOOLS]


def main() -> None:
    """Builds the environment, runs the tests, ends with their exit code."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    wanted = requirements(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])
    print(f"Python {sys.version.split()[0]} with {', '.join(wanted)}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, *wanted]).returncode:
        sys.exit("minimum_versions: a bound that cannot be installed must not be declared; pip's error is above")
    subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True)
    (VENV / ".installed").touch()
    options = [
        "-W ignore::DeprecationWarning",  # old versions warn of each other
    ]
    environment = {**os.environ, "PYTEST_ADDOPTS": " ".join(options)}
    ends = [
        subprocess.run(["make", target, f"VENV={VENV.name}"], cwd=ROOT, env=environment).returncode
        for target in ("quick-tests", "integration-tests")
    ]
    sys.exit(max(ends))


if __name__ == "__main__":
    main()
