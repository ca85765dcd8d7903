"""configurations: parallel coordinates of what black-box search tried, and of what was tuned online."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from stn_tune.analysis.figures.base import Figure
from stn_tune.analysis.figures.interactive import describe_lines
from stn_tune.analysis.figures.style import BLUES, colour_bar, note, scale, styled
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import (
    blackbox_trials,
    bounds,
    hyperparameter,
    hyperparameter_title,
    metric_title,
    title_of,
    tuned_online,
    varied,
)
from stn_tune.analysis.stats import finite
from stn_tune.errors import MissingData
from stn_tune.plotting import asks_for_log, is_narrow, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

ACCENT = "#D55E00"
"""The path's colour where no record names one: it stands out from the trials' blue."""


def select(results: Results) -> pd.DataFrame:
    """A row per trial, the best last, then a row per iteration of the best trial that tunes online (``path``)."""
    trials, stopped = complete(blackbox_trials(results))
    names = varied(trials)
    if len(names) < 2:
        raise MissingData(
            f"{len(names)} hyperparameters vary between the black-box trials; the figure needs two or more"
        )
    columns = [f"hp/{name}" for name in names]
    shown = trials.dropna(subset=[*columns, "value"])
    if shown.empty:
        raise MissingData(f"no black-box trial has a finite {results.metric} and a value for every hyperparameter")
    lower = results.mode == "min"
    shown = shown.sort_values("value", ascending=not lower, kind="stable")
    frame = shown[["value", *columns]].assign(
        path=False,
        title=shown["label"].map(lambda label: title_of(results, label)),
        text=[_text(results, row, names) for row in shown.to_dict("records")],
    )
    best = frame["text"].iloc[-1]
    path, words = _path(results, columns)
    about = {"colour": "", "online": ""} if path is None else dict(path.attrs)
    if path is not None:
        path.attrs = {}
        frame = pd.concat([frame, path.assign(path=True)], ignore_index=True)
    titles = ", ".join(title_of(results, label) for label in results.in_order(shown["label"]))
    lost = len(trials) - len(shown)
    text = f"{len(shown)} trials of {titles}; thicker is better{stopped}"
    text += f"; {lost} without a finite {results.metric} or a value left out" if lost else ""
    frame.attrs = about | {
        "titles": [hyperparameter_title(results, name, unit=True) for name in names],
        "ends": [_ends(results, name, frame[column]) for name, column in zip(names, columns, strict=True)],
        "lower_is_better": lower,
        "bar": f"best {metric_title(results)}",
        "note": text + words,
        "alt": f"Parallel coordinates of {len(names)} hyperparameters, a line per trial. The best trial: {best}.",
    }
    return frame


def _text(results: Results, row: Mapping[Any, Any], names: Sequence[str]) -> str:
    """A trial in words."""
    values = ", ".join(f"{hyperparameter_title(results, name)} {row[f'hp/{name}']:.3g}" for name in names)
    return f"{results.title(row['label'])}, {row['experiment']}, trial {row['trial']}: {row['value']:.4g} with {values}"


def complete(trials: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The trials that were not stopped early, and what to say about those that were."""
    stopped = int(trials["stopped"].sum())
    return trials[~trials["stopped"]], f"; {stopped} stopped early left out" if stopped else ""


def _path(results: Results, columns: Sequence[str]) -> tuple[pd.DataFrame | None, str]:
    """The values of the best trial that tunes online, row by row, if it has all columns; and what to say about it."""
    try:
        online = tuned_online(results)
    except MissingData:
        return None, ""
    values = finite(online.frame, results.metric)
    if values.notna().sum() == 0:
        return None, ""
    row: Any = values.idxmin() if results.mode == "min" else values.idxmax()
    best = online.frame.loc[row, ["experiment", "label"]]
    rows = online.frame[online.frame["experiment"] == best["experiment"]].sort_values("training_iteration")
    path = pd.DataFrame({column: finite(rows, column) for column in columns}).dropna()
    if path.empty:
        return None, ""
    style = results.method(best["label"]).style
    path.attrs["colour"] = ACCENT if style is None else style.colour
    path.attrs["online"] = title_of(results, best["label"])
    seeds = online.frame["experiment"].nunique()
    which = title_of(results, best["label"]) + (f", best of n = {seeds} seeds" if seeds > 1 else "")
    return path, f". {which}: rings, initial values; bars, the range it covered; line, final values"


def _ends(results: Results, name: str, values: pd.Series) -> tuple[float, float]:
    """The ends of a hyperparameter's axis: its domain, or more if values lie outside."""
    low, high = float(values.min()), float(values.max())
    info = hyperparameter(results, name)
    domain = None if info is None else bounds(info.domain)
    return (low, high) if domain is None else (min(low, domain[0]), max(high, domain[1]))


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """A line per trial over one upright axis per hyperparameter."""
    from matplotlib.collections import LineCollection

    titles, ends = frame.attrs["titles"], frame.attrs["ends"]
    lower_is_better = frame.attrs["lower_is_better"]
    columns = [column for column in frame.columns if column.startswith("hp/")]
    heights = np.column_stack([_heights(frame[c], *ends[k]) for k, c in enumerate(columns)])
    on_path = frame["path"].to_numpy(dtype=bool)
    places, values = heights[~on_path], frame.loc[~on_path, "value"]
    figure = new_figure(min(max(6.4, len(columns) + 1.0), 10.0), 4.6)
    ax = figure.subplots()
    mappable = shades(values, lower_is_better)
    xs = np.arange(len(columns))
    widths = np.linspace(0.4, 1.3, len(places)) * min(1.0, np.sqrt(100 / len(places)))
    trials = frame[~on_path]
    for series, title in enumerate(trials["title"].unique()):
        for better in (False, True):  # good lines above bad ones, whoever found them
            own = (trials["title"] == title).to_numpy() & ((np.arange(len(places)) >= len(places) / 2) == better)
            lines = LineCollection(
                [np.column_stack([xs, row]) for row in places[own]],
                colors=mappable.to_rgba(values.to_numpy()[own]),
                lw=widths[own],
                zorder=2.5 if better else 2,
                label=title,
            )
            if own.any():
                ax.add_collection(lines)
                describe_lines(figure, lines, str(series), trials["text"][own].tolist())
    if on_path.any():
        _draw_path(ax, xs, heights[on_path], frame.attrs["colour"], frame.attrs["online"])
    _axes(ax, titles, ends)
    extend = "max" if lower_is_better else "min"
    colour_bar(figure, mappable, ax, frame.attrs["bar"], fraction=0.05, extend=extend)
    note(figure, frame.attrs["note"])
    return figure


def _log(low: float, high: float) -> bool:
    return low > 0 and asks_for_log([low, high])


def _heights(values: pd.Series, low: float, high: float) -> Any:
    """Values to [0, 1], on a log scale where they need one."""
    places = values.to_numpy(dtype=float)
    if _log(low, high):
        low, high, places = np.log(low), np.log(high), np.log(places)
    return (places - low) / (high - low) if high > low else np.full_like(places, 0.5)


def _draw_path(ax: Any, xs: Any, places: Any, colour: str, title: str) -> None:
    from matplotlib.patheffects import Normal, Stroke

    halo = [Stroke(linewidth=4.5, foreground="white"), Normal()]
    own: dict[str, Any] = {"gid": "series-path"}
    ax.vlines(xs, places.min(axis=0), places.max(axis=0), color=colour, lw=5, alpha=0.45, zorder=4, **own)
    ax.plot(xs, places[-1], color=colour, lw=2.2, zorder=5, path_effects=halo, label=title, **own)
    ax.plot(xs, places[-1], "o", color=colour, ms=5, zorder=7, **own)
    ax.plot(xs, places[0], "o", mfc="white", mec=colour, mew=1.4, ms=6, zorder=6, **own)


def shades(values: pd.Series, lower_is_better: bool) -> Any:
    """Dark for good, pale for bad; the worst tenth shares the palest."""
    import matplotlib as mpl

    low, high = values.quantile([0.0, 0.9]) if lower_is_better else values.quantile([0.1, 1.0])
    norm = mpl.colors.LogNorm if asks_for_log([low, high]) else mpl.colors.Normalize
    colours = scale(*BLUES)
    return mpl.cm.ScalarMappable(norm(low, high), colours.reversed() if lower_is_better else colours)


def _axes(ax: Any, titles: Sequence[str], ends: Sequence[tuple[float, float]]) -> None:
    """An upright axis per hyperparameter, its ends written above and below."""
    ax.set_xlim(-0.3, len(titles) - 0.7)
    ax.set_ylim(-0.09, 1.09)
    ax.grid(False)
    ax.vlines(range(len(titles)), 0, 1, color="black", lw=0.6, zorder=3)
    for k, (low, high) in enumerate(ends):
        size = 6 if is_narrow() else 7.5
        ax.text(k, 1.02, f"{high:.3g}" + ("\nlog" if _log(low, high) else ""), ha="center", va="bottom", fontsize=size)
        ax.text(k, -0.02, f"{low:.3g}", ha="center", va="top", fontsize=size)
    slanted = len(titles) > 8 or is_narrow()
    words = [title if slanted else title.replace(" ", "\n") for title in titles]
    turn = {"rotation": 90, "ha": "center"} if is_narrow() else {"rotation": 30, "ha": "right"}
    ax.set_xticks(range(len(titles)), words, **(turn if slanted else {"ha": "center"}))
    ax.set_yticks([])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)


CONFIGURATIONS = Figure(
    "configurations",
    "Every configuration that a trial kept (PBT changes them), coloured by how good it was, and the path of online "
    "tuning.",
    select,
    draw,
)
