"""One experiment, a method at a seed: its Tune run, new or resumed, from its first trial to its log."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from ray import tune
from ray.tune import CheckpointConfig, FailureConfig, RunConfig, TuneConfig

from baselines import EarlierResult, Method, Plan, Setting
from benchmarks.durations import count
from benchmarks.runner.budget import FAILED_TRIALS, Budget
from benchmarks.runner.checkpoint_fallback import with_checkpoint_fallback
from benchmarks.runner.log import pack_log
from benchmarks.runner.machine import machine, versions
from benchmarks.runner.options import Options
from benchmarks.runner.repair import repair, tuner_is_readable
from benchmarks.runner.row_log import RowLogger, stored_rows
from benchmarks.tasks import Problem
from stn_tune.raytune.internals import bound_saving, stopper_of, trials_of
from stn_tune.record import ExperimentInfo

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
    """An experiment that cannot be finished, and why, in one line."""


class BudgetError(ExperimentError):
    """A budget that is used up before the first iteration has ended."""


@dataclass(frozen=True)
class Job:
    """An experiment with all that its driver needs, on whichever node it runs."""

    info: ExperimentInfo
    """Which experiment."""
    method: Method
    """How it is run."""
    options: Options
    """The run's."""
    storage: str
    """Where Tune keeps the run's folders."""
    board: str | None = None
    """The name of the actor that collects progress."""
    earlier: Mapping[str, EarlierResult] = field(default_factory=dict)
    """Results that it builds on, by method."""

    def problem(self) -> Problem:
        """What it trains."""
        return self.options.problem(self.info)


def run_experiment(job: Job) -> bytes:
    """Runs an experiment to its end, from wherever an earlier process left it; gives its log."""
    os.environ.update(QUIET)
    e = job.info
    random.seed(e.seed)
    np.random.seed(e.seed)  # noqa: NPY002  # Tune's schedulers draw from the global generators
    p = job.problem()
    plan = job.method.plan(Setting(p, e.seed, job.options.workers, job.earlier))
    resources = {"cpu": job.options.cpus, "gpu": job.options.gpus}
    trainable = tune.with_resources(with_checkpoint_fallback(plan.trainable), resources)
    folder = f"{job.storage}/{e.name}"
    if repair(folder):
        if not tuner_is_readable(folder):
            _new_tuner(job, p, plan, trainable)  # writes that file anew
        tuner = tune.Tuner.restore(folder, trainable, resume_unfinished=True, resume_errored=True)
        stopper_of(tuner).catch_up(stored_rows(folder))
    else:
        tuner = _new_tuner(job, p, plan, trainable)
    bound_saving()
    results = tuner.fit()
    return _finish(job, p, plan, tuner, results)


def _new_tuner(job: Job, p: Problem, plan: Plan, trainable: Any) -> tune.Tuner:
    e = job.info
    budget = Budget(job.options.budget_s, job.board, e.name)
    return tune.Tuner(
        trainable,
        param_space={**p.initial, **plan.config, "seed": e.seed},
        tune_config=TuneConfig(
            metric=plan.metric,
            mode="min",
            search_alg=plan.search,
            scheduler=plan.scheduler,
            num_samples=plan.samples,
            max_concurrent_trials=None if plan.limited else job.options.workers,
            reuse_actors=True,
        ),
        run_config=RunConfig(
            name=e.name,
            storage_path=job.storage,
            stop=budget,
            callbacks=[budget, RowLogger()],
            checkpoint_config=CheckpointConfig(checkpoint_frequency=1, num_to_keep=plan.keep),
            failure_config=FailureConfig(max_failures=RESTARTS),
            verbose=0,
        ),
    )


def _finish(job: Job, p: Problem, plan: Plan, tuner: tune.Tuner, results: tune.ResultGrid) -> bytes:
    e, options = job.info, job.options
    budget, trials = stopper_of(tuner), trials_of(results)
    if budget.failures >= FAILED_TRIALS or not budget.rows:
        errors = [str(trial.get_error()) for trial in trials if trial.get_error() is not None]
        what = (
            f"{count(len(errors), 'trial')} failed: {_last_line(errors[0])}" if errors else "no trial reported a result"
        )
        raise ExperimentError(f"{e.name}: {what}")
    if not budget.stop_all() and not all(trial.is_finished() for trial in trials):
        raise ExperimentError(f"{e.name}: interrupted")
    if budget.rows == 1 and budget.spent > options.budget_s:
        raise BudgetError(
            f"{options.budget_s:g} s is too small: start-up and the first iteration of {e.label} "
            f"took {budget.spent:.1f} compute-seconds"
        )
    about = {
        "task": options.task,
        "preset": options.preset,
        "budget_s": options.budget_s,
        "clock": options.clock,
        "metric": p.info.metric,
        "mode": p.info.mode,
    }
    info = replace(
        e,
        machine=machine(),
        versions=versions(),
        searches=plan.samples != 1,
        startup_s=round(budget.startup_s, 3),
        ended_trials=budget.ended_trials,
    )
    return pack_log(info, about, trials)


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1]
