"""profiles: over several tasks, the share of runs that come as near to the best as a threshold says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from stn_tune.analysis.across_tasks import THRESHOLDS, profiles
from stn_tune.analysis.figures.style import line_styles, note, styled
from stn_tune.analysis.figures.time import MOST_BANDS
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import title_of
from stn_tune.errors import MissingData
from stn_tune.plotting import look, new_figure
from stn_tune.record import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FEWEST_TASKS = 2


def select_profiles(tasks: Mapping[str, Results]) -> pd.DataFrame:
    """A row per label and threshold; only labels that all tasks have, and at least two tasks."""
    if len(tasks) < FEWEST_TASKS:
        raise MissingData(f"performance profiles need {FEWEST_TASKS} or more tasks, there are {len(tasks)}")
    found = profiles(tasks, THRESHOLDS)
    first = next(iter(tasks.values()))
    if found["label"].nunique() < 2:
        raise MissingData("performance profiles need two methods that all tasks have")
    labels = first.in_order(found["label"])
    styles, label = line_styles(first, labels), found["label"]
    frame = found.assign(
        title=label.map({name: title_of(first, name) for name in labels}),
        colour=label.map({name: style.colour for name, style in styles.items()}),
        dash=label.map({name: style.dash for name, style in styles.items()}),
        width=label.map({name: 2.2 if name == first.reference() else 1.6 for name in labels}),
    )
    band = len(labels) <= MOST_BANDS and bool(frame["low"].notna().any())
    sizes = sorted(set(frame["n"]))
    runs = " to ".join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))
    shade = "; band: 95 % bootstrap interval over seeds" if band else ""
    frame.attrs = {
        "band": band,
        "note": f"share of n = {runs} runs per method with at most that regret, every task weighing the same{shade}; "
        f"regret: of the test value, where there is one; "
        f"{len(tasks)} tasks: this describes them and says nothing about others",
    }
    return frame


@styled
def draw_profiles(frame: pd.DataFrame) -> Picture:
    """A staircase per label; the legend has the one with the lowest mean regret first."""
    figure = new_figure(7.2, 3.4)
    ax = figure.subplots()
    highest = frame.groupby("label", sort=False)["share"].mean().sort_values(ascending=False, kind="stable")
    for label in highest.index:
        part = frame[frame["label"] == label]
        first = part.iloc[0]
        style = Style(first["colour"], first["dash"])
        ax.step(part["threshold"], part["share"], where="post", lw=first["width"], label=first["title"], **look(style))
        if frame.attrs["band"]:
            ends = part["threshold"], part["low"], part["high"]
            ax.fill_between(*ends, step="post", color=style.colour, alpha=0.15, lw=0)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("normalised regret (0: best run of the task, 1: worst)")
    ax.set_ylabel("share of runs")
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), labelcolor="black")
    note(figure, frame.attrs["note"])
    return figure
