"""The scripts that people copy: each runs, and differs from its plain twin by a few lines."""

from __future__ import annotations

import difflib
import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import ray.train
import torch

from examples import compare_my_experiments, ray_train, tune_class

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TWINS = {example: twin for example in EXAMPLES if (twin := Path(__file__).with_name(f"plain_{example.name}")).exists()}
TWINS[ROOT / "examples" / "plain_loop.py"] = Path(__file__).with_name("plain_loop.py")
ALONE = ["amp_accumulation", "lightning_module", "plain_loop"]
LONGER = ["accelerate_loop", "ddp", "hf_trainer"]
"""Those that need no Ray."""


def code(path: Path) -> list[str]:
    """The lines after the module's docstring; a line that is only indented more is the same line."""
    text = path.read_text(encoding="utf-8")
    return [line.strip() for line in text[text.index('"""', 3) + 3 :].splitlines()]


@pytest.mark.parametrize("example", TWINS, ids=lambda path: path.stem)
def test_a_plain_script_becomes_self_tuned_in_a_few_lines(example):
    most = 18 if example.stem == "accelerate_loop" else 9  # a loop that owns everything, and resumes
    changes = difflib.ndiff(code(TWINS[example]), code(example))
    changed = [line for line in changes if line.startswith("+ ") and line.strip("+ ")]
    assert 1 < len(changed) <= most, "\n".join(changed)


def test_all_have_a_docstring_that_says_how_to_run_them():
    for path in EXAMPLES:
        assert f"python examples/{path.name}" in path.read_text(encoding="utf-8").split('"""')[1], path.name


def run(script: Path, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    process = subprocess.run(
        [sys.executable, str(script)], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.parametrize("name", [*ALONE, *(pytest.param(name, marks=pytest.mark.slow) for name in LONGER)])
def test_they_run_as_scripts(name, tmp_path):
    printed = run(ROOT / "examples" / f"{name}.py", tmp_path)
    assert "test loss" in printed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain_loop", "plain_amp_accumulation", "plain_ddp"])
def test_their_twins_run_too(name, tmp_path):
    assert "test loss" in run(Path(__file__).with_name(f"{name}.py"), tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_task_under_two_tuners(tmp_path, capsys):
    random, tuned = tune_class.main(str(tmp_path), trials=2, iterations=3)
    assert not random.errors
    assert not tuned.errors
    assert "one self-tuned: validation" in capsys.readouterr().out
    assert len(tuned) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_experiments_of_ones_own_are_compared(tmp_path, capsys):
    folders = compare_my_experiments.main(str(tmp_path), seeds=3)
    assert len(folders) == 2
    assert "cosine" in capsys.readouterr().out


def killed_once(config):
    """The example's loop; the second worker's process is killed after the second epoch."""
    marker, report = Path(config["storage"], "killed"), ray.train.report

    def reporting(metrics, checkpoint=None):
        report(metrics, checkpoint=checkpoint)
        if metrics["epoch"] == 2 and ray.train.get_context().get_world_rank() == 1 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    ray.train.report = reporting
    try:
        ray_train.worker(config)
    finally:
        ray.train.report = report


@pytest.mark.slow
@pytest.mark.timeout(900)  # eight workers in all, each a start of torch
@pytest.mark.usefixtures("ray_session")
def test_ray_train_inside_tune_resumes_after_a_killed_worker(tmp_path):
    undisturbed = ray_train.main(str(tmp_path / "a"), epochs=4)
    (tmp_path / "b").mkdir()
    disturbed = ray_train.main(
        str(tmp_path / "b"), epochs=4, trial=functools.partial(ray_train.trial, loop=killed_once)
    )
    assert (tmp_path / "b" / "killed").exists()
    assert not undisturbed.errors
    assert not disturbed.errors
    for results in (undisturbed, disturbed):
        frame = results[0].metrics_dataframe
        assert frame["epoch"].tolist() == [1, 2, 3, 4], "λ is reported once per epoch, not once per worker"
        assert frame["hp/dropout"].nunique() == 4
    saved = []
    for folder in ("a", "b"):
        state = max((tmp_path / folder).rglob("state.pt"), key=lambda path: path.stat().st_mtime)
        saved.append(torch.load(state, weights_only=True))
    assert saved[0]["epoch"] == saved[1]["epoch"] == 4
    first, second = (
        next(value for key, value in one["tuner"]["model"].items() if key.endswith("hyper.lam/dropout"))
        for one in saved
    )
    assert torch.allclose(first, second, atol=0.05), "it went on from the checkpoint, not from the start"
