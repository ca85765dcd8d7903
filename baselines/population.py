"""PBT and PB2 that keep to a number of workers: Tune alone would start every member that the cluster has room for."""

from __future__ import annotations

from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining
from ray.tune.schedulers.pb2 import PB2

from stn_tune.raytune import internals


class Limited:
    """Members wait, paused, until one of ``workers`` places is free; then the one that has trained least goes on.

    A process is handed over from member to member: starting one for every turn would cost more than the turn. Tune
    keeps a paused trial's process only while another trial is staged, so the next one is staged just before.
    """

    workers: int

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """A new member waits like all others."""
        super().on_trial_add(tune_controller, trial)  # type: ignore[misc]
        if trial.status == Trial.PENDING:
            trial.init_local_path()
            trial.set_status(Trial.PAUSED)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Stages the next member where this one is about to be paused."""
        trained = internals.iterations_since_perturbation(self, trial, result)
        if trained >= internals.perturbation_interval(self):
            self._stage_next(tune_controller)
        return super().on_trial_result(tune_controller, trial, result)  # type: ignore[misc, no-any-return]

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Hands the process over to the next member."""
        self._stage_next(tune_controller)
        super().on_trial_complete(tune_controller, trial, result)  # type: ignore[misc]

    def _stage_next(self, tune_controller: Any) -> None:
        waiting = [trial for trial in tune_controller.get_trials() if trial.status == Trial.PAUSED]
        if waiting:
            chosen = min(waiting, key=lambda trial: internals.trained_for(self, trial))
            internals.stage_paused_trial(tune_controller, chosen)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """None while all workers are busy."""
        busy = [t for t in tune_controller.get_live_trials() if t.status in (Trial.PENDING, Trial.RUNNING)]
        if len(busy) < self.workers:
            return super().choose_trial_to_run(tune_controller)  # type: ignore[misc]
        if internals.count_processes(tune_controller) == 0:  # the one to be handed over has died
            internals.unstage_trials(tune_controller)
        return None


class LimitedPBT(Limited, PopulationBasedTraining):  # type: ignore[misc]  # ray has no types
    """Population-based training on ``workers`` workers."""

    def __init__(self, *, workers: int, **options: Any):
        super().__init__(**options)
        self.workers = workers


class LimitedPB2(Limited, PB2):  # type: ignore[misc]  # ray has no types
    """Population-based bandits on ``workers`` workers."""

    def __init__(self, *, workers: int, **options: Any):
        super().__init__(**options)
        self.workers = workers
