"""Figures of the schedules study: starts, perturbed values, heat maps, the greedy schedule."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from benchmarks.studies.schedules import HEATMAP, OTHER, TUNED
from stn_tune.analysis.figures import Figure
from stn_tune.analysis.figures.schedules import moves
from stn_tune.analysis.figures.seeds import draw_seeds, parts, seeds_note, wide
from stn_tune.analysis.figures.style import (
    CLIPPED,
    RAMP,
    SEQUENTIAL,
    colour_bar,
    line_styles,
    note,
    ramp,
    scale,
    styled,
    zoom,
)
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import (
    best_trials,
    hyperparameter,
    hyperparameter_title,
    metric_title,
    of_method,
    online_names,
    series,
    title_of,
    variants,
    varied,
)
from stn_tune.analysis.stats import finite
from stn_tune.errors import MissingData
from stn_tune.plotting import asks_for_log, label_ends, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

EPOCHS = (1, 10, 25)
NOISE = ("gaussian", "sinusoid")


def of_seeds(count: int) -> str:
    """How many seeds a mean is over."""
    return "one seed" if count == 1 else f"mean of n = {count} seeds"


def select_starts(results: Results) -> pd.DataFrame:
    """Epoch by epoch the values of each start; the preset's own start is one of them."""
    found = variants(results, "start")
    starts = dict(zip(found["label"], found["start"].astype(float), strict=True))
    names = online_names(results.where(results.frame["label"].isin(starts)), "hp/")
    info = hyperparameter(results, names[0])
    if info is not None and info.initial is not None and len(names) == 1 and "stn" in results.labels:
        starts["stn"] = info.initial
    order = sorted(starts, key=lambda label: starts[label])
    rows = results.frame[results.frame["label"].isin(order)]
    chosen = []
    for name in names:
        for label, colour in zip(order, ramp(len(order)), strict=True):
            about = {"panel": hyperparameter_title(results, name), "title": f"from {starts[label]:g}"}
            own = rows[rows["label"] == label]
            chosen.append(series(own, "epoch", f"hp/{name}", **about, colour=colour, dash="solid"))
    frame = pd.concat(chosen, ignore_index=True)
    frame.attrs = {
        "note": seeds_note(rows.groupby("label")["experiment"].nunique().max()),
        "alt": moves(
            frame,
            f"{' and '.join(frame['panel'].unique())}, epoch by epoch, from the first to the last",
        ),
    }
    return frame


@styled
def draw_starts(frame: pd.DataFrame) -> Picture:
    """A panel per hyperparameter, a line per start."""
    groups = parts(frame, "panel")
    figure, axes = panels(len(groups), width=5.4, height=3.4)
    labelled = []
    for ax, (panel, group) in zip(axes, groups, strict=True):
        labelled.append((ax, [draw_seeds(ax, part) for _, part in parts(group, "title")]))
        ax.set_xlabel("epoch")
        ax.set_ylabel(panel)
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]) if group["y"].min() < 0 else 0)
    label_ends(*labelled)
    note(figure, frame.attrs["note"])
    return figure


def select_perturbed(results: Results) -> pd.DataFrame:
    """Step by step the values of the perturbed methods and of the STN."""
    labels = [label for label in (*NOISE, "stn") if label in results.labels]
    noisy = [label for label in labels if label in NOISE]
    if not noisy:
        raise MissingData(f"no runs of {' or '.join(NOISE)}")
    moving = varied(results.frame[results.frame["label"].isin(noisy)])
    if not moving:
        raise MissingData(f"no hyperparameter changes in the runs of {' and '.join(noisy)}")
    name = TUNED if TUNED in moving else moving[0]
    styles = line_styles(results, labels)
    chosen = []
    for label in labels:
        rows = results.frame[results.frame["label"] == label]
        heading = f"{title_of(results, label)} (n = {rows['experiment'].nunique()})"
        chosen.append(series(rows, "step", f"hp/{name}", panel=heading, colour=styles[label].colour))
    frame = pd.concat(chosen, ignore_index=True)
    frame.attrs = {
        "ylabel": hyperparameter_title(results, name),
        "alt": f"{hyperparameter_title(results, name)} step by step, a panel per method; its range: "
        + ", ".join(f"{panel} {part['y'].min():.2g} to {part['y'].max():.2g}" for panel, part in parts(frame, "panel"))
        + ".",
    }
    return frame


@styled
def draw_perturbed(frame: pd.DataFrame) -> Picture:
    """A panel per method, a line per seed."""
    groups = parts(frame, "panel")
    figure, axes = panels(len(groups), columns=3, width=3.4, height=2.8, sharey=True)
    for ax, (panel, group) in zip(axes, groups, strict=True):
        values = wide(group)
        for k, experiment in enumerate(values):
            one = values[experiment].dropna()
            width, alpha = (1.4, 1.0) if k == 0 else (0.7, 0.4)
            ax.plot(one.index, one, color=group["colour"].iloc[0], lw=width, alpha=alpha)
        ax.set_title(panel)
        ax.set_xlabel("training step")
    axes[0].set_ylabel(frame.attrs["ylabel"])
    note(figure, "one line per seed, the first one thick; values as reported, once per epoch")
    return figure


def at_epochs(results: Results, names: list[str]) -> pd.DataFrame:
    """The metric over epoch (rows) and the values of ``names`` (columns), averaged over seeds."""
    rows, columns = results.frame, [f"hp/{name}" for name in names]
    data = pd.DataFrame({c: finite(rows, c) for c in ["epoch", *columns]}).assign(value=finite(rows, results.metric))
    return data.groupby(["epoch", *columns])["value"].mean().unstack(columns).dropna(how="all")


def nearest_epochs(epochs: Iterable[float], wanted: Iterable[int] = EPOCHS) -> list[int]:
    """The available epochs nearest to those wanted, each once."""
    available = np.asarray(sorted(epochs), dtype=int)
    return sorted({int(available[np.abs(available - epoch).argmin()]) for epoch in wanted})


def select_heatmaps(results: Results) -> pd.DataFrame:
    """The metric of every cell at a few epochs: columns epoch, x, y, value."""
    results = of_method(results, "grid", **HEATMAP)
    names = varied(results.frame)
    if {OTHER, TUNED} <= set(names):
        names = [OTHER, TUNED]
    if len(names) != 2:
        raise MissingData(f"heat maps need two hyperparameters that vary, not {len(names)}")
    grid = at_epochs(results, names)
    if grid.empty:
        raise MissingData("no trial of the heat map has a finite loss")
    reached = grid.notna().sum(axis=1)
    grid = grid.loc[nearest_epochs(grid.index[reached >= 0.5 * reached.max()])]
    frame = grid.stack(list(grid.columns.names), future_stack=True).reset_index()
    frame.columns = ["epoch", "x", "y", "value"]
    frame.attrs = {
        "xlabel": hyperparameter_title(results, names[0]),
        "ylabel": hyperparameter_title(results, names[1]),
        "mode": results.mode,
        "alt": _best_cells(frame, results.mode),
        "note": f"colour: {metric_title(results)} at that epoch, a scale per panel; "
        f"star: best of {grid.shape[1]} settings; {of_seeds(results.frame['experiment'].nunique())}"
        + ("; grey: diverged or not reached" if grid.isna().any(axis=None) else ""),
    }
    return frame


def _best_cells(frame: pd.DataFrame, mode: str) -> str:
    """Where the best cell of each epoch is, in words."""
    best = frame.dropna().sort_values("value", ascending=mode == "min").drop_duplicates("epoch").sort_values("epoch")
    cells = [f"epoch {b.epoch:g} {b.value:.4g} at ({b.x:g}, {b.y:g})" for b in best.itertuples()]
    return f"Heat maps of the loss over two hyperparameters; the best cell: {', '.join(cells)}."


@styled
def draw_heatmaps(frame: pd.DataFrame) -> Picture:
    """A panel per epoch, a star in its best cell."""
    import matplotlib as mpl

    lowest = frame.attrs["mode"] == "min"
    groups = parts(frame, "epoch")
    figure, axes = panels(len(groups), columns=3, width=3.7, height=3.1)
    for ax, (epoch, group) in zip(axes, groups, strict=True):
        cells = group.pivot(index="y", columns="x", values="value")
        ax.set_facecolor("#dddddd")
        ax.grid(False)
        mesh = ax.pcolormesh(
            np.arange(cells.shape[1] + 1) - 0.5,
            np.arange(cells.shape[0] + 1) - 0.5,
            np.ma.masked_invalid(cells.to_numpy()),
            cmap=scale(SEQUENTIAL) if lowest else scale(SEQUENTIAL).reversed(),
            edgecolors="face",
            norm=mpl.colors.LogNorm() if asks_for_log(cells) else None,
        )
        mesh.set_rasterized(False)
        at: Any = group["value"].idxmin() if lowest else group["value"].idxmax()
        best = group.loc[at]
        place = (cells.columns.get_loc(best["x"]), cells.index.get_loc(best["y"]))
        ax.plot(*place, marker="*", ms=13, mfc="white", mec="#D55E00", mew=1.2, clip_on=False)
        _ticks(ax.xaxis, cells.columns)
        _ticks(ax.yaxis, cells.index)
        ax.set_title(f"epoch {epoch:g}: best {best['value']:.4g} at ({best['x']:g}, {best['y']:g})", fontsize=8)
        ax.set_xlabel(frame.attrs["xlabel"])
        colour_bar(figure, mesh, ax)
    axes[0].set_ylabel(frame.attrs["ylabel"])
    note(figure, frame.attrs["note"])
    return figure


def _ticks(axis: Any, values: Any) -> None:
    """A tick per cell, or every few cells where there are many."""
    every = -(-len(values) // 8)
    axis.set_ticks(range(0, len(values), every), [f"{v:g}" for v in values[::every]])
    axis.set_tick_params(length=0)


def select_greedy(results: Results) -> pd.DataFrame:
    """By ``part``: ``grid`` (the metric of every fixed value), ``best`` (the best of them), ``followed`` (training).

    ``best`` ends where the trial with the best value of all ends: later, values are the best for lack of others.
    """
    grid_runs = of_method(results, "grid")
    names = varied(grid_runs.frame)
    if len(names) != 1:
        raise MissingData(f"the grid varies {len(names)} hyperparameters; a greedy schedule needs exactly one")
    grid = at_epochs(grid_runs, names)
    if len(grid.columns) < 3 or len(grid) < 2:
        raise MissingData(f"{len(grid.columns)} values over {len(grid)} epochs are too few for a greedy schedule")
    lowest = results.mode == "min"
    winner = grid.min().idxmin() if lowest else grid.max().idxmax()
    shared = grid.loc[: grid[winner].last_valid_index()]
    best = shared.idxmin(axis=1) if lowest else shared.idxmax(axis=1)
    cells = grid.melt(ignore_index=False, var_name="value", value_name="y").reset_index(names="x")
    chosen = [cells.assign(part="grid"), pd.DataFrame({"x": best.index, "value": best.to_numpy(), "part": "best"})]
    style, words = line_styles(results, ["greedy"])["greedy"], "one line per fixed value"
    if "greedy" in results.labels:
        rows = best_trials(of_method(results, "greedy")).frame
        chosen.append(series(rows, "epoch", results.metric, part="followed"))
        words += f", and training along the greedy schedule (n = {chosen[-1]['experiment'].nunique()})"
    frame = pd.concat(chosen, ignore_index=True).assign(title="greedy\nschedule", colour=style.colour, dash=style.dash)
    title, last = hyperparameter_title(results, names[0]), int(best.index[-1])
    values = f"grid of {len(grid.columns)} values, {of_seeds(grid_runs.frame['experiment'].nunique())}"
    frame.attrs = {
        "hyperparameter": title,
        "metric": metric_title(results),
        "heading": words,
        "note": f"{values}; left: up to epoch {last}, where the best trial ({winner:g}) ends; "
        "right: a dot where a training ended",
        "alt": f"Left, the {title} with the best loss at each epoch: {best.iloc[0]:g} at first, {best.iloc[-1]:g} at "
        f"epoch {last}. Right, the losses of all fixed values; the best, {winner:g}, reaches {grid[winner].min():.4g}.",
    }
    return frame


@styled
def draw_greedy(frame: pd.DataFrame) -> Picture:
    """Left: the best value at every epoch; right: the losses of all values, and of training along the schedule."""
    import matplotlib as mpl

    figure, (left, right) = panels(2, width=4.9, height=3.5)
    best = frame[frame["part"] == "best"]
    left.step(best["x"], best["value"], where="mid", color=best["colour"].iloc[0], lw=2.0)
    left.set_title("value with the best loss at each epoch")
    left.set_xlabel("epoch")
    left.set_ylabel(frame.attrs["hyperparameter"])
    grid = frame[frame["part"] == "grid"].pivot(index="x", columns="value", values="y")
    fixed: Any = grid.columns
    shades = mpl.cm.ScalarMappable(mpl.colors.Normalize(fixed.min(), fixed.max()), scale(*RAMP))
    for value in fixed:
        one = grid[value].dropna()
        right.plot(one.index, one, color=shades.to_rgba(value), lw=1.0)
        right.plot(one.index[-1:], one.tail(1), "o", color=shades.to_rgba(value), ms=3)
    ends, drawn, followed = [], grid, frame[frame["part"] == "followed"]
    if len(followed):
        ends.append(draw_seeds(right, followed))
        drawn = grid.join(wide(followed), how="outer")
    right.set_title(textwrap.fill(frame.attrs["heading"], 55), fontsize=8)
    right.set_xlabel("epoch")
    right.set_ylabel(frame.attrs["metric"])
    clipped = zoom(right, drawn.index, drawn, start=0.25, ends=drawn.ffill().iloc[-1])
    left.set_xlim(right.get_xlim())
    label_ends((right, ends))
    colour_bar(figure, shades, right, f"fixed {frame.attrs['hyperparameter']}")
    note(figure, f"{frame.attrs['note']}; {CLIPPED}" if clipped else frame.attrs["note"])
    return figure


FIGURES = (
    Figure(
        "schedules-by-start",
        "Schedules found from different initial values (Figure 1 of the paper).",
        select_starts,
        draw_starts,
    ),
    Figure(
        "perturbed",
        "Perturbed values beside the schedule of the STN, step by step (appendix; output dropout in the paper).",
        select_perturbed,
        draw_perturbed,
    ),
    Figure(
        "heatmaps",
        "Validation loss over input and output dropout early, midway and late in training (appendix).",
        select_heatmaps,
        draw_heatmaps,
    ),
    Figure(
        "greedy",
        "The greedy schedule of a grid search: the best fixed value at every epoch, and training along it (appendix).",
        select_greedy,
        draw_greedy,
    ),
)
