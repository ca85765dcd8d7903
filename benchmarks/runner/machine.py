"""What a run was made with: machine, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "ray", "numpy", "pandas", "scikit-optimize", "scikit-learn", "optuna")


def machine() -> dict[str, Any]:
    """The processor, memory and GPUs of this node."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory, 1),
        "gpus": gpus,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Of Python and the packages that results depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> tuple[str | None, bool | None]:
    """The commit of the code that runs, and whether files differ from it; None and None outside a repository."""

    def git(*arguments: str) -> str:
        here = Path(__file__).parent
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--", ":/*.py", ":/*.toml"))
    except (OSError, subprocess.CalledProcessError):
        return None, None
