"""The numbers of a table: the final values of every experiment, and how labels compare over the seeds they share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from stn_tune.analysis.curves import incumbent
from stn_tune.analysis.results import Results, objective
from stn_tune.analysis.stats import floats, paired, summary

LONG = ["label", "split", "metric", "mean", "low", "high", "n", "trials", "compute_s"]
DIFFERENCES = ["label", "split", "metric", "n", "difference", "low", "high", "t_p", "wilcoxon_p"]
TIMES = ["label", "n", "reached", "own_s", "reference_s", "speedup", "speedup_low", "speedup_high"]
TARGETS = ["label", "seed", "target", "own_s", "reference_s", "speedup"]
RANKS = ["label", "rank", "n"]


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


def finals(source: pd.DataFrame | Results, metric: str | None = None, mode: str | None = None) -> pd.DataFrame:
    """One row per experiment: the one with its best validation value. Nothing else selects.

    ``value`` is that value and ``own_s`` the compute-seconds it took; ``trials`` (that reported anything) and
    ``compute_s`` are the whole experiment's. An experiment that never had a finite value gets an infinitely bad one,
    and no other metrics.
    """
    results = Results.of(source)
    frame = results.frame
    metric, mode = objective(results, metric, mode)
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


def long(ends: pd.DataFrame, columns: list[Measured], level: float) -> pd.DataFrame:
    """Mean and t-interval over seeds of every metric; trials and compute-seconds are means per experiment."""
    rows: list[list[Any]] = []
    for label in ends["label"].unique():
        own = ends[ends["label"] == label]
        for column, split, name in columns:
            center, low, high = summary(own[column], "mean", level)
            used = [own["trials"].mean(), own["compute_s"].mean()]
            rows.append([label, split, name, float(center), float(low), float(high), len(own), *used])
    return pd.DataFrame(rows, columns=LONG)


def by_seed(ends: pd.DataFrame, column: str) -> pd.DataFrame:
    """Seeds down, labels across. A seed that was run more than once under a label has no single value: NaN."""
    once = ends[~ends.duplicated(["label", "seed"], keep=False)]
    return once.pivot(index="seed", columns="label", values=column).reindex(columns=ends["label"].unique())


def differences(ends: pd.DataFrame, columns: list[Measured], reference: str, level: float) -> pd.DataFrame:
    """``label - reference`` over the seeds that both have."""
    rows: list[list[Any]] = []
    for column, split, name in columns:
        values = by_seed(ends, column)
        shared = by_seed(ends.assign(there=True), "there").notna()
        for label in values.columns:
            if reference in values and label != reference:
                both = values[shared[label] & shared[reference]]
                n, *rest = paired(both[label], both[reference], level)
                rows.append([label, split, name, n, *rest])
    result = pd.DataFrame(rows, columns=DIFFERENCES)
    place = {label: k for k, label in enumerate(ends["label"].unique())}
    return result.sort_values("label", key=lambda s: s.map(place), kind="stable", ignore_index=True)


def time_to_target(
    source: pd.DataFrame | Results,
    reference: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
) -> pd.DataFrame:
    """How long the reference takes to reach the final value of every other label: a row per label and shared seed.

    ``target`` is the label's final value, which took it ``own_s`` compute-seconds; ``reference_s`` is when the
    reference first had that value or a better one, infinite where it never did; ``speedup`` is their ratio, 0 where it
    never did. A label without a finite value sets no target.
    """
    results = Results.of(source)
    reference = results.reference(reference)
    metric, mode = objective(results, metric, mode)
    ends = finals(results, metric, mode)
    steps = incumbent(results, "compute_s", metric, mode)
    once = ends[~ends.duplicated(["label", "seed"], keep=False)]
    theirs = once[once["label"] == reference].set_index("seed")["experiment"]
    rows: list[list[Any]] = []
    for _, end in once[(once["label"] != reference) & once["seed"].isin(theirs.index)].iterrows():
        if np.isfinite(end["value"]):
            own = steps[steps["experiment"] == theirs[end["seed"]]]
            good = own[own["value"] <= end["value"]] if mode == "min" else own[own["value"] >= end["value"]]
            reached = float(good["x"].iloc[0]) if len(good) else np.inf
            speedup = end["own_s"] / reached if reached > 0 else np.nan
            rows.append([end["label"], end["seed"], end["value"], end["own_s"], reached, speedup])
    return pd.DataFrame(rows, columns=TARGETS)


def times(targets: pd.DataFrame) -> pd.DataFrame:
    """Medians over seeds, and the speed-up's quartiles; a target that was not reached counts as infinitely late.

    There is no median speed-up where the median seed does not reach the target.
    """
    rows: list[list[Any]] = []
    for label in targets["label"].unique():
        own = targets[targets["label"] == label]
        reached = int(np.isfinite(own["reference_s"]).sum())
        own_s, reference_s = (float(np.median(own[name])) for name in ("own_s", "reference_s"))
        center, low, high = (float(part) for part in summary(own["speedup"], "median"))
        speedup = center if np.isfinite(reference_s) else np.nan
        rows.append([label, len(own), reached, own_s, reference_s, speedup, low, high])
    return pd.DataFrame(rows, columns=TIMES)


def ranks(ends: pd.DataFrame, mode: str) -> pd.DataFrame:
    """Mean rank by final validation value, 1 the best, over the seeds that all labels share; ties share a rank."""
    values = by_seed(ends, "value").dropna()
    mean = values.rank(axis=1, ascending=mode == "min").mean()
    return pd.DataFrame([[label, float(mean[label]), len(values)] for label in values.columns], columns=RANKS)
