"""curves: the best validation value found so far, against time, compute or epochs, over seeds."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stn_tune.analysis.results import Results, Source, objective
from stn_tune.analysis.stats import floats, summary
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
    """Best-so-far curves: ``data`` has a row per label and point (label, x, center, low, high, n).

    A curve starts where the last of its seeds has its first value, so that all of it is over the same ``n`` seeds.
    ``notes`` says which labels have no curve, and why.
    """

    data: pd.DataFrame
    """A row per label and point."""
    x: str
    """What the horizontal axis counts: a column of the frame."""
    metric: str
    """What selects."""
    mode: str
    """Either "min" or "max"."""
    kind: str
    """Which centre and interval the curves have."""
    level: float
    """Of the intervals."""
    results: Results
    """What the curves were made from."""
    notes: list[str] = field(default_factory=list)
    """Which labels have no curve, and why."""

    @property
    def n(self) -> dict[str, int]:
        """The number of seeds of each label."""
        return {str(label): int(n) for label, n in self.data.groupby("label", sort=False)["n"].first().items()}

    @property
    def interval(self) -> str:
        """What the line and its band are: "mean, 95 % t-interval"."""
        return INTERVALS[self.kind].format(level=100 * self.level)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws a line per label with its interval, on new axes by default; a dot where a method ended early."""
        from matplotlib import pyplot as plt

        from stn_tune.analysis.figures.time import curve_frame, draw_curves
        from stn_tune.plotting import RC

        with plt.rc_context(cast(Any, RC)):
            if ax is None:
                _, ax = plt.subplots(figsize=(7.2, 4.0), layout="constrained")
            draw_curves(curve_frame(self), ax)
        return ax

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes ``data``: the same bytes for the same numbers."""
        self.data.to_csv(path, index=False, float_format=FLOAT_FORMAT, lineterminator="\n")


def incumbent(source: Source, x: str = "compute_s", metric: str | None = None, mode: str | None = None) -> pd.DataFrame:
    """The exact step function of every experiment: a row wherever its best validation value so far improves.

    The rows are those of the frame, with ``x`` and ``value`` added: a value holds from its ``x`` until the next one. A
    tie does not improve; of rows at the same ``x`` only the best counts; NaN and infinite values (a diverged trial)
    never do, so an experiment without a finite value has no row.
    """
    results = Results.of(source, metric, mode)
    frame = results.frame
    metric, mode = objective(results)
    if x not in AXES or x not in frame:
        raise AnalysisError(f"x is {x!r}; it must be one of {', '.join(AXES)}, and a column of the frame")
    sign = 1.0 if mode == "min" else -1.0
    rows = frame.assign(x=floats(frame, x), value=floats(frame, metric))
    rows = rows[np.isfinite(rows["value"]) & np.isfinite(rows["x"])]
    rows = rows.assign(_cost=sign * rows["value"], _order=np.arange(len(rows)))
    rows = rows.sort_values(["experiment", "x", "_cost", "_order"], kind="stable").drop_duplicates(["experiment", "x"])
    best = rows.groupby("experiment")["_cost"].cummin()
    earlier = best.groupby(rows["experiment"]).shift(fill_value=np.inf)
    rows = rows[rows["_cost"] < earlier]
    place = {label: k for k, label in enumerate(results.in_order(rows["label"]))}
    rows = rows.assign(_place=rows["label"].map(place))
    rows = rows.sort_values(["_place", "seed", "experiment", "x"], kind="stable", ignore_index=True)
    result: pd.DataFrame = rows.drop(columns=["_cost", "_order", "_place"])
    return result


def at(steps: pd.DataFrame, grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """One experiment's step function on a grid: the last value at or before each point, NaN before the first."""
    place = np.searchsorted(steps["x"].to_numpy(), grid, side="right") - 1
    values = steps["value"].to_numpy(dtype=np.float64)
    return np.where(place >= 0, values[np.maximum(place, 0)], np.nan)


def curves(
    source: Source,
    x: str = "compute_s",
    metric: str | None = None,
    kind: str = "mean",
    points: int = 200,
    mode: str | None = None,
    level: float = 0.95,
    show: str | None = None,
    reference: str | None = None,
) -> Curves:
    """Best-so-far curves over seeds, on a grid that all labels share.

    Args:
        source: what :func:`~stn_tune.analysis.load` returned, or paths that it reads.
        x: "compute_s", "elapsed_s" (wall-clock) or "epochs" (over all trials of an experiment).
        metric: the metric that selects; by default the frame's.
        kind: "mean" with a t-interval, "median" with quartiles, or "iqm" with a bootstrap interval.
        points: of the grid.
        mode: "min" or "max"; by default the frame's.
        level: of the intervals.
        show: the column that is shown, of the row with the best validation value so far: "test_loss"; by default the
            metric itself. Nothing but the metric selects.
        reference: the label whose line stands out; by default the one that tunes online.

    Each point uses only rows at or before it. A curve starts where all its seeds have a value: a mean over a growing
    set of seeds would move without any improvement. An experiment that ends early keeps its best value until the end
    of the grid.
    """
    results = Results.of(source, metric, mode, reference)
    frame = results.frame
    metric, mode = objective(results)
    if points < 2:
        raise AnalysisError(f"points is {points}; a curve needs at least 2")
    steps = incumbent(results, x, metric, mode)
    if show is not None and floats(frame, show).isna().all():
        raise AnalysisError(f"show is {show!r}; no row has a number in that column")
    steps = steps if show is None else steps.assign(value=floats(steps, show))
    of = dict(list(steps.groupby("experiment", sort=False)))
    starts, members, notes = {}, {}, []
    for label in results.labels:
        names = sorted(frame.loc[frame["label"] == label, "experiment"].unique())
        never = [name for name in names if name not in of]
        if never:
            notes.append(f"{label}: no curve, because {', '.join(never)} never had a finite {metric}")
            continue
        members[label] = names
        starts[label] = max(float(of[name]["x"].iloc[0]) for name in names)
    parts = []
    if members:
        grid = np.unique(np.linspace(min(starts.values()), float(floats(frame, x).max()), points))
        for label, names in members.items():
            own = grid[grid >= starts[label]]
            center, low, high = summary(np.stack([at(of[name], own) for name in names]), kind, level)
            parts.append(
                pd.DataFrame({"label": label, "x": own, "center": center, "low": low, "high": high, "n": len(names)})
            )
    columns = ["label", "x", "center", "low", "high", "n"]
    data = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    return Curves(data, x, show or metric, mode, kind, level, results, notes)
