from __future__ import annotations

import json
from types import SimpleNamespace

import matplotlib as mpl
import pandas as pd
import pytest
import torch
from ray import tune

import stn_tune as stn
from stn_tune.schedule import History

mpl.use("Agg")
SPACE = {"drop": tune.uniform(0, 0.9), "holes": tune.randint(0, 5)}


def make(**changes) -> stn.Schedule:
    parts = {
        "space": SPACE,
        "steps": [0, 10, 30],
        "values": {"drop": [0.1, 0.2, 0.6], "holes": [1, 2, 4]},
        "scales": {"drop": [0.5, 0.4, 0.3], "holes": [0.5, 0.5, 0.5]},
        "total_steps": 100,
    }
    return stn.Schedule(**{**parts, **changes})


def test_values_hold_until_the_next_entry():
    schedule = make()
    assert schedule.at(step=0) == {"drop": 0.1, "holes": 1}
    assert schedule.at(9.9) == {"drop": 0.1, "holes": 1}
    assert schedule.at(step=10) == {"drop": 0.2, "holes": 2}
    assert schedule.at(step=10_000) == {"drop": 0.6, "holes": 4}
    assert schedule.at(fraction=0.2) == schedule.at(step=20)
    assert schedule.at(fraction=1.0) == schedule.at(step=100)
    assert make(steps=[5, 10, 30]).at(step=0) == {"drop": 0.1, "holes": 1}


def test_interpolation_moves_continuous_values_only():
    schedule = make()
    assert schedule.at(20, interpolate=True) == {"drop": pytest.approx(0.4), "holes": 2}
    assert schedule.at(90, interpolate=True) == {"drop": 0.6, "holes": 4}
    assert make(steps=[5, 10, 30]).at(step=2, interpolate=True)["drop"] == 0.1


def test_saves_and_loads_without_loss(tmp_path):
    schedule = make()
    path = tmp_path / "schedule.json"
    schedule.save(path)
    assert stn.Schedule.load(path) == schedule
    assert json.loads(path.read_text())["version"] == 1
    assert list(tmp_path.iterdir()) == [path], "nothing half-written is left"


def test_frame_and_plot():
    frame = make().to_frame()
    assert list(frame.columns) == ["step", "hp/drop", "hp/holes", "scale/drop", "scale/holes"]
    assert frame["hp/drop"].tolist() == [0.1, 0.2, 0.6]
    ax = make().plot(["drop"])
    assert [line.get_label() for line in ax.lines] == ["drop"]
    assert ax.lines[0].get_xdata().tolist() == [0, 10, 30, 100]
    mpl.pyplot.close("all")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": [], "values": {}, "scales": {}}, "the schedule is empty"),
        ({"steps": [0, 30, 10]}, "must be non-negative and increase"),
        ({"total_steps": 20}, "total_steps is 20, but the last entry is at step 30"),
        ({"values": {"drop": [0.1, 0.2, 0.6]}}, "holes: 0 values for 3 steps"),
        ({"values": {"drop": [0.1, 0.2, 0.95], "holes": [1, 2, 4]}}, r"drop: .*0.95.* \(at step 30\)"),
        (
            {"values": {"drop": [0.1, 0.2, 0.6], "holes": [1, 2, 4], "x": [0]}},
            "unknown hyperparameter 'x'",
        ),
    ],
)
def test_a_broken_schedule_is_refused(changes, message):
    with pytest.raises(stn.ScheduleError, match=message):
        make(**changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "schedule.json is not a schedule: it is not JSON"),
        ("[]", "not a schedule"),
        ('{"format": "stn_tune.schedule", "version": 9}', "schedule of version 9; this release reads 1"),
        ('{"format": "stn_tune.schedule", "version": 1, "space": {}}', "the schedule has no 'steps'"),
    ],
)
def test_a_broken_file_is_named(tmp_path, text, message):
    path = tmp_path / "schedule.json"
    path.write_text(text)
    with pytest.raises(stn.ScheduleError, match=message):
        stn.Schedule.load(path)


def test_bad_positions_are_refused():
    for arguments in (
        {},
        {"step": 1, "fraction": 0.1},
        {"step": -1},
        {"fraction": 1.5},
        {"step": float("nan")},
    ):
        with pytest.raises(stn.ScheduleError):
            make().at(**arguments)


def test_a_schedule_is_fitted_to_the_space_of_the_task_to_train():
    found = stn.Schedule({"rate": tune.uniform(0, 1)}, [0, 10], {"rate": [0.2, 0.8]})
    fitted = found.fitted({"rate": tune.uniform(0, 0.9), "other": tune.uniform(0, 1)})
    assert fitted.at(step=10) == {"rate": 0.8}
    assert list(fitted.space) == ["rate"]
    with pytest.raises(stn.ScheduleError, match=r"rate: 0\.8 is not in .*\(at step 10\)"):
        found.fitted({"rate": tune.uniform(0, 0.75)})
    with pytest.raises(stn.ScheduleError, match=r"unknown hyperparameter 'rate'.*did you mean 'rates"):
        found.fitted({"rates": tune.uniform(0, 1)})


def function_trial(tmp_path, rows=None, state=None):
    """What Tune gives of a trial that a function trained."""
    checkpoint = None
    if state is not None:
        torch.save(state, tmp_path / "state.pt")
        checkpoint = tune.Checkpoint.from_directory(tmp_path)
    frame = None if rows is None else pd.DataFrame(rows)
    return SimpleNamespace(checkpoint=checkpoint, metrics_dataframe=frame, path=str(tmp_path))


def tuned_by_hand() -> tuple[stn.SelfTuner, list[dict[str, float]]]:
    hyper = stn.Hyper({"drop": tune.uniform(0, 0.9)})
    model = stn.self_tune(torch.nn.Sequential(torch.nn.Linear(2, 2), stn.nn.Dropout("drop")), hyper)
    tuner = stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.1))
    rows: list[dict[str, float]] = []
    for _ in range(3):
        for _ in range(5):
            tuner.train_step(lambda model, x, hp: model(x).square().mean(), torch.ones(4, 2))
        tuner.valid_step(lambda model, x, hp: model(x).square().mean(), torch.ones(4, 2))
        rows.append({"training_iteration": len(rows) + 1, **tuner.metrics()})
    return tuner, rows


def test_a_loop_of_ones_own_leaves_a_schedule_in_weight_steps(tmp_path):
    tuner, rows = tuned_by_hand()
    reported = stn.Schedule.from_result(function_trial(tmp_path, rows))
    assert reported.steps == [5, 10, 15]
    assert reported.values["drop"] == pytest.approx([row["hp/drop"] for row in rows])
    saved = stn.Schedule.from_result(function_trial(tmp_path, rows, tuner.state_dict()))
    assert saved == tuner.schedule, "every update, from the state that the README saves"


def test_a_trial_without_steps_has_no_schedule(tmp_path):
    _, rows = tuned_by_hand()
    with pytest.raises(stn.ScheduleError, match=r"reported no step, .*: report \*\*SelfTuner\.metrics\(\)"):
        stn.Schedule.from_result(function_trial(tmp_path, [{k: v for k, v in r.items() if k != "step"} for r in rows]))


@pytest.mark.parametrize(
    "state",
    [
        {"weights": torch.zeros(3)},
        {"version": "1.0", "weights": torch.zeros(3)},
        {"history": [1.0, 2.0]},
        {"trainer": 3},
        torch.zeros(3),
    ],
)
def test_a_file_of_the_users_own_is_not_taken_for_ours(state, tmp_path):
    _, rows = tuned_by_hand()
    assert stn.Schedule.from_result(function_trial(tmp_path, rows, state)).steps == [5, 10, 15]


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    tuner, rows = tuned_by_hand()
    with pytest.raises(stn.CheckpointError, match="not written by this version"):
        stn.Schedule.from_result(function_trial(tmp_path, rows, {"version": 99, "trainer": tuner.state_dict()}))


def test_a_schedule_knows_what_found_it(tmp_path):
    schedule = make(algorithm="pbt")
    assert "3 updates by pbt over 100 steps" in repr(schedule)
    schedule.save(tmp_path / "schedule.json")
    assert stn.Schedule.load(tmp_path / "schedule.json").algorithm == "pbt"
    assert schedule.fitted(SPACE).algorithm == "pbt"
    assert make().algorithm is None
    assert "algorithm" not in make().to_json(), "as in files of earlier releases"
    history = History(schedule.space, "stn")
    history.record(0, torch.zeros(2), torch.ones(2))
    assert history.schedule().algorithm == History.from_state(history.state_dict()).schedule().algorithm == "stn"
    old = {key: value for key, value in history.state_dict().items() if key != "algorithm"}
    assert History.from_state(old).schedule().algorithm is None


def test_scales_hold_until_the_next_entry():
    assert make().scales_at(0) == make().scales_at(9) == {"drop": 0.5, "holes": 0.5}
    assert make().scales_at(30) == make().scales_at(10_000) == {"drop": 0.3, "holes": 0.5}
