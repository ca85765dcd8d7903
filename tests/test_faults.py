"""Processes and nodes that die for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray
from ray import tune

from tests.digits_task import SPACE
from tests.driver_job import TRAINABLE, outer

REPO = Path(__file__).parents[1]


def start(*arguments: str, **options) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(REPO), "PYTHONWARNINGS": "ignore", "RAY_AIR_NEW_OUTPUT": "0"}
    return subprocess.Popen([sys.executable, *arguments], env=environment, text=True, **options)


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_killed_driver_is_carried_on_by_restore(tmp_path):
    address = ray.get_runtime_context().gcs_address
    driver = start(str(REPO / "tests/driver_job.py"), address, str(tmp_path), stderr=subprocess.DEVNULL)
    deadline = time.time() + 120
    folders = []
    while len(folders) < 2 or len(rows(folders[1])) < 2:
        time.sleep(0.2)
        folders = sorted((path.parent for path in tmp_path.glob("run/*/result.json")), key=os.path.getctime)
        folders = [folder for folder in folders if folder.exists() and rows(folder)]
        assert driver.poll() is None, "the driver ended before it could be killed"
        assert time.time() < deadline
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    finished = {folder.name: rows(folder) for folder in folders if len(rows(folder)) == 5}
    assert len(finished) == 1

    results = tune.Tuner.restore(str(tmp_path / "run"), TRAINABLE).fit()
    assert not results.errors
    assert len(results) == 3
    for result in results:
        assert result.metrics_dataframe["training_iteration"].tolist() == [1, 2, 3, 4, 5]
    for name, before in finished.items():
        assert rows(tmp_path / "run" / name) == before, "a finished trial is not run again"
    assert len({result.config["lr"] for result in results}) == 3
    assert sorted(result.config["stn"]["seed"] for result in results) == [0, 1, 2], "the searcher counts on"
    assert [result.config["lr"] for result in in_order(results)] == uninterrupted(in_order(results))


def in_order(results) -> list:
    return sorted(results, key=lambda result: result.config["stn"]["seed"])


def uninterrupted(results) -> list[float]:
    """The learning rates that the outer searcher suggests when nothing kills it: a design of one, then the model's."""
    searcher = outer()
    searcher.set_search_properties("val_loss", "min", {"lr": SPACE["lr"]})
    found = []
    for trial, result in enumerate(results):
        found.append(searcher.suggest(str(trial))["lr"])
        searcher.on_trial_complete(str(trial), result.metrics)
    return found
