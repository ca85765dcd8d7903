"""Clock: the seconds of a trial, which survive its processes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from stn_tune.atomic import write_atomic


class Clock:
    """Seconds held, training, evaluating and setting up: of one trial, over all its processes.

    ``start_s`` comes on top of ``wall_s``: how long its first process took to get as far as the trial.

    They are carried on from a checkpoint of the same trial, and from ``file`` in the trial's folder, which also knows
    of the time since that checkpoint, and of the time before PBT gave the trial another one's.
    """

    def __init__(self, file: Path | None, start_s: float = 0.0):
        self._start = time.perf_counter()
        self._start_s = start_s
        self._file = file
        self._own = {"train_s": 0.0, "eval_s": 0.0, "setup_s": 0.0}
        self._earlier = {"wall_s": 0.0, **self._own}
        if file is not None and file.exists():
            with suppress(ValueError):
                self.carry_on(json.loads(file.read_text()))

    def count(self, name: str, since: float) -> float:
        now = time.perf_counter()
        self._own[name] += now - since
        return now

    def now(self) -> dict[str, float]:
        own = {"wall_s": time.perf_counter() - self._start, **self._own}
        return {name: self._earlier[name] + own[name] for name in own} | {"start_s": self._start_s}

    def carry_on(self, seconds: Mapping[str, float]) -> None:
        """What earlier processes have counted, where that is more than is known of them already."""
        if seconds["wall_s"] > self._earlier["wall_s"]:
            self._earlier = {name: seconds[name] for name in self._earlier}
            self._start_s = seconds["start_s"]

    def write(self) -> None:
        if self._file is not None:
            write_atomic(self._file, json.dumps(self.now()).encode())


def process_age() -> float:
    """Seconds since this process was started; 0 where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return 0.0
    return max(0.0, uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
