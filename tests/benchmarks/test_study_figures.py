"""The figures that live with their studies."""

from __future__ import annotations

import math
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from benchmarks.studies import STUDIES, all_figures
from benchmarks.studies.schedules.figures import nearest_epochs, select_greedy
from stn_tune.analysis import FIGURES, MissingData, Results, load
from tests.analysis import logs

mpl.use("Agg")
HEATMAP = ("view", "heatmap")


def frame_of(tmp_path, runs: dict[tuple, list], **changes) -> pd.DataFrame:
    logs.write_runs(tmp_path, runs, **changes)
    return load(tmp_path)


def drawn(name: str, frame: pd.DataFrame):
    (figure,) = (figure for figure in all_figures() if figure.name == name)
    return figure.draw(figure.select(Results.of(frame)))


def self_tuned_rows(values: list[float], hp: dict[str, list[float]]) -> list[dict]:
    reported = logs.rows(values)
    for k, row in enumerate(reported):
        row |= {f"hp/{name}": column[k] for name, column in hp.items()}
        row |= {f"scale/{name}": 1.0 for name in hp}
    return reported


def fixed_trials(losses: dict[float, list[float]], name: str = "output_dropout") -> list[dict]:
    return [
        row
        for trial, (value, column) in enumerate(losses.items())
        for row in logs.rows(column, trial=trial, start=100.0 * trial, **{f"hp/{name}": value})
    ]


def lines_of(ax) -> list[tuple[list[float], list[float]]]:
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines]


def words(figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(mpl.text.Text))


def test_names_are_unique():
    names = [*FIGURES, *(figure.name for figure in all_figures())]
    assert len(set(names)) == len(names)


def test_one_line_per_start_in_the_order_of_starts(tmp_path):
    runs = {("stn", 0, ("start", s)): self_tuned_rows([2.0, 1.0], {"drop": [s, 0.5]}) for s in (0.9, 0.05, 0.3)}
    figure = drawn("schedules-by-start", frame_of(tmp_path, runs))
    assert [y for _, y in lines_of(figure.axes[0])] == [[0.05, 0.5], [0.3, 0.5], [0.9, 0.5]]
    assert [text.get_text() for text in figure.axes[0].texts] == ["from 0.05", "from 0.3", "from 0.9"]
    runs["stn", 0] = self_tuned_rows([2.0, 1.0], {"drop": [0.2, 0.5]})
    task = replace(logs.TASK, space=logs.hyperparameters(drop=(0.2, 0.9)))
    figure = drawn("schedules-by-start", frame_of(tmp_path / "own", runs, task=task))
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["from 0.05", "from 0.2", "from 0.3", "from 0.9"], "the preset's own start is one of them"


def test_perturbed_values_stand_beside_the_schedule(tmp_path):
    runs = {
        (label, 0): [row | {"hp/output_dropout": 0.1 * row["epoch"]} for row in logs.rows([2.0, 1.0])]
        for label in ("gaussian", "sinusoid")
    }
    runs["stn", 0] = self_tuned_rows([2.0, 1.0], {"output_dropout": [0.3, 0.6]})
    figure = drawn("perturbed", frame_of(tmp_path, runs))
    assert [lines_of(ax)[0] for ax in figure.axes] == [
        ([100, 200], [0.1, 0.2]),
        ([100, 200], [0.1, 0.2]),
        ([100, 200], [0.3, 0.6]),
    ]
    assert [ax.get_title("left") for ax in figure.axes] == [
        "Gaussian noise (n = 1)",
        "sinusoid noise (n = 1)",
        "STN (n = 1)",
    ]


def test_the_heat_map_marks_the_best_cell_of_each_epoch(tmp_path):
    trials = []
    for number, (a, b) in enumerate((a, b) for a in (0.0, 0.3, 0.6) for b in (0.0, 0.5)):
        values = [5 + a + b, *[4.5] * 8, 4 - a - b]
        values = values if (a, b) != (0.6, 0.5) else [*values[:9], math.inf]
        trials += logs.rows(values, trial=number, **{"hp/input_dropout": a, "hp/output_dropout": b, "hp/alpha": 1.0})
    figure = drawn("heatmaps", frame_of(tmp_path, {("grid", 0, HEATMAP): trials}))
    first, last = (ax for ax in figure.axes if ax.get_xlabel() == "input dropout")
    assert first.get_title("left") == "epoch 1: best 5 at (0, 0)"
    assert last.get_title("left").startswith("epoch 10: best 3.2 at (0.3, 0.5)"), "a diverged cell is never the best"
    assert lines_of(last) == [([1], [1])]
    mesh = np.ma.masked_invalid(np.asarray(last.collections[0].get_array().filled(np.nan))).reshape(2, 3)
    assert mesh.mask.tolist() == [[False] * 3, [False, False, True]]
    assert mesh[0].tolist() == pytest.approx([4.0, 3.7, 3.4])
    assert "grey: diverged" in words(figure)


def test_the_nearest_epochs_are_taken():
    assert nearest_epochs(range(1, 31)) == [1, 10, 25]
    assert nearest_epochs([2, 4, 8]) == [2, 8]


def test_the_greedy_schedule_is_the_best_value_of_each_epoch(tmp_path):
    trials = fixed_trials({0.1: [3.0, 2.9, 2.8], 0.5: [4.0, 2.5, 2.4], 0.9: [5.0, 3.0, 2.0]})
    along = [row | {"hp/output_dropout": 0.5} for row in logs.rows([3.0, 2.4, 1.9])]
    frame = frame_of(tmp_path, {("grid", 0): trials, ("greedy", 0): along})

    def best(frame: pd.DataFrame) -> list[float]:
        selected = select_greedy(Results.of(frame))
        return selected.loc[selected["part"] == "best", "value"].tolist()

    assert best(frame) == [0.1, 0.5, 0.9]
    upwards = frame.copy()
    upwards.attrs["mode"] = "max"
    assert best(upwards) == [0.9, 0.9, 0.1]
    figure = drawn("greedy", frame)
    left, right = figure.axes[:2]
    assert lines_of(left) == [([1, 2, 3], [0.1, 0.5, 0.9])]
    assert lines_of(right)[-1] == ([1, 2, 3], [3.0, 2.4, 1.9])


def test_the_greedy_schedule_ends_where_the_best_trial_ends(tmp_path):
    """Later, the values that are left are the best for lack of others."""
    trials = fixed_trials({0.1: [3.0, 2.0], 0.5: [4.0, 2.5, 2.4], 0.9: [5.0, 3.0, 2.9, 2.8]})
    selected = select_greedy(Results.of(frame_of(tmp_path, {("grid", 0): trials})))
    best = selected[selected["part"] == "best"]
    assert best["x"].tolist() == [1, 2]
    assert best["value"].tolist() == [0.1, 0.1]


def test_a_grid_over_several_hyperparameters_has_no_greedy_schedule(tmp_path):
    trials = [row | {"hp/alpha": row["trial"]} for row in fixed_trials({0.1: [3.0], 0.5: [2.0], 0.9: [1.0]})]
    with pytest.raises(MissingData, match=r"the grid varies 2 hyperparameters.* needs exactly one"):
        drawn("greedy", frame_of(tmp_path, {("grid", 0): trials}))


def test_steps_and_scales_have_a_line_per_setting(tmp_path):
    runs = {("stn", 0, ("train_steps", t), ("valid_steps", 1)): logs.rows([3.0, 2.0 + t / 10]) for t in (10, 2)}
    runs |= {
        ("stn", 0, ("scale", 0.5), ("tune_scale", tuned)): logs.rows([3.0, 1.0 if tuned else 2.0])
        for tuned in (True, False)
    }
    frame = frame_of(tmp_path, runs)
    steps = drawn("steps", frame).axes[0]
    assert steps.get_title("left") == "1 validation step after"
    assert [(t.get_text(), y[-1]) for t, (_, y) in zip(steps.texts, lines_of(steps), strict=True)] == [
        ("2 training steps: 2.200", 2.2),
        ("10 training steps: 3.000", 3.0),
    ]
    fixed, tuned = drawn("scales", frame).axes
    assert (fixed.get_title("left"), lines_of(fixed)) == ("σ fixed", [([1, 2], [3.0, 2.0])])
    assert lines_of(tuned) == [([1, 2], [3.0, 1.0])]


def test_what_is_missing_is_named(tmp_path):
    frame = frame_of(tmp_path, {("random", 0): logs.rows([2.0, 1.0])})
    reasons = {}
    for figure in all_figures():
        with pytest.raises(MissingData) as caught:
            figure.select(Results.of(frame))
        reasons[figure.name] = str(caught.value)
    assert reasons["heatmaps"] == "no runs of grid view=heatmap"
    assert reasons["greedy"] == "no runs of grid"
    assert reasons["steps"] == "no variants of train_steps and valid_steps"
    assert reasons["perturbed"] == "no runs of gaussian or sinusoid"
    assert reasons["neighbourhood"].startswith("no run reports val_response/gradient_error")


def test_every_study_hands_in_its_figures():
    assert [figure.name for figure in STUDIES["theory"].figures()] == ["neighbourhood"]
    assert len(STUDIES["run"].figures()) == 0
