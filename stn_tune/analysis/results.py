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
from stn_tune.analysis.experiment import ExperimentLog
from stn_tune.analysis.logs import Upgrade, find
from stn_tune.analysis.stats import finite, floats
from stn_tune.analysis.storage import Storage
from stn_tune.analysis.trials import Trial
from stn_tune.analysis.tune_folders import SeedRule, numbered_names
from stn_tune.errors import AnalysisError, did_you_mean, unknown
from stn_tune.record import MethodInfo, RunRecord

FIRST_COLUMNS = (
    "experiment", "method", "label", "seed", "compared", "online", "trial", "trial_id", "status",
    "training_iteration", "step", "epoch", "epochs", "elapsed_s", "compute_s", "wall_s", "start_s",
    "val_loss", "best_val_loss", "test_loss",
)  # fmt: skip
OBJECTS = {"experiment", "method", "label", "online", "trial_id", "status"}
BOOKKEEPING = {
    *(name for name in FIRST_COLUMNS if "loss" not in name), "done", "timestamp", "time_this_iter_s", "time_total_s",
    "trial_compute_s", "timesteps_total", "episodes_total", "timesteps_this_iter",
}  # fmt: skip
"""Numbers that nobody optimises."""

DEFAULT_METRIC = "val_loss"
"""Where no log names a metric and this column has numbers."""
MINIMISED = ("loss", "error", "perplexity")
"""What a metric's name ends in if its mode needs no word."""

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Results:
    """Everything that was reported, and the record of the run, if a runner wrote one."""

    frame: pd.DataFrame
    """As :func:`load` returns it."""
    record: RunRecord | None = None
    """What the runner says of the run, if there was one."""

    @classmethod
    def of(
        cls, source: Source, metric: str | None = None, mode: str | None = None, reference: str | None = None
    ) -> Results:
        """Results as they are, a frame with the record in its ``attrs``, or what :func:`load` reads from paths.

        A frame may lack some columns. What is given replaces what the frame says about metric, mode and reference.
        """
        if isinstance(source, (str, os.PathLike)):
            source = load(source, metric=metric, mode=mode)
        elif not isinstance(source, (pd.DataFrame, Results)):
            source = load(*source, metric=metric, mode=mode)
        frame = source.frame if isinstance(source, Results) else source
        record = source.record if isinstance(source, Results) else source.attrs.get("record")
        missing: dict[str, Any] = {}
        if "label" not in frame and "method" in frame:
            missing["label"] = frame["method"]
        if "compared" not in frame:
            missing["compared"] = True
        if "online" not in frame:
            missing["online"] = [()] * len(frame)
        frame = frame.assign(**missing) if missing else frame
        changes = _objective_changes(frame, metric, mode) | ({"reference": reference} if reference else {})
        if changes:
            frame = frame.copy(deep=False)
            frame.attrs = frame.attrs | changes
        return cls(frame, record)

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
        return str(self.frame.attrs.get("metric") or DEFAULT_METRIC)

    @property
    def mode(self) -> str:
        """``"min"`` or ``"max"``."""
        return str(self.frame.attrs.get("mode") or _mode_by_name(self.metric) or "")

    @property
    def counts_setup(self) -> bool:
        """Whether compute-seconds include the set-up of trials."""
        return bool(self.frame.attrs.get("counts_setup", False))

    @cached_property
    def _foreign(self) -> set[str]:
        """Labels of Tune experiments that no runner wrote: the record says nothing about them."""
        return set(self.frame.attrs.get("foreign", ()))

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
        if self.record is None or label in self._foreign:
            return MethodInfo(name, name)
        return self.record.method(name)

    def title(self, label: str) -> str:
        """A label as people read it: the method's title, then the variant."""
        info = self.method(label)
        return info.title + label.removeprefix(info.name)

    def in_order(self, labels: Iterable[str]) -> list[str]:
        """The distinct labels in the record's order, then alphabetically; labels that are not compared come last."""

        def key(label: str) -> tuple[Any, ...]:
            record = None if label in self._foreign else self.record
            place = _place(self.record, "") if record is None else _place(record, self.method(label).name)
            return label in self._aside, place, label

        return sorted(set(labels), key=key)

    def reference(self, given: str | None = None) -> str:
        """The label that others are compared with: as given (a label or its title), else as the frame says, else what
        tunes online, else the first.

        With a record that is its first method that tunes online; the label may be missing if a study has nothing but
        variants of it.
        """
        given = given or self.frame.attrs.get("reference")
        if given is not None:
            known = {self.title(label): label for label in self.labels} | {label: label for label in self.labels}
            if given not in known:
                raise AnalysisError(unknown("reference", given, self.labels))
            return known[given]
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


Source = pd.DataFrame | Results | PathLike | Sequence[PathLike]
"""What can be compared: what :func:`load` returned, or what it reads."""


def _mode_by_name(metric: str) -> str | None:
    return "min" if metric.endswith(MINIMISED) else None


def _objective_changes(frame: pd.DataFrame, metric: str | None, mode: str | None) -> dict[str, Any]:
    """What a given metric and mode change about a frame: another metric has another mode."""
    if metric is None or metric == frame.attrs.get("metric"):
        return {"mode": mode} if mode else {}
    return {"metric": metric, "mode": mode or _mode_by_name(metric)}


def numeric_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that a metric can be: they have finite numbers, and are neither hyperparameters nor clocks."""
    prefixes = ("hp/", "scale/", "variant/")
    names = [n for n in frame.columns if n not in BOOKKEEPING and not n.startswith(prefixes)]
    return [n for n in names if frame[n].dtype != bool and finite(frame, n).notna().any()]


def objective(results: Results, metric: str | None = None, mode: str | None = None) -> tuple[str, str]:
    """The metric that selects and its mode: as given, else as the results say; AnalysisError if nobody does."""
    frame = results.frame
    if not len(frame):
        raise AnalysisError("the frame has no rows")
    attrs = frame.attrs | _objective_changes(frame, metric, mode)
    name = attrs.get("metric")
    if name is None and floats(frame, DEFAULT_METRIC).notna().any():
        name = DEFAULT_METRIC
    if name is None or floats(frame, name).isna().all():
        known = numeric_columns(frame)
        near = "" if name is None else did_you_mean(name, known)
        what = "no log names the metric: give it" if name is None else f"no row has a number for {name!r}"
        raise AnalysisError(f"{what}; columns with numbers: {', '.join(known) or 'none'}{near}")
    chosen = attrs.get("mode") or _mode_by_name(name)
    if chosen is None:
        raise AnalysisError(f'no log says whether {name} is to be low or high: give the mode, "min" or "max"')
    if chosen not in ("min", "max"):
        raise AnalysisError(f'mode is {chosen!r}; it must be "min" or "max"')
    return str(name), str(chosen)


def load(
    *paths: PathLike,
    metric: str | None = None,
    mode: str | None = None,
    reference: str | None = None,
    method: str | None = None,
    seed: str | None = None,
    upgrade: Upgrade | None = None,
) -> pd.DataFrame:
    """Reads experiments into a frame with one row per reported row, sorted by method, seed and compute-seconds.

    Args:
        paths: folders of the benchmark runner, plain Ray Tune experiment folders (of Ray 2.0 to 2.60), folders of
            several of either, or single logs; local, mounted, or URIs that pyarrow or fsspec read
            (``s3://bucket/results``).
        metric: the metric that selects; by default the one the logs name (Tune's ``TuneConfig``, else its searcher's
            or scheduler's), else ``val_loss`` if it was reported.
        mode: "min" or "max"; by default the one the logs name for this metric. A metric called a loss, an error or a
            perplexity is minimised.
        reference: the label that others are compared with; by default the one that tunes online.
        method: the name of the method, instead of the one in the logs or that of the experiment's folder.
        seed: where the seeds of Tune experiments are: the name of a config entry or of a reported column, or a regular
            expression for the experiment's name with one group, a number. ``"_s(\\d+)"`` reads ``asha_s3`` as seed 3 of
            ``asha``. By default ``config["seed"]``; an experiment without, or with several, has seed 0.
        upgrade: reads runs of version 1.

    ``label`` is the method with its variant, the unit of comparisons; ``variant/<key>`` are the variant's values;
    ``online`` holds the names of the hyperparameters that the trial tuned online; ``compared`` is False for experiments
    that are only data for figures. ``elapsed_s`` is the wall-clock since the experiment began; ``compute_s`` and
    ``epochs`` are sums over its trials of what each had used by then (a trial that reports no ``epoch`` counts
    iterations). ``hp/<name>`` are the values a trial reported, else the numbers in its config. ``frame.attrs`` holds
    ``metric`` and ``mode`` (None if unknown), ``reference`` (None: the default), ``sources``, ``problems`` (what is
    missing, broken or failed, a line each), ``record`` (the :class:`~stn_tune.record.RunRecord`, or None), ``foreign``
    (labels that no runner wrote) and ``counts_setup`` (whether compute-seconds include the set-up of trials).
    """
    if not paths:
        raise AnalysisError("load needs at least one path")
    if mode not in (None, "min", "max"):
        raise AnalysisError(f'mode is {mode!r}; it must be "min" or "max"')
    places = [os.fspath(path) for path in paths]
    rule = None if seed is None else SeedRule(seed)
    found = [find(Storage(place), method, upgrade, rule) for place in places]
    experiments = [experiment for part in found for experiment in part.experiments]
    problems = [line for part in found for line in part.problems]
    record = _merged([record for part in found for record in part.records], problems)
    metric, mode = _recorded(experiments, record, metric, mode)
    foreign = _set_apart(experiments, method)
    problems += numbered_names(foreign)
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
    elif metric and floats(frame, metric).isna().all():
        problems.append(f"no row reports {metric}")
    frame.attrs = {
        "metric": metric,
        "mode": mode,
        "reference": reference,
        "sources": places,
        "problems": problems,
        "record": record,
        "foreign": foreign,
        "counts_setup": bool(experiments) and all(experiment.counts_setup for experiment in experiments),
    }
    return frame


def _recorded(
    experiments: Sequence[ExperimentLog], record: RunRecord | None, metric: str | None, mode: str | None
) -> tuple[str | None, str | None]:
    """Metric and mode: as given, else as the logs agree on; None where they say nothing."""
    tasks = [] if record is None else [(record.task.name, record.task.metric, record.task.mode)]
    tasks += [(e.header.task, e.header.metric, e.header.mode) for e in experiments if e.header is not None]
    _agreed("task", [task for task, _, _ in tasks])
    said: set[tuple[str, str | None]] = {(name, how) for _, name, how in tasks}
    said |= {(e.metric, e.mode) for e in experiments if e.metric is not None}
    names = sorted({name for name, _ in said})
    if metric is None and len(names) > 1:
        raise AnalysisError(f"the experiments optimise different metrics ({', '.join(names)}): give the metric")
    metric = metric or (names[0] if names else None)
    if metric is None and any(DEFAULT_METRIC in trial.columns for e in experiments for trial in e.trials):
        metric = DEFAULT_METRIC
    if metric is None or mode is not None:
        return metric, mode
    modes = {how for name, how in said if name == metric and how is not None}
    return metric, _agreed("mode", modes) or _mode_by_name(metric)


def _set_apart(experiments: Sequence[ExperimentLog], method: str | None) -> list[str]:
    """The labels of Tune experiments that no runner wrote; they are not taken for the runner's methods of that name."""
    if method is not None:
        return []
    known = {e.info.label for e in experiments if e.header is not None}
    for experiment in experiments:
        if experiment.header is None and experiment.info.label in known:
            experiment.info = replace(experiment.info, method=f"{experiment.info.method} (Tune)")
    return sorted({e.info.label for e in experiments if e.header is None})


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


def _assemble(
    experiments: list[ExperimentLog], record: RunRecord | None, metric: str | None, mode: str | None
) -> pd.DataFrame:
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
    if metric is not None and metric in frame and mode is not None:
        best = f"best_{metric}"
        trial = [frame["_place"], frame["trial"]]
        values = floats(frame, metric).where(lambda value: np.isfinite(value)).groupby(trial)
        running = (values.cummin() if mode == "min" else values.cummax()).groupby(trial).ffill()
        frame[best] = floats(frame, best).fillna(running) if best in frame else running
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
