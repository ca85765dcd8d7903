"""PBT and PB2 that keep to a number of workers: Tune alone would start every member that the cluster has room for."""

from __future__ import annotations

from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining
from ray.tune.schedulers.pb2 import PB2


class Limited:
    """Members wait, paused, until one of ``workers`` places is free; then the one that has trained least goes on.

    A process is handed over from member to member: starting one for every turn would cost more than the turn. Tune
    keeps a paused trial's process only while another trial is staged, so the next one is staged just before.
    """

    workers: int

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        super().on_trial_add(tune_controller, trial)  # type: ignore[misc]
        if trial.status == Trial.PENDING:
            trial.init_local_path()
            trial.set_status(Trial.PAUSED)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        since = result[self._time_attr] - self._trial_state[trial].last_perturbation_time  # type: ignore[attr-defined]
        if since >= self._perturbation_interval:  # type: ignore[attr-defined]
            self._stage_next(tune_controller)
        return super().on_trial_result(tune_controller, trial, result)  # type: ignore[misc, no-any-return]

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        self._stage_next(tune_controller)
        super().on_trial_complete(tune_controller, trial, result)  # type: ignore[misc]

    def _stage_next(self, tune_controller: Any) -> None:
        waiting = [trial for trial in tune_controller.get_trials() if trial.status == Trial.PAUSED]
        if waiting:
            chosen = min(waiting, key=lambda t: self._trial_state[t].last_train_time)  # type: ignore[attr-defined]
            tune_controller._set_trial_status(chosen, Trial.PENDING)
            tune_controller._staged_trials.add(chosen)
            tune_controller._actor_cache.increase_max(chosen.placement_group_factory)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        busy = [t for t in tune_controller.get_live_trials() if t.status in (Trial.PENDING, Trial.RUNNING)]
        if len(busy) < self.workers:
            return super().choose_trial_to_run(tune_controller)  # type: ignore[misc, no-any-return]
        if tune_controller._actor_manager.num_total_actors == 0:
            self._unstage(tune_controller)
        return None

    def _unstage(self, tune_controller: Any) -> None:
        """The process that was to be handed over is gone: let Tune start another."""
        for trial in list(tune_controller._staged_trials):
            tune_controller._unstage_trial_with_resources(trial)


class LimitedPBT(Limited, PopulationBasedTraining):  # type: ignore[misc]  # ray has no types
    def __init__(self, *, workers: int, **options: Any):
        super().__init__(**options)
        self.workers = workers


class LimitedPB2(Limited, PB2):  # type: ignore[misc]  # ray has no types
    def __init__(self, *, workers: int, **options: Any):
        super().__init__(**options)
        self.workers = workers
