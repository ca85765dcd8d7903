"""How good methods are on the way, not only at the end: ranks over time, and the area under the regret."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from stn_tune.analysis.estimates import Estimate
from stn_tune.analysis.stats import summary


def rank_over_time(values: ArrayLike, mode: str = "min", level: float = 0.95) -> Estimate:
    """The mean rank of each method at each point, ``(methods, points)``, 1 the best; ``n`` is the number of runs.

    Args:
        values: ``(methods, runs, points)``, run ``k`` of every method with the same seed (or on the same task); NaN
            where a method has no value yet, which ranks behind all values. Ties share a rank.
        mode: "min" or "max".
        level: of the t-intervals over runs.
    """
    from scipy import stats

    array = np.asarray(values, dtype=np.float64) * (1.0 if mode == "min" else -1.0)
    ranks = stats.rankdata(np.where(np.isnan(array), np.inf, array), axis=0)
    center, low, high = summary(np.moveaxis(ranks, 1, 0), "mean", level)
    return Estimate(center, low, high, array.shape[1])


def regret_auc(x: ArrayLike, values: ArrayLike, best: float, start: float, end: float, mode: str = "min") -> float:
    """The mean regret of a best-so-far step function between ``start`` and ``end``, exactly.

    Args:
        x: where the function changes, increasing.
        values: its value from each ``x`` on, until the next.
        best: the value without regret, such as the best that any method found.
        start: from where on to integrate; NaN results if the function has no value there.
        end: up to where; the last value holds until then.
        mode: "min": the regret is value - best; "max": best - value.
    """
    places, steps = np.asarray(x, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if not len(places) or places[0] > start or not end > start:
        return np.nan
    edges = np.clip(np.append(places, np.inf), start, end)
    regret = (steps - best) * (1.0 if mode == "min" else -1.0)
    return float(regret @ np.diff(edges) / (end - start))
