"""``--dry-run``: what a command would run, and how long that takes at most. Imports neither torch nor Ray."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.durations import count, duration
from benchmarks.errors import SettingsError
from benchmarks.runner.options import Options
from benchmarks.runner.store import Store
from stn_tune.record import ExperimentInfo

START_S = 10.0
"""What starting Ray and an experiment's first process takes, about."""


def dry_run(options: Options, experiments: Sequence[ExperimentInfo]) -> list[str]:
    """A line per experiment, one about the time, and one about trials that share cores."""
    store = Store(options.out)
    started = store.record()
    if started is not None and not options.resume:
        raise SettingsError(f"{options.out} already contains a run; add --resume, or choose another --out")
    known = () if started is None else tuple(e.name for e in started.experiments)
    waiting = [e for e in experiments if not store.finished(e.name)]
    longest = max(len(e.name) for e in experiments)
    lines = []
    for e in experiments:
        state = "new" if e.name not in known else "resumed"
        lines.append(f"  {e.name:{longest}}  {state if e in waiting else 'finished: skipped'}")
    title = f"{options.task}, preset {options.preset}, in {options.out}: {len(waiting)} of {len(experiments)} to run"
    check_writable(options.out)
    shared = [f"warning: {options.oversubscribed}"] if options.oversubscribed else []
    return [title, *lines, *shared, _time(options, waiting)]


def _time(options: Options, waiting: Sequence[ExperimentInfo]) -> str:
    total = f"{count(len(waiting), 'experiment')} of {options.budget_s:g} compute-seconds"
    if not waiting:
        return "nothing to do"
    if options.address is not None:
        longest = duration(len(waiting) * options.budget_s / options.workers)
        return f"{total}; at most {longest} if the cluster runs one at a time"
    cores = os.cpu_count() or 1
    parallel = max(1, int(cores // (options.workers * options.cpus))) if options.cpus else 1
    parallel = min(parallel, len(waiting))
    each_s = options.budget_s / min(options.workers, cores / parallel)
    wall_s = _rounds(options, waiting, parallel) * (each_s + START_S)
    where = f"{parallel} at a time on {count(cores, 'core')}" if len(waiting) > 1 else f"on {count(cores, 'core')}"
    return f"{total}, {where}: at most about {duration(wall_s)} on a free machine"


def _rounds(options: Options, waiting: Sequence[ExperimentInfo], parallel: int) -> int:
    """Experiments that follow one another: by the number of places, or because one builds on the other."""
    names = {e.name for e in waiting}
    chained = any((needed := options.needed(e)) is not None and needed.name in names for e in waiting)
    return max(math.ceil(len(waiting) / parallel), 2 if chained else 1)


def check_writable(folder: Path) -> None:
    """Raises SettingsError where a run could not write its results; makes nothing."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise SettingsError(f"--out {folder} cannot be written: {existing} is no folder that you may write to")
