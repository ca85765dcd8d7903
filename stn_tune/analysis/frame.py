"""load: one tidy frame of everything that one or more experiments reported."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stn_tune.analysis.order import position
from stn_tune.analysis.reading import Storage, Trial
from stn_tune.analysis.sources import Experiment, find
from stn_tune.errors import AnalysisError

FIRST_COLUMNS = (
    "experiment", "method", "seed", "trial", "trial_id", "status", "training_iteration", "step", "epoch", "epochs",
    "elapsed_s", "compute_s", "wall_s", "start_s", "val_loss", "best_val_loss", "test_loss",
)  # fmt: skip


def load(
    *paths: str | os.PathLike[str],
    metric: str | None = None,
    mode: str | None = None,
    method: str | None = None,
) -> pd.DataFrame:
    """Reads experiments into a frame with one row per reported row, sorted by method, seed and compute-seconds.

    Args:
        paths: folders of the benchmark runner, plain Ray Tune experiment folders, folders of several of either, or
            single logs; local, mounted, or URIs that pyarrow or fsspec read (``s3://bucket/results``).
        metric: what selects; by default what the runner's logs name, else ``val_loss``.
        mode: "min" or "max"; by default what the runner's logs name, else "min".
        method: the name of the method, instead of the one in the logs or that of the experiment's folder.

    ``elapsed_s`` is the wall-clock since the experiment began; ``compute_s`` and ``epochs`` are sums over its trials of
    what each had used by then (a trial that reports no ``epoch`` counts iterations; the first row after PBT made it
    take over another's checkpoint counts as its rows usually do). ``hp/<name>`` are the values a trial reported, else
    the numbers in its config. ``frame.attrs`` holds ``metric``, ``mode``, ``sources``, ``problems`` (what was missing,
    broken or failed, a line each) and ``configs`` (what the runner was asked for).
    """
    if not paths:
        raise AnalysisError("load needs at least one path")
    places = [os.fspath(path) for path in paths]
    found = [find(Storage(place), method) for place in places]
    experiments = [experiment for part in found for experiment in part.experiments]
    problems = [line for part in found for line in part.problems]
    configs = [config for part in found for config in part.configs]
    headers = [experiment.header for experiment in experiments if experiment.header]
    metric = metric or _agreed("metric", [*headers, *configs]) or "val_loss"
    mode = mode or _agreed("mode", [*headers, *configs]) or "min"
    if mode not in ("min", "max"):
        raise AnalysisError(f'mode is {mode!r}; it must be "min" or "max"')
    _agreed("task", headers)
    for name in ("preset", "budget_s", "workers"):
        values = sorted({str(header.get(name)) for header in headers})
        if len(values) > 1:
            problems.append(f"the runs differ in {name}: {', '.join(values)}")
    _give_names(experiments, problems)
    for experiment in experiments:
        problems += experiment.problems()
    frame = _assemble(experiments, metric, mode)
    if not len(frame):
        problems.append(f"{', '.join(places)}: no results")
    elif metric not in frame or numbers(frame, metric).isna().all():
        problems.append(f"no row reports {metric}")
    frame.attrs = {"metric": metric, "mode": mode, "sources": places, "problems": problems, "configs": configs}
    return frame


def _agreed(name: str, sources: list[Mapping[str, Any]]) -> str | None:
    values = sorted({str(source[name]) for source in sources if source.get(name)})
    if len(values) > 1:
        raise AnalysisError(f"the logs are of different {name}s ({', '.join(values)}): load them one by one")
    return values[0] if values else None


def _give_names(experiments: list[Experiment], problems: list[str]) -> None:
    """``<method>-<seed>``, with the source where that is not enough to tell two apart."""
    counts = Counter((experiment.method, experiment.seed) for experiment in experiments)
    for experiment in experiments:
        experiment.name = f"{experiment.method}-{experiment.seed}"
        if counts[experiment.method, experiment.seed] > 1:
            experiment.name += f" ({experiment.source})"
    for (method, seed), count in counts.items():
        if count > 1:
            problems.append(f"{method}-{seed}: there are {count} of it; they count as {count} runs and are not paired")


def _assemble(experiments: list[Experiment], metric: str, mode: str) -> pd.DataFrame:
    order = sorted(experiments, key=lambda e: (position(e.method), e.seed, e.name))
    parts = [(place, order[place], trial) for place in range(len(order)) for trial in order[place].trials]
    parts = [part for part in parts if part[2].length]
    if not parts:
        return pd.DataFrame(columns=list(FIRST_COLUMNS))
    trials = [trial for _, _, trial in parts]
    lengths = [trial.length for trial in trials]
    about = {
        "_place": [place for place, _, _ in parts],
        "experiment": [experiment.name for _, experiment, _ in parts],
        "method": [experiment.method for _, experiment, _ in parts],
        "seed": [experiment.seed for _, experiment, _ in parts],
        "trial": [trial.number for trial in trials],
        "trial_id": [trial.id for trial in trials],
        "status": [trial.status for trial in trials],
        "_gaps": [int(trial.broken or trial.torn) for trial in trials],
    }
    kinds = {name: object if name in ("experiment", "method", "trial_id", "status") else np.int64 for name in about}
    columns = {name: np.repeat(np.array(about[name], dtype=kinds[name]), lengths) for name in about}
    names = dict.fromkeys(name for trial in trials for name in trial.columns)
    missing = {name: np.full(sum(lengths), np.nan) for name in FIRST_COLUMNS}
    frame = pd.DataFrame(missing | {name: _joined(name, trials) for name in names} | columns, copy=False)
    frame = _with_clocks(frame)
    best = f"best_{metric}"
    if metric in frame:
        trial = [frame["_place"], frame["trial"]]
        values = numbers(frame, metric).where(lambda value: np.isfinite(value)).groupby(trial)
        running = (values.cummin() if mode == "min" else values.cummax()).groupby(trial).ffill()
        frame[best] = numbers(frame, best).fillna(running) if best in frame else running
    return frame[[*FIRST_COLUMNS, *(name for name in frame.columns if name not in (*FIRST_COLUMNS, "_place", "_gaps"))]]


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


def numbers(frame: pd.DataFrame, name: str) -> pd.Series:
    """A column as floats; what is not a number is NaN."""
    return pd.to_numeric(frame[name], errors="coerce").astype(np.float64)


def _with_clocks(frame: pd.DataFrame) -> pd.DataFrame:
    """Sorted by compute, with the experiment's own clocks wherever the logs have only those of trials."""
    clocks = frame[["_place", "trial", "_gaps"]].copy()
    for name in ("training_iteration", "elapsed_s", "compute_s", "wall_s", "start_s", "epoch"):
        clocks[name] = numbers(frame, name)
    held = clocks["wall_s"]
    if "timestamp" in frame:
        took = numbers(frame, "time_this_iter_s") if "time_this_iter_s" in frame else 0.0
        now = numbers(frame, "timestamp")
        first = (now - took).where(now == now.groupby(clocks["_place"]).transform("min"))
        clocks["elapsed_s"] = clocks["elapsed_s"].fillna(now - first.groupby(clocks["_place"]).transform("min"))
    if "time_total_s" in frame:
        held = held.fillna(numbers(frame, "time_total_s"))
    clocks["held_s"] = held + clocks["start_s"].fillna(0.0)
    own_clock = clocks["wall_s"].notna()
    clocks["epoch"] = clocks["epoch"].fillna(clocks["training_iteration"])
    clocks = clocks.sort_values(["_place", "elapsed_s", "trial", "training_iteration"], kind="stable")
    trial = [clocks["_place"], clocks["trial"]]
    jumped = (clocks["training_iteration"].groupby(trial).diff().fillna(1.0) != 1.0) & (clocks["_gaps"] == 0)
    clocks["compute_s"] = clocks["compute_s"].fillna(_total(clocks, "held_s", jumped & ~own_clock))
    clocks["epochs"] = _total(clocks, "epoch", jumped)
    clocks = clocks.sort_values(["_place", "compute_s", "trial", "training_iteration"], kind="stable")
    known = {name: clocks[name] for name in ("elapsed_s", "compute_s", "epoch", "epochs")}
    return frame.loc[clocks.index].assign(**known).reset_index(drop=True)


def _total(clocks: pd.DataFrame, name: str, jumped: pd.Series) -> pd.Series:
    """Row by row, the sum over the experiment's trials of what each had gained by then.

    A row that reports none has no sum. Where a trial ``jumped``, or its count fell, the count is that of the checkpoint
    it went on from: the row has the trial's median gain instead.
    """
    trial = [clocks["_place"], clocks["trial"]]
    latest = clocks[name].groupby(trial).ffill().fillna(0.0)
    gained = latest.groupby(trial).diff().fillna(latest)
    gained = gained.mask(jumped | (gained < 0.0))
    gained = gained.fillna(gained.groupby(trial).transform("median")).fillna(0.0)
    return gained.groupby(clocks["_place"]).cumsum().where(clocks[name].notna())
