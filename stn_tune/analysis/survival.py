"""Times to an event that some runs have not seen when they end: Kaplan and Meier's estimate of their quantiles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stn_tune.analysis.estimates import Estimate
from stn_tune.analysis.stats import FEWEST, Floats, check_level


@dataclass(frozen=True)
class Survival:
    """The share of runs without the event: ``share[k]`` from ``times[k]`` on, until the next time; 1 before."""

    times: Floats
    """When at least one run had the event, increasing."""
    share: Floats
    error: Floats
    """Greenwood's standard error of log(-log(share)); NaN where share is 0 or 1."""
    n: int
    reached: int
    """Runs that had the event."""
    last: float
    """How long the longest run was watched."""

    def quantile(self, q: float = 0.5) -> float:
        """When a share ``q`` of runs has had the event; NaN if it is later than the runs can tell.

        Where exactly that share is left between two events, the middle of them, as for a median of an even number.
        """
        return _first(self.times, self.share, 1 - q)

    def median(self, level: float = 0.95) -> Estimate:
        """The median, with the interval of Brookmeyer and Crowley on the log-log scale.

        ``high`` is infinite where the runs do not bound the median from above. Fewer than three runs have no interval.
        """
        from scipy import stats

        check_level(level)
        center = self.quantile(0.5)
        if self.n < FEWEST:
            return Estimate(center, np.nan, np.nan, self.n)
        half = float(stats.norm.ppf((1 + level) / 2)) * self.error
        with np.errstate(divide="ignore", invalid="ignore"):
            hazard = np.log(-np.log(self.share))
            below, above = np.exp(-np.exp(hazard + half)), np.exp(-np.exp(hazard - half))
        ended = self.share == 0
        low = _first(self.times, np.where(ended, 0.0, np.nan_to_num(below, nan=1.0)), 0.5)
        high = _first(self.times, np.where(ended, 0.0, np.nan_to_num(above, nan=1.0)), 0.5)
        return Estimate(center, low if low == low else np.inf, high if high == high else np.inf, self.n)


def kaplan_meier(times: ArrayLike, reached: ArrayLike) -> Survival:
    """The estimate from a time per run: that of the event where ``reached``, else that at which the run ended."""
    when, event = np.asarray(times, dtype=np.float64), np.asarray(reached, dtype=bool)
    unique = np.unique(when[event])
    at_risk = (when[None, :] >= unique[:, None]).sum(axis=1)
    events = (when[event][None, :] == unique[:, None]).sum(axis=1)
    share = np.cumprod(1 - events / at_risk)
    with np.errstate(divide="ignore", invalid="ignore"):
        greenwood = np.cumsum(events / (at_risk * (at_risk - events)))
        error = np.sqrt(greenwood) / np.abs(np.log(share))
    error = np.where((share > 0) & (share < 1), error, np.nan)
    last = float(when.max()) if len(when) else np.nan
    return Survival(unique, share, error, len(when), int(event.sum()), last)


def _first(times: Floats, share: Floats, level: float) -> float:
    """The first time with at most ``level`` left, the middle to the next drop where it is exactly ``level``."""
    exact = np.isclose(share, level, rtol=0.0, atol=1e-12)
    found = np.flatnonzero((share < level) | exact)
    if not len(found):
        return np.nan
    k = int(found[0])
    later = np.flatnonzero(~exact & (np.arange(len(share)) > k))
    return float((times[k] + times[later[0]]) / 2) if exact[k] and len(later) else float(times[k])
