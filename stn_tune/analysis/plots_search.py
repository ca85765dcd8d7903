"""What black-box search tried, and what of it mattered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke

from stn_tune.analysis.labels import (
    method_title,
    metric,
    metric_title,
    numeric,
    self_tuned,
    space_of,
    title,
    tried,
    varied,
)
from stn_tune.analysis.order import in_order
from stn_tune.analysis.style import (
    METHOD_LINES,
    PALETTE,
    NotThere,
    asks_for_log,
    new_figure,
    note,
    styled,
)

FEWEST_TRIALS = 10
FOLDS = 5
REPEATS = 20


class Scale:
    """An axis of the parallel coordinates: values to [0, 1], on a log scale where they ask for it."""

    def __init__(self, name: str, values: Any, config: Mapping[str, Any] | None):
        finite = np.asarray(values, dtype=float)
        finite = finite[np.isfinite(finite)]
        self.low, self.high = float(finite.min()), float(finite.max())
        domain = space_of(config).get(name)
        if isinstance(domain, Mapping) and "lower" in domain and "upper" in domain:
            self.low, self.high = min(self.low, float(domain["lower"])), max(self.high, float(domain["upper"]))
        self.log = self.low > 0 and asks_for_log([self.low, self.high])

    def __call__(self, values: Any) -> Any:
        low, high, places = self.low, self.high, np.asarray(values, dtype=float)
        if self.log:
            low, high, places = np.log(low), np.log(high), np.log(places)
        return (places - low) / (high - low) if high > low else np.full_like(places, 0.5)


@styled
def configurations(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """Every configuration that a trial kept to (PBT changes them), coloured by its loss, and the way the STN took."""
    trials, cut = _whole(tried(frame))
    names = varied(trials)
    if len(names) < 2:
        raise NotThere(f"{len(names)} hyperparameters vary between the black-box trials; a picture needs two or more")
    columns = [f"hp/{name}" for name in names]
    complete = trials.dropna(subset=columns)
    shown = complete.dropna(subset=["value"])
    if shown.empty:
        raise NotThere("no black-box trial has a finite loss and a value for every hyperparameter")
    path = _path(frame, columns)
    scales = {
        name: Scale(name, pd.concat([shown[column], *([path[column]] if path is not None else [])]), config)
        for name, column in zip(names, columns, strict=True)
    }
    lower_is_better = metric(frame)[1] == "min"
    figure = new_figure(min(max(6.4, len(names) + 1.0), 10.0), 4.6)
    ax = figure.subplots()
    best_last = shown.sort_values("value", ascending=not lower_is_better, kind="stable")
    places = np.column_stack([scales[n](best_last[c]) for n, c in zip(names, columns, strict=True)])
    mappable = _colours(best_last["value"], lower_is_better)
    xs = np.arange(len(names))
    ax.add_collection(
        LineCollection(
            [np.column_stack([xs, row]) for row in places],
            colors=mappable.to_rgba(best_last["value"].to_numpy()),
            lw=np.linspace(0.4, 1.3, len(places)) * min(1.0, np.sqrt(100 / len(places))),
        )
    )
    if path is not None:
        _draw_path(ax, xs, np.column_stack([scales[n](path[c]) for n, c in zip(names, columns, strict=True)]))
    _axes(ax, names, scales)
    extend = "max" if lower_is_better else "min"
    bar = figure.colorbar(mappable, ax=ax, pad=0.02, fraction=0.05, extend=extend)
    bar.set_label(f"best {metric_title(frame, config)}")
    bar.outline.set_visible(False)
    methods = ", ".join(method_title(m) for m in in_order(shown["method"]))
    lost = len(trials) - len(shown)
    text = f"{len(shown)} trials of {methods}; darker is better{cut}"
    text += f"; {lost} without a finite loss or a value left out" if lost else ""
    if path is not None:
        which = f"STN, best of n = {path.attrs['seeds']} seeds" if path.attrs["seeds"] > 1 else "STN"
        text += f". {which}: rings, where it started; bars, what it went through; line, where it ended"
    note(figure, text)
    return figure


def _whole(trials: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The trials that were not cut off early, and what to say of those that were."""
    cut = int(trials["cut"].sum())
    return trials[~trials["cut"]], f"; {cut} that were stopped early left out" if cut else ""


def _path(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame | None:
    """The values of the best self-tuned run, row by row; None where there is none with all these columns."""
    try:
        rows = self_tuned(frame)
    except NotThere:
        return None
    name, mode = metric(frame)
    values = numeric(rows[name])
    if values.notna().sum() == 0:
        return None
    best = rows.loc[values.idxmin() if mode == "min" else values.idxmax(), "experiment"]
    path = rows[rows["experiment"] == best].sort_values("training_iteration")
    path = pd.DataFrame({c: numeric(path[c]) for c in columns}).dropna()
    path.attrs["seeds"] = rows["experiment"].nunique()
    return path if len(path) else None


def _draw_path(ax: Any, xs: Any, places: Any) -> None:
    colour = METHOD_LINES["stn"].colour
    halo = [Stroke(linewidth=4.5, foreground="white"), Normal()]
    ax.vlines(xs, places.min(axis=0), places.max(axis=0), color=colour, lw=5, alpha=0.45, zorder=4)
    ax.plot(xs, places[-1], color=colour, lw=2.2, zorder=5, path_effects=halo, label="STN")
    ax.plot(xs, places[-1], "o", color=colour, ms=5, zorder=7)
    ax.plot(xs, places[0], "o", mfc="white", mec=colour, mew=1.4, ms=6, zorder=6)


def _colours(values: pd.Series, lower_is_better: bool) -> Any:
    """Dark for good, pale for bad; the worst tenth shares the palest."""
    low, high = values.quantile([0.0, 0.9]) if lower_is_better else values.quantile([0.1, 1.0])
    kind = mpl.colors.LogNorm if asks_for_log([low, high]) else mpl.colors.Normalize
    shades = mpl.colormaps["Blues"](np.linspace(0.2, 1.0, 256))
    colours = mpl.colors.ListedColormap(shades[::-1] if lower_is_better else shades)
    return mpl.cm.ScalarMappable(kind(low, high), colours)


def _axes(ax: Any, names: Sequence[str], scales: Mapping[str, Scale]) -> None:
    """An upright axis per hyperparameter, its ends written above and below."""
    slanted = len(names) > 8
    ax.set_xlim(-0.3, len(names) - 0.7)
    ax.set_ylim(-0.09, 1.09)
    ax.grid(False)
    ax.vlines(range(len(names)), 0, 1, color="black", lw=0.6, zorder=3)
    for k, name in enumerate(names):
        scale = scales[name]
        ax.text(k, 1.02, f"{scale.high:.3g}" + (" (log)" if scale.log else ""), ha="center", va="bottom", fontsize=7.5)
        ax.text(k, -0.02, f"{scale.low:.3g}", ha="center", va="top", fontsize=7.5)
    words = [title(name) if slanted else title(name).replace(" ", "\n") for name in names]
    ax.set_xticks(range(len(names)), words, rotation=30 if slanted else 0, ha="right" if slanted else "center")
    ax.set_yticks([])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)


@styled
def importance(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """Which hyperparameters mattered: permutation importance in a forest fitted to the black-box trials."""
    trials, cut = _whole(tried(frame))
    names = varied(trials)
    columns = [f"hp/{name}" for name in names]
    if len(names) < 2:
        raise NotThere(f"{len(names)} hyperparameters vary between the black-box trials; importances need two or more")
    complete = trials.dropna(subset=[*columns, "value"])
    different = complete.groupby(columns, sort=False)["value"].mean().reset_index()
    if len(different) < FEWEST_TRIALS:
        raise NotThere(
            f"{len(different)} configurations in finished black-box trials; importances need {FEWEST_TRIALS} or more"
        )
    drops, explained = permutation_importance(different[columns].to_numpy(), different["value"].to_numpy())
    order = np.argsort(drops.mean(axis=1), kind="stable")
    figure = new_figure(6.4, 1.5 + 0.28 * len(names))
    ax = figure.subplots()
    middle, error = drops.mean(axis=1)[order], drops.std(axis=1)[order]
    ax.barh(range(len(names)), middle, xerr=error, color=PALETTE[0], ecolor="black", error_kw={"lw": 0.8, "capsize": 2})
    ax.axvline(0, color="black", lw=0.6)
    ax.set_yticks(range(len(names)), [title(names[k]) for k in order])
    ax.set_xlabel("increase of the squared error when its values are shuffled\n(in variances of the trials' ranks)")
    ax.grid(axis="y", visible=False)
    methods = ", ".join(method_title(m) for m in in_order(complete["method"]))
    text = (
        f"n = {len(different)} configurations, {len(complete)} trials of {methods}{cut}; "
        f"held-out R² of the forest {explained:.2f}"
        f"{': it predicts next to nothing, so the bars mean as little' if explained < 0.05 else ''}; "
        f"whiskers: standard deviation over {REPEATS} shufflings"
    )
    lost = len(trials) - len(complete)
    note(figure, text + (f"; {lost} trials without a finite loss or a value left out" if lost else ""))
    return figure


def permutation_importance(x: Any, y: Any) -> tuple[Any, float]:
    """Importances ``(hyperparameters, repeats)`` and the R², both on folds that the forest was not fitted to.

    The forest predicts the rank of ``y``, so that one bad trial does not count more than all others. An importance is
    the growth of the squared error when one column is shuffled, divided by the variance of the ranks.
    """
    try:
        from sklearn.ensemble import RandomForestRegressor
    except ImportError:
        raise NotThere('importances need scikit-learn: pip install "stn-tune[bench]"') from None

    y = pd.Series(y).rank().to_numpy()
    variance = float(np.var(y)) or 1.0
    rng = np.random.default_rng(0)
    folds = np.array_split(rng.permutation(len(y)), FOLDS)
    error = 0.0
    drops = np.zeros((x.shape[1], REPEATS))
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(y)), fold)
        forest = RandomForestRegressor(n_estimators=100, random_state=0).fit(x[rest], y[rest])
        shuffled = np.repeat(x[fold][None], x.shape[1] * REPEATS, axis=0).reshape(x.shape[1], REPEATS, *x[fold].shape)
        for column in range(x.shape[1]):
            for repeat in range(REPEATS):
                rng.shuffle(shuffled[column, repeat, :, column])
        plain = ((forest.predict(x[fold]) - y[fold]) ** 2).sum()
        guesses = forest.predict(shuffled.reshape(-1, x.shape[1])).reshape(x.shape[1], REPEATS, len(fold))
        drops += ((guesses - y[fold]) ** 2).sum(axis=2) - plain
        error += plain
    return drops / (len(y) * variance), 1.0 - error / (len(y) * variance)
