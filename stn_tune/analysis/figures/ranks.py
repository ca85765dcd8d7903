"""ranks: the mean rank of every method as time goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from stn_tune.analysis.comparison import leading, ranks_over_time
from stn_tune.analysis.figures.base import Figure
from stn_tune.analysis.figures.seeds import parts
from stn_tune.analysis.figures.style import line_styles, note, styled, wrapped
from stn_tune.analysis.figures.time import competitors, x_label
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import metric_title, title_of
from stn_tune.errors import MissingData
from stn_tune.plotting import LineEnd, label_ends, look, new_figure
from stn_tune.record import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FEWEST_SEEDS = 2


def select(results: Results) -> pd.DataFrame:
    """A row per label and point: the mean rank over the seeds that all labels share."""
    results = competitors(results)
    shown = leading(results).column
    ranks = ranks_over_time(results, show=shown)
    labels, seeds = results.labels, 0 if ranks.empty else int(ranks["n"].iloc[0])
    if len(labels) < 2 or seeds < FEWEST_SEEDS:
        raise MissingData(f"{len(labels)} methods share {seeds} seeds; ranks over time need two of each")
    styles, label = line_styles(results, labels), ranks["label"]
    frame = ranks.assign(
        title=label.map({name: title_of(results, name) for name in labels}),
        series=label.map({name: str(k) for k, name in enumerate(labels)}),
        colour=label.map({name: style.colour for name, style in styles.items()}),
        dash=label.map({name: style.dash for name, style in styles.items()}),
        width=label.map({name: 2.2 if name == results.reference() else 1.6 for name in labels}),
    ).rename(columns={"rank": "y"})
    last = frame.groupby("title", sort=False)["y"].last().sort_values(kind="stable")
    by = metric_title(results, shown)
    frame.attrs = {
        "note": f"rank by {by} of the network with the best validation value so far, 1 is best; mean over "
        f"n = {seeds} seeds that all methods share; ties share a rank; a method that ended keeps its value",
        "xlabel": x_label(results, "compute_s"),
        "methods": len(labels),
        "alt": "Lines of mean rank over compute-seconds; at the end: "
        + ", ".join(f"{title} {rank:.1f}" for title, rank in last.items())
        + ".",
    }
    return frame


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """A line per label, the best rank on top."""
    figure = new_figure(7.2, 3.6)
    ax = figure.subplots()
    ends = []
    for _, part in parts(frame, "label"):
        first, last = part.iloc[0], part.iloc[-1]
        style = Style(first["colour"], first["dash"])
        ax.plot(
            *(part["x"], part["y"]),
            **look(style), lw=first["width"], label=first["title"], gid=f"series-{first['series']}--main",
        )  # fmt: skip
        ends.append(LineEnd(last["x"], last["y"], first["title"], style, first["series"]))
    ax.set_ylim(frame.attrs["methods"] + 0.2, 0.8)
    locator: Any = ax.yaxis.get_major_locator()
    locator.set_params(integer=True)
    ax.set_xlabel(wrapped(frame.attrs["xlabel"]))
    ax.set_ylabel("mean rank")
    note(figure, frame.attrs["note"])
    label_ends((ax, ends))
    return figure


RANKS = Figure("ranks", "The mean rank of every method, as compute-seconds are spent.", select, draw)
