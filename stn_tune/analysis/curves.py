"""curves: the best validation value found so far, against time, compute or epochs, over seeds."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stn_tune.analysis.frame import numbers
from stn_tune.analysis.order import in_order
from stn_tune.analysis.stats import summary
from stn_tune.errors import AnalysisError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXES = ("compute_s", "elapsed_s", "epochs")
FLOAT_FORMAT = "%.8g"
INTERVALS = {
    "mean": "mean, {level:g} % t-interval",
    "median": "median, quartiles",
    "iqm": "interquartile mean, {level:g} % bootstrap interval",
}


@dataclass
class Curves:
    """Anytime curves of every method: ``data`` has a row per method and point (method, x, center, low, high, n).

    A method's curve begins where the last of its seeds has its first value, so that all of it is over the same ``n``
    seeds. ``notes`` says which methods have none, and why.
    """

    data: pd.DataFrame
    x: str
    metric: str
    mode: str
    kind: str
    level: float
    notes: list[str] = field(default_factory=list)

    @property
    def n(self) -> dict[str, int]:
        """The number of seeds of each method."""
        return {method: int(n) for method, n in self.data.groupby("method", sort=False)["n"].first().items()}

    @property
    def interval(self) -> str:
        """What the line and its band are: "mean, 95 % t-interval"."""
        return INTERVALS[self.kind].format(level=100 * self.level)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws a line per method and a band around it."""
        from stn_tune.analysis import plots

        if ax is None:
            from matplotlib import pyplot as plt

            _, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
        plots.draw_curves(self, ax)
        return ax

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        self.data.to_csv(path, index=False, float_format=FLOAT_FORMAT, lineterminator="\n")


def objective(frame: pd.DataFrame, metric: str | None = None, mode: str | None = None) -> tuple[str, str]:
    """The metric that selects and its mode: as given, else as loaded, else ``val_loss`` and "min"."""
    metric = metric or frame.attrs.get("metric", "val_loss")
    mode = mode or frame.attrs.get("mode", "min")
    if mode not in ("min", "max"):
        raise AnalysisError(f'mode is {mode!r}; it must be "min" or "max"')
    if not len(frame):
        raise AnalysisError("the frame has no rows")
    if metric not in frame or numbers(frame, metric).isna().all():
        others = [n for n in frame.columns if "loss" in n or n.startswith("val_")]
        raise AnalysisError(f"no row has a {metric}; there are {', '.join(others) or ', '.join(frame.columns)}")
    return metric, mode


def incumbent(
    frame: pd.DataFrame, x: str = "compute_s", metric: str | None = None, mode: str | None = None
) -> pd.DataFrame:
    """The exact step function of every experiment: a row wherever its best validation value so far improves.

    The rows are those of the frame, with ``x`` and ``value`` added: a value holds from its ``x`` until the next one. A
    tie does not improve; of rows at the same ``x`` only the best counts; NaN and infinite values (a diverged trial)
    never do, so an experiment without a finite value has no row.
    """
    metric, mode = objective(frame, metric, mode)
    if x not in AXES or x not in frame:
        raise AnalysisError(f"x is {x!r}; it must be one of {', '.join(AXES)}, and a column of the frame")
    sign = 1.0 if mode == "min" else -1.0
    rows = frame.assign(x=numbers(frame, x), value=numbers(frame, metric))
    rows = rows[np.isfinite(rows["value"]) & np.isfinite(rows["x"])]
    rows = rows.assign(_cost=sign * rows["value"], _order=np.arange(len(rows)))
    rows = rows.sort_values(["experiment", "x", "_cost", "_order"], kind="stable").drop_duplicates(["experiment", "x"])
    best = rows.groupby("experiment")["_cost"].cummin()
    earlier = best.groupby(rows["experiment"]).shift(fill_value=np.inf)
    rows = rows[rows["_cost"] < earlier]
    methods = {method: place for place, method in enumerate(in_order(rows["method"]))}
    rows = rows.assign(_place=rows["method"].map(methods))
    rows = rows.sort_values(["_place", "seed", "experiment", "x"], kind="stable", ignore_index=True)
    return rows.drop(columns=["_cost", "_order", "_place"])


def at(steps: pd.DataFrame, grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """One experiment's step function on a grid: the last value at or before each point, NaN before the first."""
    place = np.searchsorted(steps["x"].to_numpy(), grid, side="right") - 1
    values = steps["value"].to_numpy(dtype=np.float64)
    return np.where(place >= 0, values[np.maximum(place, 0)], np.nan)


def curves(
    frame: pd.DataFrame,
    x: str = "compute_s",
    metric: str | None = None,
    kind: str = "mean",
    points: int = 200,
    mode: str | None = None,
    level: float = 0.95,
) -> Curves:
    """Best-so-far curves over seeds, on a grid that all methods share.

    Args:
        x: "compute_s", "elapsed_s" (wall-clock) or "epochs" (over all trials of an experiment).
        kind: "mean" with a t-interval, "median" with quartiles, or "iqm" with a bootstrap interval.

    Nothing looks into the future: a point knows only rows at or before it. A curve begins where all its seeds have a
    value, since a mean over a growing set of seeds would move without anything being found; and an experiment that
    ends early keeps what it found until the end of the grid.
    """
    metric, mode = objective(frame, metric, mode)
    if points < 2:
        raise AnalysisError(f"points is {points}; a curve needs at least 2")
    steps = incumbent(frame, x, metric, mode)
    of = dict(list(steps.groupby("experiment", sort=False)))
    starts, members, notes = {}, {}, []
    for method in in_order(frame["method"]):
        names = sorted(frame.loc[frame["method"] == method, "experiment"].unique())
        never = [name for name in names if name not in of]
        if never:
            notes.append(f"{method}: no curve, as {', '.join(never)} never had a finite {metric}")
            continue
        members[method] = names
        starts[method] = max(float(of[name]["x"].iloc[0]) for name in names)
    parts = []
    if members:
        grid = np.unique(np.linspace(min(starts.values()), float(numbers(frame, x).max()), points))
        for method, names in members.items():
            own = grid[grid >= starts[method]]
            center, low, high = summary(np.stack([at(of[name], own) for name in names]), kind, level)
            parts.append(
                pd.DataFrame({"method": method, "x": own, "center": center, "low": low, "high": high, "n": len(names)})
            )
    columns = ["method", "x", "center", "low", "high", "n"]
    data = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    return Curves(data, x, metric, mode, kind, level, notes)
