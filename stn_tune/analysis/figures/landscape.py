"""landscape: where online tuning went among the configurations that black-box search tried, in two dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from stn_tune.analysis.figures.base import Figure
from stn_tune.analysis.figures.configurations import ACCENT, complete, shades
from stn_tune.analysis.figures.importance import ranked
from stn_tune.analysis.figures.seeds import parts
from stn_tune.analysis.figures.style import colour_bar, note, styled
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import (
    blackbox_trials,
    bounds,
    hyperparameter,
    hyperparameter_title,
    metric_title,
    online_names,
    title_of,
    tuned_online,
)
from stn_tune.analysis.stats import finite
from stn_tune.errors import MissingData
from stn_tune.plotting import asks_for_log, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


def select(results: Results) -> pd.DataFrame:
    """Trials (x, y, value), the best last, then the path of every experiment that tunes online (x, y, experiment).

    The two axes are the hyperparameters that mattered most to the trials, of those that are tuned online.
    """
    online = tuned_online(results)
    moved = online_names(online, "hp/")
    order, _ = ranked(results)
    names = [name for name in order if name in moved][:2]
    if len(names) < 2:
        raise MissingData(f"{len(names)} hyperparameters are both searched and tuned online; a landscape needs two")
    trials, stopped = complete(blackbox_trials(results))
    columns = [f"hp/{name}" for name in names]
    trials = trials.dropna(subset=[*columns, "value"])
    lower = results.mode == "min"
    trials = trials.sort_values("value", ascending=not lower, kind="stable")
    points = trials.rename(columns=dict(zip(columns, "xy", strict=True)))[["x", "y", "value"]].assign(path=False)
    rows = online.frame.sort_values(["experiment", "training_iteration"], kind="stable")
    paths = pd.DataFrame({place: finite(rows, column) for place, column in zip("xy", columns, strict=True)})
    paths = paths.assign(experiment=rows["experiment"], path=True).dropna()
    frame = pd.concat([points, paths], ignore_index=True)
    label, seeds = rows["label"].iloc[0], paths["experiment"].nunique()
    style, title = results.method(label).style, title_of(results, label)
    ends = paths.groupby("experiment")[["x", "y"]].last()
    titles = [hyperparameter_title(results, name, unit=True) for name in names]
    metric = metric_title(results)
    frame.attrs = {
        "titles": titles,
        "limits": [_limits(results, name, frame[place]) for name, place in zip(names, "xy", strict=True)],
        "lower_is_better": lower,
        "bar": f"best {metric}",
        "colour": ACCENT if style is None else style.colour,
        "note": f"dots: {len(points)} black-box trials, coloured by {metric}{stopped}; their other hyperparameters "
        f"differ, too. Lines: {title}, n = {seeds} seed{'' if seeds == 1 else 's'}, from ring to dot. Axes: the two "
        "hyperparameters that mattered most to the trials, of those tuned online",
        "alt": f"{len(points)} trials as points over {titles[0]} and {titles[1]}, coloured by {metric}, and the way "
        f"of {title} among them; it ends at "
        + ", ".join(f"({end.x:.2g}, {end.y:.2g})" for end in ends.itertuples())
        + f"; the best trial is at ({points['x'].iloc[-1]:.2g}, {points['y'].iloc[-1]:.2g}).",
    }
    return frame


def _limits(results: Results, name: str, values: pd.Series) -> tuple[float, float]:
    info = hyperparameter(results, name)
    domain = None if info is None else bounds(info.domain)
    low, high = float(values.min()), float(values.max())
    return (low, high) if domain is None else (min(low, domain[0]), max(high, domain[1]))


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """Points in the shades of their values, lines above them."""
    from matplotlib.patheffects import Normal, Stroke

    figure = new_figure(6.4, 4.6)
    ax = figure.subplots()
    points = frame[~frame["path"].astype(bool)]
    mappable = shades(points["value"], frame.attrs["lower_is_better"])
    colours = mappable.to_rgba(points["value"].to_numpy())
    ax.scatter(points["x"], points["y"], c=colours, s=26, lw=0.4, edgecolors="white", zorder=2)
    colour: Any = frame.attrs["colour"]
    halo = [Stroke(linewidth=3.2, foreground="white"), Normal()]
    for _, path in parts(frame[frame["path"].astype(bool)], "experiment"):
        ax.plot(path["x"], path["y"], color=colour, lw=1.6, zorder=4, path_effects=halo)
        ax.plot(*path[["x", "y"]].iloc[0], "o", mfc="white", mec=colour, mew=1.4, ms=6, zorder=5)
        ax.plot(*path[["x", "y"]].iloc[-1], "o", mfc=colour, mec="white", mew=0.8, ms=7, zorder=6)
    for axis, (low, high), title in zip("xy", frame.attrs["limits"], frame.attrs["titles"], strict=True):
        if asks_for_log([low, high]):
            ax.set(**{f"{axis}scale": "log"})
        else:
            room = 0.03 * (high - low)
            ax.set(**{f"{axis}lim": (low - room, high + room)})
        ax.set(**{f"{axis}label": title})
    extend = "max" if frame.attrs["lower_is_better"] else "min"
    colour_bar(figure, mappable, ax, frame.attrs["bar"], fraction=0.05, extend=extend)
    note(figure, frame.attrs["note"])
    return figure


LANDSCAPE = Figure(
    "landscape",
    "Where online tuning went, among the configurations that black-box search tried: a view of two dimensions.",
    select,
    draw,
)
