"""importance: which hyperparameters mattered to black-box search."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from stn_tune.analysis.figures.base import Figure
from stn_tune.analysis.figures.configurations import complete
from stn_tune.analysis.figures.style import note, styled, wrapped
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import blackbox_trials, hyperparameter_title, literal, title_of, varied
from stn_tune.errors import MissingData
from stn_tune.plotting import PALETTE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FEWEST_TRIALS = 10
FOLDS = 5
REPEATS = 20


def select(results: Results) -> pd.DataFrame:
    """A row per hyperparameter, the least important first: its title, mean importance and standard deviation."""
    names, about = ranked(results)
    frame = pd.DataFrame(
        {
            "title": [hyperparameter_title(results, name) for name in names],
            "mean": about["drops"].mean(axis=1),
            "deviation": about["drops"].std(axis=1),
        }
    )[::-1].reset_index(drop=True)
    explained, lost = about["explained"], about["lost"]
    frame.attrs["note"] = (
        f"A random forest predicts how good a configuration is; on configurations that it has not seen it explains "
        f"{max(explained, 0):.0%} of the differences (R²)".replace("%", " %")
        + (", almost nothing, so the bars mean little" if explained < 0.05 else "")
        + ". Bar: how much its error grows when the values of one hyperparameter are shuffled, in shares of the error "
        f"of a guess that knows nothing; whisker: standard deviation over {REPEATS} shuffles. "
        f"n = {about['configurations']} configurations, {about['trials']}"
        + (f"; {lost} trials without a finite {results.metric} or a value left out" if lost else "")
    )
    most = ", ".join(f"{row.title} {row.mean:.2f}" for row in frame[::-1].itertuples())
    frame.attrs["metric"] = literal(re.sub("^val_", "", results.metric).replace("_", " "))
    frame.attrs["alt"] = f"Bars of how much each hyperparameter mattered, the most important first: {most}."
    return frame


def ranked(results: Results) -> tuple[list[str], dict[str, Any]]:
    """The hyperparameters that vary between black-box trials, the most important first, and what that stands on.

    ``drops`` are the importances ``(hyperparameters, repeats)``, ``explained`` is the forest's R².
    """
    trials, stopped = complete(blackbox_trials(results))
    names = varied(trials)
    columns = [f"hp/{name}" for name in names]
    if len(names) < 2:
        raise MissingData(
            f"{len(names)} hyperparameters vary between the black-box trials; importances need two or more"
        )
    kept = trials.dropna(subset=[*columns, "value"])
    different = kept.groupby(columns, sort=False)["value"].mean().reset_index()
    if len(different) < FEWEST_TRIALS:
        raise MissingData(
            f"{len(different)} configurations in finished black-box trials; importances need {FEWEST_TRIALS} or more"
        )
    drops, explained = permutation_importance(different[columns].to_numpy(), different["value"].to_numpy())
    order = np.argsort(drops.mean(axis=1), kind="stable")[::-1]
    titles = ", ".join(title_of(results, label) for label in results.in_order(kept["label"]))
    about = {
        "drops": drops[order],
        "explained": explained,
        "configurations": len(different),
        "trials": f"{len(kept)} trials of {titles}{stopped}",
        "lost": len(trials) - len(kept),
    }
    return [names[k] for k in order], about


def permutation_importance(x: Any, y: Any) -> tuple[Any, float]:
    """What :func:`_permutation_importance` finds, found once for the same numbers: two figures ask for it."""
    matrix, column = np.ascontiguousarray(x, dtype=float), np.ascontiguousarray(y, dtype=float)
    return _remembered(matrix.tobytes(), matrix.shape[1], column.tobytes())


@lru_cache(maxsize=4)
def _remembered(x: bytes, columns: int, y: bytes) -> tuple[Any, float]:
    return _permutation_importance(np.frombuffer(x).reshape(-1, columns), np.frombuffer(y))


def _permutation_importance(x: Any, y: Any) -> tuple[Any, float]:
    """Importances ``(hyperparameters, repeats)`` and the R², both on folds that the forest was not fitted to.

    The forest predicts the rank of ``y``, so that one bad trial does not outweigh all others. An importance is the
    increase in squared error when one column is shuffled, relative to the variance of the ranks.
    """
    try:
        from sklearn.ensemble import RandomForestRegressor
    except ImportError:
        raise MissingData('importances need scikit-learn: pip install "stn-tune[bench]"') from None

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


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """A bar per hyperparameter."""
    figure = new_figure(6.4, 1.5 + 0.28 * len(frame))
    ax = figure.subplots()
    whiskers = {"lw": 0.8, "capsize": 2}
    ax.barh(
        range(len(frame)), frame["mean"], xerr=frame["deviation"], color=PALETTE[0], ecolor="black", error_kw=whiskers
    )
    ax.axvline(0, color="black", lw=0.6)
    ax.set_yticks(range(len(frame)), frame["title"])
    text = f"how much worse {frame.attrs['metric']} is predicted without it (0: it does not matter)"
    ax.set_xlabel(wrapped(text))
    ax.grid(axis="y", visible=False)
    note(figure, frame.attrs["note"])
    return figure


IMPORTANCE = Figure(
    "importance",
    "Which hyperparameters mattered to the black-box trials (permutation importance in a random forest).",
    select,
    draw,
)
