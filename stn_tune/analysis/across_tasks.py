"""Methods over several tasks: normalised regrets, performance profiles, probabilities of improvement.

There is no critical-difference diagram: with fewer than ten tasks its test has no power, and nobody runs ten here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from stn_tune.analysis.comparison import finals, measured
from stn_tune.analysis.estimates import aggregate, normalised, performance_profile, probability_of_improvement
from stn_tune.analysis.results import Results, Source, objective

REGRETS = ["task", "label", "seed", "regret"]
SUMMARY = ["label", "tasks", "n", "iqm", "low", "high", "median", "better", "better_low", "better_high"]
THRESHOLDS = tuple(k / 50 for k in range(51))


def normalised_regrets(tasks: Mapping[str, Source]) -> pd.DataFrame:
    """Every experiment's final value on its task's scale: 0 is the best of all methods, 1 the worst that is finite.

    The value is that of the test set, where it is reported, at the best validation value. Only labels that every task
    has are there.
    """
    found = {title: Results.of(source).compared for title, source in tasks.items()}
    shared = set.intersection(*(set(results.labels) for results in found.values())) if found else set()
    parts = []
    for title, results in found.items():
        metric, mode = objective(results)
        ends = finals(results, metric, mode)
        ends = ends[ends["label"].isin(shared)]
        main = measured(results.frame, metric)[0].name
        column = next(
            (m.column for m in measured(results.frame, metric) if (m.split, m.name) == ("test", main)), metric
        )
        parts.append(ends[["label", "seed"]].assign(task=title, regret=normalised(ends[column], mode)))
    return pd.concat(parts, ignore_index=True)[REGRETS] if parts else pd.DataFrame(columns=REGRETS)


def profiles(tasks: Mapping[str, Source], thresholds: ArrayLike = THRESHOLDS, level: float = 0.95) -> pd.DataFrame:
    """For each label, the share of runs whose normalised regret is at most a threshold, tasks weighing the same.

    Columns: label, threshold, share, low, high, n.
    """
    regrets = normalised_regrets(tasks)
    marks = np.asarray(thresholds, dtype=np.float64)
    columns = ["label", "threshold", "share", "low", "high", "n"]
    parts = []
    for label, own in regrets.groupby("label", sort=False):
        found = performance_profile(_by_task(own), marks, level)
        about = {"label": label, "threshold": marks, "share": found.center, "low": found.low, "high": found.high}
        parts.append(pd.DataFrame({**about, "n": found.n}))
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def summary_across(tasks: Mapping[str, Source], reference: str, level: float = 0.95) -> pd.DataFrame:
    """A row per label: IQM and median of normalised regrets, and the probability that a run beats the reference's."""
    regrets = normalised_regrets(tasks)
    theirs = _by_task(regrets[regrets["label"] == reference])
    rows: list[list[Any]] = []
    for label, own in regrets.groupby("label", sort=False):
        runs = _by_task(own)
        iqm, median = aggregate(runs, "iqm", level), aggregate(runs, "median", level)
        better = [np.nan] * 3
        if label != reference and len(theirs) == len(runs):
            found = probability_of_improvement(runs, theirs, "min", level)
            better = [found.center, found.low, found.high]
        values = [float(part) for part in (iqm.center, iqm.low, iqm.high, median.center)]
        rows.append([label, len(runs), iqm.n, *values, *better])
    result = pd.DataFrame(rows, columns=SUMMARY)
    return result.sort_values("iqm", kind="stable", ignore_index=True)


def _by_task(regrets: pd.DataFrame) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    return [part["regret"].to_numpy() for _, part in regrets.groupby("task", sort=True)]
