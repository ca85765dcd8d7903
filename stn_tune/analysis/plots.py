"""The figures, by name: ``FIGURES[name](frame, config)`` draws one, or raises ``NotThere`` with what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from stn_tune.analysis import plots_grid, plots_schedules, plots_search, plots_sensitivity, plots_theory
from stn_tune.analysis.curves import Curves, curves
from stn_tune.analysis.labels import literal, method_title, metric_title, parse
from stn_tune.analysis.order import BUILT_ON, HEATMAP, in_order
from stn_tune.analysis.style import (
    CUT,
    GREY,
    Draw,
    End,
    NotThere,
    asks_for_log,
    label_ends,
    method_lines,
    new_figure,
    styled,
    zoom,
)
from stn_tune.analysis.style import save as save

MOST_LINES = 12
"""With more labels than this, variants such as "stn start=0.3" are left to the figures that are about them."""
FEWEST_SEEDS = 3
"""The 95 % t-interval of two seeds is 13 times as wide as they are apart: a band would show nothing else."""

MOST_BANDS = 4
"""More bands than this lie over each other: the intervals are drawn beside the ends of the lines, one by one."""

AXES = {
    "compute_s": "compute (seconds, all workers and set-up counted)",
    "elapsed_s": "wall-clock time since the experiment began (seconds)",
    "epochs": "epochs trained, over all trials",
}


def draw_curves(curves: Curves, ax: Any = None, ylabel: str | None = None) -> Any:
    """Draws the best value so far of each method with its band; returns the axes, new ones of pyplot by default."""
    if ax is None:
        from matplotlib import pyplot as plt

        ax = plt.subplots(figsize=(7.2, 4.0), layout="constrained")[1]
    about, ends = draw_lines(curves, ax)
    ax.set_xlabel(AXES[curves.x])
    ax.set_ylabel(ylabel or f"best {literal(curves.metric.replace('_', ' '))}")
    ax.set_title(
        "\n".join(["; ".join(about), *(literal(note, 110) for note in curves.notes)]),
        fontsize=7.5,
        color=GREY,
        loc="left",
    )
    label_ends((ax, ends))
    return ax


def draw_lines(curves: Curves, ax: Any) -> tuple[list[str], list[End]]:
    """The lines and intervals alone; returns what has to be said about them, and their ends for :func:`label_ends`."""
    data, n = curves.data, curves.n
    if data.empty:
        raise NotThere("; ".join(curves.notes) or f"no finite {curves.metric}")
    same = len(set(n.values())) == 1
    with_interval = [method for method in in_order(n) if n[method] >= FEWEST_SEEDS]
    crowded = len(with_interval) > MOST_BANDS
    lines = method_lines(n)
    ends = {}
    for method in in_order(n):
        part, line = data[data["method"] == method], lines[method]
        look = {"color": line.colour, "ls": line.dash, "lw": 2.2 if method == "stn" else 1.6}
        ax.step(part["x"], part["center"], where="post", label=method_title(method), **look)
        if method in with_interval and not crowded:
            ax.fill_between(part["x"], part["low"], part["high"], step="post", color=line.colour, alpha=0.15, lw=0)
        text = method_title(method) if same else f"{method_title(method)} (n = {n[method]})"
        ends[method] = End(part["x"].iloc[-1], part["center"].iloc[-1], text, line)
    intervals = data[["low", "high"]].where(data["n"] >= FEWEST_SEEDS)
    if crowded:
        intervals = intervals.where(data["x"] == data["x"].max())
        _whiskers(ax, data[intervals["low"].notna()], data["x"].min(), ends)
    most = max(n.values())
    about = [curves.interval + (" at the end" if crowded else "") + (f", n = {most} seeds" if same else ", n seeds")]
    if most == 1:
        about = ["one seed each, so no band"]
    elif most < FEWEST_SEEDS:
        about = [f"{curves.interval.partition(',')[0]} of {most} seeds, too few for a band"]
    elif min(n.values()) < FEWEST_SEEDS:
        about[0] += f" ({'intervals' if crowded else 'bands'} from {FEWEST_SEEDS} on)"
    if asks_for_log(data["center"]):
        ax.set_yscale("log")
    elif zoom(ax, data["x"], data["center"], start=0.25, bands=intervals):
        about.append(CUT)
    return about, list(ends.values())


def _whiskers(ax: Any, last: pd.DataFrame, first: float, ends: dict[str, End]) -> None:
    """Draws the intervals of last points side by side, right of the lines, lowest first; moves ``ends`` there."""
    gap = 0.018 * (last["x"].max() - first)
    for place, row in enumerate(last.sort_values("center", kind="stable").itertuples(), 1):
        end = ends[row.method]
        x, look = end.x + place * gap, {"color": end.line.colour, "alpha": 0.75}
        ax.plot([x, x], [row.low, row.high], lw=1.8, solid_capstyle="butt", **look)
        ax.plot([end.x, x], [end.y, end.y], ls=end.line.dash, lw=0.7, **look)
        ax.plot([x], [end.y], marker="o", ms=3.2, **look)
        ends[row.method] = end._replace(x=x)
    ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= last["x"].max()])


def _against(frame: pd.DataFrame, config: Mapping[str, Any] | None, x: str) -> Figure:
    frame = frame[[parse(label).method not in {*BUILT_ON, HEATMAP} for label in frame["method"]]]
    labels = in_order(frame["method"])
    if not labels:
        raise NotThere("nothing but methods that take over what another has found, without what finding it cost")
    plain = [label for label in labels if not parse(label).settings]
    if len(labels) > MOST_LINES:
        if not plain:
            raise NotThere(f"{len(labels)} variants are too many lines for one picture")
        frame = frame[frame["method"].isin(plain)]
    figure = new_figure(7.2, 4.0)
    draw_curves(curves(frame, x=x), figure.subplots(), f"best {metric_title(frame, config)}")
    return figure


@styled
def time(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """Best validation loss so far against compute-seconds (the paper's Figures 3a and 4)."""
    return _against(frame, config, "compute_s")


@styled
def time_elapsed(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """Best validation loss so far against wall-clock time."""
    return _against(frame, config, "elapsed_s")


@styled
def time_epochs(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """Best validation loss so far against epochs trained."""
    return _against(frame, config, "epochs")


FIGURES: dict[str, Draw] = {
    "time": time,
    "time-elapsed": time_elapsed,
    "time-epochs": time_epochs,
    "schedules": plots_schedules.schedules,
    "sigma": plots_schedules.sigma,
    "schedules-by-start": plots_schedules.by_start,
    "perturbed": plots_schedules.perturbed,
    "heatmaps": plots_grid.heatmaps,
    "greedy": plots_grid.greedy,
    "steps": plots_sensitivity.steps,
    "scales": plots_sensitivity.scales,
    "configurations": plots_search.configurations,
    "importance": plots_search.importance,
    "neighbourhood": plots_theory.neighbourhood,
}

__all__ = ["FIGURES", "NotThere", "draw_curves", "save"]
