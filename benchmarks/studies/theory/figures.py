"""The figure of the theory study: exact and learned best responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from benchmarks.studies.theory import NETWORKS
from stn_tune.analysis.figures import Figure
from stn_tune.analysis.figures.style import note, styled
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import variants
from stn_tune.analysis.stats import finite
from stn_tune.errors import MissingData
from stn_tune.plotting import GREY, PALETTE, LineEnd, is_narrow, label_ends, look, new_figure
from stn_tune.record import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

TITLES = {"ridge": "ridge regression\nweights along ∂w*/∂λ", "gated": "gated network\ngate of a hidden unit"}
COLUMNS = ("too small", "right", "too wide")
EXACT, TANGENT, LEARNED = Style(PALETTE[0]), Style(PALETTE[0], "dotted"), Style(PALETTE[5])
SHADE = "#9aa0a6"
ROOM = 0.3
"""Of the exact response's range, left free above and below it."""
ERROR = "val_response/gradient_error"


def select(results: Results) -> pd.DataFrame:
    """The last finite report of every experiment, with its network and scale."""
    if ERROR not in results.frame:
        raise MissingData(f"no run reports {ERROR}: only the theory task knows the exact best response")
    found = variants(results, "network", "scale")
    found = found[found["network"].isin(NETWORKS)]
    if found.empty:
        raise MissingData(f"no variants of the networks {' and '.join(NETWORKS)}")
    runs = results.frame[results.frame["label"].isin(found["label"])]
    last = runs.sort_values("training_iteration", kind="stable").drop_duplicates("experiment", keep="last")
    last = last[finite(last, ERROR).notna()]
    if last.empty:
        raise MissingData("every run of the theory task diverged")
    columns = [column for column in last.columns if column.startswith("val_response/")]
    frame = last[["label", "experiment", *columns]].merge(found.drop(columns="method"), on="label")
    seeds, diverged = last.groupby("label")["experiment"].nunique().max(), runs["experiment"].nunique() - len(last)
    count = f"mean of n = {seeds} seeds (thin: one each), as are the errors" if seeds > 1 else "one seed"
    left_out = f"; {diverged} diverged and left out" if diverged else ""
    networks = set(found["network"])
    frame.attrs = {
        "networks": [network for network in NETWORKS if network in networks],
        "scales": sorted(set(found["scale"])),
        "alt": _errors_in_words(frame),
        "note": "grey: density of the sampled λ + ε; dotted: tangent of the exact response at λ₀ (the learned response "
        "is affine, its own tangent); gradient error: of the hypergradient ∂F/∂λ at λ₀ through the learned response, "
        f"against the closed form; Jacobian error: of ∂w/∂λ; both after the last iteration; {count}{left_out}",
    }
    return frame


def _errors_in_words(frame: pd.DataFrame) -> str:
    errors: Any = finite(frame, ERROR).groupby([frame["network"], frame["scale"]]).mean()
    words = [f"{network} network, σ = {scale:g}: {error:.0%}" for (network, scale), error in errors.items()]
    return f"Exact and learned best responses over λ. Error of the hypergradient: {', '.join(words)}."


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """A row per network, a column per scale."""
    networks, scales = frame.attrs["networks"], frame.attrs["scales"]
    if is_narrow():
        figure = new_figure(height=2.0 * len(networks) * len(scales) + 0.5)
        grid = figure.subplots(len(networks) * len(scales), squeeze=False, sharex=True)
        axes = grid.reshape(len(networks), len(scales))
    else:
        figure = new_figure(3.0 * len(scales) + 1.0, 2.7 * len(networks) + 0.5)
        axes = figure.subplots(len(networks), len(scales), squeeze=False, sharex=True, sharey="row")
    titles = [f"σ = {scale:g}" for scale in scales]
    if len(scales) == len(COLUMNS):
        titles = [f"{column}: {title}" for column, title in zip(COLUMNS, titles, strict=True)]
    labelled = []
    for network, row in zip(networks, axes, strict=True):
        for ax, title in zip(row, titles, strict=True):
            if is_narrow() or network == networks[0]:
                ax.set_title(title, fontweight="bold")
            if is_narrow() or ax is row[0]:
                ax.set_ylabel(TITLES[network])
        for scale, ax in zip(scales, row, strict=True):
            rows = frame[(frame["network"] == network) & (frame["scale"] == scale)]
            if rows.empty:
                ax.text(0.5, 0.5, "no finite result", transform=ax.transAxes, ha="center", color=GREY)
            else:
                ends = _responses(ax, rows, scale)
                labelled += [(ax, ends)] if is_narrow() or ax is row[-1] else []
    for ax in axes[-1][-1:] if is_narrow() else axes[-1]:
        ax.set_xlabel("λ, the unconstrained penalty")
    note(figure, frame.attrs["note"])
    label_ends(*labelled)
    return figure


def _responses(ax: Any, rows: pd.DataFrame, scale: float) -> list[LineEnd]:
    exact, learned = _points(rows, "exact"), _points(rows, "learned")
    first, last = (float(rows[f"val_response/{end}"].iloc[0]) for end in ("first", "last"))
    x, truth = np.linspace(first, last, exact.shape[1]), exact.mean(axis=0)
    centre, height = x[len(x) // 2], truth[len(x) // 2]
    tangent = height + float(rows["val_response/slope_exact"].mean()) * (x - centre)
    low, high = truth.min(), truth.max()
    bottom, top = low - ROOM * (high - low), high + ROOM * (high - low)
    fine = np.union1d(np.linspace(x[0], x[-1], 400), centre + scale * np.linspace(-4.0, 4.0, 81))
    density = np.exp(-0.5 * ((fine - centre) / scale) ** 2)
    ax.fill_between(fine, bottom, bottom + 0.45 * (top - bottom) * density, color=SHADE, alpha=0.35, lw=0.8)
    ax.plot(x, truth, lw=2.2, **look(EXACT))
    ax.plot(x, tangent, lw=1.3, **look(TANGENT))
    if len(learned) > 1:
        ax.plot(x, learned.T, lw=0.6, alpha=0.5, **look(LEARNED))
    ax.plot(x, learned.mean(axis=0), lw=2.0, **look(LEARNED))
    ax.plot([centre], [height], "o", color=EXACT.colour, ms=5, zorder=5)
    rising = bool(truth[-1] > truth[0])
    beside = (6, -11 if rising else 6)
    ax.annotate("λ₀", (centre, height), beside, textcoords="offset points", color=EXACT.colour, fontsize=8)
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(bottom, top)
    _errors(ax, rows, rising)
    return [
        LineEnd(x[-1], truth[-1], "exact", EXACT),
        LineEnd(x[-1], tangent[-1], "its tangent", TANGENT),
        LineEnd(x[-1], learned.mean(axis=0)[-1], "learned", LEARNED),
    ]


def _errors(ax: Any, rows: pd.DataFrame, rising: bool) -> None:
    """The errors, in the corner that the curve leaves free."""
    place: dict[str, Any] = {"transform": ax.transAxes, "va": "top", "ha": "left" if rising else "right"}
    for y, name, size in ((0.97, "gradient", 9.0), (0.87, "Jacobian", 7.5)):
        error = float(finite(rows, f"val_response/{name.lower()}_error").mean())
        text = f"{name} error {error:.0%}".replace("%", " %")
        ax.text(0.03 if rising else 0.97, y, text, fontsize=size, color="black" if size > 8 else GREY, **place)


def _points(rows: pd.DataFrame, kind: str) -> Any:
    """``val_response/<kind>_00`` … as an array ``(experiments, places)``."""
    names = sorted(column for column in rows.columns if column.startswith(f"val_response/{kind}_"))
    return rows[names].to_numpy(dtype=float)


FIGURES = (
    Figure(
        "neighbourhood",
        "Exact and learned best responses for a neighbourhood too small, right and too wide (Figure 2 of the paper).",
        select,
        draw,
    ),
)
