"""What a trial is charged for, and when an experiment ends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import ray.cloudpickle as pickle

from benchmarks.runner import budget as module
from benchmarks.runner.budget import FAILED_TRIALS, Budget


@pytest.fixture
def clock(monkeypatch):
    """The driver's clock, set by hand."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: now.seconds)
    return now


def trial(name: str) -> SimpleNamespace:
    return SimpleNamespace(trial_id=name, is_finished=lambda: False)


def report(budget: Budget, name: str, compute_s: float, loss: float = 1.0) -> dict:
    result = {"trial_compute_s": compute_s, "best_val_loss": loss, "start_s": 1.0, "setup_s": 0.5, "done": False}
    stop = budget(name, result)
    budget.on_trial_result(0, [], trial(name), result)
    return {**result, "stop": stop}


def test_the_budget_is_the_sum_over_trials_and_overrun_by_one_iteration_at_most(clock):
    budget = Budget(10)
    assert not report(budget, "a", 4.0)["stop"]
    assert not report(budget, "b", 5.0)["stop"]
    last = report(budget, "a", 6.0)
    assert last["stop"]
    assert last["compute_s"] == 11.0
    assert budget.stop_all()


def test_a_trial_that_lost_part_of_its_count_does_not_give_compute_back(clock):
    budget = Budget(60)
    report(budget, "a", 6.0)
    clock.seconds += 3.0
    row = report(budget, "a", 5.0)
    assert (row["compute_s"], row["elapsed_s"]) == (6.0, 3.0)


def test_a_restored_budget_goes_on_where_it_was(clock):
    budget = Budget(10)
    report(budget, "a", 4.0)
    clock.seconds += 30.0
    state = pickle.loads(pickle.dumps(budget.get_state()))
    clock.seconds += 1000.0  # nothing runs
    other = pickle.loads(pickle.dumps(Budget(10)))
    other.set_state(state)
    clock.seconds += 2.0
    row = report(other, "b", 5.0)
    assert row["compute_s"] == 9.0
    assert row["elapsed_s"] == 32.0


def test_clocks_do_not_go_back_behind_rows_that_the_saved_state_does_not_know(clock):
    """On a full disk a trial is restarted and reports again and again, and no state can be saved."""
    budget = Budget(60)
    report(budget, "a", 4.0)
    state = pickle.loads(pickle.dumps(budget.get_state()))
    rows = []
    for k in range(1, 4):
        clock.seconds += 10.0
        rows.append(report(budget, "a", 4.0 + 8.0 * k, loss=0.5) | {"trial_id": "a"})
    other = pickle.loads(pickle.dumps(Budget(60)))
    other.catch_up(rows)
    other.set_state(state)
    row = report(other, "a", 10.0) | {"done": True}
    assert (row["compute_s"], row["elapsed_s"]) == (28.0, 30.0)
    assert max([*rows, row], key=lambda r: (r["compute_s"], r["done"])) is row, "the log ends with it"


def test_an_experiment_whose_trials_all_fail_ends():
    budget = Budget(10)
    for _ in range(FAILED_TRIALS):
        assert not budget.stop_all()
        budget.on_trial_error(0, [], trial("a"))
    assert budget.stop_all()


def test_it_knows_what_start_up_took_and_which_trainings_ended_by_themselves(clock):
    budget = Budget(10)
    report(budget, "a", 2.0)
    report(budget, "a", 3.0)
    report(budget, "b", 2.0)
    budget("b", {"trial_compute_s": 3.0, "best_val_loss": 1.0, "start_s": 1.0, "setup_s": 0.5, "done": True})
    assert (budget.startup_s, budget.ended_trials) == (3.0, 1)
    other = pickle.loads(pickle.dumps(Budget(10)))
    other.set_state(pickle.loads(pickle.dumps(budget.get_state())))
    assert (other.startup_s, other.ended_trials) == (3.0, 1)


def test_an_stn_that_is_being_refined_has_ended_by_itself(clock):
    budget, row = Budget(10), {"best_val_loss": 1.0, "start_s": 0.0, "setup_s": 0.0, "done": False}
    budget("a", row | {"trial_compute_s": 1.0, "network": 0})
    assert budget.ended_trials == 0
    budget("a", row | {"trial_compute_s": 2.0, "network": 1})
    assert budget.ended_trials == 1


def test_a_resumed_experiment_may_fail_as_often_as_a_new_one():
    """What made its trials fail, a full disk for example, may have been put right."""
    budget = Budget(10)
    budget.failures = FAILED_TRIALS
    other = Budget(10)
    other.set_state(budget.get_state())
    assert not other.stop_all()
