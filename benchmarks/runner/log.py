"""The log of a finished experiment: one gzipped file of JSON lines, a header and every row that a trial reported."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from baselines import EarlierResult
from benchmarks.tasks import Problem
from stn_tune import Schedule
from stn_tune.analysis.trials import HOUSEKEEPING, Lines
from stn_tune.raytune.internals import trial_log
from stn_tune.record import LOG_FORMAT, RESERVED, VERSION, ExperimentInfo, TrialInfo

DROPPED = (HOUSEKEEPING - {"clock"}) | {"timestamp", "time_this_iter_s", "time_total_s"}
"""What Tune adds to every row and no analysis needs."""

LogRow = dict[str, Any]


def pack_log(info: ExperimentInfo, about: Mapping[str, Any], trials: Iterable[Any]) -> bytes:
    """The log of an experiment from Tune's trials: the same rows give the same bytes.

    The first line is ``info``, with its trials, and what is said ``about`` the run.
    """
    described, rows = [], []
    for number, trial in enumerate(trials):
        lines = Lines.parse(trial_log(trial))
        config = {key: value for key, value in trial.config.items() if key != RESERVED}
        described.append(TrialInfo(number, trial.trial_id, trial.status, config, lines.broken + lines.torn))
        for row in lines.rows:
            rows.append({"trial": number} | {key: _rounded(v) for key, v in row.items() if key not in DROPPED})
    rows.sort(key=lambda row: (row["compute_s"], row["trial"]))
    info = replace(info, trials=tuple(described))
    head = {"format": LOG_FORMAT, "version": VERSION, **info.to_json(), **about}
    text = "".join(json.dumps(line) + "\n" for line in [head, *rows])
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def _rounded(value: Any) -> Any:
    """Seven digits are more than a float32 has."""
    return float(f"{value:.7g}") if isinstance(value, float) and math.isfinite(value) else value


def unpack_log(data: bytes) -> tuple[dict[str, Any], list[LogRow]]:
    """The header and the rows."""
    head, *rows = (json.loads(line) for line in gzip.decompress(data).splitlines())
    return head, rows


def earlier_result(data: bytes, problem: Problem) -> EarlierResult:
    """What an experiment has found, for the methods that build on it: of a refined STN, while it tuned."""
    _, rows = unpack_log(data)
    rows = [row for row in rows if row.get("phase") != "refining"]
    names = list(problem.space)

    def values(row: LogRow) -> dict[str, float]:
        return {name: row[f"hp/{name}"] for name in names}

    best = min(rows, key=lambda row: row["val_loss"])
    own = [row for row in rows if row["trial"] == best["trial"]]
    history = {0: {name: problem.initial[name] for name in names}} | {row["step"]: values(row) for row in own}
    best_of_epoch: dict[int, LogRow] = {}
    for row in rows:
        if row["val_loss"] < best_of_epoch.get(row["epoch"], {"val_loss": math.inf})["val_loss"]:
            best_of_epoch[row["epoch"]] = row
    greedy, start = {}, 0
    for _, row in sorted(best_of_epoch.items()):
        greedy[start], start = values(row), row["step"]
    return EarlierResult(values(best), values(own[-1]), _schedule(problem, history), _schedule(problem, greedy))


def _schedule(problem: Problem, history: Mapping[int, Mapping[str, float]]) -> Schedule | None:
    if not history:
        return None
    steps = sorted(history)
    return Schedule(problem.space, steps, {name: [history[step][name] for step in steps] for name in problem.space})
