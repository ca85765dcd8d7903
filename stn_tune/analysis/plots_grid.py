"""Grids of fixed values: how the best value changes while a network trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from stn_tune.analysis.labels import (
    across_seeds,
    best_trials,
    metric,
    metric_title,
    numeric,
    of_label,
    title,
    varied,
)
from stn_tune.analysis.order import HEATMAP
from stn_tune.analysis.plots_schedules import draw_seeds
from stn_tune.analysis.style import (
    CUT,
    SEQUENTIAL,
    NotThere,
    asks_for_log,
    label_ends,
    method_lines,
    note,
    panels,
    styled,
    zoom,
)

EPOCHS = (1, 10, 25)


def at_epochs(rows: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """The metric over epoch (rows) and the values of ``names`` (columns), averaged over seeds."""
    columns = [f"hp/{name}" for name in names]
    data = pd.DataFrame({c: numeric(rows[c]) for c in ["epoch", *columns]}).assign(
        value=numeric(rows[metric(rows)[0]]), experiment=rows["experiment"]
    )
    grid = data.groupby(["epoch", *columns])["value"].mean().unstack(columns)
    return grid.dropna(how="all")


def nearest(epochs: Any, wanted: Any = EPOCHS) -> list[int]:
    """The available epochs nearest to those wanted, each once."""
    available = np.asarray(sorted(epochs), dtype=int)
    return sorted({int(available[np.abs(available - w).argmin()]) for w in wanted})


@styled
def heatmaps(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """Validation loss over input and output dropout early, midway and late in training (appendix)."""
    rows = of_label(frame, HEATMAP)
    names = varied(rows)
    if {"input_dropout", "output_dropout"} <= set(names):
        names = ["input_dropout", "output_dropout"]
    if len(names) != 2:
        raise NotThere(f"heat maps need two hyperparameters that vary, not {len(names)}")
    grid = at_epochs(rows, names)
    if grid.empty:
        raise NotThere("no trial of the heat map has a finite loss")
    reached = grid.notna().sum(axis=1)
    epochs = nearest(grid.index[reached >= 0.5 * reached.max()])
    pick = "min" if metric(frame)[1] == "min" else "max"
    figure, axes = panels(len(epochs), columns=3, width=3.7, height=3.1)
    for ax, epoch in zip(axes, epochs, strict=True):
        table = grid.loc[epoch].unstack(level=0)
        ax.set_facecolor("#dddddd")
        ax.grid(False)
        norm = mpl.colors.LogNorm() if asks_for_log(table) else None
        mesh = ax.pcolormesh(
            np.arange(table.shape[1] + 1) - 0.5,
            np.arange(table.shape[0] + 1) - 0.5,
            np.ma.masked_invalid(table.to_numpy()),
            cmap=SEQUENTIAL if pick == "min" else f"{SEQUENTIAL}_r",
            norm=norm,
        )
        mesh.set_rasterized(False)
        best = grid.loc[epoch].idxmin() if pick == "min" else grid.loc[epoch].idxmax()
        place = (table.columns.get_loc(best[0]), table.index.get_loc(best[1]))
        ax.plot(*place, marker="*", ms=13, mfc="white", mec="#D55E00", mew=1.2, clip_on=False)
        _ticks(ax.xaxis, table.columns)
        _ticks(ax.yaxis, table.index)
        ax.set_title(f"epoch {epoch}: best {grid.loc[epoch, best]:.4g} at ({best[0]:g}, {best[1]:g})", fontsize=8)
        ax.set_xlabel(title(names[0]))
        figure.colorbar(mesh, ax=ax, pad=0.02).outline.set_visible(False)
    axes[0].set_ylabel(title(names[1]))
    seeds = rows["experiment"].nunique()
    note(
        figure,
        f"colour: {metric_title(frame, config)} at that epoch, a scale per panel, darker is better; "
        f"star: best of {grid.shape[1]} settings; {'one seed' if seeds == 1 else f'mean of n = {seeds} seeds'}"
        + ("; grey: diverged or not reached" if grid.loc[epochs].isna().any(axis=None) else ""),
    )
    return figure


def _ticks(axis: Any, values: Any) -> None:
    """A tick per cell, or every few cells where there are many."""
    every = -(-len(values) // 8)
    axis.set_ticks(range(0, len(values), every), [f"{v:g}" for v in values[::every]])
    axis.set_tick_params(length=0)


def greedy_schedule(rows: pd.DataFrame, name: str) -> pd.Series:
    """Epoch -> the value whose fixed trial has the best metric at that epoch."""
    grid = at_epochs(rows, [name])
    return grid.idxmin(axis=1) if metric(rows)[1] == "min" else grid.idxmax(axis=1)


@styled
def greedy(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """The greedy schedule of a grid search: the best fixed value at every epoch, and training along it (appendix)."""
    rows = of_label(frame, "grid")
    names = varied(rows)
    if len(names) != 1:
        raise NotThere(f'the label "grid" varies {len(names)} hyperparameters; a greedy schedule needs exactly one')
    (name,) = names
    schedule, grid = greedy_schedule(rows, name), at_epochs(rows, names)
    if len(grid.columns) < 3 or len(grid) < 2:
        raise NotThere(f"{len(grid.columns)} values over {len(grid)} epochs are no grid for a greedy schedule")
    figure, (left, right) = panels(2, width=4.9, height=3.5)
    line = method_lines(["greedy"])["greedy"]
    left.step(schedule.index, schedule, where="mid", color=line.colour, lw=2.0)
    left.set_title("value with the best loss at each epoch")
    left.set_xlabel("epoch")
    left.set_ylabel(title(name))
    shades = mpl.colors.Normalize(grid.columns.min(), grid.columns.max())
    for value in grid:
        right.plot(grid.index, grid[value], color=mpl.colormaps[SEQUENTIAL](shades(value)), lw=1.0)
    ends, drawn = [], grid
    text = "one line per fixed value"
    if (frame["method"] == "greedy").any():
        followed = across_seeds(best_trials(of_label(frame, "greedy")), "epoch", metric(frame)[0])
        ends.append(draw_seeds(right, followed, line, "greedy\nschedule"))
        drawn = grid.join(followed, how="outer")
        text += f", and training along the greedy schedule (n = {followed.shape[1]})"
    right.set_title(text, fontsize=8)
    right.set_xlabel("epoch")
    right.set_ylabel(metric_title(frame, config))
    cut = zoom(right, drawn.index, drawn, start=0.25)
    label_ends((right, ends))
    bar = figure.colorbar(mpl.cm.ScalarMappable(shades, SEQUENTIAL), ax=right, pad=0.02)
    bar.set_label(f"fixed {title(name)}")
    bar.outline.set_visible(False)
    seeds = rows["experiment"].nunique()
    about = f"grid of {len(grid.columns)} values, {'one seed' if seeds == 1 else f'mean of n = {seeds} seeds'}"
    note(figure, f"{about}; {CUT}" if cut else about)
    return figure
