"""time, time-elapsed, time-epochs: the best value so far, against compute, wall-clock and epochs."""

from __future__ import annotations

import textwrap
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from stn_tune.analysis.comparison import leading
from stn_tune.analysis.curves import Curves, curves
from stn_tune.analysis.figures.base import Figure
from stn_tune.analysis.figures.seeds import parts
from stn_tune.analysis.figures.style import CLIPPED, line_styles, note, styled, wrapped, zoom
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import literal, metric_title, title_of
from stn_tune.analysis.stats import floats
from stn_tune.errors import MissingData
from stn_tune.plotting import GREY, LineEnd, asks_for_log, is_narrow, label_ends, look, panels
from stn_tune.record import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

MOST_LINES = 12
"""With more labels than this, variants are left to the figures that are about them."""
FEWEST_SEEDS = 3
"""The 95 % t-interval of two seeds is 13 times as wide as they are apart: it would hide everything else."""

MOST_BANDS = 4
"""With more bands than this, which would overlap, intervals are drawn at the ends of the lines."""

EARLY = 0.97
"""A method ended early if it ended before this share of the longest time."""

XLABELS = {
    "compute_s": "compute-seconds (all trials)",
    "elapsed_s": "wall-clock time since the experiment began (seconds)",
    "epochs": "epochs trained, over all trials",
}
SETUP = "compute-seconds (all trials, set-up included)"


def select(results: Results, x: str, test: bool = False) -> pd.DataFrame:
    """The curves of every method that starts from nothing; a row per panel, label and point.

    With ``test``, and if every method reports test values, the first panel has those of the network with the best
    validation value so far.
    """
    results = competitors(results)
    first = leading(results)
    shown = [first.column, None] if test and first.split == "test" else [None]
    found = [curve_frame(curves(results, x=x, show=column)) for column in shown]
    texts = [dict(frame.attrs) for frame in found]
    for part, attrs in zip(found, texts, strict=True):
        part.attrs = {}
        part["panel"] = attrs["ylabel"]
    frame = pd.concat(found, ignore_index=True)
    frame.attrs = texts[-1] | {"alt": " ".join(map(_alt, found, texts)), "ylabels": [t["ylabel"] for t in texts]}
    return frame


def competitors(results: Results) -> Results:
    """What is compared and starts from nothing; without variants where those would be too many lines."""
    results = results.where(results.frame["compared"].astype(bool))
    if results.frame.empty:
        raise MissingData("no experiment is compared with others: all are data for figures")
    results = searching(results)
    if len(results.labels) <= MOST_LINES:
        return results
    plain = [label for label in results.labels if results.method(label).name == label]
    if not plain:
        raise MissingData(f"{len(results.labels)} variants are too many lines for one figure")
    return results.where(results.frame["label"].isin(plain))


def searching(results: Results) -> Results:
    """Without methods that build on another's results: their compute-seconds leave out what those cost."""
    labels = [label for label in results.labels if results.method(label).builds_on is None]
    if not labels:
        raise MissingData("all methods build on another's results: their compute-seconds leave out what those cost")
    return results.where(results.frame["label"].isin(labels))


def curve_frame(found: Curves) -> pd.DataFrame:
    """Curves with all that is needed to draw them: titles, styles and ``early`` as columns, texts as ``attrs``.

    A curve ends where the last of its seeds ended.
    """
    if found.data.empty:
        raise MissingData("; ".join(found.notes) or f"no finite {found.metric}")
    results = found.results
    styles = line_styles(results, found.n)
    reference = results.reference()
    ends = floats(results.frame, found.x).groupby(results.frame["label"]).max()
    points = found.data.dropna(subset=["center"])
    data = pd.concat([_until(part, float(ends[label])) for label, part in parts(points, "label")])
    label = data["label"]
    frame = data.assign(
        title=label.map({name: title_of(results, name) for name in styles}),
        series=label.map({name: str(k) for k, name in enumerate(results.labels)}),
        colour=label.map({name: style.colour for name, style in styles.items()}),
        dash=label.map({name: style.dash for name, style in styles.items()}),
        width=label.map({name: 2.2 if name == reference else 1.6 for name in styles}),
        early=label.map(ends < EARLY * ends.max()),
    ).reset_index(drop=True)
    title = metric_title(results, found.metric)
    frame.attrs = {
        "xlabel": x_label(results, found.x),
        "ylabel": f"best {title}" if found.metric == results.metric else title,
        "interval": found.interval,
        "notes": list(found.notes),
    }
    return frame


def x_label(results: Results, x: str) -> str:
    """What an axis of time counts."""
    return SETUP if x == "compute_s" and results.counts_setup else XLABELS[x]


def _until(part: pd.DataFrame, end: float) -> pd.DataFrame:
    """A curve up to ``end``, with a point there."""
    if end >= part["x"].iloc[-1]:
        return part
    return pd.concat([part[part["x"] < end], part.tail(1).assign(x=end)])


def _alt(frame: pd.DataFrame, attrs: dict[Any, Any]) -> str:
    """The ends of the lines, in words."""
    last = frame.groupby("label", sort=False).tail(1).sort_values("center", kind="stable")
    ends = [f"{row.title} {row.center:.4g} at {row.x:.4g}" for row in last.itertuples()]
    return f"Lines of {attrs['ylabel']} over {attrs['xlabel']}; where they end: {', '.join(ends)}."


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """A panel per column shown, a line per label."""
    titles = frame.attrs["ylabels"]
    alone = len(titles) == 1
    figure, axes = panels(len(titles), width=7.2 if alone else 5.4, height=3.7 if alone else 3.3)
    labelled, about = [], []
    if not alone:
        axes[0].set_title("test set, best network by validation so far")
        axes[1].set_title("validation set")
    for ax, ylabel in zip(axes, titles, strict=True):
        part = frame[frame["panel"] == ylabel]
        part.attrs = frame.attrs
        said, ends = draw_lines(part, ax)
        ax.set_xlabel(wrapped(frame.attrs["xlabel"]))
        if is_narrow():
            ax.locator_params(axis="x", nbins=4)
        ax.set_ylabel(ylabel)
        about += said
        labelled.append((ax, ends))
    note(figure, "; ".join([*dict.fromkeys(about), *_remarks(frame)]))
    label_ends(*labelled)
    return figure


def draw_curves(frame: pd.DataFrame, ax: Any) -> None:
    """Draws on a user's axes, with what the lines and bands are above them."""
    about, ends = draw_lines(frame, ax)
    ax.set_xlabel(frame.attrs["xlabel"])
    ax.set_ylabel(frame.attrs["ylabel"])
    notes = ["; ".join(about), *_remarks(frame)]
    width = int(14 * ax.figure.get_figwidth())
    ax.set_title("\n".join(textwrap.fill(line, width) for line in notes), fontsize=7.5, color=GREY, loc="left")
    label_ends((ax, ends))


def _remarks(frame: pd.DataFrame) -> list[str]:
    return [literal(line, 110) for line in frame.attrs["notes"]]


def draw_lines(frame: pd.DataFrame, ax: Any) -> tuple[list[str], list[LineEnd]]:
    """The lines and intervals alone; returns what the reader has to be told, and their ends for ``label_ends``."""
    n = {label: int(part["n"].iloc[0]) for label, part in parts(frame, "label")}
    same = len(set(n.values())) == 1
    with_interval = [label for label in n if n[label] >= FEWEST_SEEDS]
    crowded = len(with_interval) > MOST_BANDS
    ends = {}
    for label, part in parts(frame, "label"):
        first = part.iloc[0]
        style, series = Style(first["colour"], first["dash"]), f"series-{first['series']}"
        ax.step(
            *(part["x"], part["center"]),
            **look(style), where="post", label=first["title"], lw=first["width"], gid=f"{series}--main",
        )  # fmt: skip
        if label in with_interval and not crowded:
            band = ax.fill_between(part["x"], part["low"], part["high"], step="post", color=style.colour, alpha=0.15)
            band.set(linewidth=0, gid=series)
        text = first["title"] if same else f"{first['title']} (n = {n[label]})"
        ends[label] = LineEnd(part["x"].iloc[-1], part["center"].iloc[-1], text, style, first["series"])
        if first["early"]:
            ax.plot(*ends[label][:2], "o", color=style.colour, ms=5, mec="white", mew=0.8, zorder=4, gid=series)
    intervals = frame[["low", "high"]].where(frame["n"] >= FEWEST_SEEDS)
    if crowded:
        last = ~frame.duplicated("label", keep="last")
        intervals = intervals.where(last, np.nan)
        _whiskers(ax, frame[intervals["low"].notna()], frame["x"].min(), ends)
    about = _about(frame, n, crowded)
    if asks_for_log(frame["center"]):
        ax.set_yscale("log")
    else:
        last_values = [end.y for end in ends.values()]
        late = 0.0 if crowded else 0.5
        if zoom(ax, frame["x"], frame["center"], start=0.25, bands=intervals, ends=last_values, late=late):
            about.append(CLIPPED)
    return about, list(ends.values())


def _about(frame: pd.DataFrame, n: dict[str, int], crowded: bool) -> list[str]:
    """What lines, bands and dots are."""
    interval, most = frame.attrs["interval"], max(n.values())
    same = len(set(n.values())) == 1
    about = [interval + (" at the end" if crowded else "") + (f", n = {most} seeds" if same else ", n seeds")]
    if most == 1:
        about = ["one seed each, so no band"]
    elif most < FEWEST_SEEDS:
        about = [f"{interval.partition(',')[0]} of {most} seeds, too few for a band"]
    elif min(n.values()) < FEWEST_SEEDS:
        about[0] += f" ({'intervals' if crowded else 'bands'} from {FEWEST_SEEDS} on)"
    if frame["early"].any():
        which = "" if most == 1 else " on all seeds"
        about.append(f"dot: where a method had ended{which}, before its budget")
    return about


def _whiskers(ax: Any, last: pd.DataFrame, first: float, ends: dict[str, LineEnd]) -> None:
    """Draws the intervals of last points: of early ends in place, of the others side by side, lowest first, right of
    the lines, where ``ends`` move to.
    """
    right = max(end.x for end in ends.values())
    gap, place = 0.018 * (right - first), 0
    for row in last.sort_values("center", kind="stable").itertuples():
        label = str(row.label)
        end = ends[label]
        place += not row.early
        x = end.x if row.early else right + place * gap
        thin = {"color": end.style.colour, "alpha": 0.75, "gid": f"series-{end.series}"}
        ax.plot([x, x], [row.low, row.high], lw=1.8, solid_capstyle="butt", **thin)
        if not row.early:
            ax.plot([end.x, x], [end.y, end.y], ls=look(end.style)["ls"], lw=0.7, **thin)
            ax.plot([x], [end.y], marker="o", ms=3.2, **thin)
        ends[label] = end._replace(x=x)
    ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= right])


TIME = Figure(
    "time",
    "Best validation value so far, and the test value of that network, against compute-seconds.",
    partial(select, x="compute_s", test=True),
    draw,
    "Figures 3a and 4",
)
TIME_ELAPSED = Figure(
    "time-elapsed", "Best validation value so far against wall-clock time.", partial(select, x="elapsed_s"), draw
)
TIME_EPOCHS = Figure(
    "time-epochs", "Best validation value so far against epochs trained.", partial(select, x="epochs"), draw
)
