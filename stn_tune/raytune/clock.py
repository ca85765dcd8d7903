"""Clock: the compute-seconds and the wall-clock of a trial, which survive its processes."""

from __future__ import annotations

import json
import os
import resource
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from stn_tune.atomic import write_atomic
from stn_tune.numbers import is_finite
from stn_tune.plain_json import parse_json

PARTS = ("start_s", "setup_s", "train_s", "eval_s")
COUNTED = ("trial_compute_s", "wall_s", *PARTS)


class Clock:
    """What a trial has used so far, over all its processes.

    ``trial_compute_s`` are compute-seconds. On a CPU they are the CPU time of the trial's process and its descendants,
    all threads; on a GPU the wall-clock time for which the device was held. ``start_s``, ``setup_s``, ``train_s`` and
    ``eval_s`` are parts of it, and ``wall_s`` is the wall-clock time beside it. All of them only grow.

    Earlier processes of the trial are counted in: from ``file`` in the trial's folder, which also knows of the time
    after the last checkpoint and of the time before PBT gave the trial another one's checkpoint; where that is gone,
    for example on another node, from the last row in the trial's log and from a checkpoint of the same trial.

    Args:
        file: where to keep the count, None for a trial without a folder.
        kind: what compute-seconds count.
        new_process: whether this process was started for the trial, so that its start belongs to the trial. False for
            a trial that takes over a running process.
    """

    def __init__(self, file: Path | None, kind: Literal["cpu", "device"] = "cpu", *, new_process: bool = False):
        self.kind = kind
        self._read: Callable[[], float] = cpu_seconds if kind == "cpu" else time.perf_counter
        self._file = file
        self._id = uuid.uuid4().hex
        begun = start_seconds() if new_process else 0.0
        self._own = dict.fromkeys(PARTS, 0.0) | {"start_s": begun}
        self._earlier = dict.fromkeys(COUNTED, 0.0)
        self._compute_zero = self.mark() - begun
        self._wall_zero = time.perf_counter() - begun
        if file is not None and file.exists():
            with suppress(ValueError, OSError):  # damaged, or gone by now
                state = parse_json(file.read_bytes())
                if isinstance(state, dict) and all(is_finite(state.get(name)) for name in COUNTED):
                    self.carry_on(state)

    def mark(self) -> float:
        """A moment in compute-seconds, for :meth:`count`."""
        return self._read()

    def count(self, part: str, since: float) -> float:
        """Adds the compute-seconds since a moment to a part; gives the present moment."""
        now = self.mark()
        self._own[part] += now - since
        return now

    def now(self) -> dict[str, Any]:
        """What a trial reports."""
        own = {
            "trial_compute_s": self.mark() - self._compute_zero,
            "wall_s": time.perf_counter() - self._wall_zero,
            **self._own,
        }
        return {name: self._earlier[name] + own[name] for name in COUNTED} | {"clock": self.kind}

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint of the trial."""
        return {**self.now(), "id": self._id}

    def carry_on(self, state: Mapping[str, Any]) -> None:
        """Takes over what earlier processes have counted, if that is more than is known of them already."""
        if state.get("id") != self._id and state["trial_compute_s"] > self._earlier["trial_compute_s"]:
            self._earlier = {name: float(state[name]) for name in COUNTED}

    def write(self) -> None:
        """Keeps the count in the trial's folder."""
        if self._file is not None:
            write_atomic(self._file, json.dumps(self.state_dict()).encode())


def start_seconds() -> float:
    """What the start of this process took: its CPU time so far, but no longer than the process has existed.

    Starting is all work and no waiting; a process that Ray had started in advance and kept idle has not worked since.
    """
    age = _age()
    return cpu_seconds() if age is None else min(age, cpu_seconds())


_readings: dict[int, tuple[float, float]] = {}
"""The last reading, and what descendants had used that ended with nobody waiting for them; by process, as forks start
at 0."""


def cpu_seconds() -> float:
    """CPU time of this process and its descendants, all threads, since it was started; never goes down.

    Descendants that are still running are found in /proc; where there is none, they count once they have ended.
    """
    process = os.getpid()
    last, lost = _readings.get(process, (0.0, 0.0))
    total = _read_cpu()
    if total < last:  # a child may have ended between the readings of those that run and those that have ended
        total = _read_cpu()
    lost += max(0.0, last - total)
    _readings[process] = total, lost
    return total + lost


def _read_cpu() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)  # first: a child that ends now must not be counted twice
    return time.process_time() + ended.ru_utime + ended.ru_stime + _running_descendants()


def _running_descendants() -> float:
    """CPU time of all live descendants, with that of their own children that have ended."""
    if not _has_children():
        return 0.0
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in _proc():
        fields = _stat(f"/proc/{entry}/stat")
        if fields:
            parents.setdefault(int(fields[1]), []).append(int(entry))
            ticks[int(entry)] = sum(map(int, fields[11:15]))
    total, waiting = 0, list(parents.get(os.getpid(), ()))
    while waiting:
        child = waiting.pop()
        total += ticks[child]
        waiting += parents.get(child, ())
    return total / os.sysconf("SC_CLK_TCK")


def _has_children() -> bool:
    """Whether a scan of /proc could find any."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (ChildProcessError, AttributeError):
        return False
    return True


def _proc() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _stat(path: str) -> list[str]:
    """The fields of a stat file from the process's state on; empty if it has gone."""
    try:
        with open(path) as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _age() -> float | None:
    """Seconds since this process was started, None where the system does not tell."""
    fields = _stat("/proc/self/stat")
    try:
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return max(0.0, uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    except (OSError, IndexError):
        return None
