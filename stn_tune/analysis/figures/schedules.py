"""schedules: the values of the hyperparameters that were tuned online, epoch by epoch."""

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
    """A row per hyperparameter, experiment and epoch, with its panel."""
    results = tuned_online(results)
    rows = results.frame
    names = online_names(results, "hp/")
    if all(rows[f"hp/{name}"].nunique() == 1 for name in names):
        raise MissingData("every hp/<name> keeps its initial value: λ was not tuned")
    chosen = []
    for group in groups(results, names):
        for k, name in enumerate(group.names):
            style = STYLES[k % len(STYLES)]
            about = {"panel": group.title, "kind": group.kind, "axis": group.axis, "name": name}
            about |= {"title": hyperparameter_title(results, name), "colour": style.colour, "dash": style.dash}
            chosen.append(series(rows, "epoch", f"hp/{name}", **about))
    frame = pd.concat(chosen, ignore_index=True)
    frame.attrs = {"note": seeds_note(rows["experiment"].nunique(), f"{title_of(results, rows['label'].iloc[0])}; ")}
    return frame


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """A panel per group of hyperparameters, a line for each."""
    groups = parts(frame, "panel")
    figure, axes = panels(len(groups))
    labelled = []
    for ax, (panel, group) in zip(axes, groups, strict=True):
        count = group["kind"].iloc[0] == "count"
        drawstyle = "steps-post" if count else "default"
        ends = [draw_seeds(ax, part, drawstyle=drawstyle) for _, part in parts(group, "name")]
        if panel != ends[0].text:
            labelled.append((ax, ends))
        ax.set_title(panel)
        ax.set_xlabel("epoch")
        ax.set_ylabel(group["axis"].iloc[0])
        if group["kind"].iloc[0] == "coefficient" and asks_for_log(group["y"]):
            ax.set_yscale("log")
        elif group["y"].min() >= 0:
            ax.set_ylim(bottom=0)
        if count:
            ax.yaxis.get_major_locator().set_params(integer=True)
    label_ends(*labelled)
    note(figure, frame.attrs["note"])
    return figure


SCHEDULES = Figure(
    "schedules",
    "The hyperparameter schedules found online, epoch by epoch (Figures 3b, 3c and 5 of the paper).",
    select,
    draw,
)
