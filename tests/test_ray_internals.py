"""Every private name of Ray is used in one file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
ALLOWED = REPO / "stn_tune" / "raytune" / "internals.py"
FILES = [path for package in ("stn_tune", "baselines", "benchmarks") for path in (REPO / package).rglob("*.py")]
OF_RAY = {
    "_actor_cache", "_actor_manager", "_experiment_analysis", "_local_tuner", "_perturbation_interval",
    "_set_trial_status", "_staged_trials", "_time_attr", "_trial_state", "_unstage_trial_with_resources",
}  # fmt: skip
"""Private attributes of Ray's objects that this project needs."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REPO)))
def test_private_names_of_ray_are_used_in_one_file(path):
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "ray":
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            found += [name for name in names if name.startswith("_")]
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.startswith("ray.") and "._" in a.name]
        if isinstance(node, ast.Attribute) and node.attr in OF_RAY:
            found.append(node.attr)
    if path == ALLOWED:
        assert set(found) >= OF_RAY
    else:
        assert not found
