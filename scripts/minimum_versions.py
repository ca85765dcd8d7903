"""Tests with the oldest declared versions: python3.10 scripts/minimum_versions.py, or a newer Python.

Makes an environment with this Python in .venv-minimum, where every lower bound of pyproject.toml is the version that is
installed, and runs the quick tests there. pip's older builds of torch for Linux bring gigabytes of CUDA. The extras
`lightning` and `huggingface` are left out.
"""

from __future__ import annotations

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
TOOLS = {"pytest", "pytest-timeout", "pytest-xdist", "hypothesis"}
"""What runs the tests: any version will do."""


def requirements(project: Mapping[str, Any]) -> list[str]:
    """The dependencies and those of the extra ``bench``, each pinned to its lower bound; and the tools for tests."""
    extras = project["optional-dependencies"]
    pinned = [one.replace(">=", "==") for one in (*project["dependencies"], *extras["bench"])]
    return pinned + [one for one in extras["dev"] if re.split("[>=]", one)[0] in TOOLS]


def main() -> None:
    """Builds the environment, runs the tests, ends with their exit code."""
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
        "--doctest-ignore-import-errors",  # of the integrations, whose packages are not there
    ]
    environment = {**os.environ, "PYTEST_ADDOPTS": " ".join(options)}
    sys.exit(subprocess.run(["make", "quick-tests", f"VENV={VENV.name}"], cwd=ROOT, env=environment).returncode)


if __name__ == "__main__":
    main()
