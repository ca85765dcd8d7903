"""A Tune driver that a test kills. Run by test_faults.py: driver_job.py ADDRESS FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

import ray
from ray import tune
from ray.tune import CheckpointConfig, RunConfig, TuneConfig
from ray.tune.search import ConcurrencyLimiter

import stn_tune as stn
from tests.digits_task import SPACE, Slow

TRAINABLE = stn.STNTrainable.of(Slow)


def outer() -> stn.SkOptSearch:
    return stn.SkOptSearch(n_initial_points=1, seed=5)


def tuner(folder: str) -> tune.Tuner:
    search = stn.STNSearch(online=["dropout", "cutout"], outer=ConcurrencyLimiter(outer(), max_concurrent=1))
    return tune.Tuner(
        TRAINABLE,
        param_space=SPACE,
        tune_config=TuneConfig(
            metric="val_loss", mode="min", num_samples=3, search_alg=search, max_concurrent_trials=1
        ),
        run_config=RunConfig(
            storage_path=folder,
            name="run",
            stop={"training_iteration": 5},
            checkpoint_config=CheckpointConfig(checkpoint_frequency=1, num_to_keep=2),
            verbose=0,
        ),
    )


if __name__ == "__main__":
    address, folder = sys.argv[1:]
    environment = {"PYTHONPATH": str(Path(__file__).parents[1]), "TUNE_GLOBAL_CHECKPOINT_S": "0"}
    ray.init(address, log_to_driver=False, runtime_env={"env_vars": environment})
    tuner(folder).fit()
