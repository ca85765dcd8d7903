"""What a run leaves in ``--out``: config.json, and one compact file per finished method and seed."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from baselines import Found
from benchmarks.settings import SettingsError
from benchmarks.tasks import Problem
from stn_tune import Schedule
from stn_tune.analysis.reading import HOUSEKEEPING, Lines
from stn_tune.analysis.sources import RUN_FORMAT, RUN_SUFFIX, RUN_VERSION
from stn_tune.atomic import write_atomic

FORMAT = 1
DROPPED = HOUSEKEEPING | {"timestamp", "time_this_iter_s", "time_total_s"}
Row = dict[str, Any]


def compact(header: Mapping[str, Any], trials: Iterable[Any]) -> bytes:
    """A finished experiment's file: a header, then every row that a trial reported; the same rows, the same bytes."""
    described, rows = [], []
    for number, trial in enumerate(trials):
        config = {key: value for key, value in trial.config.items() if key != "stn"}
        described.append({"trial": number, "id": trial.trial_id, "status": trial.status, "config": config})
        lines = _lines(trial)
        if lines.broken or lines.torn:
            described[-1]["lost"] = lines.broken + lines.torn
        for row in lines.rows:
            rows.append({"trial": number} | {key: _short(v) for key, v in row.items() if key not in DROPPED})
    rows.sort(key=lambda row: (row["compute_s"], row["trial"]))
    head = {"format": RUN_FORMAT, "version": RUN_VERSION, **header, "trials": described}
    text = "".join(json.dumps(line) + "\n" for line in [head, *rows])
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def _lines(trial: Any) -> Lines:
    storage = trial.storage
    path = f"{storage.trial_fs_path}/result.json"
    if not storage.storage_filesystem.get_file_info(path).is_file:
        return Lines()
    with storage.storage_filesystem.open_input_stream(path) as stream:
        return Lines.parse(stream.read())


def _short(value: Any) -> Any:
    """Seven digits are more than a float32 has."""
    return float(f"{value:.7g}") if isinstance(value, float) and math.isfinite(value) else value


def unpack(data: bytes) -> tuple[dict[str, Any], list[Row]]:
    head, *rows = (json.loads(line) for line in gzip.decompress(data).splitlines())
    return head, rows


def found(data: bytes, problem: Problem) -> Found:
    """What an experiment has found, for the methods that build on it."""
    _, rows = unpack(data)
    names = list(problem.space)

    def values(row: Row) -> dict[str, float]:
        return {name: row[f"hp/{name}"] for name in names}

    best = min(rows, key=lambda row: row["val_loss"])
    own = [row for row in rows if row["trial"] == best["trial"]]
    history = {0: {name: problem.initial[name] for name in names}} | {row["step"]: values(row) for row in own}
    best_of_epoch: dict[int, Row] = {}
    for row in rows:
        if row["val_loss"] < best_of_epoch.get(row["epoch"], {"val_loss": math.inf})["val_loss"]:
            best_of_epoch[row["epoch"]] = row
    greedy, start = {}, 0
    for _, row in sorted(best_of_epoch.items()):
        greedy[start], start = values(row), row["step"]
    return Found(values(best), values(own[-1]), _schedule(problem, history), _schedule(problem, greedy))


def _schedule(problem: Problem, history: Mapping[int, Mapping[str, float]]) -> Schedule | None:
    if not history:
        return None
    steps = sorted(history)
    return Schedule(problem.space, steps, {name: [history[step][name] for step in steps] for name in problem.space})


class Record:
    """The ``--out`` folder of a run."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._config = folder / "config.json"
        self._runs = folder / "runs"

    def create(self) -> None:
        try:
            self._runs.mkdir(parents=True, exist_ok=True)
            probe = self._runs / f".writable.{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise SettingsError(f"--out {self.folder} cannot be written: {error.strerror}") from None

    def discard(self) -> None:
        """Takes back what :meth:`create` and :meth:`write_config` made, unless an experiment has finished since."""
        if self.any_finished():
            return
        self._config.unlink(missing_ok=True)
        for folder in (self._runs, self.folder):
            with suppress(OSError):
                folder.rmdir()

    def config(self) -> dict[str, Any] | None:
        if not self._config.exists():
            return None
        try:
            config = json.loads(self._config.read_text(encoding="utf-8"))
        except ValueError as error:
            raise SettingsError(f"{self._config} cannot be read: {error}") from None
        if config.get("format") != FORMAT:
            raise SettingsError(f"{self._config} has format {config.get('format')}; this release reads {FORMAT}")
        return dict(config)

    def write_config(self, config: Mapping[str, Any]) -> None:
        write_atomic(self._config, (json.dumps(config, indent=1) + "\n").encode())

    def path(self, name: str) -> Path:
        return self._runs / f"{name}{RUN_SUFFIX}"

    def finished(self, name: str) -> bool:
        return self.path(name).exists()

    def any_finished(self) -> bool:
        return any(self._runs.glob(f"*{RUN_SUFFIX}"))

    def read(self, name: str) -> bytes:
        return self.path(name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        write_atomic(self.path(name), data)

    def write_schedule(self, name: str, schedule: Schedule) -> None:
        folder = self.folder / "schedules"
        folder.mkdir(exist_ok=True)
        schedule.save(folder / f"{name}.json")


def difference(before: Any, now: Any, where: str = "") -> str | None:
    """The first place where two settings differ, in words."""
    before, now = json.loads(json.dumps(before)), json.loads(json.dumps(now))
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            found = difference(before.get(key), now.get(key), f"{where}.{key}" if where else key)
            if found:
                return found
        return None
    return None if before == now else f"{where} was {json.dumps(before)}, and is {json.dumps(now)} now"


def plain_settings(problem: Problem) -> dict[str, Any]:
    return dict(asdict(problem.settings))
