"""How much the settings of the self-tuning network matter: its training and validation steps, its scale σ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from stn_tune.analysis.labels import across_seeds, best_trials, metric, metric_title, numeric, of_label, variants
from stn_tune.analysis.plots_schedules import draw_seeds, seeds_note
from stn_tune.analysis.style import (
    CUT,
    DASHES,
    Line,
    NotThere,
    asks_for_log,
    label_ends,
    note,
    panels,
    ramp,
    styled,
    zoom,
)


def _draw(ax: Any, frame: pd.DataFrame, texts: Mapping[str, str], lines: Mapping[str, Line]) -> tuple[Any, Any]:
    ends = []
    for label, text in texts.items():
        values = across_seeds(best_trials(of_label(frame, label)), "epoch", metric(frame)[0])
        ends.append(draw_seeds(ax, values, lines[label], text))
    ax.set_xlabel("epoch")
    return ax, ends


def _finish(figure: Figure, axes: Any, frame: pd.DataFrame, rows: pd.DataFrame, config: Any) -> None:
    name = metric(frame)[0]
    rows = rows[numeric(rows[name]).notna()]
    axes[0].set_ylabel(metric_title(frame, config))
    text = seeds_note(rows.groupby("method")["experiment"].nunique().max())
    if asks_for_log(rows[name]):
        axes[0].set_yscale("log")
    elif zoom(axes[0], rows["epoch"], rows[[name]], start=0.25):
        text = f"{text}; {CUT}"
    note(figure, text)


@styled
def steps(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """Validation loss for different numbers of training and validation steps in a turn (appendix)."""
    chosen = variants(frame, "train", "valid")
    figure, axes = panels(1, width=6.8, height=3.8)
    texts = {name: "{train:g} train, {valid:g} valid".format(**label.settings) for name, label in chosen.items()}
    by_train = sorted({label.settings["train"] for label in chosen.values()})
    by_valid = sorted({label.settings["valid"] for label in chosen.values()})
    colours = dict(zip(by_train, ramp(len(by_train)), strict=True))
    lines = {
        name: Line(colours[label.settings["train"]], DASHES[by_valid.index(label.settings["valid"]) % len(DASHES)])
        for name, label in chosen.items()
    }
    labelled = _draw(axes[0], frame, texts, lines)
    _finish(figure, axes, frame, frame[frame["method"].isin(chosen)], config)
    label_ends(labelled)
    return figure


@styled
def scales(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """Validation loss for different initial perturbation scales, fixed (λ moves by steps at λ) and tuned (at λ+ε)."""
    chosen = variants(frame, "scale")
    kinds = {kind: [n for n, label in chosen.items() if kind in label.flags] for kind in ("fixed", "tuned")}
    kinds = {kind: names for kind, names in kinds.items() if names}
    if not kinds:
        raise NotThere('no label such as "stn scale=0.5 fixed" or "stn scale=0.5 tuned"')
    values = sorted({label.settings["scale"] for label in chosen.values()})
    colours = dict(zip(values, ramp(len(values)), strict=True))
    figure, axes = panels(len(kinds), height=3.4, sharey=True)
    labelled = []
    for ax, (kind, names) in zip(axes, kinds.items(), strict=True):
        texts = {name: f"σ = {chosen[name].settings['scale']:g}" for name in names}
        labelled.append(_draw(ax, frame, texts, {n: Line(colours[chosen[n].settings["scale"]], "-") for n in names}))
        ax.set_title("σ fixed" if kind == "fixed" else "σ tuned from this start")
    _finish(figure, axes, frame, frame[frame["method"].isin(chosen)], config)
    label_ends(*labelled)
    return figure
