"""What a trial is charged for, and when an experiment ends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import ray.cloudpickle as pickle

from benchmarks import budget as module
from benchmarks.budget import FAILED_TRIALS, Budget


@pytest.fixture
def clock(monkeypatch):
    """The driver's clock, set by hand."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: now.seconds)
    return now


def trial(name: str) -> SimpleNamespace:
    return SimpleNamespace(trial_id=name, is_finished=lambda: False)


def report(budget: Budget, name: str, wall_s: float, start_s: float, loss: float = 1.0) -> dict:
    result = {"wall_s": wall_s, "start_s": start_s, "best_val_loss": loss}
    stop = budget(name, result)
    budget.on_trial_result(0, [], trial(name), result)
    return {**result, "stop": stop}


@pytest.mark.parametrize(
    ("age_of_process", "charged"),
    [
        (4.0, 4.0),  # the process was started for the trial, which had waited for a place before
        (500.0, 5.0),  # an idle process that had been there for long took the trial over
        (0.0, 0.0),  # the process of the trial before
    ],
)
def test_the_start_of_a_process_is_charged_but_no_waiting(clock, age_of_process, charged):
    budget = Budget(60)
    budget.on_step_end(0, [trial("a")])
    clock.seconds += 8.0  # 5 s until its process was there, 3 s of its own
    assert report(budget, "a", wall_s=3.0, start_s=age_of_process)["start_s"] == charged
    clock.seconds += 2.0
    row = report(budget, "a", wall_s=5.0, start_s=age_of_process)
    assert row["start_s"] == charged, "once"
    assert row["compute_s"] == charged + 5.0
    assert row["elapsed_s"] == 10.0


def test_the_budget_is_the_sum_over_trials_and_overrun_by_one_iteration_at_most(clock):
    budget = Budget(10)
    assert not report(budget, "a", 4.0, 0.0)["stop"]
    assert not report(budget, "b", 5.0, 0.0)["stop"]
    last = report(budget, "a", 6.0, 0.0)
    assert last["stop"]
    assert last["compute_s"] == 11.0
    assert budget.stop_all()


def test_a_restored_budget_goes_on_where_it_was(clock):
    budget = Budget(10)
    report(budget, "a", 4.0, 0.0)
    clock.seconds += 30.0
    state = pickle.loads(pickle.dumps(budget.get_state()))
    clock.seconds += 1000.0  # nothing runs
    other = pickle.loads(pickle.dumps(Budget(10)))
    other.set_state(state)
    clock.seconds += 2.0
    row = report(other, "b", 5.0, 0.0)
    assert row["compute_s"] == 9.0
    assert row["elapsed_s"] == 32.0


def test_an_experiment_whose_trials_all_fail_ends():
    budget = Budget(10)
    for _ in range(FAILED_TRIALS):
        assert not budget.stop_all()
        budget.on_trial_error(0, [], trial("a"))
    assert budget.stop_all()
