"""Budget: compute-seconds, counted and enforced; every reported row says how many had been used by then."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import ray
from ray.tune import Callback, Stopper

from stn_tune.numbers import is_finite

FAILED_TRIALS = 3
"""An experiment stops after this many failed trials: something must be wrong with it."""
TELL_EVERY_S = 0.5
CLOCKS = ("trial_compute_s", "start_s", "setup_s", "elapsed_s")
"""What the budget counts, in every row."""

_here: WeakValueDictionary[str, Budget] = WeakValueDictionary()


class Budget(Stopper, Callback):  # type: ignore[misc]  # ray has no types
    """Ends an experiment once its trials have used ``seconds`` compute-seconds in all.

    It has to be both the ``stop`` and the first of the ``callbacks`` of a ``RunConfig``: the callback adds
    ``compute_s``, the sum over the trials' own ``trial_compute_s``, and ``elapsed_s``, the wall-clock time of the
    experiment, to each result before the loggers see it.

    Tune saves a stopper and a callback separately, and restores two; within a process they are one again.
    """

    def __init__(self, seconds: float, board: str | None = None, name: str = ""):
        self.seconds = seconds
        self._board = board
        self._name = name
        self._used: dict[str, float] = {}
        self._startup: dict[str, float] = {}
        self._ended: set[str] = set()
        self._best = float("inf")
        self.rows = 0
        self.failures = 0
        self._began = time.monotonic()
        self._told = 0.0
        self._id = uuid.uuid4().hex
        _here[self._id] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._id, self.seconds, self._board, self._name, self.get_state())

    @property
    def spent(self) -> float:
        """Compute-seconds of all trials."""
        return sum(self._used.values())

    @property
    def startup_s(self) -> float:
        """Compute-seconds in which trials started and set up."""
        return sum(self._startup.values())

    @property
    def ended_trials(self) -> int:
        """Trials whose training has ended by itself."""
        return len(self._ended)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Counts a result; True if it was the last that the budget allows."""
        self._used[trial_id] = max(self._used.get(trial_id, 0.0), result["trial_compute_s"])
        self._startup[trial_id] = result["start_s"] + result["setup_s"]
        if result["done"] or result.get("network"):  # the STN has ended, and plain networks are trained
            self._ended.add(trial_id)
        self._best = min(self._best, result["best_val_loss"])
        self.rows += 1
        return self.stop_all()

    def stop_all(self) -> bool:
        """Whether the budget is used up, or too many trials have failed."""
        return self.spent >= self.seconds or self.failures >= FAILED_TRIALS

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Counts a failure."""
        self.failures += 1

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Adds the experiment's clocks to a result."""
        result["compute_s"] = self.spent
        result["elapsed_s"] = time.monotonic() - self._began
        if time.monotonic() - self._told > TELL_EVERY_S:
            self._tell(trials)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Reports progress at once."""
        self._tell(trials)

    def _tell(self, trials: list[Any]) -> None:
        """Reports progress to the table on the terminal; without one it does nothing."""
        self._told = time.monotonic()
        if self._board is None:
            return
        try:
            board = ray.get_actor(self._board)
        except ValueError:
            return
        done = sum(trial.is_finished() for trial in trials)
        board.tell.remote(self._name, {"spent": self.spent, "trials": done, "best": self._best})

    def get_state(self) -> dict[str, Any]:
        """For Tune's saved state of the experiment."""
        return {
            "used": self._used,
            "startup": self._startup,
            "ended": sorted(self._ended),
            "best": self._best,
            "rows": self.rows,
            "elapsed_s": time.monotonic() - self._began,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from a saved state, or from :meth:`catch_up` where that knows of more; counts never go down.

        The time since it was saved is not counted. Failures count anew: what made trials fail may have been put right.
        """
        self._advance(self._used, state["used"])
        self._advance(self._startup, state.get("startup", {}))
        self._ended |= set(state.get("ended", ()))
        self._best = min(self._best, state["best"])
        self.rows = max(self.rows, state["rows"])
        self._began = min(self._began, time.monotonic() - state["elapsed_s"])

    def catch_up(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Counts rows that are in storage already: the saved state is behind them where it could not be saved.

        Else the clocks of the experiment would go back, and the rows of before would come after those that follow.
        """
        for row in rows:
            if not isinstance(row.get("trial_id"), str) or not all(is_finite(row.get(name)) for name in CLOCKS):
                continue  # a damaged line
            self._advance(self._used, {row["trial_id"]: row["trial_compute_s"]})
            self._advance(self._startup, {row["trial_id"]: row["start_s"] + row["setup_s"]})
            if is_finite(row.get("best_val_loss")):
                self._best = min(self._best, row["best_val_loss"])
            self._began = min(self._began, time.monotonic() - row["elapsed_s"])
        self.rows = max(self.rows, len(rows))

    @staticmethod
    def _advance(counts: dict[str, float], to: Mapping[str, float]) -> None:
        for trial, seconds in to.items():
            counts[trial] = max(counts.get(trial, 0.0), seconds)


def _restored(key: str, seconds: float, board: str | None, name: str, state: Mapping[str, Any]) -> Budget:
    budget = _here.get(key)
    if budget is None:
        budget = Budget(seconds, board, name)
        budget.set_state(dict(state))
        budget._id = key
        _here[key] = budget
    return budget
