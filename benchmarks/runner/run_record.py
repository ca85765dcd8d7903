"""The record of a run: made for a new one, checked and extended for one that is resumed."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
import uuid
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime, timezone
from typing import Any

from baselines import METHODS
from baselines.plan import SearchSettings
from benchmarks.errors import SettingsError
from benchmarks.runner.machine import commit, machine, versions
from benchmarks.runner.options import Options
from benchmarks.tasks import Problem
from stn_tune.record import ExperimentInfo, Invocation, RunRecord

COMPARED = ("study", "preset", "settings", "tuned", "budget_s", "clock", "workers", "cpus", "gpus")
"""What must be the same when a run is resumed, beside the task."""


def describe_experiment(e: ExperimentInfo, p: Problem) -> ExperimentInfo:
    """``e`` with which hyperparameters are tuned, and which of them inside the trials."""
    return replace(e, tuned=p.tuned, online=p.tuned if METHODS[e.method].online else ())


def make_record(
    options: Options, p: Problem, experiments: Sequence[ExperimentInfo], before: RunRecord | None
) -> RunRecord:
    """The record of this run; with ``before``, of the run that is resumed."""
    new = RunRecord(
        name=options.out.name,
        study=options.study,
        task=p.info,
        methods=(),
        experiments=(),
        preset=options.preset,
        overrides=options.overrides,
        settings=p.plain_settings(),
        tuned=p.tuned,
        budget_s=options.budget_s,
        clock=options.clock,
        workers=options.workers,
        cpus=options.cpus,
        gpus=options.gpus,
        published=options.published,
        extra={"id": uuid.uuid4().hex[:8]},
    )
    replayed = None if options.schedule is None else hashlib.sha256(options.schedule.read_bytes()).hexdigest()[:12]
    replaying = any(METHODS[e.method].takes_schedule for e in experiments)
    if before is not None:
        _check_same(options, before, new, experiments)
        if replaying and before.extra.get("schedule", replayed) != replayed:
            raise SettingsError(f"--resume: {options.out} was started with another --schedule")
        new = before
    known = {e.name for e in new.experiments}
    listed = (*new.experiments, *(e for e in experiments if e.name not in known))
    return replace(
        new,
        methods=tuple(
            replace(m.info, settings=m.settings(p, options.workers))
            for m in METHODS.values()
            if any(e.method == m.info.name for e in listed)
        ),
        experiments=listed,
        invocations=(*new.invocations, _invocation()),
        extra={**new.extra, "schedule": replayed} if replaying else new.extra,
    )


def _check_same(options: Options, before: RunRecord, new: RunRecord, experiments: Sequence[ExperimentInfo]) -> None:
    if not options.resume:
        raise SettingsError(f"{options.out} already contains a run; add --resume, or choose another --out")
    then, now = ({"task": r.task.name} | {key: getattr(r, key) for key in COMPARED} for r in (before, new))
    then["settings"] = {**setting_defaults(), **before.settings}  # those that did not exist when it was started
    earlier = {e.name: e for e in before.experiments}
    for e in experiments:
        if e.name in earlier:
            then[e.name], now[e.name] = ([*x.overrides, *x.tuned] for x in (earlier[e.name], e))
    changed = first_difference(then, now)
    if changed:
        raise SettingsError(f"--resume: {options.out} was started with other settings: {changed}")


def setting_defaults() -> dict[str, Any]:
    """The settings of searches and populations that a preset need not have."""
    return {f.name: f.default for f in fields(SearchSettings)}


def first_difference(before: Any, now: Any, where: str = "") -> str | None:
    """The first place where two settings differ, in words."""
    before, now = json.loads(json.dumps(before)), json.loads(json.dumps(now))
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            found = first_difference(before.get(key), now.get(key), f"{where}.{key}" if where else key)
            if found:
                return found
        return None
    return None if before == now else f"{where} was {json.dumps(before)}, now it is {json.dumps(now)}"


def _invocation() -> Invocation:
    revision, dirty = commit()
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Invocation(command_line(), started, revision, dirty, versions(), machine())


def command_line() -> str:
    """As the user typed it, whatever the path of the interpreter."""
    return shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
