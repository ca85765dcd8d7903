"""The --out folder of a run: record.json, the logs of finished experiments, the schedules that were found."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.errors import SettingsError
from stn_tune.atomic import write_atomic
from stn_tune.record import FILE_NAME, LOG_SUFFIX, RunRecord

if TYPE_CHECKING:
    from stn_tune import Schedule


class Store:
    """Reads and writes the ``--out`` folder of a run."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._runs = folder / "runs"

    def create(self) -> None:
        """Makes the folder, and makes sure that it can be written."""
        try:
            self._runs.mkdir(parents=True, exist_ok=True)
            probe = self._runs / f".writable.{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise SettingsError(f"--out {self.folder} cannot be written: {error.strerror}") from None

    def discard(self) -> None:
        """Deletes what :meth:`create` and :meth:`write_record` made, unless an experiment has finished since."""
        if self.any_finished():
            return
        (self.folder / FILE_NAME).unlink(missing_ok=True)
        for folder in (self._runs, self.folder):
            with suppress(OSError):
                folder.rmdir()

    def record(self) -> RunRecord | None:
        """The run in this folder, None if there is none."""
        found = RunRecord.read(self.folder)
        if found is None and (self.folder / "config.json").exists():
            raise SettingsError(f"{self.folder} was made by an earlier version; choose another --out")
        if found is None and self.any_finished():
            raise SettingsError(f"{self.folder} contains logs but no {FILE_NAME}; choose another --out")
        return found

    def write_record(self, record: RunRecord) -> None:
        """Writes ``record.json``."""
        record.write(self.folder)

    def path(self, name: str) -> Path:
        """The log of an experiment."""
        return self._runs / f"{name}{LOG_SUFFIX}"

    def finished(self, name: str) -> bool:
        """Whether an experiment has a log; it gets one when it has finished."""
        return self.path(name).exists()

    def any_finished(self) -> bool:
        """Whether there is any log."""
        return any(self._runs.glob(f"*{LOG_SUFFIX}"))

    def read_log(self, name: str) -> bytes:
        """The log of a finished experiment."""
        return self.path(name).read_bytes()

    def write_log(self, name: str, data: bytes) -> None:
        """Marks an experiment as finished."""
        write_atomic(self.path(name), data)

    def write_schedule(self, name: str, schedule: Schedule) -> None:
        """Keeps what an experiment did to its hyperparameters, for ``--schedule``."""
        folder = self.folder / "schedules"
        folder.mkdir(exist_ok=True)
        schedule.save(folder / f"{name}.json")
