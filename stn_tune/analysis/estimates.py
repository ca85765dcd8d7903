"""Estimates over the runs of one or more tasks, with intervals: numbers in, numbers out.

Runs are resampled within their task (a stratified bootstrap), and always with the same draws. Such an interval needs
three runs in every task, and five in all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stn_tune.analysis.stats import BOOTSTRAP_FROM, FEWEST, Floats, bootstrap_tail, check_level, interquartile_mean
from stn_tune.errors import AnalysisError

RESAMPLES = 5000
CENTERS: dict[str, Callable[..., Any]] = {"iqm": interquartile_mean, "median": np.median, "mean": np.mean}


@dataclass(frozen=True)
class Estimate:
    """A value and an interval around it over ``n`` runs; NaN where they are not defined. Numbers, or arrays."""

    center: Any
    low: Any
    high: Any
    n: int


def aggregate(tasks: Sequence[ArrayLike], kind: str = "iqm", level: float = 0.95) -> Estimate:
    """The interquartile mean ("iqm"), the median or the mean of all runs of all tasks, with a bootstrap interval.

    Args:
        tasks: the runs of each task, ``(runs, ...)``. Values of several tasks need a common scale
            (:func:`normalised`); an infinite value (a run that diverged) is an ordinary bad one to IQM and median.
        kind: what is estimated.
        level: of the interval.
    """
    if kind not in CENTERS:
        raise AnalysisError(f"kind is {kind!r}; it must be one of {', '.join(CENTERS)}")
    center = CENTERS[kind]
    return _bootstrap(tasks, lambda samples, axis: center(np.concatenate(samples, axis), axis=axis), level)


def performance_profile(tasks: Sequence[ArrayLike], thresholds: ArrayLike, level: float = 0.95) -> Estimate:
    """The share of runs whose value is at most each threshold, ``(thresholds,)``; all tasks have the same weight."""
    marks = np.asarray(thresholds, dtype=np.float64)
    below = [np.asarray(runs, dtype=np.float64)[:, None] <= marks for runs in tasks]
    return _bootstrap(below, lambda samples, axis: np.mean([s.mean(axis=axis) for s in samples], axis=0), level)


def normalised(values: ArrayLike, mode: str = "min") -> Floats:
    """A task's values as regrets: 0 is the best of them, 1 the worst that is finite; what is not finite is infinite."""
    cost = np.asarray(values, dtype=np.float64) * (1.0 if mode == "min" else -1.0)
    finite = cost[np.isfinite(cost)]
    if not len(finite):
        return np.full_like(cost, np.inf)
    spread = float(np.ptp(finite)) or 1.0
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(cost), (cost - finite.min()) / spread, np.inf)


def probability_of_improvement(
    tasks: Sequence[ArrayLike], reference: Sequence[ArrayLike], mode: str = "min", level: float = 0.95
) -> Estimate:
    """The probability that a run is better than a run of the reference on the same task, averaged over tasks.

    Ties count one half: on one task it is Mann and Whitney's U over the number of pairs. The interval is Newcombe's
    score interval (2006, method 5), which is not empty where all runs of one are better; ``n`` is the smaller number
    of runs.
    """
    check_level(level)
    sign = 1.0 if mode == "min" else -1.0
    pairs = [(sign * _runs(a), sign * _runs(b)) for a, b in zip(tasks, reference, strict=True)]
    n = min(sum(len(a) for a, _ in pairs), sum(len(b) for _, b in pairs))
    fewest = min((len(runs) for pair in pairs for runs in pair), default=0)
    if fewest == 0:
        return Estimate(np.nan, np.nan, np.nan, n)
    better = [np.mean((a[:, None] < b) + 0.5 * (a[:, None] == b)) for a, b in pairs]
    center = float(np.mean(better))
    if fewest < FEWEST:
        return Estimate(center, np.nan, np.nan, n)
    return Estimate(center, *_score_interval(center, [(len(a), len(b)) for a, b in pairs], level), n)


def _score_interval(center: float, sizes: Sequence[tuple[int, int]], level: float) -> tuple[float, float]:
    """The probabilities from which ``center`` is at most a normal quantile of standard errors away."""
    from scipy import optimize, stats

    z = float(stats.norm.ppf((1 + level) / 2))

    def distance(p: float) -> float:
        ties = (1 - p) / (2 - p) + p / (1 + p)
        variance = sum(p * (1 - p) * (1 + ((m + n) / 2 - 1) * ties) / (m * n) for m, n in sizes) / len(sizes) ** 2
        return float((p - center) ** 2 - z**2 * variance)

    inside = min(max(center, 1e-9), 1 - 1e-9)  # at 0 and 1 the distance is 0 as well
    low = optimize.brentq(distance, 0.0, inside) if center > 0 else 0.0
    high = optimize.brentq(distance, inside, 1.0) if center < 1 else 1.0
    return float(low), float(high)


def holm(p_values: ArrayLike) -> Floats:
    """p-values of several comparisons, corrected by Holm's step-down method; NaN is no comparison and stays NaN."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)[: int(np.isfinite(p).sum())]
    steps = (len(order) - np.arange(len(order))) * p[order]
    result = np.full_like(p, np.nan)
    result[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return result


def _runs(values: ArrayLike) -> Floats:
    runs = np.asarray(values, dtype=np.float64)
    return runs[~np.isnan(runs)]


def _bootstrap(
    tasks: Sequence[ArrayLike], statistic: Callable[[list[NDArray[Any]], int], NDArray[Any]], level: float
) -> Estimate:
    """The statistic of ``(runs, ...)`` arrays along an axis, and its interval over resamples of each task's runs."""
    check_level(level)
    strata = [np.asarray(runs, dtype=np.float64) for runs in tasks]
    sizes = [len(runs) for runs in strata]
    if not sizes or not min(sizes):
        return Estimate(np.nan, np.nan, np.nan, sum(sizes))
    center = statistic(strata, 0)
    if min(sizes) < FEWEST or sum(sizes) < BOOTSTRAP_FROM:
        none = np.full(np.shape(center), np.nan)[()]
        return Estimate(center, none, none, sum(sizes))
    random = np.random.default_rng(0)
    samples = [runs[random.integers(len(runs), size=(RESAMPLES, len(runs)))] for runs in strata]
    values = statistic(samples, 1)
    tail = bootstrap_tail(sizes, level)
    low = np.quantile(values, tail, axis=0, method="lower")
    high = np.quantile(values, 1 - tail, axis=0, method="higher")
    return Estimate(center, low, high, sum(sizes))
