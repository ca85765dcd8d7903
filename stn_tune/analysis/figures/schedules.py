"""schedules: the values of the hyperparameters that were tuned online, epoch by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from stn_tune.analysis.figures.base import Figure
from stn_tune.analysis.figures.seeds import BAND_FROM, draw_seeds, parts, seeds_note
from stn_tune.analysis.figures.style import note, styled
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import groups, hyperparameter_title, online_names, series, title_of, tuned_online
from stn_tune.errors import MissingData
from stn_tune.plotting import STYLES, asks_for_log, label_ends, panels
from stn_tune.record import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


def select(results: Results) -> pd.DataFrame:
    """A row per hyperparameter, experiment and epoch, with its group."""
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
    seeds, title = rows["experiment"].nunique(), title_of(results, rows["label"].iloc[0])
    frame.attrs = {
        "note": seeds_note(seeds, f"{title}; ", band=True),
        "seeds": seeds,
        "alt": moves(frame, f"Values that {title} gave to hyperparameters, epoch by epoch, from the first to the last"),
    }
    return frame


def moves(frame: pd.DataFrame, what: str) -> str:
    """The first and the last value of each series in words, as means over seeds."""
    ordered = frame.sort_values("x", kind="stable").groupby(["title", "experiment"], sort=False)["y"]
    ends = pd.DataFrame({"first": ordered.first(), "last": ordered.last()}).groupby("title", sort=False).mean()
    return f"{what}: " + ", ".join(f"{row.Index} {row.first:.3g} to {row.last:.3g}" for row in ends.itertuples()) + "."


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """A panel per group, a line per hyperparameter; of several seeds a panel per hyperparameter, with their range."""
    return _alone(frame) if frame.attrs["seeds"] >= BAND_FROM else _together(frame)


def _together(frame: pd.DataFrame) -> Picture:
    groups = parts(frame, "panel")
    figure, axes = panels(len(groups))
    labelled = []
    for ax, (panel, group) in zip(axes, groups, strict=True):
        ends = [draw_seeds(ax, part, drawstyle=_drawstyle(part)) for _, part in parts(group, "name")]
        if panel != ends[0].text:
            labelled.append((ax, ends))
        ax.set_title(panel)
        ax.set_xlabel("epoch")
        _set_axis(ax, group)
        ax.set_ylabel(group["axis"].iloc[0])
    label_ends(*labelled)
    note(figure, frame.attrs["note"])
    return figure


def _alone(frame: pd.DataFrame) -> Picture:
    """Small panels; those of a group have the same axis."""
    series = parts(frame, "name")
    figure, axes = small_panels(len(series))
    for ax, (_, part) in zip(axes, series, strict=True):
        same = frame[frame["panel"] == part["panel"].iloc[0]]
        draw_seeds(ax, one_style(part), drawstyle=_drawstyle(part), band=True)
        ax.set_xlim(0, frame["x"].max())
        ax.set_ylim(top=1.05 * same["y"].max() if same["y"].max() > 0 else None)
        _set_axis(ax, same)
        unit = part["axis"].iloc[0]
        ax.set_title(part["title"].iloc[0] + (f" ({unit})" if part["kind"].iloc[0] == "count" else ""))
    label_lowest(axes, "epoch")
    note(figure, frame.attrs["note"])
    return figure


def small_panels(count: int, sharey: bool = False) -> tuple[Picture, Any]:
    """Panels for one hyperparameter each."""
    return panels(count, columns=4, width=2.15, height=1.65, sharey=sharey)


def label_lowest(axes: Any, text: str) -> None:
    """Labels the x-axis of the lowest panel of each column."""
    columns = axes[0].get_gridspec().ncols
    for ax in axes[-columns:]:
        ax.set_xlabel(text)


def one_style(part: pd.DataFrame) -> pd.DataFrame:
    """A series that has a panel of its own: it needs no colour of its own."""
    return part.assign(colour=STYLES[0].colour, dash=Style("").dash)


def _drawstyle(part: pd.DataFrame) -> str:
    return "steps-post" if part["kind"].iloc[0] == "count" else "default"


def _set_axis(ax: Any, group: pd.DataFrame) -> None:
    if group["kind"].iloc[0] == "coefficient" and asks_for_log(group["y"]):
        ax.set_yscale("log")
    elif group["y"].min() >= 0:
        ax.set_ylim(bottom=0)
    if group["kind"].iloc[0] == "count":
        ax.yaxis.get_major_locator().set_params(integer=True)


SCHEDULES = Figure(
    "schedules",
    "The hyperparameter schedules found online, epoch by epoch.",
    select,
    draw,
    "Figures 3b, 3c and 5",
)
