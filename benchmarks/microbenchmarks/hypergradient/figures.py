"""Figures of measured hypergradients, from the checkpoints alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from benchmarks.microbenchmarks.hypergradient.agreement import CONCLUSIVE, agreement
from benchmarks.microbenchmarks.hypergradient.checkpoints import Checkpoint
from benchmarks.microbenchmarks.hypergradient.tables import NAMES, theory_ratios
from stn_tune.analysis.figures.seeds import parts
from stn_tune.analysis.figures.style import note, save, styled
from stn_tune.analysis.render import number
from stn_tune.plotting import GREY, PALETTE, STYLES, LineEnd, label_ends, look, new_figure, panels
from stn_tune.record import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

MARKERS = "osD^v<>P"
SELF = Style(GREY, "dotted")


def save_figures(checkpoints: Sequence[Checkpoint], folder: Path, formats: Sequence[str] = ("svg",)) -> list[Path]:
    """``gradients`` and ``cosine``; for the theory task, which has one hyperparameter, ``ratios``."""
    if checkpoints[0].settings["task"] == "theory":
        return save(draw_ratios(select_ratios(checkpoints)), folder, "ratios", formats)
    frame = select(checkpoints)
    gradients, cosine = draw_gradients(frame), draw_cosine(frame)
    return [*save(gradients, folder, "gradients", formats), *save(cosine, folder, "cosine", formats)]


def select(checkpoints: Sequence[Checkpoint]) -> pd.DataFrame:
    """A row per checkpoint and hyperparameter, with the checkpoint's agreement in each."""
    rows: list[dict[str, Any]] = []
    for c in checkpoints:
        r = agreement(c)
        about = {"variant": c.variant, "seed": c.seed, "epoch": c.epoch, "conclusive": r.conclusive}
        about |= {"cosine": r.cosine, "low": r.low, "high": r.high, "itself": r.itself}
        for k, name in enumerate(c.values):
            own = {"truth": r.truth.mean[k], "truth_error": r.truth.error[k]}
            own |= {"estimate": r.estimate.mean[k], "estimate_error": r.estimate.error[k]}
            rows.append({**about, "panel": (c.variant, c.seed, c.epoch), "name": name, **own})
    frame = pd.DataFrame(rows)
    s = checkpoints[0].settings
    frame.attrs = {
        "how": f"{s['task']}, preset {s['preset']}; truth: central differences of continued training, passes: "
        f"{s['passes']}, at λ ± {s['step']:g}, repeats: {s['repeats']}",
    }
    return frame


@styled
def draw_gradients(frame: pd.DataFrame) -> Picture:
    """A panel per checkpoint: the truth against the estimate, a point per hyperparameter."""
    groups = parts(frame, "panel")
    figure, axes = panels(len(groups), columns=min(3, frame["epoch"].nunique()), width=3.3, height=2.7)
    names = list(dict.fromkeys(frame["name"]))
    for ax, ((variant, seed, epoch), group) in zip(axes, groups, strict=True):
        for row in group.itertuples():
            k = names.index(str(row.name))
            ax.errorbar(
                row.truth,
                row.estimate,
                xerr=_length(row.truth_error),
                yerr=_length(row.estimate_error),
                fmt=MARKERS[k // len(PALETTE) % len(MARKERS)],
                color=PALETTE[k % len(PALETTE)],
                ms=5,
                elinewidth=1.0,
                label=str(row.name).replace("_", " "),
            )
        limits = ax.get_xlim(), ax.get_ylim()
        ax.axhline(0.0, color=GREY, lw=0.8)
        ax.axvline(0.0, color=GREY, lw=0.8)
        ax.axline((0.0, 0.0), slope=1.0, color=GREY, lw=0.9, ls=":")
        ax.set(xlim=limits[0], ylim=limits[1])
        doubt = "" if group["conclusive"].all() else "\ntruth too uncertain to conclude"
        name = NAMES.get(variant, variant)
        ax.set_title(f"{name}, seed {seed}, epoch {epoch}\ncosine {number(group['cosine'].iloc[0], 2)}{doubt}")
        ax.locator_params(axis="x", nbins=3)
        ax.set_xlabel("truth, ∂F/∂λ")
        ax.set_ylabel("estimate")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper")
    note(
        figure, f"{frame.attrs['how']}; bars: one standard error; dotted: estimate = truth; axes differ between panels"
    )
    return figure


@styled
def draw_cosine(frame: pd.DataFrame) -> Picture:
    """The cosine over epochs, a line per algorithm, beside the cosine of the truth with itself."""
    points = frame.drop_duplicates("panel")
    figure = new_figure(5.6, 3.4)
    ax = figure.subplots()
    ends = []
    shift = 0.012 * max(1, points["epoch"].max() - points["epoch"].min())
    for k, (variant, group) in enumerate(parts(points, "variant")):
        style = STYLES[k % len(STYLES)]
        group = group.assign(epoch=group["epoch"] + k * shift)  # bars of several algorithms side by side
        for _, run in parts(group, "seed"):
            bars = [_length(run["cosine"] - run["low"]), _length(run["high"] - run["cosine"])]
            ax.errorbar(
                run["epoch"], run["cosine"], yerr=bars, fmt="none", elinewidth=0.8, color=style.colour, alpha=0.5
            )
            sure, unsure = run[run["conclusive"]], run[~run["conclusive"]]
            ax.plot(sure["epoch"], sure["cosine"], "o", ms=5, color=style.colour)
            ax.plot(unsure["epoch"], unsure["cosine"], "o", ms=5, mfc="white", color=style.colour)
        mean = group.groupby("epoch")["cosine"].mean().dropna()
        ax.plot(mean.index, mean, lw=1.8, **look(style))
        ends += _end(mean, variant, style)
    itself = points.groupby("epoch")["itself"].mean().dropna()
    ax.plot(itself.index, itself, lw=1.3, **look(SELF))
    ends += _end(itself, "truth with itself", SELF)
    ax.axhline(0.0, color=GREY, lw=0.8)
    ax.set(ylim=(-1.05, 1.05), xlabel="epoch", ylabel="cosine of estimate and truth")
    ax.set_xticks(sorted(set(points["epoch"])))
    seeds = points["seed"].nunique()
    lines = "one seed" if seeds == 1 else f"lines: mean of n = {seeds} seeds, points: one seed each"
    note(
        figure,
        f"{frame.attrs['how']}; {lines}; bars: 95 % bootstrap interval over repeats and validation batches; truth with "
        f"itself: between halves of the repeats; hollow: where that is below {CONCLUSIVE:g} (inconclusive)",
    )
    label_ends((ax, ends))
    return figure


def select_ratios(checkpoints: Sequence[Checkpoint]) -> pd.DataFrame:
    """A row per variant of the theory task, epoch, and λ held or moving: median and range of estimate / truth."""
    rows = [
        {
            "variant": _switched(*row),
            "moving": moving,
            "epoch": epoch,
            "low": min(v),
            "middle": np.median(v),
            "high": max(v),
        }
        for row, found in theory_ratios(checkpoints).items()
        for (moving, epoch), v in found.items()
    ]
    frame = pd.DataFrame(rows)
    s, n = checkpoints[0].settings, len({c.seed for c in checkpoints})
    seeds = "one seed" if n == 1 else f"median and range of n = {n} seeds"
    frame.attrs = {"how": f"theory, preset {s['preset']}; truth: closed form; {seeds}"}
    return frame


@styled
def draw_ratios(frame: pd.DataFrame) -> Picture:
    """A row per variant, a mark per epoch; λ held and moving side by side."""
    variants, epochs = list(dict.fromkeys(frame["variant"])), sorted(set(frame["epoch"]))
    groups = sorted(parts(frame, "moving"), key=lambda group: bool(group[0]))
    figure, axes = panels(len(groups), width=3.6, height=0.32 * len(variants) + 1.0, sharey=True)
    for ax, (moving, group) in zip(axes, groups, strict=True):
        ax.axvline(1.0, color=GREY, lw=0.9, ls=":")
        for k, epoch in enumerate(epochs):
            own = group[group["epoch"] == epoch]
            rows = [variants.index(name) + 0.22 * (k - (len(epochs) - 1) / 2) for name in own["variant"]]
            ax.errorbar(
                own["middle"],
                rows,
                xerr=[own["middle"] - own["low"], own["high"] - own["middle"]],
                label=f"epoch {epoch}",
                fmt=MARKERS[k],
                color=PALETTE[k],
                ms=5,
                elinewidth=1.0,
            )
        ax.set_title("λ moves in small steps" if moving else "λ is held")
        ax.set_xlabel("estimate / truth (1 is exact)")
        ax.set_yticks(range(len(variants)), variants)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper")
    note(figure, frame.attrs["how"])
    return figure


def _switched(algorithm: str, *switches: bool | None) -> str:
    """A variant's name, with the switches that are on."""
    names = ("separate", "centred", "linearised")
    own = NAMES.get(algorithm, algorithm)
    if switches[0] is None:
        return own
    return f"{own}: {', '.join(name for name, on in zip(names, switches, strict=True) if on) or 'none of the three'}"


def _end(line: pd.Series, text: str, style: Style) -> list[LineEnd]:
    return [LineEnd(float(line.index[-1]), float(line.iloc[-1]), text, style)] if len(line) else []


def _length(error: Any) -> Any:
    """The length of an error bar: never negative; 0 where unknown."""
    return pd.Series(error).fillna(0.0).clip(lower=0.0).to_numpy()
