"""improvement: how likely a run of the reference is better than a run of each other method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from stn_tune.analysis.comparison import finals, leading, with_failures
from stn_tune.analysis.estimates import probability_of_improvement
from stn_tune.analysis.figures.base import Figure
from stn_tune.analysis.figures.style import line_styles, note, styled, wrapped
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import metric_title, title_of
from stn_tune.analysis.stats import FEWEST
from stn_tune.errors import MissingData
from stn_tune.plotting import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


def select(results: Results) -> pd.DataFrame:
    """A row per label other than the reference: the probability and its interval."""
    results = results.where(results.frame["compared"].astype(bool))
    reference = results.reference()
    if reference not in results.labels or len(results.labels) < 2:
        raise MissingData("there are no two methods to compare")
    column = leading(results).column
    ends = finals(results)
    ends = ends.assign(**{column: with_failures(ends, column, results.mode)}).dropna(subset=[column])
    runs = {str(label): part[column].to_numpy() for label, part in ends.groupby("label")}
    enough = [label for label in results.labels if len(runs.get(label, ())) >= FEWEST]
    if reference not in enough or len(enough) < 2:
        raise MissingData(f"probabilities of improvement need {FEWEST} or more runs of two methods")
    styles, rows = line_styles(results, enough), []
    for label in enough:
        if label != reference:
            found = probability_of_improvement([runs[reference]], [runs[label]], results.mode)
            about = [title_of(results, label), styles[label].colour, len(runs[label])]
            rows.append([*about, found.center, found.low, found.high])
    frame = pd.DataFrame(rows, columns=["title", "colour", "n", "center", "low", "high"])
    frame = frame.sort_values("center", kind="stable", ignore_index=True)
    name, n = title_of(results, reference), sorted({*frame["n"], len(runs[reference])})
    frame.attrs = {
        "xlabel": f"probability that a run of {name} has the better {metric_title(results, column)}",
        "note": f"every run of {name} against every run of the other, ties count half; whisker: 95 % score interval; "
        f"n = {' to '.join(map(str, dict.fromkeys((n[0], n[-1]))))} runs each; 0.5: neither is better",
        "alt": f"Probability that a run of {name} is better than one of: "
        + ", ".join(f"{row.title} {row.center:.2f}" for row in frame.itertuples())
        + ".",
    }
    return frame


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """A dot with its interval per label."""
    figure = new_figure(6.4, 1.3 + 0.3 * len(frame))
    ax = figure.subplots()
    rows: Any = frame.itertuples()
    for place, row in enumerate(rows):
        ax.plot([row.low, row.high], [place, place], color=row.colour, lw=2.2, alpha=0.75, solid_capstyle="butt")
        ax.plot([row.center], [place], "o", color=row.colour, ms=6)
    ax.axvline(0.5, color="black", lw=0.8)
    ax.set_yticks(range(len(frame)), frame["title"])
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.6, len(frame) - 0.4)
    ax.set_xticks(np.linspace(0, 1, 5))
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(wrapped(frame.attrs["xlabel"]))
    note(figure, frame.attrs["note"])
    return figure


IMPROVEMENT = Figure(
    "improvement", "How likely a run of the reference is better than a run of each other method.", select, draw
)
