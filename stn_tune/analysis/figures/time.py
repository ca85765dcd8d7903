"""time, time-elapsed, time-epochs: the best validation value so far, against compute, wall-clock and epochs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from stn_tune.analysis.curves import Curves, curves
from stn_tune.analysis.figures.base import Figure
from stn_tune.analysis.figures.seeds import parts
from stn_tune.analysis.figures.style import (
    CLIPPED,
    GREY,
    LineEnd,
    asks_for_log,
    label_ends,
    line_styles,
    look,
    new_figure,
    styled,
    zoom,
)
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import literal, metric_title, title_of
from stn_tune.errors import MissingData
from stn_tune.record import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

MOST_LINES = 12
"""With more labels than this, variants are left to the figures that are about them."""
FEWEST_SEEDS = 3
"""The 95 % t-interval of two seeds is 13 times as wide as they are apart: it would hide everything else."""

MOST_BANDS = 4
"""With more bands than this, which would overlap, intervals are drawn at the ends of the lines."""

XLABELS = {
    "compute_s": "compute-seconds (all trials, set-up included)",
    "elapsed_s": "wall-clock time since the experiment began (seconds)",
    "epochs": "epochs trained, over all trials",
}


def select(results: Results, x: str) -> pd.DataFrame:
    """The curves of every method that starts from nothing; a row per label and point."""
    results = results.where(results.frame["compared"].astype(bool))
    results = searching(results)
    if len(results.labels) > MOST_LINES:
        plain = [label for label in results.labels if results.method(label).name == label]
        if not plain:
            raise MissingData(f"{len(results.labels)} variants are too many lines for one figure")
        results = results.where(results.frame["label"].isin(plain))
    return curve_frame(curves(results, x=x))


def searching(results: Results) -> Results:
    """Without methods that build on another's results: their compute-seconds leave out what those cost."""
    labels = [label for label in results.labels if results.method(label).builds_on is None]
    if not labels:
        raise MissingData("all methods build on another's results: their compute-seconds leave out what those cost")
    return results.where(results.frame["label"].isin(labels))


def curve_frame(found: Curves) -> pd.DataFrame:
    """Curves with all that is needed to draw them: titles and styles as columns, texts as ``attrs``."""
    if found.data.empty:
        raise MissingData("; ".join(found.notes) or f"no finite {found.metric}")
    results = found.results
    styles = line_styles(results, found.n)
    reference = results.reference()
    label = found.data["label"]
    frame = found.data.assign(
        title=label.map({name: title_of(results, name) for name in styles}),
        colour=label.map({name: style.colour for name, style in styles.items()}),
        dash=label.map({name: style.dash for name, style in styles.items()}),
        width=label.map({name: 2.2 if name == reference else 1.6 for name in styles}),
    )
    same = found.metric == results.metric
    frame.attrs = {
        "xlabel": XLABELS[found.x],
        "ylabel": f"best {metric_title(results) if same else literal(found.metric.replace('_', ' '))}",
        "interval": found.interval,
        "notes": list(found.notes),
    }
    return frame


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """One panel with a line per label."""
    figure = new_figure(7.2, 4.0)
    draw_curves(frame, figure.subplots())
    return figure


def draw_curves(frame: pd.DataFrame, ax: Any) -> None:
    """Draws on given axes, with the texts around them."""
    about, ends = draw_lines(frame, ax)
    ax.set_xlabel(frame.attrs["xlabel"])
    ax.set_ylabel(frame.attrs["ylabel"])
    notes = ["; ".join(about), *(literal(line, 110) for line in frame.attrs["notes"])]
    ax.set_title("\n".join(notes), fontsize=7.5, color=GREY, loc="left")
    label_ends((ax, ends))


def draw_lines(frame: pd.DataFrame, ax: Any) -> tuple[list[str], list[LineEnd]]:
    """The lines and intervals alone; returns what the reader has to be told, and their ends for ``label_ends``."""
    n = {label: int(part["n"].iloc[0]) for label, part in parts(frame, "label")}
    same = len(set(n.values())) == 1
    with_interval = [label for label in n if n[label] >= FEWEST_SEEDS]
    crowded = len(with_interval) > MOST_BANDS
    ends = {}
    for label, part in parts(frame, "label"):
        first = part.iloc[0]
        style = Style(first["colour"], first["dash"])
        ax.step(part["x"], part["center"], where="post", label=first["title"], lw=first["width"], **look(style))
        if label in with_interval and not crowded:
            ax.fill_between(part["x"], part["low"], part["high"], step="post", color=style.colour, alpha=0.15, lw=0)
        text = first["title"] if same else f"{first['title']} (n = {n[label]})"
        ends[label] = LineEnd(part["x"].iloc[-1], part["center"].iloc[-1], text, style)
    intervals = frame[["low", "high"]].where(frame["n"] >= FEWEST_SEEDS)
    if crowded:
        intervals = intervals.where(frame["x"] == frame["x"].max())
        _whiskers(ax, frame[intervals["low"].notna()], frame["x"].min(), ends)
    interval, most = frame.attrs["interval"], max(n.values())
    about = [interval + (" at the end" if crowded else "") + (f", n = {most} seeds" if same else ", n seeds")]
    if most == 1:
        about = ["one seed each, so no band"]
    elif most < FEWEST_SEEDS:
        about = [f"{interval.partition(',')[0]} of {most} seeds, too few for a band"]
    elif min(n.values()) < FEWEST_SEEDS:
        about[0] += f" ({'intervals' if crowded else 'bands'} from {FEWEST_SEEDS} on)"
    if asks_for_log(frame["center"]):
        ax.set_yscale("log")
    elif zoom(ax, frame["x"], frame["center"], start=0.25, bands=intervals):
        about.append(CLIPPED)
    return about, list(ends.values())


def _whiskers(ax: Any, last: pd.DataFrame, first: float, ends: dict[str, LineEnd]) -> None:
    """Draws the intervals of last points side by side, right of the lines, lowest first; moves ``ends`` there."""
    gap = 0.018 * (last["x"].max() - first)
    for place, row in enumerate(last.sort_values("center", kind="stable").itertuples(), 1):
        label = str(row.label)
        end = ends[label]
        x, thin = end.x + place * gap, {"color": end.style.colour, "alpha": 0.75}
        ax.plot([x, x], [row.low, row.high], lw=1.8, solid_capstyle="butt", **thin)
        ax.plot([end.x, x], [end.y, end.y], ls=look(end.style)["ls"], lw=0.7, **thin)
        ax.plot([x], [end.y], marker="o", ms=3.2, **thin)
        ends[label] = end._replace(x=x)
    ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= last["x"].max()])


TIME = Figure(
    "time",
    "Best validation value so far against compute-seconds (Figures 3a and 4 of the paper).",
    partial(select, x="compute_s"),
    draw,
)
TIME_ELAPSED = Figure(
    "time-elapsed", "Best validation value so far against wall-clock time.", partial(select, x="elapsed_s"), draw
)
TIME_EPOCHS = Figure(
    "time-epochs", "Best validation value so far against epochs trained.", partial(select, x="epochs"), draw
)
