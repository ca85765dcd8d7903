"""Schedules from the policy logs of Ray's PopulationBasedTraining."""

from __future__ import annotations

import json

import pytest
from ray import tune

import stn_tune as stn


def config(rate, lr=0.1):
    return {"model": {"rate": rate}, "lr": lr, "seed": 3}


def write_lines(path, lines):
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_trial(folder, name, losses, own, step=10, start=1):
    """``name`` is the trial's id and, in policy logs, its tag; ``own`` its config, or the config of each row."""
    rows = []
    for k, loss in enumerate(losses, start):
        values = own[k - start] if isinstance(own, list) else own
        row = {"trial_id": name, "training_iteration": k, "val_loss": loss, "config": values}
        rows.append(row | ({"step": step * k} if step else {}))
    write_lines(folder / f"Trainable_{name}" / "result.json", rows)


@pytest.fixture
def folder(tmp_path):
    """a copies b at iteration 2, c copies a at 4; c wins. a's log starts with a copy that was undone."""
    undone = ["a", "d", 1, 1, config(0.9), config(0.99)]
    first = ["a", "b", 2, 2, config(0.5), config(0.6)]
    second = ["c", "a", 4, 4, config(0.6), config(1.2, lr=0.2)]
    write_lines(tmp_path / "pbt_policy_a.txt", [undone, first])
    write_lines(tmp_path / "pbt_policy_c.txt", [undone, first, second])
    write_lines(tmp_path / "pbt_global.txt", [undone, first, second])
    write_trial(tmp_path, "a", [3.0, 3.0, 2.0, 2.0, 2.0], config(0.6))
    write_trial(tmp_path, "b", [2.5] * 5, config(0.5))
    write_trial(tmp_path, "c", [4.0, 4.0, 4.0, 4.0, 1.0], config(1.2, lr=0.2))
    return tmp_path


def test_the_winners_lineage_in_weight_steps(folder):
    schedule = stn.Schedule.from_pbt(folder)
    assert schedule.steps == [0, 20, 40]
    assert schedule.values == {"model/rate": [0.5, 0.6, 1.2], "lr": [0.1, 0.1, 0.2]}
    assert (schedule.total_steps, schedule.algorithm) == (50, "pbt")
    assert stn.Schedule.from_json(schedule.to_json()) == schedule


def test_the_space_chooses_names_and_bounds_values(folder):
    schedule = stn.Schedule.from_pbt(folder, {"model/rate": tune.uniform(0, 0.9)})
    assert schedule.values == {"model/rate": [0.5, 0.6, 0.9]}
    with pytest.raises(stn.ScheduleError, match="unknown hyperparameter 'rate'; known: model/rate"):
        stn.Schedule.from_pbt(folder, {"rate": tune.uniform(0, 0.9)})


def test_steps_are_those_of_the_trials_that_were_copied(folder):
    write_trial(folder, "b", [2.5] * 5, config(0.5), step=7)
    write_trial(folder, "c", [4.0, 1.0], [config(0.3), config(1.2, lr=0.2)], start=4)
    assert stn.Schedule.from_pbt(folder).steps == [0, 14, 40]


def test_without_reported_steps_iterations_count(folder):
    for name, losses in [("a", [3.0] * 5), ("b", [2.5] * 5), ("c", [4.0, 4.0, 4.0, 4.0, 1.0])]:
        write_trial(folder, name, losses, config(0.6), step=None)
    schedule = stn.Schedule.from_pbt(folder)
    assert (schedule.steps, schedule.total_steps) == ([0, 2, 4], 5)


def test_a_winner_that_copied_nobody_has_one_entry(folder):
    assert stn.Schedule.from_pbt(folder, mode="max").values == {"model/rate": [0.5], "lr": [0.1]}
    assert stn.Schedule.from_pbt(folder, mode="max").total_steps == 50


def test_of_two_copies_at_one_step_the_later_one_counts(folder):
    first = ["a", "b", 4, 4, config(0.5), config(0.6)]
    second = ["c", "a", 4, 4, config(0.6), config(0.7)]
    write_lines(folder / "pbt_policy_c.txt", [first, second])
    schedule = stn.Schedule.from_pbt(folder)
    assert (schedule.steps, schedule.values["model/rate"]) == ([0, 40], [0.5, 0.7])


def test_a_torn_last_line_is_left_out(folder):
    path = folder / "Trainable_c" / "result.json"
    path.write_text(path.read_text() + '{"val_loss": 0.')
    assert stn.Schedule.from_pbt(folder).total_steps == 50


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("pbt_policy_c.txt", "{\n[]\n", r"pbt_policy_c\.txt: line 1 is not JSON"),
        ("pbt_policy_c.txt", "[1, 2]\n", r"pbt_policy_c\.txt is not a policy log"),
        ("Trainable_a/result.json", "{\n{}\n", r"result\.json: line 1 is not JSON"),
    ],
)
def test_what_cannot_be_read_is_named(folder, name, text, message):
    (folder / name).write_text(text)
    with pytest.raises(stn.ScheduleError, match=message):
        stn.Schedule.from_pbt(folder)


def test_other_folders_are_refused(folder, tmp_path):
    with pytest.raises(stn.ScheduleError, match=r"has no pbt_policy_<trial>\.txt"):
        stn.Schedule.from_pbt(tmp_path / "Trainable_a")
    with pytest.raises(stn.ScheduleError, match=r"has no pbt_policy_<trial>\.txt"):
        stn.Schedule.from_pbt(tmp_path / "nothing")
    with pytest.raises(stn.ScheduleError, match="no trial ended with a finite accuracy"):
        stn.Schedule.from_pbt(folder, metric="accuracy")
    with pytest.raises(stn.ScheduleError, match="mode is 'best'"):
        stn.Schedule.from_pbt(folder, mode="best")
