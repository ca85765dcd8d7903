"""Budget: compute-seconds, counted and enforced; every reported row is stamped with what had been spent by then."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

import ray
from ray.tune import Callback, Stopper

FAILED_TRIALS = 3
"""An experiment with so many failed trials has something wrong with it, and stops."""

_here: WeakValueDictionary[str, Budget] = WeakValueDictionary()


class Budget(Stopper, Callback):  # type: ignore[misc]  # ray has no types
    """Ends an experiment once its trials have held workers for ``seconds`` in all, set-up and evaluation included.

    It has to be both the ``stop`` and the first of the ``callbacks`` of a ``RunConfig``: the callback adds
    ``elapsed_s``, ``compute_s`` and ``start_s`` to each result before the loggers see it.

    A trial's time is its own clock (``wall_s``) and the start of its process. The age of the process alone would count
    the time for which an idle worker waited for the trial, and the time since the trial was created the time for which
    the trial waited for a worker; so the smaller of the two counts.

    Tune saves a stopper and a callback apart, and restores two; within a process they are one again.
    """

    def __init__(self, seconds: float, board: str | None = None, label: str = ""):
        self.seconds = seconds
        self._board = board
        self._label = label
        self._created: dict[str, float] = {}
        self._start_s: dict[str, float] = {}
        self._wall_s: dict[str, float] = {}
        self._best = float("inf")
        self.rows = 0
        self.failures = 0
        self._began = time.monotonic()
        self._told = 0.0
        self._id = uuid.uuid4().hex
        _here[self._id] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._id, self.seconds, self._board, self._label, self.get_state())

    @property
    def spent(self) -> float:
        return sum(self._wall_s.values()) + sum(self._start_s.values())

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Counts a result, and says whether it was the last that the budget allows."""
        if trial_id not in self._start_s:
            since_created = time.monotonic() - self._created.get(trial_id, time.monotonic())
            waited = max(0.0, since_created - result["wall_s"])
            self._start_s[trial_id] = min(waited, result["start_s"])
        self._wall_s[trial_id] = result["wall_s"]
        self._best = min(self._best, result["best_val_loss"])
        self.rows += 1
        return self.stop_all()

    def stop_all(self) -> bool:
        return self.spent >= self.seconds or self.failures >= FAILED_TRIALS

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.failures += 1

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        for trial in reversed(trials):
            if trial.trial_id in self._created:
                break
            self._created[trial.trial_id] = time.monotonic()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        result["start_s"] = self._start_s[trial.trial_id]
        result["compute_s"] = self.spent
        result["elapsed_s"] = time.monotonic() - self._began
        if time.monotonic() - self._told > 0.5:
            self._tell(trials)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._tell(trials)

    def _tell(self, trials: list[Any]) -> None:
        """To the table that people watch; whoever does not find it runs on."""
        self._told = time.monotonic()
        if self._board is None:
            return
        try:
            board = ray.get_actor(self._board)
        except ValueError:
            return
        done = sum(trial.is_finished() for trial in trials)
        board.tell.remote(self._label, {"spent": self.spent, "trials": done, "best": self._best})

    def get_state(self) -> dict[str, Any]:
        return {
            "start_s": self._start_s,
            "wall_s": self._wall_s,
            "best": self._best,
            "rows": self.rows,
            "failures": self.failures,
            "elapsed_s": time.monotonic() - self._began,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._start_s, self._wall_s, self._best = state["start_s"], state["wall_s"], state["best"]
        self.rows, self.failures = state["rows"], state["failures"]
        self._began = time.monotonic() - state["elapsed_s"]


def _restored(name: str, seconds: float, board: str | None, label: str, state: Mapping[str, Any]) -> Budget:
    budget = _here.get(name)
    if budget is None:
        budget = Budget(seconds, board, label)
        budget.set_state(dict(state))
        budget._id = name
        _here[name] = budget
    return budget
