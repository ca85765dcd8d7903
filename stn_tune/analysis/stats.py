"""Columns as numbers; centres, intervals and tests over seeds. One or two seeds have a centre and no interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from stn_tune.errors import AnalysisError
from stn_tune.numbers import is_finite

Floats = NDArray[np.float64]

KINDS = ("mean", "median", "iqm")
RESAMPLES = 2000
FEWEST = 3
"""The fewest runs that get an interval or a test: over two, a 95 % t-interval is 13 standard errors wide."""
BOOTSTRAP_FROM = 5
"""The fewest runs whose range, the widest interval that resampling can give, covers a median with about 95 %."""
SAME = 1e-12
"""Of the largest value: differences that vary by less are the same, but for rounding."""
WILCOXON_FROM = 6
"""The fewest pairs with which Wilcoxon's signed-rank test can be significant at 5 %."""


def floats(frame: pd.DataFrame, name: str) -> pd.Series:
    """A column as floats: NaN where it holds no number, or is not there."""
    if name not in frame:
        return pd.Series(np.nan, index=frame.index)
    try:
        return pd.to_numeric(frame[name], errors="coerce").astype(np.float64)
    except OverflowError:  # whole numbers beyond what a float holds
        return frame[name].map(lambda value: float(value) if is_finite(value) else np.nan)


def finite(frame: pd.DataFrame, name: str) -> pd.Series:
    """A column as floats: NaN where it holds no finite number, or is not there."""
    return floats(frame, name).replace([np.inf, -np.inf], np.nan)


class Summary(NamedTuple):
    """A centre and an interval around it; NaN where they are not defined."""

    center: Any
    low: Any
    high: Any


def summary(values: ArrayLike, kind: str = "mean", level: float = 0.95) -> Summary:
    """Over the first axis: the mean with a t-interval, the median with quartiles, or the interquartile mean with a
    bootstrap interval (always the same resamples). Fewer than three values (for the bootstrap: five) have no interval,
    nor have values that are not finite.
    """
    if kind not in KINDS:
        raise AnalysisError(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    check_level(level)
    array = np.asarray(values, dtype=np.float64)
    n = len(array)
    none = np.full(array.shape[1:], np.nan)
    if n == 0:
        return Summary(none, none, none)
    if kind == "median":
        low, center, high = np.quantile(array, [0.25, 0.5, 0.75], axis=0)
    elif kind == "iqm":
        center = interquartile_mean(array)
        draws = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
        means = np.stack([interquartile_mean(array[draw]) for draw in draws])
        tail = bootstrap_tail([n], level) if n >= BOOTSTRAP_FROM else 0.0
        low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    else:
        with np.errstate(invalid="ignore"):
            center = array.mean(axis=0)
        half = t_quantile(level, n) * _deviation(array) / np.sqrt(n) if n > 1 else none
        low, high = center - half, center + half
    defined = np.isfinite(array).all(axis=0) & (n >= (BOOTSTRAP_FROM if kind == "iqm" else FEWEST))
    return Summary(center, np.where(defined, low, np.nan), np.where(defined, high, np.nan))


def _deviation(array: Floats) -> Floats:
    finite = np.where(np.isfinite(array), array, 0.0)
    return np.asarray(finite.std(axis=0, ddof=1))


def t_quantile(level: float, n: int) -> float:
    """How many standard errors a two-sided t-interval over ``n`` values reaches."""
    from scipy import stats

    return float(stats.t.ppf((1 + level) / 2, n - 1))


def check_level(level: float) -> None:
    """Raises AnalysisError if it is not a confidence level."""
    if not 0 < level < 1:
        raise AnalysisError(f"level is {level}; it must lie between 0 and 1, as 0.95 does")


def bootstrap_tail(sizes: Sequence[int], level: float) -> float:
    """What to cut off at either end of the resampled statistics, for runs of one or more tasks resampled apart.

    A percentile interval over few runs is too narrow, as a normal instead of a t-interval would be, and by the missing
    factor n / (n - 1) of the variance; this is Hesterberg's expanded percentile interval (2015), which adds both.
    """
    from scipy import stats

    freedom = sum(sizes) - len(sizes)
    reach = float(stats.t.ppf((1 + level) / 2, freedom)) * np.sqrt(sum(sizes) / freedom)
    return float(stats.norm.cdf(-reach))


def interquartile_mean(array: ArrayLike, axis: int = 0) -> Floats:
    """The mean of the middle half over an axis; values at its edges count in part, values outside it not at all."""
    values = np.moveaxis(np.asarray(array, dtype=np.float64), axis, 0)
    n = len(values)
    edges = np.clip(np.arange(n + 1, dtype=np.float64), n / 4, 3 * n / 4)
    weights = np.diff(edges)
    middle = np.sort(values, axis=0)[weights > 0]
    return np.asarray(np.average(middle, axis=0, weights=weights[weights > 0]))


class Paired(NamedTuple):
    """Differences of pairs: their mean, its t-interval, and the p-values of two tests."""

    n: int
    mean: float
    low: float
    high: float
    t_p: float
    wilcoxon_p: float


def paired(values: ArrayLike, reference: ArrayLike, level: float = 0.95) -> Paired:
    """``values - reference``, pair by pair. The t-test needs three pairs, Wilcoxon's signed-rank test six.

    Differences that are all the same, and not 0, have no t-test: such pairs are copies, not repetitions.
    """
    first, second = np.asarray(values, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        difference = first - second
    n = len(difference)
    if n == 0:
        return Paired(0, *[np.nan] * 5)
    mean, low, high = (float(part) for part in summary(difference, "mean", level))
    if n < FEWEST or not np.isfinite(difference).all():
        return Paired(n, mean, low, high, np.nan, np.nan)
    if np.ptp(difference) <= SAME * max(np.abs(first).max(), np.abs(second).max()):
        t_p = 1.0 if mean == 0 else np.nan
    else:
        from scipy import stats

        t = mean / (difference.std(ddof=1) / np.sqrt(n))
        t_p = float(2 * stats.t.sf(abs(t), n - 1))
    return Paired(n, mean, low, high, t_p, _wilcoxon(difference) if n >= WILCOXON_FROM else np.nan)


def _wilcoxon(difference: Floats) -> float:
    if not difference.any():
        return 1.0
    from scipy import stats

    return float(stats.wilcoxon(difference, zero_method="wilcox").pvalue)
