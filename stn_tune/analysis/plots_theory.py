"""What the sampled neighbourhood does to a learned best response, where the exact one is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from stn_tune.analysis.labels import numeric, variants
from stn_tune.analysis.style import (
    DASHES,
    GREY,
    METHOD_LINES,
    PALETTE,
    End,
    Line,
    NotThere,
    label_ends,
    new_figure,
    note,
    styled,
)

NETWORKS = {"ridge": ("ridge regression", "weights along ∂w*/∂λ"), "gated": ("gated network", "gate of a hidden unit")}
COLUMNS = ("too small", "right", "too wide")
EXACT, TANGENT, LEARNED = Line(PALETTE[0], DASHES[0]), Line(PALETTE[0], DASHES[2]), METHOD_LINES["stn"]
SHADE = "#9aa0a6"
ROOM = 0.3
"""Of the exact response's range, left free above and below it."""


@styled
def neighbourhood(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """Exact and learned best responses for a neighbourhood too small, right and too wide (the paper's Figure 2)."""
    if "val_response/gradient_error" not in frame:
        raise NotThere(
            "no run reports val_response/gradient_error: the exact best response is known in the theory task alone"
        )
    variant = {
        (label.method, label.settings["scale"]): name
        for name, label in variants(frame, "scale").items()
        if label.method in NETWORKS
    }
    if not variant:
        raise NotThere('no label such as "ridge scale=0.2" or "gated scale=0.2"')
    networks = [network for network in NETWORKS if any(method == network for method, _ in variant)]
    scales = sorted({scale for _, scale in variant})
    runs = frame[frame["method"].isin(variant.values())]
    ends = last_rows(runs)
    figure = new_figure(3.0 * len(scales) + 1.0, 2.7 * len(networks) + 0.5)
    axes = figure.subplots(len(networks), len(scales), squeeze=False, sharex=True, sharey="row")
    titles = [f"σ = {scale:g}" for scale in scales]
    if len(scales) == len(COLUMNS):
        titles = [f"{column}: {title}" for column, title in zip(COLUMNS, titles, strict=True)]
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title, fontweight="bold")
    labelled = []
    for network, row in zip(networks, axes, strict=True):
        row[0].set_ylabel("\n".join(NETWORKS[network]))
        for scale, ax in zip(scales, row, strict=True):
            rows = ends[ends["method"] == variant.get((network, scale))]
            if rows.empty:
                ax.text(0.5, 0.5, "no finite result", transform=ax.transAxes, ha="center", color=GREY)
            else:
                drawn = _draw(ax, rows, scale)
                labelled += [(ax, drawn)] if ax is row[-1] else []
    for ax in axes[-1]:
        ax.set_xlabel("λ, the unconstrained penalty")
    seeds, diverged = ends.groupby("method")["experiment"].nunique().max(), runs["experiment"].nunique() - len(ends)
    count = f"mean of n = {seeds} seeds (thin: one each), as are the errors" if seeds > 1 else "one seed"
    left_out = f"; {diverged} diverged and left out" if diverged else ""
    note(
        figure,
        "grey: density of the sampled λ + ε; dotted: tangent of the exact response at λ₀ (the learned response is "
        "affine, its own tangent); gradient error: of the hypergradient ∂F/∂λ at λ₀ through the learned response, "
        f"against the closed form, Jacobian error: of ∂w/∂λ, both after the last iteration; {count}{left_out}",
    )
    label_ends(*labelled)
    return figure


def last_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The last report of each experiment, where it is finite."""
    last = rows.sort_values("training_iteration", kind="stable").drop_duplicates("experiment", keep="last")
    last = last[numeric(last["val_response/gradient_error"]).notna()]
    if last.empty:
        raise NotThere("every run of the theory task diverged")
    return last


def _draw(ax: Any, rows: pd.DataFrame, scale: float) -> list[End]:
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
    ax.plot(x, truth, color=EXACT.colour, ls=EXACT.dash, lw=2.2)
    ax.plot(x, tangent, color=TANGENT.colour, ls=TANGENT.dash, lw=1.3)
    if len(learned) > 1:
        ax.plot(x, learned.T, color=LEARNED.colour, ls=LEARNED.dash, lw=0.6, alpha=0.5)
    ax.plot(x, learned.mean(axis=0), color=LEARNED.colour, ls=LEARNED.dash, lw=2.0)
    ax.plot([centre], [height], "o", color=EXACT.colour, ms=5, zorder=5)
    rising = bool(truth[-1] > truth[0])
    beside = (6, -11 if rising else 6)
    ax.annotate("λ₀", (centre, height), beside, textcoords="offset points", color=EXACT.colour, fontsize=8)
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(bottom, top)
    _say(ax, rows, rising)
    return [
        End(x[-1], truth[-1], "exact", EXACT),
        End(x[-1], tangent[-1], "its tangent", TANGENT),
        End(x[-1], learned.mean(axis=0)[-1], "learned", LEARNED),
    ]


def _say(ax: Any, rows: pd.DataFrame, rising: bool) -> None:
    """The errors, in the corner that the curve leaves free."""
    place: dict[str, Any] = {"transform": ax.transAxes, "va": "top", "ha": "left" if rising else "right"}
    for y, name, size in ((0.97, "gradient", 9.0), (0.87, "Jacobian", 7.5)):
        error = float(numeric(rows[f"val_response/{name.lower()}_error"]).mean())
        text = f"{name} error {error:.0%}".replace("%", " %")
        ax.text(0.03 if rising else 0.97, y, text, fontsize=size, color="black" if size > 8 else GREY, **place)


def _points(rows: pd.DataFrame, kind: str) -> Any:
    """``val_response/<kind>_00`` … as an array ``(experiments, places)``."""
    names = sorted(c for c in rows.columns if c.startswith(f"val_response/{kind}_"))
    return rows[names].to_numpy(dtype=float)
