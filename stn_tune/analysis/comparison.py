"""The numbers of a table: the final values of every experiment, and how labels compare over the seeds they share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from stn_tune.analysis.anytime import rank_over_time, regret_auc
from stn_tune.analysis.curves import at, incumbent
from stn_tune.analysis.estimates import aggregate, holm, probability_of_improvement
from stn_tune.analysis.results import Results, Source, objective
from stn_tune.analysis.selection import test_metric
from stn_tune.analysis.stats import FEWEST, floats, paired, summary
from stn_tune.analysis.survival import kaplan_meier

ROBUST = ["iqm", "iqm_low", "iqm_high", "median", "median_low", "median_high"]
LONG = ["label", "split", "metric", "mean", "low", "high", "n", "trials", "compute_s", *ROBUST]
BETTER = ["better", "better_low", "better_high"]
DIFFERENCES = ["label", "split", "metric", "n", "difference", "low", "high", "t_p", "holm_p", "wilcoxon_p", *BETTER]
TIMES = ["label", "n", "reached", "own_s", "reference_s", "watched_s", "speedup", "speedup_low", "speedup_high"]
TARGETS = ["label", "seed", "target", "own_s", "reference_s", "watched_s", "speedup"]
RANKS = ["label", "rank", "n"]
REGRETS = ["label", "n", "regret", "low", "high"]


class Measured(NamedTuple):
    """A column of the frame as a table names it: ``val_loss`` is the loss on the validation split."""

    column: str
    split: str
    name: str


def measured(frame: pd.DataFrame, metric: str) -> list[Measured]:
    """The metric that selects and its test value, then every other metric of either split that has numbers.

    A name with a slash (``val_response/exact_03``) is data for a figure, not a result.
    """
    main = metric.removeprefix("val_")
    found = [Measured(metric, "val", main), Measured(f"test_{main}", "test", main)]
    names = {c.split("_", 1)[1] for c in frame.columns if c.startswith(("val_", "test_")) and "/" not in c} - {main}
    found += [Measured(f"{split}_{name}", split, name) for name in sorted(names) for split in ("val", "test")]
    return [m for m in found if m.column in frame and floats(frame, m.column).notna().any()]


def finals(source: Source, metric: str | None = None, mode: str | None = None) -> pd.DataFrame:
    """One row per experiment: the one with its best validation value. Nothing else selects.

    ``value`` is that value and ``own_s`` the compute-seconds it took; ``trials`` (that reported anything) and
    ``compute_s`` are the whole experiment's. An experiment that never had a finite value gets an infinitely bad one,
    and no other metrics.
    """
    results = Results.of(source, metric, mode)
    frame = results.frame
    metric, mode = objective(results)
    last = incumbent(results, "compute_s", metric, mode).groupby("experiment").tail(1).set_index("experiment")
    whole = frame.groupby("experiment").agg(
        label=("label", "first"), seed=("seed", "first"), trials=("trial", "nunique"), compute_s=("compute_s", "max")
    )
    columns = {m.column: floats(last, m.column) for m in measured(frame, metric)}
    result = whole.join(pd.DataFrame(columns | {metric: last["value"], "own_s": last["x"]}))
    worst = np.inf if mode == "min" else -np.inf
    result[metric] = result[metric].fillna(worst)
    result["value"] = result[metric]
    place = {label: k for k, label in enumerate(results.labels)}
    result["_place"] = result["label"].map(place)
    result = result.reset_index().sort_values(["_place", "seed", "experiment"], ignore_index=True)
    return result.drop(columns="_place")


def leading(results: Results) -> Measured:
    """What sorts, ranks and heads a comparison: the metric's test value if every method reports it, else the metric."""
    column, name = test_metric(results), results.metric.removeprefix("val_")
    ends = finals(results)
    if column is None or ends.loc[np.isfinite(ends["value"]), column].isna().any():
        return Measured(results.metric, "val", name)
    return Measured(column, "test", name)


def long(ends: pd.DataFrame, columns: list[Measured], level: float) -> pd.DataFrame:
    """Of every metric over seeds: the mean with a t-interval, interquartile mean and median with bootstrap intervals.

    Trials and compute-seconds are means per experiment.
    """
    rows: list[list[Any]] = []
    for label in ends["label"].unique():
        own = ends[ends["label"] == label]
        for column, split, name in columns:
            center, low, high = summary(own[column], "mean", level)
            used = [own["trials"].mean(), own["compute_s"].mean()]
            robust = [aggregate([own[column]], kind, level) for kind in ("iqm", "median")]
            rest = [float(x) for e in robust for x in (e.center, e.low, e.high)]
            rows.append([label, split, name, float(center), float(low), float(high), len(own), *used, *rest])
    return pd.DataFrame(rows, columns=LONG)


def by_seed(ends: pd.DataFrame, column: str) -> pd.DataFrame:
    """Seeds down, labels across. A seed that was run more than once under a label has no single value: NaN."""
    once = ends[~ends.duplicated(["label", "seed"], keep=False)]
    return once.pivot(index="seed", columns="label", values=column).reindex(columns=ends["label"].unique())


def with_failures(ends: pd.DataFrame, column: str, mode: str) -> pd.Series:
    """A column of :func:`finals`, infinitely bad where the experiment never had a finite value: it counts as a loss."""
    return ends[column].where(np.isfinite(ends["value"]), np.inf if mode == "min" else -np.inf)


def differences(
    ends: pd.DataFrame, columns: list[Measured], reference: str, level: float, mode: str = "min"
) -> pd.DataFrame:
    """``label - reference`` over the seeds that both have.

    ``holm_p`` is ``t_p`` corrected for the number of labels that are compared. ``better`` is the probability that a
    run of the label is better than one of the reference, over all seeds of both; it is there for the metric that
    selects and its test value, whose better end ``mode`` tells.
    """
    rows: list[list[Any]] = []
    for column, split, name in columns:
        values = by_seed(ends, column)
        shared = by_seed(ends.assign(there=True), "there").notna()
        for label in values.columns:
            if reference in values and label != reference:
                both = values[shared[label] & shared[reference]]
                n, *rest, wilcoxon = paired(both[label], both[reference], level)
                better = [np.nan] * 3
                if name == columns[0].name:
                    runs = with_failures(ends, column, mode)
                    own, other = (runs[ends["label"] == which] for which in (label, reference))
                    found = probability_of_improvement([own], [other], mode, level)
                    better = [found.center, found.low, found.high]
                rows.append([label, split, name, n, *rest, np.nan, wilcoxon, *better])
    result = pd.DataFrame(rows, columns=DIFFERENCES)
    for _, part in result.groupby(["split", "metric"]):
        result.loc[part.index, "holm_p"] = holm(part["t_p"])
    place = {label: k for k, label in enumerate(ends["label"].unique())}
    return result.sort_values("label", key=lambda s: s.map(place), kind="stable", ignore_index=True)


def time_to_target(
    source: Source,
    reference: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
) -> pd.DataFrame:
    """How long the reference takes to reach the final value of every other label: a row per label and shared seed.

    ``target`` is the label's final value, which took it ``own_s`` compute-seconds; ``reference_s`` is when the
    reference first had that value or a better one, infinite where it had not when it ended, after ``watched_s``;
    ``speedup`` is ``own_s / reference_s``, 0 where it had not. A label without a finite value sets no target.
    """
    results = Results.of(source, metric, mode)
    reference = results.reference(reference)
    metric, mode = objective(results)
    ends = finals(results, metric, mode)
    steps = incumbent(results, "compute_s", metric, mode)
    once = ends[~ends.duplicated(["label", "seed"], keep=False)]
    theirs = once[once["label"] == reference].set_index("seed")["experiment"]
    watched = once[once["label"] == reference].set_index("seed")["compute_s"]
    rows: list[list[Any]] = []
    for _, end in once[(once["label"] != reference) & once["seed"].isin(theirs.index)].iterrows():
        if np.isfinite(end["value"]):
            own = steps[steps["experiment"] == theirs[end["seed"]]]
            good = own[own["value"] <= end["value"]] if mode == "min" else own[own["value"] >= end["value"]]
            reached = float(good["x"].iloc[0]) if len(good) else np.inf
            speedup = end["own_s"] / reached if reached > 0 else np.nan
            rows.append([end["label"], end["seed"], end["value"], end["own_s"], reached, watched[end["seed"]], speedup])
    return pd.DataFrame(rows, columns=TARGETS)


def times(targets: pd.DataFrame) -> pd.DataFrame:
    """Medians over seeds, and the speed-up's quartiles, by Kaplan and Meier.

    A reference that ended, after ``watched_s``, without having reached its target may have needed any longer time: it
    is censored. A median that the seeds cannot tell is infinite as a time, and NaN as a speed-up.
    """
    rows: list[list[Any]] = []
    for label in targets["label"].unique():
        own = targets[targets["label"] == label]
        reached = np.isfinite(own["reference_s"])
        taken = kaplan_meier(own["reference_s"].where(reached, own["watched_s"]), reached).quantile()
        bound = own["own_s"] / own["watched_s"]
        faster = kaplan_meier(-own["speedup"].where(reached, bound), reached)
        quartiles = [-faster.quantile(q) if len(own) >= FEWEST else np.nan for q in (0.75, 0.25)]
        reference_s = taken if taken == taken else np.inf
        medians = [float(np.median(own["own_s"])), reference_s, float(own["watched_s"].max()), -faster.quantile()]
        rows.append([label, len(own), int(reached.sum()), *medians, *quartiles])
    return pd.DataFrame(rows, columns=TIMES)


def ranks(ends: pd.DataFrame, column: str, mode: str) -> pd.DataFrame:
    """Mean rank by a column of :func:`finals`, 1 the best, over the seeds that all labels share; ties share a rank."""
    values = by_seed(ends.assign(ranked=with_failures(ends, column, mode)), "ranked").dropna()
    mean = values.rank(axis=1, ascending=mode == "min").mean()
    return pd.DataFrame([[label, float(mean[label]), len(values)] for label in values.columns], columns=RANKS)


def regrets(results: Results, metric: str, mode: str, level: float = 0.95) -> pd.DataFrame:
    """The mean regret of each label's best-so-far curve over compute-seconds, with a t-interval over seeds.

    The regret is the distance to the best value that any experiment found, averaged from when the last experiment had
    its first value until the longest one ended. A label with an experiment that never had a finite value has none.
    Methods that build on another's results are left out: their compute-seconds leave out what those cost.
    """
    labels = [label for label in results.labels if results.method(label).builds_on is None]
    if not labels:
        return pd.DataFrame(columns=REGRETS)
    results = results.where(results.frame["label"].isin(labels))
    steps = incumbent(results, "compute_s", metric, mode)
    if steps.empty:
        return pd.DataFrame(columns=REGRETS)
    best = float(steps["value"].min() if mode == "min" else steps["value"].max())
    own = dict(list(steps.groupby("experiment")))
    start = max(float(part["x"].iloc[0]) for part in own.values())
    end = float(floats(results.frame, "compute_s").max())
    rows: list[list[Any]] = []
    for label in labels:
        names = results.frame.loc[results.frame["label"] == label, "experiment"].unique()
        parts = [own.get(name) for name in names]
        areas = [np.nan if p is None else regret_auc(p["x"], p["value"], best, start, end, mode) for p in parts]
        rows.append([label, len(areas), *(float(part) for part in summary(areas, "mean", level))])
    return pd.DataFrame(rows, columns=REGRETS)


def ranks_over_time(
    source: Source,
    x: str = "compute_s",
    points: int = 200,
    level: float = 0.95,
    *,
    metric: str | None = None,
    mode: str | None = None,
    show: str | None = None,
) -> pd.DataFrame:
    """Mean ranks of the best value so far, over the seeds that all labels share: label, x, rank, low, high, n.

    With ``show``, by that column of the row with the best value so far: "test_loss". Before its first finite value a
    label ranks behind those that have one; what has ended keeps its value.
    """
    results = Results.of(source, metric, mode).compared
    metric, mode = objective(results)
    steps = incumbent(results, x, metric, mode)
    steps = steps if show is None else steps.assign(value=floats(steps, show))
    columns = ["label", "x", "rank", "low", "high", "n"]
    names = results.frame.drop_duplicates("experiment")
    names = names[~names.duplicated(["label", "seed"], keep=False)]
    table = names.pivot(index="seed", columns="label", values="experiment").reindex(columns=results.labels).dropna()
    if steps.empty or table.empty:
        return pd.DataFrame(columns=columns)
    own = dict(list(steps.groupby("experiment")))
    grid = np.linspace(float(steps["x"].min()), float(floats(results.frame, x).max()), points)
    none = np.full(points, np.nan)
    values = [[at(own[name], grid) if name in own else none for name in table[label]] for label in results.labels]
    found = rank_over_time(values, mode, level)
    parts = [
        pd.DataFrame({"label": label, "x": grid, "rank": center, "low": low, "high": high, "n": found.n})
        for label, center, low, high in zip(results.labels, found.center, found.low, found.high, strict=True)
    ]
    return pd.concat(parts, ignore_index=True)[columns]
