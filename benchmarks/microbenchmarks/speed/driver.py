"""What an experiment's driver needs per trial as trials add up: Tune saves the state of all of them again."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune import Callback, CheckpointConfig, RunConfig, TuneConfig, Tuner

from benchmarks.microbenchmarks.speed.overhead import worker_env
from benchmarks.microbenchmarks.speed.timing import SpeedRow, peak_memory_mib, reset_peak_memory
from benchmarks.runner.experiment import QUIET
from benchmarks.runner.row_log import RowLogger
from stn_tune.raytune.internals import bound_saving

TRIALS = {"paper": (200, 1000, 5000), "smoke": (8,)}
SAVED_BY_TUNE = {"paper": 200, "smoke": 8}
"""Saving as Tune does takes time with the square of the number of trials."""
REPORTS = 4
"""Of a trial."""
METRICS = 25
"""Of a report, as many as a self-tuned trial's."""
SHARE = 4
"""The first and the last quarter of the trials are compared."""


class ShortTrial(tune.Trainable):  # type: ignore[misc]  # ray has no types
    """Trains nothing, reports a few times, and saves a checkpoint each time."""

    def setup(self, config: dict[str, Any]) -> None:
        """Nothing to build."""

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Goes on as the next trial."""
        return True

    def step(self) -> dict[str, Any]:
        """A report of the usual length."""
        return {f"metric_{k}": 1 / (k + 3 + self.training_iteration) for k in range(METRICS)} | {
            "done": self.training_iteration + 1 >= REPORTS
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """A small file."""
        Path(checkpoint_dir, "state").write_bytes(bytes(1000))

    def load_checkpoint(self, checkpoint: str) -> None:
        """Nothing to load."""


class _Meter(Callback):  # type: ignore[misc]
    """CPU time of this process after each trial."""

    def __init__(self) -> None:
        self.seconds = [time.process_time()]

    def on_trial_complete(self, **info: Any) -> None:
        self.seconds.append(time.process_time())


def driver_growth(size: str) -> list[SpeedRow]:
    """CPU time of the driver per trial, of the last trials against the first, and its memory."""
    rows = []
    with _ray():
        for trials in TRIALS[size]:
            bound_saving()
            rows.append(_measured(f"driver, {trials:,} trials", trials))
        bound_saving(False)
        rows.append(_measured(f"{SAVED_BY_TUNE[size]:,} trials, Tune's saves", SAVED_BY_TUNE[size]))
    return rows


def _measured(name: str, trials: int) -> SpeedRow:
    meter = _Meter()
    reset_peak_memory()
    with tempfile.TemporaryDirectory() as folder:
        Tuner(
            ShortTrial,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=TuneConfig(num_samples=trials, max_concurrent_trials=1, reuse_actors=True),
            run_config=RunConfig(
                storage_path=folder,
                callbacks=[RowLogger(), meter],
                checkpoint_config=CheckpointConfig(checkpoint_frequency=1, num_to_keep=1),
                verbose=0,
            ),
        ).fit()
    part = trials // SHARE
    first = (meter.seconds[part] - meter.seconds[0]) / part
    last = (meter.seconds[-1] - meter.seconds[-1 - part]) / part
    return SpeedRow(name, last / first, None, None, 1.5, last * 1e3, first * 1e3, peak_memory_mib())


@contextmanager
def _ray() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(QUIET)
    started = not ray.is_initialized()
    if started:
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        ray.init("local", num_cpus=1, runtime_env=worker_env(), **quiet)
    try:
        yield
    finally:
        if started:
            ray.shutdown()
        os.environ.clear()
        os.environ.update(before)
