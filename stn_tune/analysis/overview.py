"""overview: several tasks at a glance, with a panel of curves and three columns of a table for each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from stn_tune.analysis import plots, render
from stn_tune.analysis.curves import curves, objective
from stn_tune.analysis.labels import literal, metric_title, parse
from stn_tune.analysis.order import BUILT_ON, in_order, title
from stn_tune.analysis.style import label_ends, note, panels, save, styled
from stn_tune.analysis.tables import Table, table, with_intervals
from stn_tune.atomic import write_atomic
from stn_tune.errors import AnalysisError

FORMATS = ("png", "svg")


@dataclass
class Overview:
    """Methods on several tasks: ``figure`` has a panel for each task, ``section`` is the table."""

    figure: Figure
    section: render.Section

    def to_markdown(self) -> str:
        return render.markdown([self.section])

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """``overview.md``, ``overview.png`` and ``overview.svg``."""
        page = Path(folder, "overview.md")
        try:
            paths = save(self.figure, Path(folder), "overview", FORMATS)
            write_atomic(page, self.to_markdown().encode())
        except OSError as error:
            raise AnalysisError(f"{folder}: cannot write the overview: {error.strerror or error}") from None
        return [page, *paths]


def overview(frames: Mapping[str, pd.DataFrame], reference: str = "stn") -> Overview:
    """Compares methods on several tasks.

    Args:
        frames: what :func:`~stn_tune.analysis.load` gave for each task, by the task's title.
        reference: the method that the others are compared with.

    A method that takes over what another has found (the final values of an STN) is in the table and not in the picture:
    its compute-seconds leave out what finding them cost.
    """
    if not frames:
        raise AnalysisError("an overview needs at least one frame")
    for name, frame in frames.items():
        objective(frame)
        if reference not in set(frame["method"]):
            raise AnalysisError(f"{name}: there is no {reference} to compare the others with")
    return Overview(_picture(frames, None), _section(frames, reference))


@styled
def _picture(frames: Any, _: object) -> Figure:
    figure, axes = panels(len(frames), width=5.4, height=3.1)
    about: dict[str, list[str]] = {}
    labels = []
    for ax, (name, frame) in zip(axes, frames.items(), strict=True):
        searching = [label for label in in_order(frame["method"]) if parse(label).method not in BUILT_ON]
        found = curves(frame[frame["method"].isin(searching)])
        words, ends = plots.draw_lines(found, ax)
        ax.set_xlabel("compute-seconds")
        ax.set_ylabel(f"best {metric_title(frame, _config(frame))}")
        ax.set_title(literal(name), fontweight="bold")
        about.setdefault("; ".join([*words, *found.notes]), []).append(name)
        labels.append((ax, ends))
    note(figure, _by_task(about))
    label_ends(*labels)
    return figure


def _section(frames: Mapping[str, pd.DataFrame], reference: str) -> render.Section:
    tables = {name: table(frame, reference) for name, frame in frames.items()}
    methods = in_order(method for made in tables.values() for method in made.long["method"])
    seeds = [made.long.drop_duplicates("method").set_index("method")["n"] for made in tables.values()]
    columns = {
        "method": {method: title(method) for method in methods},
        "seeds": {method: _counts([int(n.get(method, 0)) for n in seeds]) for method in methods},
    }
    for name, made in tables.items():
        mode = objective(frames[name])[1]
        columns |= {f"{name}: {column}": cells for column, cells in _columns(made, reference, mode).items()}
    about: dict[str, list[str]] = {}
    for name, frame in frames.items():
        about.setdefault(_conditions(frame), []).append(name)
    notes = [
        "Mean ± half of the 95 % t-interval over seeds; test values are those at the best validation value, which "
        "alone selects; bold: the best of each column, without methods that take over what another has found, or have "
        f"fewer seeds than {title(reference)}, so that their mean is over other seeds than its own. As good: "
        f"the median compute-seconds until {title(reference)} was as good as the method ended / until the method "
        "itself was; in brackets, if not on all, on how many of the seeds.",
        _by_task(about),
    ]
    rows = [[cells.get(method, render.NONE) for cells in columns.values()] for method in methods]
    return render.Section("Results at equal budgets", list(columns), rows, notes)


def _columns(made: Table, reference: str, mode: str) -> dict[str, dict[str, str]]:
    """The value that selects, its test value, and when the reference was as good: cells by method."""
    columns = {}
    main = made.long["metric"].iloc[0]
    for split, part in made.long[made.long["metric"] == main].groupby("split", sort=False):
        seeds = part.set_index("method")["n"]
        own = part[~part["method"].isin(BUILT_ON) & (part["n"] >= seeds[reference])].set_index("method")["mean"]
        best = own.idxmin() if mode == "min" else own.idxmax()
        cells = dict(zip(part["method"], with_intervals(part["mean"], part["low"], part["high"]), strict=True))
        columns[f"{split} {main}"] = cells | {best: f"**{cells[best]}**"}
    columns[f"{title(reference)} as good / itself"] = {row.method: _times(row) for row in made.times.itertuples()}
    return columns


def _counts(seeds: list[int]) -> str:
    """ "5", or one number for each task where they differ: "3, 5"."""
    return str(seeds[0]) if len(set(seeds)) == 1 else ", ".join(map(str, seeds))


def _times(row: Any) -> str:
    """ "59 s / 429 s"; "never / 130 s (1 of 3)" where the median seed did not get there."""
    reference = f"{render.seconds(row.reference_s)} s" if np.isfinite(row.reference_s) else "never"
    some = "" if row.reached == row.n else f" ({row.reached} of {row.n})"
    return f"{reference} / {render.seconds(row.own_s)} s{some}"


def _config(frame: pd.DataFrame) -> dict[str, Any]:
    return next(iter(frame.attrs.get("configs", [])), {})


def _conditions(frame: pd.DataFrame) -> str:
    """What a run had to work with, as far as its logs say: "preset small, 600 compute-seconds per method and seed"."""
    config = _config(frame)
    facts = [f"Preset {config['preset']}"] if "preset" in config else []
    facts += [f"{config['budget_s']:g} compute-seconds per method and seed"] if "budget_s" in config else []
    facts += [f"{config['cpus']:g} CPU per trial"] if "cpus" in config else []
    machines = list(dict.fromkeys(_machine(go) for go in config.get("goes", ())))
    facts += [" or ".join(filter(None, machines))] if any(machines) else []
    return ", ".join(facts) or "No config.json: budget and machine are unknown"


def _machine(go: Mapping[str, Any]) -> str:
    """Where one go of a run was made: "AMD EPYC with 2 cores, no GPU, torch 2.13.0+cpu, ray 2.60.0"."""
    machine, versions = go.get("machine", {}), go.get("versions", {})
    facts = [f"{machine['cpu']} with {machine['cores']} cores"] if {"cpu", "cores"} <= set(machine) else []
    facts += [", ".join(machine["gpus"]) or "no GPU"] if "gpus" in machine else []
    return ", ".join([*facts, *(f"{name} {versions[name]}" for name in ("torch", "ray") if name in versions)])


def _by_task(about: Mapping[str, list[str]]) -> str:
    """What holds for all tasks once, what differs with the tasks it holds for."""
    if len(about) == 1:
        return next(iter(about))
    return ". ".join(f"{' and '.join(names)}: {words}" for words, names in about.items())
