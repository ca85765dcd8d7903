"""Figures of the sensitivity study: validation loss by step ratio and by perturbation scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from stn_tune.analysis.figures import Figure
from stn_tune.analysis.figures.seeds import draw_seeds, parts, seeds_note
from stn_tune.analysis.figures.style import CLIPPED, note, ramp, styled, zoom
from stn_tune.analysis.results import Results
from stn_tune.analysis.selection import best_trials, metric_title, series, variants
from stn_tune.analysis.stats import finite
from stn_tune.plotting import asks_for_log, label_ends, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

TITLES = {False: "σ fixed", True: "σ tuned from this start"}


def select_steps(results: Results) -> pd.DataFrame:
    """The best loss so far by epoch for every ratio, a panel per number of validation steps."""
    found = variants(results, "train_steps", "valid_steps").sort_values(["valid_steps", "train_steps"])
    train = sorted(set(found["train_steps"]))
    found["colour"] = found["train_steps"].map(dict(zip(train, ramp(len(train)), strict=True)))
    found["title"] = [f"{t:g} training step{'s' if t != 1 else ''}" for t in found["train_steps"]]
    found["panel"] = [f"{v:g} validation step{'s' if v != 1 else ''} after" for v in found["valid_steps"]]
    return _losses(results, found)


def select_scales(results: Results) -> pd.DataFrame:
    """The best loss so far by epoch for every scale, fixed and tuned."""
    found = variants(results, "scale", "tune_scale").sort_values(["tune_scale", "scale"], ignore_index=True)
    scales = sorted(set(found["scale"]))
    colours = dict(zip(scales, ramp(len(scales)), strict=True))
    found["title"] = [f"σ = {scale:g}" for scale in found["scale"]]
    return _losses(results, found.assign(colour=found["scale"].map(colours), panel=found["tune_scale"].map(TITLES)))


def _losses(results: Results, about: pd.DataFrame) -> pd.DataFrame:
    """The best loss so far of the best trials of some labels, with the columns of ``about``."""
    results = results.where(results.frame["label"].isin(about["label"]))
    rows = results.frame[finite(results.frame, results.metric).notna()]
    lowest, chosen = results.mode == "min", []
    for row in about[["label", "panel", "title", "colour"]].to_dict("records"):
        own = best_trials(results.where(results.frame["label"] == row["label"])).frame
        constants = {str(name): value for name, value in row.items()}
        part = series(own, "epoch", results.metric, **constants, dash="solid").sort_values("x", kind="stable")
        runs = part.groupby("experiment")["y"]
        chosen.append(part.assign(y=runs.cummin() if lowest else runs.cummax()))
    frame = pd.concat(chosen, ignore_index=True)
    seeds = rows.groupby("label")["experiment"].nunique().max()
    ends = frame.groupby(["panel", "title", "experiment"], sort=False)["y"].last()
    finals = ends.groupby(["panel", "title"], sort=False).mean()
    frame["title"] += [
        f": {finals[panel, title]:#.4g}" for panel, title in zip(frame["panel"], frame["title"], strict=True)
    ]
    last: Any = finals.items()
    frame.attrs = {
        "ylabel": f"best {metric_title(results)} so far",
        "note": f"{seeds_note(seeds)}; number: mean of what the seeds ended with",
        "alt": "Lines of the best loss so far, epoch by epoch; they end at: "
        + ", ".join(f"{panel}, {title} {end:#.4g}" for (panel, title), end in last)
        + ".",
    }
    return frame


@styled
def draw(frame: pd.DataFrame) -> Picture:
    """A panel per kind of variant, a line per variant."""
    groups = parts(frame, "panel")
    figure, axes = panels(len(groups), width=5.2, height=3.2, sharey=True)
    labelled = []
    for ax, (panel, group) in zip(axes, groups, strict=True):
        labelled.append((ax, [draw_seeds(ax, part, drawstyle="steps-post") for _, part in parts(group, "label")]))
        ax.set_xlabel("epoch")
        ax.set_title(panel)
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel(frame.attrs["ylabel"])
    text = frame.attrs["note"]
    if asks_for_log(frame["y"]):
        axes[0].set_yscale("log")
    elif zoom(axes[0], frame["x"], frame[["y"]], start=0.25, ends=[end.y for _, ends in labelled for end in ends]):
        text = f"{text}; {CLIPPED}"
    note(figure, text)
    label_ends(*labelled)
    return figure


FIGURES = (
    Figure(
        "steps",
        "Best validation loss so far for different numbers of training and validation steps in turn (appendix).",
        select_steps,
        draw,
    ),
    Figure(
        "scales",
        "Best validation loss so far for different scales σ, fixed (λ moves by steps at λ) and tuned (at λ+ε).",
        select_scales,
        draw,
    ),
)
