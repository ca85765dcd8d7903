"""sigma: the scale of the perturbations, epoch by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from stn_tune.analysis.figures.base import Figure
from stn_tune.analysis.figures.seeds import draw_seeds, parts, seeds_note
from stn_tune.analysis.figures.style import STYLES, asks_for_log, label_ends, note, panels, styled
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import groups, hyperparameter_title, online_names, series, title_of, tuned_online
from stn_tune.errors import MissingData

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


def select(results: Results) -> pd.DataFrame:
    """A row per hyperparameter, experiment and epoch, with its panel; all counts share one."""
    results = tuned_online(results)
    rows = results.frame
    names = online_names(results, "scale/")
    if all(rows[f"scale/{name}"].nunique() == 1 for name in names):
        raise MissingData("every scale/<name> keeps its initial value: σ was not tuned")
    found = groups(results, names)
    panels = {g.title: list(g.names) for g in found if g.kind != "count"}
    counts = [name for g in found if g.kind == "count" for name in g.names]
    panels |= {"counts": counts} if counts else {}
    chosen = []
    for panel, members in panels.items():
        for k, name in enumerate(members):
            style = STYLES[k % len(STYLES)]
            about = {"panel": panel, "name": name, "title": hyperparameter_title(results, name)}
            chosen.append(series(rows, "epoch", f"scale/{name}", **about, colour=style.colour, dash=style.dash))
    frame = pd.concat(chosen, ignore_index=True)
    frame.attrs = {"note": seeds_note(rows["experiment"].nunique(), f"{title_of(results, rows['label'].iloc[0])}; ")}
    return frame


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """A panel per group of hyperparameters, a line for each."""
    groups = parts(frame, "panel")
    figure, axes = panels(len(groups), sharey=True)
    labelled = []
    for ax, (panel, group) in zip(axes, groups, strict=True):
        labelled.append((ax, [draw_seeds(ax, part) for _, part in parts(group, "name")]))
        ax.set_title(panel)
        ax.set_xlabel("epoch")
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel("σ, on the scale of λ")
    if asks_for_log(frame["y"]):
        for ax in axes:
            ax.set_yscale("log")
    label_ends(*labelled)
    note(figure, frame.attrs["note"])
    return figure


SIGMA = Figure("sigma", "The scale σ of the perturbations of λ, epoch by epoch.", select, draw)
