"""Figures of the sensitivity study: validation loss by step ratio and by perturbation scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from stn_tune.analysis.figures import Figure
from stn_tune.analysis.figures.seeds import draw_seeds, parts, seeds_note
from stn_tune.analysis.figures.style import (
    CLIPPED,
    DASHES,
    asks_for_log,
    label_ends,
    note,
    panels,
    ramp,
    styled,
    zoom,
)
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import best_trials, metric_title, series, variants
from stn_tune.analysis.stats import finite

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

TITLES = {False: "σ fixed", True: "σ tuned from this start"}


def select_steps(results: Results) -> pd.DataFrame:
    """Loss by epoch for every ratio."""
    found = variants(results, "train_steps", "valid_steps")
    train, valid = sorted(set(found["train_steps"])), sorted(set(found["valid_steps"]))
    colours = dict(zip(train, ramp(len(train)), strict=True))
    dashes = list(DASHES)
    found["colour"] = found["train_steps"].map(colours)
    found["dash"] = [dashes[valid.index(steps) % len(dashes)] for steps in found["valid_steps"]]
    found["title"] = [
        f"{t:g} train, {v:g} valid" for t, v in zip(found["train_steps"], found["valid_steps"], strict=True)
    ]
    return _losses(results, found.assign(panel=""))


def select_scales(results: Results) -> pd.DataFrame:
    """Loss by epoch for every scale, fixed and tuned."""
    found = variants(results, "scale", "tune_scale").sort_values(["tune_scale", "scale"], ignore_index=True)
    scales = sorted(set(found["scale"]))
    colours = dict(zip(scales, ramp(len(scales)), strict=True))
    found["title"] = [f"σ = {scale:g}" for scale in found["scale"]]
    about = found.assign(colour=found["scale"].map(colours), dash="solid", panel=found["tune_scale"].map(TITLES))
    return _losses(results, about)


def _losses(results: Results, about: pd.DataFrame) -> pd.DataFrame:
    """The losses of the best trials of some labels, with the columns of ``about``."""
    results = results.where(results.frame["label"].isin(about["label"]))
    rows = results.frame[finite(results.frame, results.metric).notna()]
    chosen = []
    for row in about[["label", "panel", "title", "colour", "dash"]].to_dict("records"):
        own = best_trials(results.where(results.frame["label"] == row["label"])).frame
        chosen.append(series(own, "epoch", results.metric, **{str(name): value for name, value in row.items()}))
    frame = pd.concat(chosen, ignore_index=True)
    seeds = rows.groupby("label")["experiment"].nunique().max()
    frame.attrs = {"ylabel": metric_title(results), "note": seeds_note(seeds)}
    return frame


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """A panel per kind of variant, a line per variant."""
    groups = parts(frame, "panel")
    alone = len(groups) == 1 and not groups[0][0]
    figure, axes = panels(1, width=6.8, height=3.8) if alone else panels(len(groups), height=3.4, sharey=True)
    labelled = []
    for ax, (panel, group) in zip(axes, groups, strict=True):
        labelled.append((ax, [draw_seeds(ax, part) for _, part in parts(group, "label")]))
        ax.set_xlabel("epoch")
        ax.set_title(panel)
    axes[0].set_ylabel(frame.attrs["ylabel"])
    text = frame.attrs["note"]
    if asks_for_log(frame["y"]):
        axes[0].set_yscale("log")
    elif zoom(axes[0], frame["x"], frame[["y"]], start=0.25):
        text = f"{text}; {CLIPPED}"
    note(figure, text)
    label_ends(*labelled)
    return figure


FIGURES = (
    Figure(
        "steps",
        "Validation loss for different numbers of training and validation steps in turn (appendix).",
        select_steps,
        draw,
    ),
    Figure(
        "scales",
        "Validation loss for different initial perturbation scales, fixed (λ moves by steps at λ) and tuned (at λ+ε).",
        select_scales,
        draw,
    ),
)
