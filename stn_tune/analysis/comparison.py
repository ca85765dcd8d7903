"""What every experiment ended with, and how methods compare over the seeds they share: the numbers of a table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from stn_tune.analysis.curves import incumbent, objective
from stn_tune.analysis.frame import numbers
from stn_tune.analysis.order import in_order
from stn_tune.analysis.stats import paired, summary

LONG = ["method", "split", "metric", "mean", "low", "high", "n", "trials", "compute_s"]
DIFFERENCES = ["method", "split", "metric", "n", "difference", "low", "high", "t_p", "wilcoxon_p"]
TIMES = ["method", "n", "reached", "own_s", "reference_s", "speedup", "speedup_low", "speedup_high"]
TARGETS = ["method", "seed", "target", "own_s", "reference_s", "speedup"]
RANKS = ["method", "rank", "n"]


class Measured(NamedTuple):
    """A column of the frame as a table names it: ``val_loss`` is the loss on the validation split."""

    column: str
    split: str
    name: str


def measured(frame: pd.DataFrame, metric: str) -> list[Measured]:
    """What selects and its test value, then every other metric of either split that has numbers.

    A name with a slash (``val_response/exact_03``) is a point of something that a figure draws, not a result.
    """
    main = metric.removeprefix("val_")
    found = [Measured(metric, "val", main), Measured(f"test_{main}", "test", main)]
    names = {c.split("_", 1)[1] for c in frame.columns if c.startswith(("val_", "test_")) and "/" not in c} - {main}
    found += [Measured(f"{split}_{name}", split, name) for name in sorted(names) for split in ("val", "test")]
    return [m for m in found if m.column in frame and numbers(frame, m.column).notna().any()]


def finals(frame: pd.DataFrame, metric: str | None = None, mode: str | None = None) -> pd.DataFrame:
    """One row per experiment: the one with its best validation value, so that nothing else has selected it.

    ``value`` is that value and ``own_s`` the compute-seconds it took; ``trials`` (that reported anything) and
    ``compute_s`` are the whole experiment's. An experiment that never had a finite value has the worst there is, and
    no other metrics.
    """
    metric, mode = objective(frame, metric, mode)
    last = incumbent(frame, "compute_s", metric, mode).groupby("experiment").tail(1).set_index("experiment")
    whole = frame.groupby("experiment").agg(
        method=("method", "first"), seed=("seed", "first"), trials=("trial", "nunique"), compute_s=("compute_s", "max")
    )
    columns = {m.column: numbers(last, m.column) for m in measured(frame, metric)}
    result = whole.join(pd.DataFrame(columns | {metric: last["value"], "own_s": last["x"]}))
    worst = np.inf if mode == "min" else -np.inf
    result[metric] = result[metric].fillna(worst)
    result["value"] = result[metric]
    place = {method: k for k, method in enumerate(in_order(result["method"]))}
    result["_place"] = result["method"].map(place)
    result = result.reset_index().sort_values(["_place", "seed", "experiment"], ignore_index=True)
    return result.drop(columns="_place")


def long(ends: pd.DataFrame, columns: list[Measured], level: float) -> pd.DataFrame:
    """Mean and t-interval over seeds of every metric; trials and compute-seconds are means per experiment."""
    rows: list[list[Any]] = []
    for method in in_order(ends["method"]):
        own = ends[ends["method"] == method]
        for column, split, name in columns:
            center, low, high = summary(own[column], "mean", level)
            used = [own["trials"].mean(), own["compute_s"].mean()]
            rows.append([method, split, name, float(center), float(low), float(high), len(own), *used])
    return pd.DataFrame(rows, columns=LONG)


def by_seed(ends: pd.DataFrame, column: str) -> pd.DataFrame:
    """Seeds down, methods across. A seed that a method ran more than once has no one value, and so none."""
    once = ends[~ends.duplicated(["method", "seed"], keep=False)]
    return once.pivot(index="seed", columns="method", values=column).reindex(columns=in_order(ends["method"]))


def differences(ends: pd.DataFrame, columns: list[Measured], reference: str, level: float) -> pd.DataFrame:
    """``method - reference`` over the seeds that both have."""
    rows: list[list[Any]] = []
    for column, split, name in columns:
        values = by_seed(ends, column)
        shared = by_seed(ends.assign(there=True), "there").notna()
        for method in values.columns:
            if reference in values and method != reference:
                both = values[shared[method] & shared[reference]]
                n, *rest = paired(both[method], both[reference], level)
                rows.append([method, split, name, n, *rest])
    result = pd.DataFrame(rows, columns=DIFFERENCES)
    place = {method: k for k, method in enumerate(in_order(result["method"]))}
    return result.sort_values("method", key=lambda s: s.map(place), kind="stable", ignore_index=True)


def time_to_target(
    frame: pd.DataFrame, reference: str = "stn", metric: str | None = None, mode: str | None = None
) -> pd.DataFrame:
    """How soon the reference was as good as each other method ended: a row per method and shared seed.

    ``target`` is the method's final value, which took it ``own_s`` compute-seconds; ``reference_s`` is when the
    reference first had that value or a better one, infinite where it never did; ``speedup`` is their ratio, 0 where it
    never did. A method without a finite value sets no target.
    """
    metric, mode = objective(frame, metric, mode)
    ends = finals(frame, metric, mode)
    steps = incumbent(frame, "compute_s", metric, mode)
    once = ends[~ends.duplicated(["method", "seed"], keep=False)]
    theirs = once[once["method"] == reference].set_index("seed")["experiment"]
    rows: list[list[Any]] = []
    for _, end in once[(once["method"] != reference) & once["seed"].isin(theirs.index)].iterrows():
        if np.isfinite(end["value"]):
            own = steps[steps["experiment"] == theirs[end["seed"]]]
            good = own[own["value"] <= end["value"]] if mode == "min" else own[own["value"] >= end["value"]]
            reached = float(good["x"].iloc[0]) if len(good) else np.inf
            speedup = end["own_s"] / reached if reached > 0 else np.nan
            rows.append([end["method"], end["seed"], end["value"], end["own_s"], reached, speedup])
    return pd.DataFrame(rows, columns=TARGETS)


def times(targets: pd.DataFrame) -> pd.DataFrame:
    """Medians over seeds, and the speed-up's quartiles; a target that was not reached counts as infinitely late.

    Where the median seed does not reach it, there is no median speed-up.
    """
    rows: list[list[Any]] = []
    for method in in_order(targets["method"]):
        own = targets[targets["method"] == method]
        reached = int(np.isfinite(own["reference_s"]).sum())
        own_s, reference_s = (float(np.median(own[name])) for name in ("own_s", "reference_s"))
        center, low, high = (float(part) for part in summary(own["speedup"], "median"))
        speedup = center if np.isfinite(reference_s) else np.nan
        rows.append([method, len(own), reached, own_s, reference_s, speedup, low, high])
    return pd.DataFrame(rows, columns=TIMES)


def ranks(ends: pd.DataFrame, mode: str) -> pd.DataFrame:
    """Mean rank by final validation value, 1 the best, over the seeds that all methods have; ties share a rank."""
    values = by_seed(ends, "value").dropna()
    mean = values.rank(axis=1, ascending=mode == "min").mean()
    return pd.DataFrame([[method, float(mean[method]), len(values)] for method in values.columns], columns=RANKS)
