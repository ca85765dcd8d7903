"""overview: several tasks at a glance: curves of test and validation values, a table, and profiles over all tasks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from stn_tune.analysis import render
from stn_tune.analysis.across_tasks import summary_across
from stn_tune.analysis.comparison import leading
from stn_tune.analysis.curves import curves
from stn_tune.analysis.figures.dark import dark_svg
from stn_tune.analysis.figures.profiles import draw_profiles, select_profiles
from stn_tune.analysis.figures.style import note, save, styled
from stn_tune.analysis.figures.time import curve_frame, draw_lines, searching
from stn_tune.analysis.logs import Upgrade
from stn_tune.analysis.reporting.headline import headline
from stn_tune.analysis.results import PathLike, Results, Source, load, objective
from stn_tune.analysis.selection import literal
from stn_tune.analysis.storage import check_folder
from stn_tune.analysis.tables import Table, table, with_intervals
from stn_tune.atomic import write_atomic
from stn_tune.errors import AnalysisError, MissingData
from stn_tune.plotting import label_ends, panels
from stn_tune.record import Invocation, RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FORMATS = ("png", "svg")


@dataclass
class Overview:
    """Methods on several tasks."""

    figure: Picture
    """For each task a panel of test values, where there are any, and one of the values that select."""
    section: render.Section
    """The table."""
    short: render.Section
    """Its columns for a first look: test values and times to target, of the methods that start from nothing."""
    claims: Sequence[str]
    """What came out, a sentence for each task."""
    profiles: Picture | None = None
    """Performance profiles, of two or more tasks."""
    across: render.Section | None = None
    """All tasks together, of two or more."""

    def to_markdown(self) -> str:
        """The tables, and links to the figures."""
        links = ["[curves](overview.png)", *(["[performance profiles](profiles.png)"] if self.profiles else [])]
        sections = [self.section, *([self.across] if self.across else [])]
        return f"{render.markdown(sections)}\nFigures: {', '.join(links)}\n"

    def summary(self) -> str:
        """The claims and the short table, as Markdown."""
        return "\n\n".join([*self.claims, render.markdown([self.short])])

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Writes ``overview.md`` and ``summary.md``; ``overview`` and ``profiles`` as png and svg, the svg for dark
        paper, too.
        """
        pages = {Path(folder, "overview.md"): self.to_markdown(), Path(folder, "summary.md"): self.summary()}
        try:
            check_folder(Path(folder), "the overview")
            paths = _save(self.figure, Path(folder), "overview")
            paths += _save(self.profiles, Path(folder), "profiles") if self.profiles else []
            for page, text in pages.items():
                write_atomic(page, text.encode())
        except OSError as error:
            raise AnalysisError(f"{folder}: cannot write the overview: {error.strerror or error}") from None
        return [*pages, *paths]


def _save(figure: Picture, folder: Path, name: str) -> list[Path]:
    """The figure's files, and the one for dark paper."""
    paths = save(figure, folder, name, FORMATS)
    dark = folder / f"{name}-dark.svg"
    write_atomic(dark, dark_svg((folder / f"{name}.svg").read_text("utf-8")).encode())
    return [*paths, dark]


def load_tasks(
    paths: Sequence[PathLike],
    upgrade: Upgrade | None = None,
    *,
    metric: str | None = None,
    mode: str | None = None,
    seed: str | None = None,
) -> dict[str, Results]:
    """One folder of results for each task, by the task's title, or the folder's name where no record has one."""
    tasks: dict[str, Results] = {}
    for path in paths:
        results = Results.of(load(path, metric=metric, mode=mode, seed=seed, upgrade=upgrade))
        title = Path(path).name if results.record is None else results.record.task.title
        if title in tasks:
            raise AnalysisError(f"{path}: a second folder of {title}; an overview has one for each task")
        tasks[title] = results
    return tasks


def overview(
    tasks: Mapping[str, Source] | Sequence[PathLike],
    reference: str | None = None,
    *,
    metric: str | None = None,
    mode: str | None = None,
) -> Overview:
    """Compares methods on several tasks.

    Args:
        tasks: what :func:`~stn_tune.analysis.load` returned, or paths that it reads, for each task, by the task's
            title; or a folder per task.
        reference: the label that the others are compared with; by default the one that tunes online in the first task.
        metric, mode: those of all tasks; by default each task's own.

    Methods that build on another's results are in the table but not in the figure: their compute-seconds leave out
    what those results cost.
    """
    if not tasks:
        raise AnalysisError("an overview needs the results of at least one task")
    named = tasks if isinstance(tasks, Mapping) else load_tasks(tasks, metric=metric, mode=mode)
    found = {title: Results.of(source, metric, mode).compared for title, source in named.items()}
    reference = next(iter(found.values())).reference(reference)
    for title, results in found.items():
        found[title] = Results.of(results, *_objective(title, results))
        if reference not in results.labels:
            raise AnalysisError(f"{title}: no {reference} to compare with; known: {', '.join(results.labels)}")
    tables = {title: table(results, reference) for title, results in found.items()}
    heads = [headline(results, tables[title]) for title, results in found.items()]
    section = _section(found, tables, reference)
    claims = [head.claim for head in heads if head is not None]
    made = Overview(_draw(_select(found)), section, _short(section, found), claims)
    try:
        own = {title: searching(results) for title, results in found.items()}
        made.profiles = draw_profiles(select_profiles(own))
        made.across = _across(own, reference)
    except MissingData:
        return made
    return made


def _across(tasks: Mapping[str, Results], reference: str) -> render.Section:
    """The methods that all tasks have, over the runs of all tasks."""
    first = next(iter(tasks.values()))
    found: Any = summary_across(tasks, reference)
    name = first.title(reference)
    rows = [
        [
            first.title(str(row.label)),
            str(row.n),
            render.within(row.iqm, row.low, row.high, 2),
            render.number(row.median, 2),
            render.within(row.better, row.better_low, row.better_high, 2),
        ]
        for row in found.itertuples()
    ]
    columns = ["method", "runs", "IQM of regret", "median regret", f"probability of beating {name}"]
    notes = [
        "Normalised regret: 0 is the best run of its task and 1 the worst, by test value where there is one. IQM: "
        "interquartile mean, with its 95 % stratified bootstrap interval. Probability: that a run of the method beats "
        f"a run of {name} on the same task, ties counting half, averaged over tasks, with its 95 % score interval.",
        f"{' and '.join(tasks)} are {len(tasks)} tasks: the intervals are over seeds, and say nothing about other "
        "tasks.",
    ]
    return render.Section("All tasks together", columns, rows, notes)


def _short(section: render.Section, tasks: Mapping[str, Results]) -> render.Section:
    """The table without what selects, where there are test values, and without methods that build on others."""
    values = [f"{title}: val " for title in tasks if any(c.startswith(f"{title}: test ") for c in section.columns)]
    kept = [k for k, column in enumerate(section.columns) if not column.startswith(tuple(values))]
    building = {
        results.title(label)
        for results in tasks.values()
        for label in results.labels
        if results.method(label).builds_on is not None
    }
    chosen = [r for r, row in enumerate(section.rows) if row[0] not in building]
    rows = [[section.rows[r][k] for k in kept] for r in chosen]
    bold = frozenset((chosen.index(r), kept.index(k)) for r, k in section.bold if r in chosen and k in kept)
    return render.Section(section.title, [section.columns[k] for k in kept], rows, section.notes, bold)


def _objective(title: str, results: Results) -> tuple[str, str]:
    try:
        return objective(results)
    except AnalysisError as error:
        raise AnalysisError(f"{title}: {error}") from None


def _select(tasks: Mapping[str, Results]) -> pd.DataFrame:
    """The curves of every task, test values first; ``panel`` numbers the panels, ``attrs`` has their texts.

    Two tasks share a row, test values above validation values; a single one has both side by side.
    """
    chosen = []
    titles = list(tasks)
    for pair in (titles[k : k + 2] for k in range(0, len(titles), 2)):
        own = {title: searching(tasks[title]) for title in pair}
        firsts = {title: leading(results) for title, results in own.items()}
        shown = [(title, first.column) for title, first in firsts.items() if first.split == "test"]
        for title, column in [*shown, *((title, None) for title in pair)]:
            chosen.append((title, column, curve_frame(curves(own[title], show=column))))
    texts = [
        {"task": title, "split": "test" if column else "validation"} | part.attrs for title, column, part in chosen
    ]
    for _, _, part in chosen:
        part.attrs = {}
    frame = pd.concat([part.assign(panel=k) for k, (_, _, part) in enumerate(chosen)], ignore_index=True)
    frame.attrs = {"panels": texts}
    return frame


@styled
def _draw(frame: pd.DataFrame) -> Picture:
    texts = frame.attrs["panels"]
    figure, axes = panels(len(texts), width=4.8, height=2.55)
    about: dict[str, list[str]] = {}
    labels = []
    for k, (ax, attrs) in enumerate(zip(axes, texts, strict=True)):
        part = frame[frame["panel"] == k]
        part.attrs = attrs
        words, ends = draw_lines(part, ax)
        ax.set_xlabel("compute-seconds")
        ax.set_ylabel(attrs["ylabel"])
        ax.set_title(f"{literal(attrs['task'])}, {attrs['split']} set", fontweight="bold")
        tasks = about.setdefault("; ".join([*words, *attrs["notes"]]), [])
        tasks += [attrs["task"]] if attrs["task"] not in tasks else []
        labels.append((ax, ends))
    note(figure, _by_task(about))
    label_ends(*labels)
    return figure


def _section(tasks: Mapping[str, Results], tables: Mapping[str, Table], reference: str) -> render.Section:
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
    bold = set()
    for title, made in tables.items():
        for column, (cells, best) in _columns(tasks[title], made, reference, name).items():
            bold |= {(labels.index(best), len(columns))} if best else set()
            columns[f"{title}: {column}"] = cells
    about: dict[str, list[str]] = {}
    for title, results in tasks.items():
        about.setdefault(_conditions(results.record), []).append(title)
    main = objective(first)[0].removeprefix("val_").replace("_", " ")
    notes = [
        "Mean ± half of the 95 % t-interval over seeds. Test values are taken at the best validation value; nothing "
        "else selects. Bold (in plain text: an asterisk): best of each column, excluding methods that build on "
        f"another's results or have fewer seeds than {name}. Time to target: median compute-seconds for {name} / for "
        f"the method itself to reach the method's final validation {main}; in brackets, on how many seeds {name} "
        "reaches it, if not on all.",
        _by_task(about),
    ]
    rows = [[cells.get(label, render.NONE) for cells in columns.values()] for label in labels]
    return render.Section("Results at equal budgets", list(columns), rows, notes, frozenset(bold))


def _place(tasks: Any, label: str) -> tuple[int, int]:
    """Labels in the order of the first task that has them."""
    for k, results in enumerate(tasks):
        if label in results.labels:
            return k, results.labels.index(label)
    raise AssertionError(label)


def _columns(results: Results, made: Table, reference: str, name: str) -> dict[str, tuple[dict[str, str], str | None]]:
    """The value that selects, its test value, and the times to target: cells by label, and the best label."""
    columns: dict[str, tuple[dict[str, str], str | None]] = {}
    main = made.long["metric"].iloc[0]
    building = {label for label in results.labels if results.method(label).builds_on is not None}
    for split, part in made.long[made.long["metric"] == main].groupby("split", sort=False):
        seeds = part.set_index("label")["n"]
        own = part[~part["label"].isin(building) & (part["n"] >= seeds[reference])].set_index("label")["mean"]
        best = own.idxmin() if results.mode == "min" else own.idxmax()
        cells = dict(zip(part["label"], with_intervals(part["mean"], part["low"], part["high"]), strict=True))
        columns[f"{split} {main}"] = cells, str(best)
    times = {str(row.label): _times(row) for row in made.times.itertuples()}
    columns[f"time to target (s), {name} / method"] = times, None
    return columns


def _counts(seeds: list[int]) -> str:
    """ "5", or one number for each task where they differ: "3, 5"."""
    return str(seeds[0]) if len(set(seeds)) == 1 else ", ".join(map(str, seeds))


def _times(row: Any) -> str:
    """ "59.0 / 429"; "> 150 / 130 (1 of 3)" where the median seed does not reach the target in its time."""
    reference = render.at_least(row.reference_s, row.watched_s)
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
