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


def test_a_trial_that_starts_over_in_a_new_folder_keeps_its_rows(tmp_path):
    """Tune does that when it resumes from a state that was saved before the trial had started."""
    from ray.train._internal.storage import StorageContext
    from ray.tune.experiment import Trial

    from stn_tune.raytune.internals import trial_log

    storage = StorageContext(storage_path=str(tmp_path), experiment_dir_name="experiment")
    trial = Trial("trainable", trial_id="a1b2_00000", storage=storage, stub=True)
    for folder, lines in {"t_a1b2_00000_before": '{"n": 1}\n{"n": 2', "t_a1b2_00001": '{"n": 9}\n'}.items():
        (tmp_path / "experiment" / folder).mkdir()
        (tmp_path / "experiment" / folder / "result.json").write_text(lines)
    trial.storage.trial_dir_name = "t_a1b2_00000_after"
    own = tmp_path / "experiment" / trial.storage.trial_dir_name
    own.mkdir()
    (own / "result.json").write_text('{"n": 1}\n{"n": 2}\n')
    assert trial_log(trial).decode().splitlines() == ['{"n": 1}', '{"n": 2', '{"n": 1}', '{"n": 2}']
