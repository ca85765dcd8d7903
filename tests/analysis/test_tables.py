from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from stn_tune.analysis import AnalysisError, Results, load, table
from stn_tune.analysis.comparison import finals, ranks_over_time, time_to_target
from stn_tune.analysis.figures import FIGURES
from stn_tune.record import Published
from tests.analysis import logs

T3 = 4.302652729911275
"""The 97.5 % quantile of Student's t with two degrees of freedom."""
PUBLISHED = Published(
    "paper (full size)",
    "perplexity",
    {"stn": {"val": "70.30", "test": "67.68"}, "grid": {"val": "97.32"}},
    "Paper (full size): not measured here.",
)


def frame_of(tmp_path, runs: dict[tuple, list], **changes) -> pd.DataFrame:
    logs.write_runs(tmp_path, runs, **changes)
    return load(tmp_path)


def row(frame: pd.DataFrame, **keys) -> pd.Series:
    for name, value in keys.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


@pytest.fixture
def frame(tmp_path):
    """After 30 s STN has found 1, 2 and 3; grid search has found 2.5 after 40 s, 2 after 30 s and 3 after 40 s."""
    return frame_of(
        tmp_path,
        {
            ("stn", 0): logs.rows([3.0, 2.0, 1.0]),
            ("stn", 1): logs.rows([4.0, 3.0, 2.0]),
            ("stn", 2): logs.rows([5.0, 4.0, 3.0]),
            ("grid", 0): [*logs.rows([5.0, 4.0]), *logs.rows([3.0, 2.5], trial=1, start=20)],
            ("grid", 1): [*logs.rows([5.0, 4.0]), *logs.rows([2.0, 2.0], trial=1, start=20)],
            ("grid", 2): [*logs.rows([5.0, 4.0]), *logs.rows([3.5, 3.0], trial=1, start=20)],
        },
    )


def test_finals_are_those_of_the_validation_selected_row(tmp_path):
    reported = [*logs.rows([3.0, 1.0]), *logs.rows([2.0, 4.0], trial=1, start=20)]
    for number, test in enumerate([0.1, 7.0, 0.2, 0.3]):
        reported[number] |= {"test_loss": test, "val_accuracy": number / 10, "test_accuracy": number / 20}
    frame = frame_of(tmp_path, {("grid", 0): reported})
    best = finals(frame).iloc[0]
    assert best[["val_loss", "test_loss", "val_accuracy", "test_accuracy"]].tolist() == [1.0, 7.0, 0.1, 0.05]
    assert best[["trials", "compute_s", "own_s"]].tolist() == [2, 40, 20]
    long = table(frame).long
    assert list(zip(long["split"], long["metric"], long["mean"], strict=True)) == [
        ("val", "loss", 1.0), ("test", "loss", 7.0), ("val", "accuracy", 0.1), ("test", "accuracy", 0.05),
    ]  # fmt: skip


def test_means_and_intervals(frame):
    long = table(frame).long
    columns = ["label", "split", "metric", "mean", "low", "high", "n", "trials", "compute_s"]
    assert long.columns.tolist()[:9] == columns
    stn = row(long, label="stn", split="val")
    half = T3 / math.sqrt(3)
    assert stn[["mean", "low", "high"]].tolist() == pytest.approx([2, 2 - half, 2 + half])
    assert stn[["n", "trials", "compute_s"]].tolist() == [3, 1, 30]
    assert stn[["iqm", "median"]].tolist() == [2, 2]
    assert math.isnan(stn["median_low"]), "three seeds are too few for a bootstrap"
    grid = row(long, label="grid", split="test")
    assert grid[["mean", "low", "high"]].tolist() == pytest.approx([3, 3 - half / 2, 3 + half / 2])
    assert grid[["n", "trials", "compute_s"]].tolist() == [3, 2, 40]


def test_paired_differences_to_the_reference(frame):
    """Grid minus STN: 2.5 - 1, 2 - 2 and 3 - 3, so 0.5 on average, with a standard error of 0.5."""
    result = row(table(frame).differences, label="grid", split="val")
    assert result["n"] == 3
    assert result[["difference", "low", "high"]].tolist() == pytest.approx([0.5, 0.5 - T3 * 0.5, 0.5 + T3 * 0.5])
    assert result["t_p"] == pytest.approx(1 - 1 / math.sqrt(3)), "t = 1 with two degrees of freedom, in closed form"
    assert result["holm_p"] == result["t_p"], "one comparison"
    assert math.isnan(result["wilcoxon_p"])
    assert result["better"] == pytest.approx((0 + 1 + 1 + 0.5 + 0.5) / 9), "of 9 pairs of runs 2 are better, 2 tie"
    other = row(table(frame, reference="grid").differences, label="stn", split="val")
    assert other["difference"] == -0.5
    assert other["better"] == pytest.approx(1 - result["better"])


def test_p_values_are_corrected_for_the_number_of_methods(tmp_path):
    noise = [0.0, 0.1, 0.3]
    runs = {("stn", k): logs.rows([1.0 + noise[k]]) for k in range(3)}
    runs |= {("grid", k): logs.rows([1.5 + noise[k] + 0.01 * k]) for k in range(3)}
    runs |= {("random", k): logs.rows([1.1 + noise[-k]]) for k in range(3)}
    result = table(frame_of(tmp_path, runs))
    grid, random = (row(result.differences, label=label, split="val") for label in ("grid", "random"))
    assert grid["t_p"] < random["t_p"]
    assert grid["holm_p"] == pytest.approx(2 * grid["t_p"])
    assert random["holm_p"] == random["t_p"]
    assert "p (Holm)" in result.sections[1].columns


def test_time_to_each_methods_final_value(frame):
    """Grid ends at 2.5 after 40 s, 2 after 30 s and 3 after 40 s; STN is there after 20, 30 and 30 s."""
    targets = time_to_target(frame)
    assert targets["target"].tolist() == [2.5, 2.0, 3.0]
    assert targets["own_s"].tolist() == [40, 30, 40]
    assert targets["reference_s"].tolist() == [20, 30, 30]
    assert targets["speedup"].tolist() == pytest.approx([2, 1, 4 / 3])
    times = row(table(frame).times, label="grid")
    assert times[["n", "reached", "own_s", "reference_s", "speedup"]].tolist() == pytest.approx([3, 3, 40, 30, 4 / 3])
    assert times[["speedup_low", "speedup_high"]].tolist() == [1, 2]


def test_a_value_that_is_not_reached_is_censored(frame):
    """Grid reaches STN's 2 after 30 s and its 3 after 40 s; when it ended, after 40 s, it had not reached 1."""
    result = table(frame, reference="grid")
    times = row(result.times, label="stn")
    assert times[["n", "reached", "own_s", "reference_s", "watched_s"]].tolist() == [3, 2, 30, 40, 40]
    assert times["speedup"] == pytest.approx(30 / 40)


def test_a_median_time_that_is_not_reached_is_a_bound(tmp_path):
    runs = {("stn", k): logs.rows([2.0, 1.0]) for k in range(3)}
    runs |= {("grid", k): logs.rows([3.0, 3.0, 1.0 if k == 0 else 3.0]) for k in range(3)}
    result = table(frame_of(tmp_path, runs), reference="grid")
    times = row(result.times, label="stn")
    assert (times["reference_s"], times["watched_s"], times["reached"]) == (math.inf, 30, 1)
    assert math.isnan(times["speedup"])
    line = next(line for line in str(result).splitlines() if "1 of 3" in line)
    assert "> 30.0" in line


def test_ranks_share_ties(frame):
    ranks = table(frame).ranks
    assert ranks["rank"].tolist() == pytest.approx([4 / 3, 5 / 3]), "first and two shared firsts; second and the same"
    assert ranks["n"].tolist() == [3, 3]


def test_methods_that_build_on_others_are_not_ranked(tmp_path):
    runs = {("stn", 0): logs.rows([2.0]), ("grid", 0): logs.rows([1.0]), ("replay", 0): logs.rows([0.5])}
    result = table(frame_of(tmp_path, runs))
    assert dict(zip(result.ranks["label"], result.ranks["rank"], strict=True)) == {"stn": 2, "grid": 1}
    assert row(result.frame, method="STN schedule replayed")["rank"] == "–"
    assert "methods that build on another's results are not ranked" in " ".join(str(result).split())
    alone = table(frame_of(tmp_path / "b", {("replay", 0): logs.rows([0.5]), ("final", 0): logs.rows([1.0])}))
    assert dict(zip(alone.ranks["label"], alone.ranks["rank"], strict=True)) == {"replay": 1, "final": 2}


def test_ranks_are_by_test_value_as_in_the_figure(tmp_path):
    """The best by validation is not the best on the test set."""
    runs = {("stn", seed): logs.rows([1.0], test_loss=5.0) for seed in range(2)}
    runs |= {("grid", seed): logs.rows([2.0], test_loss=4.0) for seed in range(2)}
    frame = frame_of(tmp_path, runs)
    result = table(frame)
    ranks = dict(zip(result.ranks["label"], result.ranks["rank"], strict=True))
    assert ranks == {"stn": 2, "grid": 1}
    assert "Rank: by test_loss" in str(result)
    last = FIGURES["ranks"].select(Results.of(frame)).groupby("label")["y"].last()
    assert last.to_dict() == ranks


def test_ranks_are_by_validation_where_a_method_has_no_test_value(tmp_path):
    bare = [{k: v for k, v in r.items() if not k.startswith("test_")} for r in logs.rows([2.0])]
    result = table(frame_of(tmp_path, {("stn", 0): logs.rows([1.0]), ("grid", 0): bare}))
    assert dict(zip(result.ranks["label"], result.ranks["rank"], strict=True)) == {"stn": 1, "grid": 2}
    assert "Rank: by val_loss" in str(result)


def test_ranks_over_time(frame):
    found = ranks_over_time(frame, points=4)
    assert found.columns.tolist() == ["label", "x", "rank", "low", "high", "n"]
    stn = found[found["label"] == "stn"]
    assert stn["x"].tolist() == [10, 20, 30, 40]
    assert stn["rank"].tolist() == pytest.approx([3.5 / 3, 3.5 / 3, 3.5 / 3, 4 / 3])


def test_the_mean_regret(frame):
    """The best is 1. From 10 s to 40 s STN has regrets of 2, 1, 0; 3, 2, 1; 4, 3, 2, ten seconds each."""
    regrets = table(frame).regrets
    stn = row(regrets, label="stn")
    assert stn[["n", "regret"]].tolist() == [3, 2]
    assert stn["low"] == pytest.approx(2 - T3 / math.sqrt(3))


def test_methods_are_sorted_by_test_value_and_the_best_is_bold(tmp_path):
    runs = {("stn", 0): logs.rows([2.0]), ("grid", 0): logs.rows([1.0]), ("replay", 0): logs.rows([0.5])}
    runs["grid", 0][0]["test_loss"] = 9.0
    result = table(frame_of(tmp_path, runs))
    assert result.frame["method"].tolist() == ["STN schedule replayed", "STN", "grid search"]
    assert "| **1.000** | 9.000 |" in result.to_markdown(), "what builds on others is not in the running"
    assert "| 2.000 | **2.500** |" in result.to_markdown()
    assert r"\textbf{1.000}" in result.to_latex()
    assert "<b>1.000</b>" in result._repr_html_()
    assert "*1.000" in str(result)
    assert "apart from methods that build on another's results" in " ".join(str(result).split())


def test_larger_is_better_where_the_mode_is_max(tmp_path):
    runs = {}
    for label, accuracies in {"stn": [0.5, 0.8, 0.9], "grid": [0.4, 0.7, 0.8]}.items():
        runs[label, 0] = [
            r | {"val_accuracy": a, "test_accuracy": a / 2}
            for r, a in zip(logs.rows([1.0, 1.0, 1.0]), accuracies, strict=True)
        ]
    for (method, seed), reported in runs.items():
        logs.write_run(tmp_path, method, seed, reported, metric="val_accuracy", mode="max")
    result = table(load(tmp_path))
    assert row(result.long, label="stn", split="val", metric="accuracy")["mean"] == 0.9
    assert row(result.long, label="stn", split="test", metric="accuracy")["mean"] == 0.45
    assert row(result.times, label="grid")[["own_s", "reference_s", "speedup"]].tolist() == [30, 20, 1.5]
    assert dict(zip(result.ranks["label"], result.ranks["rank"], strict=True)) == {"stn": 1, "grid": 2}
    assert "negative means that stn is better" in " ".join(str(result).split())


@pytest.mark.parametrize("n", [1, 2])
def test_fewer_than_three_seeds_have_no_interval(tmp_path, n):
    runs = {(label, k): logs.rows([x + k]) for label, x in {"stn": 1.0, "grid": 2.0}.items() for k in range(n)}
    result = table(frame_of(tmp_path, runs))
    assert np.isnan(result.long[["low", "high"]]).all(axis=None)
    assert np.isnan(result.differences[["low", "high", "t_p", "wilcoxon_p"]]).all(axis=None)
    assert row(result.differences, split="val")["difference"] == 1
    assert np.isnan(result.times[["speedup_low", "speedup_high"]]).all(axis=None)
    assert "±" not in "".join(result.frame.to_numpy().ravel())


@pytest.mark.parametrize("n", [2, 3])
def test_iqm_and_median_are_not_shown_where_they_are_the_mean(tmp_path, n):
    runs = {(label, k): logs.rows([x + k]) for label, x in {"stn": 1.0, "grid": 2.0}.items() for k in range(n)}
    assert ("IQM" in str(table(frame_of(tmp_path, runs)))) == (n == 3)


def test_unequal_seeds_are_compared_where_they_meet(tmp_path):
    runs = {("stn", seed): logs.rows([float(seed)]) for seed in range(4)}
    runs |= {("grid", seed): logs.rows([seed + 1.0]) for seed in (2, 3, 9)}
    runs |= {("random", 7): logs.rows([1.0])}
    result = table(frame_of(tmp_path, runs))
    assert result.long.drop_duplicates("label")["n"].tolist() == [4, 3, 1]
    assert row(result.differences, label="grid", split="val")[["n", "difference"]].tolist() == [2, 1]
    alone = row(result.differences, label="random", split="val")
    assert alone["n"] == 0
    assert math.isnan(alone["difference"])
    assert result.times["label"].tolist() == ["grid"]
    assert result.ranks["n"].tolist() == [0, 0, 0]
    assert result.ranks["rank"].isna().all()


def test_a_seed_that_was_run_twice_counts_but_is_not_paired(tmp_path):
    for part, value in (("a", 1.0), ("b", 3.0)):
        logs.write_run(tmp_path / part, "stn", 0, logs.rows([value]))
    logs.write_run(tmp_path / "a", "grid", 0, logs.rows([5.0]))
    result = table(load(tmp_path))
    assert row(result.long, label="stn", split="val")[["mean", "n"]].tolist() == [2, 2]
    assert row(result.differences, label="grid", split="val")["n"] == 0


def test_a_seed_that_only_diverged_is_infinitely_bad(tmp_path):
    runs = {("stn", seed): logs.rows([1.0]) for seed in range(2)}
    runs |= {("grid", 0): logs.rows([2.0]), ("grid", 1): logs.rows([math.inf, math.nan])}
    result = table(frame_of(tmp_path, runs))
    grid = row(result.long, label="grid", split="val")
    assert grid["mean"] == math.inf
    assert math.isnan(grid["low"])
    assert math.isnan(row(result.long, label="grid", split="test")["mean"])
    assert row(result.differences, label="grid", split="val")["difference"] == math.inf
    assert row(result.times, label="grid")[["n", "speedup"]].tolist() == [1, 1], "what diverged sets no target"
    assert result.ranks["rank"].tolist() == [1, 2]
    assert "grid search: 1 of 2 seeds never had a finite val_loss." in str(result)
    assert "∞" in result.to_markdown()
    assert r"$\infty$" in result.to_latex()


def test_no_reference_no_comparison(tmp_path):
    frame = frame_of(tmp_path, {("stn", 0, ("k", 1)): logs.rows([1.0]), ("stn", 0, ("k", 2)): logs.rows([2.0])})
    result = table(frame)
    assert len(result.differences) == 0
    assert len(result.times) == 0
    text = " ".join(str(result).split())
    assert "No plain STN to compare with: no differences and no times to target." in text
    assert list(result.differences.columns[:3]) == ["label", "split", "metric"]


def test_a_reference_by_label_or_title(frame):
    assert table(frame, reference="grid search").differences["label"].unique().tolist() == ["stn"]
    with pytest.raises(AnalysisError, match=r"unknown reference 'grd'; known: stn, grid; did you mean 'grid'\?"):
        table(frame, reference="grd")


def cells(line: str) -> list[str]:
    return re.split(r"  +", line.strip())


def test_text_for_the_terminal(frame):
    text = str(table(frame))
    lines = text.splitlines()
    assert lines[0] == "Final results"
    assert cells(lines[1]) == ["compute"], "a heading wider than its column is wrapped"
    assert cells(lines[2]) == ["method", "n", "trials", "s", "val loss", "test loss", "rank"]
    assert cells(lines[4]) == ["STN", "3", "1", "30.0", "*2.0 ± 2.5", "*2.5 ± 2.5", "1.33"]
    assert "95 % t-interval" in text


def test_text_is_never_wider_than_a_terminal(frame):
    more = {f"{split}_{name}": frame["val_loss"] for name in ("accuracy", "perplexity") for split in ("val", "test")}
    frame = frame.assign(**more)
    frame.attrs["record"] = replace(frame.attrs["record"], published=PUBLISHED)
    text = str(table(frame))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line.endswith(" ") for line in lines)
    second = next(k for k in range(2, len(lines)) if lines[k].startswith("method"))
    assert cells(lines[second + 2])[0] == "STN", "columns that do not fit follow, with the methods' names again"
    assert "70.30" in text


def test_markdown(frame):
    lines = table(frame).to_markdown().splitlines()
    assert lines[:5] == [
        "**Final results**",
        "",
        "| method | n | trials | compute s | val loss | test loss | rank |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| STN | 3 | 1 | 30.0 | **2.0 ± 2.5** | **2.5 ± 2.5** | 1.33 |",
    ]


def test_latex(tmp_path):
    frame = frame_of(tmp_path, {("a_b & c%", seed): logs.rows([1.0 + seed]) for seed in (0, 1, 2)})
    text = table(frame).to_latex()
    assert r"a\_b \& c\% & 3 & 1 & 10.0 & 2.0 $\pm$ 2.5 & 2.5 $\pm$ 2.5 \\" in text, "one method has no rank"
    for part in (r"\begin{tabular}{lrrrrr}", r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}"):
        assert text.count(part) >= 1


def test_html_is_escaped(tmp_path):
    html = table(frame_of(tmp_path, {("<b>", 0): logs.rows([1.0])}))._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_csv_is_the_same_every_time(tmp_path):
    runs = {(label, seed): logs.rows([1 / (seed + 3), 1 / 7]) for label in ("grid", "stn") for seed in range(3)}
    frame_of(tmp_path / "logs", runs)
    first, second = (table(load(tmp_path / "logs")) for _ in range(2))
    assert first.to_csv() == second.to_csv()
    assert str(first) == str(second)
    first.to_csv(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == first.to_csv()
    lines = first.to_csv().splitlines()
    assert lines[0].startswith("label,split,metric,mean,low,high,n,trials,compute_s,iqm,")
    assert lines[1].startswith("stn,val,loss,0.14285714,0.14285714,0.14285714,3,1,20,0.14285714,,,0.14285714,,")


def test_published_values_stand_apart(frame):
    record = frame.attrs["record"]
    assert "paper" not in str(table(frame)).lower()
    frame.attrs["record"] = replace(record, published=PUBLISHED)
    result = table(frame)
    columns = [f"paper (full size) {split} perplexity" for split in ("val", "test")]
    assert result.frame[columns].to_numpy().tolist() == [["70.30", "67.68"], ["97.32", "–"]]
    assert "not measured here" in str(result)
    assert "70.3" not in result.to_csv()
    frame.attrs["record"] = replace(record, published=replace(PUBLISHED, values={"mine": {"val": "1"}}))
    assert "paper" not in str(table(frame)).lower(), "none of these methods is in the paper"


def test_seeds_in_common_are_counted_in_words(tmp_path):
    runs = {(method, seed): logs.rows([1.0]) for method in ("stn", "grid") for seed in range(2)}
    assert "averaged over the 2 seeds all methods share." in str(table(frame_of(tmp_path / "a", runs)))
    del runs["grid", 1]
    assert "averaged over the one seed all methods share." in str(table(frame_of(tmp_path / "b", runs)))


def test_times_of_methods_that_build_on_others_are_explained(tmp_path):
    runs = {("stn", 0): logs.rows([2.0, 1.0]), ("replay", 0): logs.rows([1.5])}
    text = " ".join(str(table(frame_of(tmp_path, runs))).split())
    assert "STN schedule replayed: these build on another method's results." in text
