"""One experiment, a method at a seed: its Tune run, started or carried on, from its first trial to its compact file."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow.fs import FileSelector
from ray import tune
from ray.train._internal.storage import get_fs_and_path
from ray.tune import CheckpointConfig, FailureConfig, RunConfig, TuneConfig
from ray.tune.logger import JsonLoggerCallback

from baselines import METHODS, Found, Plan, Setting
from benchmarks.budget import FAILED_TRIALS, Budget
from benchmarks.lasting import lasting
from benchmarks.machine import machine, versions
from benchmarks.record import compact
from benchmarks.tasks import Problem, problem

QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "2",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_WARN_THRESHOLD_S": "60",
    "PYTHONWARNINGS": "ignore",
    "OMP_NUM_THREADS": "1",
}
"""The environment of an experiment: rows are logged once, and its state is saved as often as trials save theirs."""

RESTARTS = 3
"""How often a trial is restarted, for example after its node was lost."""


class ExperimentError(RuntimeError):
    """An experiment that cannot be finished: one line of why."""


class BudgetError(ExperimentError):
    """A budget that is over before the first iteration."""


@dataclass(frozen=True)
class Experiment:
    """A method at a seed, under a label: variants of a method have labels and changes of their own."""

    method: str
    seed: int
    label: str = ""
    changes: tuple[str, ...] = ()
    """Overrides of settings, on top of the run's."""
    tuned: tuple[str, ...] = ()
    """Which hyperparameters are tuned; the run's, where it is empty."""
    needs: str | None = None
    """The label whose results, at the same seed, it builds on."""

    @property
    def title(self) -> str:
        return self.label or self.method

    @property
    def name(self) -> str:
        return f"{self.title.replace(' ', '_')}-{self.seed}"

    @property
    def needed(self) -> str | None:
        """The name of the experiment that it builds on."""
        return None if self.needs is None else f"{self.needs}-{self.seed}"


@dataclass(frozen=True)
class Job:
    """An experiment with all that its driver needs, on whichever node it runs."""

    experiment: Experiment
    task: str
    preset: str
    overrides: tuple[str, ...]
    tuned: tuple[str, ...]
    data: Path | None
    budget_s: float
    workers: int
    cpus: float
    gpus: float
    storage: str
    board: str | None = None
    found: Mapping[str, Found] = field(default_factory=dict)

    def problem(self) -> Problem:
        e = self.experiment
        return problem(self.task, self.preset, [*self.overrides, *e.changes], self.data, e.tuned or self.tuned)

    def with_found(self, label: str, what: Found) -> Job:
        return replace(self, found={label: what})


def conduct(job: Job) -> bytes:
    """Runs an experiment to its end, from wherever an earlier process left it; gives its compact file."""
    os.environ.update(QUIET)
    e = job.experiment
    random.seed(e.seed)
    np.random.seed(e.seed)  # noqa: NPY002  # Tune's schedulers draw from the global generators
    p = job.problem()
    plan = METHODS[e.method].plan(Setting(p, e.seed, job.workers, job.found))
    trainable = tune.with_resources(lasting(plan.trainable), {"cpu": job.cpus, "gpu": job.gpus})
    folder = f"{job.storage}/{e.name}"
    if _begun(folder):
        tuner = tune.Tuner.restore(folder, trainable, resume_unfinished=True, resume_errored=False)
    else:
        tuner = _new_tuner(job, p, plan, trainable)
    results = tuner.fit()
    return _finish(job, p, tuner, results)


def _begun(folder: str) -> bool:
    """Whether Tune can carry on from there: it cannot before the first trial is in its books."""
    if not tune.Tuner.can_restore(folder):
        return False
    storage, path = get_fs_and_path(folder)
    names = sorted(info.path for info in storage.get_file_info(FileSelector(path)) if "/experiment_state-" in info.path)
    if not names:
        return False
    with storage.open_input_stream(names[-1]) as stream:
        try:
            return bool(json.loads(stream.read())["trial_data"])
        except ValueError:
            raise ExperimentError(
                f"{names[-1]} is not whole, so Tune cannot carry on: delete it, or the folder it is in to begin anew"
            ) from None


def _new_tuner(job: Job, p: Problem, plan: Plan, trainable: Any) -> tune.Tuner:
    e = job.experiment
    budget = Budget(job.budget_s, job.board, e.name)
    return tune.Tuner(
        trainable,
        param_space={**p.initial, **plan.config, "seed": e.seed},
        tune_config=TuneConfig(
            metric=plan.metric,
            mode="min",
            search_alg=plan.search,
            scheduler=plan.scheduler,
            num_samples=plan.samples,
            max_concurrent_trials=None if plan.limited else job.workers,
            reuse_actors=True,
        ),
        run_config=RunConfig(
            name=e.name,
            storage_path=job.storage,
            stop=budget,
            callbacks=[budget, JsonLoggerCallback()],
            checkpoint_config=CheckpointConfig(checkpoint_frequency=1, num_to_keep=plan.keep),
            failure_config=FailureConfig(max_failures=RESTARTS),
            verbose=0,
        ),
    )


def _finish(job: Job, p: Problem, tuner: tune.Tuner, results: tune.ResultGrid) -> bytes:
    e = job.experiment
    budget = tuner._local_tuner.get_run_config().stop
    trials = results._experiment_analysis.trials
    if budget.failures >= FAILED_TRIALS or not budget.rows:
        errors = [str(trial.get_error()) for trial in trials if trial.get_error() is not None]
        what = f"{len(errors)} trials failed: {_last_line(errors[0])}" if errors else "no trial reported anything"
        raise ExperimentError(f"{e.name}: {what}")
    if not budget.stop_all() and not all(trial.is_finished() for trial in trials):
        raise ExperimentError(f"{e.name}: interrupted")
    if budget.rows == 1 and budget.spent > job.budget_s:
        raise BudgetError(
            f"{job.budget_s:g} s is too small: the start and the first iteration of {e.title} took {budget.spent:.1f} s"
        )
    header = {
        "method": e.method,
        "label": e.title,
        "seed": e.seed,
        "task": job.task,
        "preset": job.preset,
        "changes": list(e.changes),
        "tuned": list(p.tuned),
        "budget_s": job.budget_s,
        "workers": job.workers,
        "metric": "val_loss",
        "mode": "min",
        "machine": machine(),
        "versions": versions(),
    }
    return compact(header, trials)


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1]
