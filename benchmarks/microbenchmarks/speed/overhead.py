"""What Tune adds to an iteration."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.microbenchmarks.speed.timing import SpeedRow, peak_memory_mib

SECONDS = {"paper": 60.0, "smoke": 2.0}


def tune_overhead(size: str) -> SpeedRow:
    """Time per iteration of 100 steps of the digits task inside Tune, against the SelfTuner calls in that iteration.

    Both are taken in the same process and the same iteration: two processes on this machine differ by more than what
    is measured. Tune adds some 10 to 30 ms per iteration, for its loggers and the way to the driver and back.
    """
    import ray
    from ray.tune import RunConfig, Tuner

    from benchmarks.tasks import problem

    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    digits = problem("digits", "small", ["patience=1000000", "lr_patience=1000000"])
    started = not ray.is_initialized()
    if started:
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        ray.init("local", num_cpus=1, runtime_env=worker_env(), **quiet)
    with tempfile.TemporaryDirectory() as folder:
        results = Tuner(
            digits.self_tuned(steps_per_iteration=100),
            param_space={},
            run_config=RunConfig(storage_path=folder, stop=lambda _, r: r["wall_s"] > SECONDS[size], verbose=0),
        ).fit()
        frame = results[0].metrics_dataframe
    if started:
        ray.shutdown()
    inside = frame["wall_s"].diff().dropna()
    own = (frame["train_s"] + frame["eval_s"]).diff().dropna()
    name = "100 digits steps in Tune"
    ratio = float((inside / own).median())
    return SpeedRow(name, ratio, None, None, 1.05, inside.median() * 1e3, own.median() * 1e3, peak_memory_mib())


def worker_env() -> dict[str, Any]:
    """Lets Ray's workers import ``benchmarks`` from this checkout."""
    return {"env_vars": {"PYTHONPATH": str(Path(__file__).parents[3])}}
