"""load: one tidy frame of everything that one or more experiments reported; Results: the frame with its record."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stn_tune.analysis.clocks import with_clocks
from stn_tune.analysis.logs import ExperimentLog, Upgrade, find
from stn_tune.analysis.stats import floats
from stn_tune.analysis.storage import Storage
from stn_tune.analysis.trials import Trial
from stn_tune.errors import AnalysisError
from stn_tune.record import MethodInfo, RunRecord

FIRST_COLUMNS = (
    "experiment", "method", "label", "seed", "compared", "online", "trial", "trial_id", "status",
    "training_iteration", "step", "epoch", "epochs", "elapsed_s", "compute_s", "wall_s", "start_s",
    "val_loss", "best_val_loss", "test_loss",
)  # fmt: skip
OBJECTS = {"experiment", "method", "label", "online", "trial_id", "status"}


@dataclass(frozen=True)
class Results:
    """Everything that was reported, and the record of the run, if a runner wrote one."""

    frame: pd.DataFrame
    """As :func:`load` returns it."""
    record: RunRecord | None = None

    @classmethod
    def of(cls, source: pd.DataFrame | Results) -> Results:
        """Results as they are; a frame with the record in its ``attrs``, and the columns it may lack."""
        if isinstance(source, Results):
            return source
        missing: dict[str, Any] = {}
        if "label" not in source and "method" in source:
            missing["label"] = source["method"]
        if "compared" not in source:
            missing["compared"] = True
        if "online" not in source:
            missing["online"] = [()] * len(source)
        return cls(source.assign(**missing) if missing else source, source.attrs.get("record"))

    def where(self, rows: Any) -> Results:
        """The results of some rows."""
        return Results(self.frame[rows], self.record)

    @property
    def compared(self) -> Results:
        """Without experiments that are only data for figures, unless there are no others."""
        rows = self.frame["compared"].astype(bool)
        return self.where(rows) if rows.any() and not rows.all() else self

    @property
    def metric(self) -> str:
        """The metric that selects."""
        return str(self.frame.attrs.get("metric", "val_loss"))

    @property
    def mode(self) -> str:
        """``"min"`` or ``"max"``."""
        return str(self.frame.attrs.get("mode", "min"))

    @cached_property
    def _methods(self) -> dict[str, str]:
        pairs = self.frame[["label", "method"]].drop_duplicates("label")
        return dict(zip(pairs["label"], pairs["method"], strict=True))

    @cached_property
    def _aside(self) -> set[str]:
        """Labels that are not compared."""
        return set(self.frame.loc[~self.frame["compared"].astype(bool), "label"])

    @property
    def labels(self) -> list[str]:
        """Every label (method and variant), in the order of tables and legends."""
        return self.in_order(self._methods)

    def method(self, label: str) -> MethodInfo:
        """The method of a label."""
        name = self._methods.get(label, label)
        return MethodInfo(name, name) if self.record is None else self.record.method(name)

    def title(self, label: str) -> str:
        """A label as people read it: the method's title, then the variant."""
        info = self.method(label)
        return info.title + label.removeprefix(info.name)

    def in_order(self, labels: Iterable[str]) -> list[str]:
        """The distinct labels in the record's order, then alphabetically; labels that are not compared come last."""
        return sorted(
            set(labels), key=lambda label: (label in self._aside, _place(self.record, self.method(label).name), label)
        )

    def reference(self, given: str | None = None) -> str:
        """The label that others are compared with: as given, else what tunes online, else the first.

        With a record that is its first method that tunes online; the label may be missing if a study has nothing but
        variants of it.
        """
        if given is not None:
            return given
        results = self.compared
        frame = results.frame
        online = set(frame.loc[frame["online"].map(bool).astype(bool), "label"])
        first = next((label for label in results.labels if label in online), None)
        if first is None:
            return results.labels[0] if results.labels else ""
        return first if self.record is None else self.method(first).name


def _place(record: RunRecord | None, method: str) -> int:
    """A method's place in the record; those it does not list come last."""
    known = [] if record is None else [info.name for info in record.methods]
    return known.index(method) if method in known else len(known)


def objective(results: Results, metric: str | None = None, mode: str | None = None) -> tuple[str, str]:
    """The metric that selects and its mode: as given, else as loaded."""
    metric, mode = metric or results.metric, mode or results.mode
    frame = results.frame
    if mode not in ("min", "max"):
        raise AnalysisError(f'mode is {mode!r}; it must be "min" or "max"')
    if not len(frame):
        raise AnalysisError("the frame has no rows")
    if floats(frame, metric).isna().all():
        others = [n for n in frame.columns if "loss" in n or n.startswith("val_")]
        raise AnalysisError(f"no row has a {metric}; known: {', '.join(others) or ', '.join(frame.columns)}")
    return metric, mode


def load(
    *paths: str | os.PathLike[str],
    metric: str | None = None,
    mode: str | None = None,
    method: str | None = None,
    upgrade: Upgrade | None = None,
) -> pd.DataFrame:
    """Reads experiments into a frame with one row per reported row, sorted by method, seed and compute-seconds.

    Args:
        paths: folders of the benchmark runner, plain Ray Tune experiment folders, folders of several of either, or
            single logs; local, mounted, or URIs that pyarrow or fsspec read (``s3://bucket/results``).
        metric: the metric that selects; by default the one the runner's logs name, else ``val_loss``.
        mode: "min" or "max"; by default the one the runner's logs name, else "min".
        method: the name of the method, instead of the one in the logs or that of the experiment's folder.
        upgrade: reads runs of version 1.

    ``label`` is the method with its variant, the unit of comparisons; ``variant/<key>`` are the variant's values;
    ``online`` holds the names of the hyperparameters that the trial tuned online; ``compared`` is False for experiments
    that are only data for figures. ``elapsed_s`` is the wall-clock since the experiment began; ``compute_s`` and
    ``epochs`` are sums over its trials of what each had used by then (a trial that reports no ``epoch`` counts
    iterations). ``hp/<name>`` are the values a trial reported, else the numbers in its config. ``frame.attrs`` holds
    ``metric``, ``mode``, ``sources``, ``problems`` (what is missing, broken or failed, a line each) and ``record`` (the
    :class:`~stn_tune.record.RunRecord`, or None).
    """
    if not paths:
        raise AnalysisError("load needs at least one path")
    places = [os.fspath(path) for path in paths]
    found = [find(Storage(place), method, upgrade) for place in places]
    experiments = [experiment for part in found for experiment in part.experiments]
    problems = [line for part in found for line in part.problems]
    record = _merged([record for part in found for record in part.records], problems)
    tasks = [] if record is None else [(record.task.name, record.task.metric, record.task.mode)]
    tasks += [(e.header.task, e.header.metric, e.header.mode) for e in experiments if e.header is not None]
    _agreed("task", [task for task, _, _ in tasks])
    metric = metric or _agreed("metric", [name for _, name, _ in tasks]) or "val_loss"
    mode = mode or _agreed("mode", [name for _, _, name in tasks]) or "min"
    if mode not in ("min", "max"):
        raise AnalysisError(f'mode is {mode!r}; it must be "min" or "max"')
    _give_names(experiments, problems)
    _check_clocks(experiments)
    headers = [experiment.header for experiment in experiments if experiment.header is not None]
    problems += _differing("preset", [header.preset for header in headers])
    problems += _differing("budget_s", [header.budget_s for header in headers])
    for experiment in experiments:
        problems += experiment.problems()
    frame = _assemble(experiments, record, metric, mode)
    if not len(frame):
        problems.append(f"{', '.join(places)}: no results")
    elif floats(frame, metric).isna().all():
        problems.append(f"no row reports {metric}")
    frame.attrs = {"metric": metric, "mode": mode, "sources": places, "problems": problems, "record": record}
    return frame


def _agreed(what: str, names: Iterable[str]) -> str | None:
    values = sorted(set(names))
    if len(values) > 1:
        raise AnalysisError(f"the logs are of different {what}s ({', '.join(values)}): load them one by one")
    return values[0] if values else None


def _differing(name: str, values: Iterable[Any]) -> list[str]:
    found = sorted({str(value) for value in values})
    return [f"the runs differ in {name}: {', '.join(found)}"] if len(found) > 1 else []


def _merged(records: Sequence[RunRecord], problems: list[str]) -> RunRecord | None:
    """One record of all runs: the first's task and settings, everybody's methods, experiments and invocations."""
    if len(records) < 2:
        return records[0] if records else None
    problems += _differing("workers", [record.workers for record in records])
    if any(record.settings != records[0].settings for record in records):
        problems.append("the runs differ in settings; those of the first are shown")
    methods = {info.name: info for record in records for info in record.methods}
    return replace(
        records[0],
        name=" and ".join(dict.fromkeys(record.name for record in records)),
        methods=tuple(methods.values()),
        experiments=tuple(info for record in records for info in record.experiments),
        invocations=tuple(invocation for record in records for invocation in record.invocations),
    )


def _give_names(experiments: list[ExperimentLog], problems: list[str]) -> None:
    """``<label>-<seed>``, with the source where that does not tell two apart."""
    counts = Counter((experiment.info.label, experiment.info.seed) for experiment in experiments)
    for experiment in experiments:
        key = experiment.info.label, experiment.info.seed
        experiment.name = f"{key[0]}-{key[1]}" + (f" ({experiment.source})" if counts[key] > 1 else "")
    for (label, seed), count in counts.items():
        if count > 1:
            problems.append(f"{label}-{seed} was run {count} times: all count, none is paired with other methods")


def _check_clocks(experiments: Sequence[ExperimentLog]) -> None:
    """Compute-seconds of different clocks must not be compared."""
    found: dict[str, list[str]] = defaultdict(list)
    for experiment in experiments:
        for clock in experiment.clocks:
            found[clock].append(experiment.name)
    if len(found) > 1:
        which = "; ".join(f"{clock}: {', '.join(sorted(names)[:3])}" for clock, names in sorted(found.items()))
        raise AnalysisError(f"compute-seconds are measured by different clocks ({which}): load them one by one")


def _assemble(experiments: list[ExperimentLog], record: RunRecord | None, metric: str, mode: str) -> pd.DataFrame:
    def key(e: ExperimentLog) -> tuple[Any, ...]:
        return not e.info.compared, _place(record, e.info.method), e.info.label, e.info.seed, e.name

    order = sorted(experiments, key=key)
    parts = [(place, order[place], trial) for place in range(len(order)) for trial in order[place].trials]
    parts = [part for part in parts if part[2].length]
    if not parts:
        return pd.DataFrame(columns=list(FIRST_COLUMNS))
    trials = [trial for _, _, trial in parts]
    lengths = [trial.length for trial in trials]
    about: dict[str, list[Any]] = {
        "_place": [place for place, _, _ in parts],
        "experiment": [e.name for _, e, _ in parts],
        "method": [e.info.method for _, e, _ in parts],
        "label": [e.info.label for _, e, _ in parts],
        "seed": [e.info.seed for _, e, _ in parts],
        "compared": [e.info.compared for _, e, _ in parts],
        "online": [trial.online for trial in trials],
        "trial": [trial.number for trial in trials],
        "trial_id": [trial.id for trial in trials],
        "status": [trial.status for trial in trials],
        "_gaps": [int(trial.broken or trial.torn) for trial in trials],
    }
    variants = dict.fromkeys(key for e in order for key in e.info.variant)
    about |= {f"variant/{key}": [e.info.variant.get(key) for _, e, _ in parts] for key in variants}
    columns = {name: _repeated(name, values, lengths) for name, values in about.items()}
    names = dict.fromkeys(name for trial in trials for name in trial.columns)
    missing = {name: np.full(sum(lengths), np.nan) for name in FIRST_COLUMNS}
    frame = pd.DataFrame(missing | {name: _joined(name, trials) for name in names} | columns, copy=False)
    frame = with_clocks(frame)
    best = f"best_{metric}"
    if metric in frame:
        trial = [frame["_place"], frame["trial"]]
        values = floats(frame, metric).where(lambda value: np.isfinite(value)).groupby(trial)
        running = (values.cummin() if mode == "min" else values.cummax()).groupby(trial).ffill()
        frame[best] = floats(frame, best).fillna(running)
    return frame[[*FIRST_COLUMNS, *(name for name in frame.columns if name not in (*FIRST_COLUMNS, "_place", "_gaps"))]]


def _repeated(name: str, values: list[Any], lengths: list[int]) -> NDArray[Any]:
    """One value per trial, for each of its rows."""
    if name in OBJECTS or name.startswith("variant/"):
        array = np.empty(len(values), dtype=object)
        array[:] = values
    else:
        array = np.array(values, dtype=bool if name == "compared" else np.int64)
    return np.repeat(array, lengths)


def _joined(name: str, trials: list[Trial]) -> NDArray[Any]:
    parts = [trial.columns.get(name) for trial in trials]
    if any(part is not None and part.dtype == object for part in parts):
        missing: Any = None
        parts = [None if part is None else part.astype(object) for part in parts]
    else:
        missing = np.nan
    return np.concatenate(
        [np.full(t.length, missing) if part is None else part for t, part in zip(trials, parts, strict=True)]
    )
