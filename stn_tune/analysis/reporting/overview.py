"""overview: several tasks at a glance, with a panel of curves and three columns of a table for each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from stn_tune.analysis import render
from stn_tune.analysis.curves import curves
from stn_tune.analysis.figures.style import label_ends, note, panels, save, styled
from stn_tune.analysis.figures.time import curve_frame, draw_lines, searching
from stn_tune.analysis.logs import Upgrade
from stn_tune.analysis.results import Results, load, objective
from stn_tune.analysis.selection import literal
from stn_tune.analysis.tables import Table, table, with_intervals
from stn_tune.atomic import write_atomic
from stn_tune.errors import AnalysisError
from stn_tune.record import Invocation, RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FORMATS = ("png", "svg")


@dataclass
class Overview:
    """Methods on several tasks: ``figure`` has a panel for each task, ``section`` is the table."""

    figure: Picture
    section: render.Section

    def to_markdown(self) -> str:
        """The table."""
        return render.markdown([self.section])

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Writes ``overview.md``, ``overview.png`` and ``overview.svg``."""
        page = Path(folder, "overview.md")
        try:
            paths = save(self.figure, Path(folder), "overview", FORMATS)
            write_atomic(page, self.to_markdown().encode())
        except OSError as error:
            raise AnalysisError(f"{folder}: cannot write the overview: {error.strerror or error}") from None
        return [page, *paths]


def load_tasks(paths: Sequence[str | os.PathLike[str]], upgrade: Upgrade | None = None) -> dict[str, Results]:
    """One folder of results for each task, by the task's title, or the folder's name where no record has one."""
    tasks: dict[str, Results] = {}
    for path in paths:
        results = Results.of(load(path, upgrade=upgrade))
        title = Path(path).name if results.record is None else results.record.task.title
        if title in tasks:
            raise AnalysisError(f"{path}: a second folder of {title}; an overview has one for each task")
        tasks[title] = results
    return tasks


def overview(tasks: Mapping[str, pd.DataFrame | Results], reference: str | None = None) -> Overview:
    """Compares methods on several tasks.

    Args:
        tasks: what :func:`~stn_tune.analysis.load` returned for each task, by the task's title.
        reference: the label that the others are compared with; by default the one that tunes online in the first task.

    Methods that build on another's results are in the table but not in the figure: their compute-seconds leave out
    what those results cost.
    """
    if not tasks:
        raise AnalysisError("an overview needs the results of at least one task")
    found = {title: Results.of(source).compared for title, source in tasks.items()}
    reference = next(iter(found.values())).reference(reference)
    for title, results in found.items():
        objective(results)
        if reference not in results.labels:
            raise AnalysisError(f"{title}: no {reference} to compare with; known: {', '.join(results.labels)}")
    return Overview(_draw(_select(found)), _section(found, reference))


def _select(tasks: Mapping[str, Results]) -> pd.DataFrame:
    """The curves of every task, with the column ``task``."""
    chosen = {title: curve_frame(curves(searching(results))) for title, results in tasks.items()}
    texts = {title: dict(part.attrs) for title, part in chosen.items()}
    for part in chosen.values():
        part.attrs = {}
    frame = pd.concat([part.assign(task=title) for title, part in chosen.items()], ignore_index=True)
    frame.attrs = {"tasks": texts}
    return frame


@styled
def _draw(frame: pd.DataFrame) -> Picture:
    texts = frame.attrs["tasks"]
    figure, axes = panels(len(texts), width=5.4, height=3.1)
    about: dict[str, list[str]] = {}
    labels = []
    for ax, (title, attrs) in zip(axes, texts.items(), strict=True):
        part = frame[frame["task"] == title]
        part.attrs = attrs
        words, ends = draw_lines(part, ax)
        ax.set_xlabel("compute-seconds")
        ax.set_ylabel(attrs["ylabel"])
        ax.set_title(literal(title), fontweight="bold")
        about.setdefault("; ".join([*words, *attrs["notes"]]), []).append(title)
        labels.append((ax, ends))
    note(figure, _by_task(about))
    label_ends(*labels)
    return figure


def _section(tasks: Mapping[str, Results], reference: str) -> render.Section:
    tables = {title: table(results, reference) for title, results in tasks.items()}
    titles: dict[str, str] = {}
    for results in tasks.values():
        titles |= {label: results.title(label) for label in results.labels if label not in titles}
    first = next(iter(tasks.values()))
    labels = sorted(titles, key=lambda label: _place(tasks.values(), label))
    name = titles[reference]
    seeds = [made.long.drop_duplicates("label").set_index("label")["n"] for made in tables.values()]
    columns = {
        "method": titles,
        "seeds": {label: _counts([int(n.get(label, 0)) for n in seeds]) for label in labels},
    }
    for title, made in tables.items():
        cells_of = _columns(tasks[title], made, reference, name)
        columns |= {f"{title}: {column}": cells for column, cells in cells_of.items()}
    about: dict[str, list[str]] = {}
    for title, results in tasks.items():
        about.setdefault(_conditions(results.record), []).append(title)
    main = objective(first)[0].removeprefix("val_").replace("_", " ")
    notes = [
        "Mean ± half of the 95 % t-interval over seeds. Test values are taken at the best validation value; nothing "
        "else selects. Bold: best of each column, excluding methods that build on another's results or have fewer "
        f"seeds than {name}. Time to target: median compute-seconds for {name} / for the method itself to reach the "
        f"method's final validation {main}; in brackets, on how many seeds {name} reaches it, if not on all.",
        _by_task(about),
    ]
    rows = [[cells.get(label, render.NONE) for cells in columns.values()] for label in labels]
    return render.Section("Results at equal budgets", list(columns), rows, notes)


def _place(tasks: Any, label: str) -> tuple[int, int]:
    """Labels in the order of the first task that has them."""
    for k, results in enumerate(tasks):
        if label in results.labels:
            return k, results.labels.index(label)
    raise AssertionError(label)


def _columns(results: Results, made: Table, reference: str, name: str) -> dict[str, dict[str, str]]:
    """The value that selects, its test value, and the times to target: cells by label."""
    columns = {}
    main = made.long["metric"].iloc[0]
    building = {label for label in results.labels if results.method(label).builds_on is not None}
    for split, part in made.long[made.long["metric"] == main].groupby("split", sort=False):
        seeds = part.set_index("label")["n"]
        own = part[~part["label"].isin(building) & (part["n"] >= seeds[reference])].set_index("label")["mean"]
        best = own.idxmin() if results.mode == "min" else own.idxmax()
        cells = dict(zip(part["label"], with_intervals(part["mean"], part["low"], part["high"]), strict=True))
        columns[f"{split} {main}"] = cells | {best: f"**{cells[best]}**"}
    columns[f"time to target (s), {name} / method"] = {row.label: _times(row) for row in made.times.itertuples()}
    return columns


def _counts(seeds: list[int]) -> str:
    """ "5", or one number for each task where they differ: "3, 5"."""
    return str(seeds[0]) if len(set(seeds)) == 1 else ", ".join(map(str, seeds))


def _times(row: Any) -> str:
    """ "59.0 / 429"; "never / 130 (1 of 3)" where the median seed does not reach the target."""
    reference = render.seconds(row.reference_s) if np.isfinite(row.reference_s) else "never"
    some = "" if row.reached == row.n else f" ({row.reached} of {row.n})"
    return f"{reference} / {render.seconds(row.own_s)}{some}"


def _conditions(record: RunRecord | None) -> str:
    """What a run had to work with: "Preset small, 600 compute-seconds per method and seed, …"."""
    if record is None:
        return "No record.json: budget and machine are unknown"
    facts = [f"Preset {record.preset}"] if record.preset else []
    facts += [f"{record.budget_s:g} compute-seconds per method and seed"] if record.budget_s else []
    facts += [f"{record.cpus:g} CPU per trial"] if record.cpus else []
    facts += [f"{record.gpus:g} GPU per trial"] if record.gpus else []
    machines = list(dict.fromkeys(_machine(invocation) for invocation in record.invocations))
    facts += [" or ".join(filter(None, machines))] if any(machines) else []
    return ", ".join(facts)


def _machine(invocation: Invocation) -> str:
    """Where it ran: "AMD EPYC with 2 cores, no GPU, torch 2.13.0+cpu, ray 2.60.0"."""
    machine, versions = invocation.machine, invocation.versions
    facts = [f"{machine['cpu']} with {machine['cores']} cores"] if {"cpu", "cores"} <= set(machine) else []
    facts += [", ".join(machine["gpus"]) or "no GPU"] if "gpus" in machine else []
    return ", ".join([*facts, *(f"{name} {versions[name]}" for name in ("torch", "ray") if name in versions)])


def _by_task(about: Mapping[str, list[str]]) -> str:
    """What holds for all tasks once; what differs, with the tasks it holds for."""
    if len(about) == 1:
        return next(iter(about))
    return ". ".join(f"{' and '.join(titles)}: {words}" for words, titles in about.items())
