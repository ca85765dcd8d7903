from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from stn_tune.analysis import AnalysisError, curves, incumbent, load
from stn_tune.analysis.stats import interquartile_mean, paired, summary
from tests.analysis import logs

mpl.use("Agg")
T3 = 4.302652729911275
"""The 97.5 % quantile of Student's t with two degrees of freedom."""


def frame_of(tmp_path, runs: dict[tuple, list], **changes) -> pd.DataFrame:
    logs.write_runs(tmp_path, runs, **changes)
    return load(tmp_path)


def points(result, label: str) -> dict[float, tuple]:
    rows = result.data[result.data["label"] == label]
    return {row.x: (row.center, row.low, row.high, row.n) for row in rows.itertuples()}


def test_the_incumbent_is_an_exact_step_function(tmp_path):
    """Two trials, one after the other: 4 at 10 s, 2 at 20 s, 3 at 30 s; then 2 at 40 s, 1 at 50 s."""
    reported = [*logs.rows([4.0, 2.0, 3.0]), *logs.rows([2.0, 1.0], trial=1, start=30)]
    steps = incumbent(frame_of(tmp_path, {("grid", 0): reported}))
    assert steps["x"].tolist() == [10, 20, 50], "neither a worse value nor a tie improves"
    assert steps["value"].tolist() == [4, 2, 1]
    assert steps["trial"].tolist() == [0, 0, 1]
    assert steps["test_loss"].tolist() == [4.5, 2.5, 1.5], "the other metrics are those of the same row"


def test_the_test_set_never_selects(tmp_path):
    reported = logs.rows([3.0, 2.0, 1.0])
    for row, test in zip(reported, [0.1, 9.0, 5.0], strict=True):
        row["test_loss"] = test
    assert incumbent(frame_of(tmp_path, {("grid", 0): reported}))["test_loss"].tolist() == [0.1, 9.0, 5.0]


def test_diverged_values_are_never_incumbent(tmp_path):
    values = [math.nan, math.inf, 3.0, -math.inf, 2.0, math.nan]
    steps = incumbent(frame_of(tmp_path, {("grid", 0): logs.rows(values)}))
    assert steps["x"].tolist() == [30, 50]
    assert steps["value"].tolist() == [3, 2]


def test_the_largest_is_best_where_the_mode_is_max(tmp_path):
    reported = logs.rows([1.0] * 4)
    for row, accuracy in zip(reported, [0.5, 0.4, math.nan, 0.7], strict=True):
        row["val_accuracy"] = accuracy
    frame = frame_of(tmp_path, {("stn", 0): reported})
    steps = incumbent(frame, metric="val_accuracy", mode="max")
    assert list(zip(steps["x"], steps["value"], strict=True)) == [(10, 0.5), (40, 0.7)]
    result = curves(frame, metric="val_accuracy", mode="max", points=4)
    assert result.data["center"].tolist() == [0.5, 0.5, 0.5, 0.7]
    assert result.mode == "max"


def test_of_rows_at_the_same_time_the_best_counts(tmp_path):
    reported = [*logs.rows([3.0]), *logs.rows([2.0], trial=1), *logs.rows([2.5], trial=2)]
    steps = incumbent(frame_of(tmp_path, {("grid", 0): reported}))
    assert list(zip(steps["x"], steps["value"], strict=True)) == [(10, 2)]


@pytest.mark.parametrize(("x", "expected"), [("compute_s", [10, 20]), ("elapsed_s", [5, 10]), ("epochs", [1, 2])])
def test_three_clocks(tmp_path, x, expected):
    reported = [row | {"elapsed_s": row["elapsed_s"] / 2} for row in logs.rows([2.0, 1.0])]
    assert incumbent(frame_of(tmp_path, {("stn", 0): reported}), x)["x"].tolist() == expected


def test_epochs_add_up_over_trials_at_once(tmp_path):
    """Reports alternate: trial 0 after 10 and 20 s, trial 1 after 15 and 25 s."""
    second = [row | {"elapsed_s": row["elapsed_s"] + 5, "compute_s": row["compute_s"] + 5} for row in
              logs.rows([3.0, 1.0], trial=1)]  # fmt: skip
    steps = incumbent(frame_of(tmp_path, {("grid", 0): [*logs.rows([4.0, 2.0]), *second]}), "epochs")
    assert list(zip(steps["x"], steps["value"], strict=True)) == [(1, 4), (2, 3), (3, 2), (4, 1)]


def test_the_mean_over_seeds_with_its_t_interval(tmp_path):
    frame = frame_of(tmp_path, {("stn", seed): logs.rows([4.0 + seed, 1.0 + seed]) for seed in range(3)})
    result = curves(frame, points=3)
    assert result.data.columns.tolist() == ["label", "x", "center", "low", "high", "n"]
    half = T3 / math.sqrt(3)
    got = points(result, "stn")
    assert got[10] == pytest.approx((5, 5 - half, 5 + half, 3))
    assert got[15] == got[10], "nothing is known of 20 s at 15 s"
    assert got[20] == pytest.approx((2, 2 - half, 2 + half, 3))
    assert (result.x, result.metric, result.kind, result.level, result.n) == (
        "compute_s", "val_loss", "mean", 0.95, {"stn": 3},
    )  # fmt: skip
    assert result.interval == "mean, 95 % t-interval"
    wider = curves(frame, points=3, level=0.99)
    assert wider.data["low"].lt(result.data["low"]).all()
    assert wider.interval == "mean, 99 % t-interval"


def test_median_and_interquartile_mean(tmp_path):
    values = [1.0, 2.0, 3.0, 4.0, 100.0]
    frame = frame_of(tmp_path, {("stn", seed): logs.rows([value, value]) for seed, value in enumerate(values)})
    median = curves(frame, kind="median", points=2)
    assert points(median, "stn")[10] == (3, 2, 4, 5)
    assert median.interval == "median, quartiles"
    iqm = curves(frame, kind="iqm", points=2)
    center, low, high, n = points(iqm, "stn")[20]
    assert (center, n) == (3, 5)
    assert 1 <= low < 3 < high <= 100
    assert iqm.interval == "interquartile mean, 95 % bootstrap interval"
    pd.testing.assert_frame_equal(curves(frame, kind="iqm", points=2).data, iqm.data)


def test_a_curve_begins_where_all_its_seeds_have_a_value(tmp_path):
    runs = {
        ("stn", 0): logs.rows([2.0, 2.0, 2.0, 2.0]),
        ("grid", 0): logs.rows([6.0, 6.0]),
        ("grid", 1): logs.rows([4.0, 2.0], start=10),
    }
    result = curves(frame_of(tmp_path, runs), points=4)
    assert list(points(result, "stn")) == [10, 20, 30, 40]
    got = points(result, "grid")
    assert list(got) == [20, 30, 40], "seed 1 has no value at 10 s"
    assert [n for *_, n in got.values()] == [2, 2, 2]
    assert [center for center, *_ in got.values()] == [5, 4, 4], "what ended keeps what it found"


def test_one_seed_has_no_band(tmp_path):
    frame = frame_of(tmp_path, {("stn", 0): logs.rows([2.0, 1.0])})
    for kind in ("mean", "median", "iqm"):
        data = curves(frame, kind=kind).data
        assert data["center"].notna().all()
        assert data[["low", "high"]].isna().all(axis=None)
        assert set(data["n"]) == {1}


def test_a_seed_that_only_diverged_leaves_no_curve(tmp_path):
    runs = {("grid", 0): logs.rows([1.0]), ("grid", 1): logs.rows([math.inf, math.inf]), ("stn", 0): logs.rows([2.0])}
    result = curves(frame_of(tmp_path, runs))
    assert set(result.data["label"]) == {"stn"}, "a mean over the seeds that survived would flatter"
    assert result.notes == ["grid: no curve, because grid-1 never had a finite val_loss"]


def test_a_single_report_is_a_curve_of_one_point(tmp_path):
    result = curves(frame_of(tmp_path, {("stn", 0): logs.rows([2.0])}))
    assert points(result, "stn").keys() == {10}


def test_the_data_file_is_the_same_every_time(tmp_path):
    runs = {("stn", seed): logs.rows([1 / 3 + seed, 1 / 7 + seed]) for seed in range(2)}
    frame = frame_of(tmp_path / "logs", runs)
    for name in ("a.csv", "b.csv"):
        curves(load(tmp_path / "logs"), points=2).to_csv(tmp_path / name)
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    first = (tmp_path / "a.csv").read_text().splitlines()
    assert first[0] == "label,x,center,low,high,n"
    assert first[1].startswith("stn,10,0.83333333,")
    assert len(frame) == 4


def test_questions_without_an_answer(tmp_path):
    frame = frame_of(tmp_path / "a", {("stn", 0): logs.rows([2.0])})
    with pytest.raises(AnalysisError, match="x is 'time'; it must be one of compute_s, elapsed_s, epochs"):
        curves(frame, x="time")
    with pytest.raises(AnalysisError, match="kind is 'max'; it must be one of mean, median, iqm"):
        curves(frame, kind="max")
    with pytest.raises(AnalysisError, match="no row has a number for 'val_accuracy'; columns with numbers: val_loss"):
        curves(frame, metric="val_accuracy")
    with pytest.raises(AnalysisError, match="level is 95; it must lie between 0 and 1"):
        curves(frame, level=95)
    with pytest.raises(AnalysisError, match="points is 1"):
        curves(frame, points=1)
    (tmp_path / "b").mkdir()
    with pytest.raises(AnalysisError, match="the frame has no rows"):
        curves(load(tmp_path / "b"))


def test_curves_are_drawn(tmp_path):
    frame = frame_of(
        tmp_path, {(label, seed): logs.rows([3.0, 2.0, 1.0]) for label in ("stn", "grid") for seed in (0, 1)}
    )
    ax = curves(frame).plot()
    assert len(ax.lines) >= 2
    mpl.pyplot.close("all")


@pytest.mark.parametrize(
    ("values", "expected"),
    [([5], 5), ([1, 3], 2), ([1, 2, 6], 2.5), ([10, 1, 2, 3], 2.5), ([100, 4, 3, 2, 1], 3), (range(8), 3.5)],
)
def test_interquartile_mean(values, expected):
    """Of three values the outer ones weigh a quarter: (0.25 · 1 + 2 + 0.25 · 6) / 1.5."""
    assert interquartile_mean(np.array(values, dtype=float)) == pytest.approx(expected)


def test_paired_differences():
    result = paired([2, 4, 6], [1, 2, 3])
    half = T3 / math.sqrt(3)
    assert result[:4] == pytest.approx((3, 2, 2 - half, 2 + half))
    assert result.t_p == pytest.approx(1 - math.sqrt(12 / 14)), "in closed form, with two degrees of freedom"
    assert math.isnan(result.wilcoxon_p)
    assert paired([1, 2, 3, 4, 5, 6], [0] * 6).wilcoxon_p == pytest.approx(2 / 2**6)
    assert paired([1, 2, 3], [1, 2, 3])[:5] == (3, 0, 0, 0, 1)
    assert paired([3, 4, 5], [1, 2, 3])[:4] == (3, 2, 2, 2)
    assert paired([0.1] * 6, [0.1] * 6).wilcoxon_p == 1


def test_what_is_not_defined_is_nan():
    assert np.isnan(paired([], [])[1:]).all()
    assert paired([2], [1]).mean == 1
    assert np.isnan(paired([2], [1])[2:]).all()
    lost = paired([math.inf, 1, 1], [1, 1, 1])
    assert lost.mean == math.inf
    assert np.isnan(lost[2:]).all()
    assert np.isnan(paired([math.inf, 1], [math.inf, 1])[1:]).all()
    center, low, high = summary([1, math.inf])
    assert center == math.inf
    assert np.isnan([low, high]).all()
