"""Hyperparameters over the course of training: what the self-tuning network did to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from stn_tune.analysis.labels import (
    across_seeds,
    groups,
    hyperparameters,
    method_title,
    of_label,
    self_tuned,
    space_of,
    title,
    variants,
    varied,
)
from stn_tune.analysis.style import (
    DASHES,
    PALETTE,
    End,
    Line,
    NotThere,
    asks_for_log,
    label_ends,
    method_lines,
    note,
    panels,
    ramp,
    styled,
)


def draw_seeds(ax: Any, values: pd.DataFrame, line: Line, text: str, drawstyle: str = "default") -> End:
    """A thin line per experiment, and their mean, thick, as far as all of them got; where it ends."""
    look = {"color": line.colour, "ls": line.dash, "drawstyle": drawstyle}
    several = values.shape[1] > 1
    for experiment in values:
        one = values[experiment].dropna()
        ax.plot(one.index, one, lw=0.7 if several else 1.8, alpha=0.45 if several else 1.0, **look)
    mean = values.dropna().mean(axis=1)
    if several:
        ax.plot(mean.index, mean, lw=2.2, **look)
    last = mean if len(mean) else values.mean(axis=1)
    return End(float(last.index[-1]), float(last.iloc[-1]), text, line)


def seeds_note(count: int, what: str = "") -> str:
    """What thin and thick lines are, and how many."""
    lines = "one seed" if count == 1 else f"thick: mean, as long as all of n = {count} seeds train; thin: one seed each"
    return f"{what}{lines}"


def _tuned(rows: pd.DataFrame) -> list[str]:
    """The hyperparameters that were tuned online: those with a scale."""
    held = hyperparameters(rows)
    names = [name for name in hyperparameters(rows, "scale/") if name in held]
    if not names:
        raise NotThere("no trial reports both hp/<name> and scale/<name>")
    return names


def _lines(names: list[str]) -> dict[str, Line]:
    styles = [Line(colour, dash) for dash in DASHES for colour in PALETTE]
    return {name: styles[k % len(styles)] for k, name in enumerate(names)}


@styled
def schedules(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """The hyperparameter schedules the STN found, epoch by epoch (the paper's Figures 3b, 3c and 5)."""
    rows = self_tuned(frame)
    names = _tuned(rows)
    if all(rows[f"hp/{name}"].nunique() == 1 for name in names):
        raise NotThere("every hp/<name> keeps its initial value: λ was not tuned")
    parts = groups(rows, names, config)
    figure, axes = panels(len(parts))
    labelled = []
    for ax, group in zip(axes, parts, strict=True):
        lines = _lines(list(group.names))
        series = {name: across_seeds(rows, "epoch", f"hp/{name}") for name in group.names}
        drawstyle = "steps-post" if group.axis == "count" else "default"
        ends = [draw_seeds(ax, series[name], lines[name], title(name), drawstyle) for name in group.names]
        if group.title != ends[0].text:
            labelled.append((ax, ends))
        ax.set_title(group.title)
        ax.set_xlabel("epoch")
        ax.set_ylabel(group.axis)
        values = pd.concat(series.values())
        if group.axis == "coefficient" and asks_for_log(values):
            ax.set_yscale("log")
        elif values.min().min() >= 0:
            ax.set_ylim(bottom=0)
        if group.axis == "count":
            ax.yaxis.get_major_locator().set_params(integer=True)
    label_ends(*labelled)
    note(figure, seeds_note(rows["experiment"].nunique(), f"{method_title(rows['method'].iloc[0])}; "))
    return figure


@styled
def sigma(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """The scale σ of the perturbations of λ, epoch by epoch."""
    rows = self_tuned(frame)
    names = _tuned(rows)
    if all(rows[f"scale/{name}"].nunique() == 1 for name in names):
        raise NotThere("every scale/<name> keeps its initial value: σ was not tuned")
    parts = groups(rows, names, config)
    shared = [(g.title, list(g.names)) for g in parts if g.axis != "count"]
    counts = [name for g in parts if g.axis == "count" for name in g.names]
    shared += [("counts", counts)] if counts else []
    figure, axes = panels(len(shared), sharey=True)
    labelled = []
    for ax, (heading, members) in zip(axes, shared, strict=True):
        lines = _lines(members)
        ends = [
            draw_seeds(ax, across_seeds(rows, "epoch", f"scale/{name}"), lines[name], title(name)) for name in members
        ]
        labelled.append((ax, ends))
        ax.set_title(heading)
        ax.set_xlabel("epoch")
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel("σ, on the scale of λ")
    if asks_for_log(rows[[f"scale/{name}" for name in names]]):
        for ax in axes:
            ax.set_yscale("log")
    label_ends(*labelled)
    note(figure, seeds_note(rows["experiment"].nunique(), f"{method_title(rows['method'].iloc[0])}; "))
    return figure


@styled
def by_start(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """Schedules found from different initial values (the paper's Figure 1)."""
    chosen = {label: parsed.settings["start"] for label, parsed in variants(frame, "start").items()}
    rows = frame[frame["method"].isin(chosen)]
    names = _tuned(rows)
    own = space_of(config).get(names[0], {}).get("init")
    if own is not None and len(names) == 1 and (frame["method"] == "stn").any():
        chosen = dict(sorted([("stn", own), *chosen.items()], key=lambda item: item[1]))
        rows = frame[frame["method"].isin(chosen)]
    figure, axes = panels(len(names), width=5.4, height=3.4)
    labelled = []
    for ax, name in zip(axes, names, strict=True):
        ends = []
        for (label, start), colour in zip(chosen.items(), ramp(len(chosen)), strict=True):
            values = across_seeds(of_label(rows, label), "epoch", f"hp/{name}")
            ends.append(draw_seeds(ax, values, Line(colour, "-"), f"from {start:g}"))
        labelled.append((ax, ends))
        ax.set_xlabel("epoch")
        ax.set_ylabel(title(name))
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]) if rows[f"hp/{name}"].min() < 0 else 0)
    label_ends(*labelled)
    note(figure, seeds_note(rows.groupby("method")["experiment"].nunique().max()))
    return figure


@styled
def perturbed(frame: Any, config: Mapping[str, Any] | None) -> Figure:
    """Perturbed values beside the schedule of the STN, step by step (appendix; output dropout in the paper)."""
    labels = [label for label in ("gaussian", "sinusoid", "stn") if (frame["method"] == label).any()]
    noisy = [label for label in labels if label != "stn"]
    if not noisy:
        raise NotThere('no runs with the label "gaussian" or "sinusoid"')
    moving = varied(frame[frame["method"].isin(noisy)])
    if not moving:
        raise NotThere("no hyperparameter changes in the runs gaussian and sinusoid")
    name = "output_dropout" if "output_dropout" in moving else moving[0]
    figure, axes = panels(len(labels), columns=3, width=3.4, height=2.8, sharey=True)
    lines = method_lines(labels)
    for ax, label in zip(axes, labels, strict=True):
        values = across_seeds(of_label(frame, label), "step", f"hp/{name}")
        for k, experiment in enumerate(values):
            one = values[experiment].dropna()
            ax.plot(one.index, one, color=lines[label].colour, lw=1.4 if k == 0 else 0.7, alpha=1.0 if k == 0 else 0.4)
        ax.set_title(f"{method_title(label)} (n = {values.shape[1]})")
        ax.set_xlabel("training step")
    axes[0].set_ylabel(title(name))
    note(figure, "one line per seed, the first one thick; values as reported, once per epoch")
    return figure
