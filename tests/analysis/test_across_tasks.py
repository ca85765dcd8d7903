from __future__ import annotations

import numpy as np
import pytest

from stn_tune.analysis import load
from stn_tune.analysis.across_tasks import normalised_regrets, profiles, summary_across
from tests.analysis import logs


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Two tasks of different scale; the STN is the best on both, and three seeds of each method."""
    found = {}
    for title, scale in {"small": 1.0, "large": 100.0}.items():
        folder = tmp_path_factory.mktemp(title)
        values = {"stn": [0.0, 1.0, 2.0], "grid": [2.0, 3.0, 4.0]}
        runs = {(method, k): logs.rows([scale * v]) for method, own in values.items() for k, v in enumerate(own)}
        if title == "small":
            runs["random", 0] = logs.rows([9.0])
        logs.write_runs(folder, runs)
        found[title] = load(folder)
    return found


def test_regrets_are_normalised_task_by_task(tasks):
    regrets = normalised_regrets(tasks)
    assert set(regrets["label"]) == {"stn", "grid"}, "what is missing in a task is not compared"
    for _, part in regrets.groupby("task"):
        assert part.set_index("label").loc["stn", "regret"].tolist() == pytest.approx([0, 0.25, 0.5])
        assert part.set_index("label").loc["grid", "regret"].tolist() == pytest.approx([0.5, 0.75, 1])


def test_profiles_over_tasks(tasks):
    found = profiles(tasks, [0.25, 0.5, 1.0])
    stn = found[found["label"] == "stn"]
    assert stn["share"].tolist() == pytest.approx([2 / 3, 1, 1])
    assert stn["n"].tolist() == [6, 6, 6]
    assert (stn["low"] <= stn["share"]).all()
    grid = found[found["label"] == "grid"]
    assert grid["share"].tolist() == pytest.approx([0, 1 / 3, 1])


def test_a_summary_over_tasks(tasks):
    found = summary_across(tasks, "stn").set_index("label")
    assert found.index.tolist() == ["stn", "grid"], "best first"
    assert found.loc["stn", ["tasks", "n", "iqm", "median"]].tolist() == pytest.approx([2, 6, 0.25, 0.25])
    assert np.isnan(found.loc["stn", "better"])
    assert found.loc["grid", "better"] == pytest.approx(0.5 / 9), "one tie in nine pairs, on both tasks"
    assert found.loc["grid", "better_low"] < 0.5 / 9 < found.loc["grid", "better_high"] < 0.5
