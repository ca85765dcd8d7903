"""sigma: the scale of the perturbations, epoch by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from stn_tune.analysis.figures.base import Figure
from stn_tune.analysis.figures.schedules import label_lowest, moves, one_style, small_panels
from stn_tune.analysis.figures.seeds import BAND_FROM, draw_seeds, parts, seeds_note
from stn_tune.analysis.figures.style import note, styled
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import groups, hyperparameter_title, online_names, series, title_of, tuned_online
from stn_tune.errors import MissingData
from stn_tune.plotting import STYLES, asks_for_log, label_ends, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

AXIS = "σ, on the scale of λ"


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
    seeds, title = rows["experiment"].nunique(), title_of(results, rows["label"].iloc[0])
    frame.attrs = {
        "note": seeds_note(seeds, f"{title}; ", band=True),
        "seeds": seeds,
        "alt": moves(frame, f"Scale of the perturbations of {title}, epoch by epoch, from the first to the last"),
    }
    return frame


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """A panel per group, a line per hyperparameter; of several seeds a panel per hyperparameter, with their range."""
    alone = frame.attrs["seeds"] >= BAND_FROM
    groups = parts(frame, "name" if alone else "panel")
    figure, axes = small_panels(len(groups), sharey=True) if alone else panels(len(groups), sharey=True)
    labelled = []
    for ax, (panel, group) in zip(axes, groups, strict=True):
        if alone:
            draw_seeds(ax, one_style(group), band=True)
        else:
            labelled.append((ax, [draw_seeds(ax, part) for _, part in parts(group, "name")]))
        ax.set_title(group["title"].iloc[0] if alone else panel)
        if not alone and ax.get_subplotspec().is_first_col():
            ax.set_ylabel(AXIS)
    if asks_for_log(frame["y"]):
        for ax in axes:
            ax.set_yscale("log")
    label_lowest(axes, "epoch")
    label_ends(*labelled)
    note(figure, f"{AXIS}; {frame.attrs['note']}" if alone else frame.attrs["note"])
    return figure


SIGMA = Figure("sigma", "The scale σ of the perturbations of λ, epoch by epoch.", select, draw)
