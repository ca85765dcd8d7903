"""Every row that a trial reports, in storage before the checkpoint of its iteration is."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyarrow.fs import FileSelector, FileType
from ray.tune.logger import JsonLoggerCallback
from ray.tune.utils.util import SafeFallbackEncoder

from stn_tune.analysis.trials import Lines, Row
from stn_tune.raytune.internals import filesystem_and_path, read_log, storage_folder

ROWS = "result.json"


class RowLogger(JsonLoggerCallback):  # type: ignore[misc]  # ray has no types
    """Appends rows to ``result.json`` in storage itself; where that is not a local or mounted folder, as Tune does.

    Tune writes rows to a temporary folder and copies that to storage later, after the checkpoints that go with them. On
    a disk that is full the copy cuts short what was there, and a row whose checkpoint was saved is not computed again.
    Here a row that cannot be written is an error of its trial, before its checkpoint replaces the one before.
    """

    def log_trial_start(self, trial: Any) -> None:
        """Keeps the trial's config, and nothing open."""
        if storage_folder(trial) is None:
            super().log_trial_start(trial)
            return
        trial.init_local_path()
        self.update_config(trial, trial.config)

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        """Appends a row, whole or not at all."""
        folder = storage_folder(trial)
        if folder is None:
            super().log_trial_result(iteration, trial, result)
            return
        folder.mkdir(parents=True, exist_ok=True)
        append(folder / ROWS, json.dumps(result, cls=SafeFallbackEncoder).encode() + b"\n")


def append(path: Path, data: bytes) -> None:
    """Appends to a file; raises OSError, and leaves the file as it was, if not everything could be written."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        before = os.fstat(descriptor).st_size
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def stored_rows(place: str) -> list[Row]:
    """Every row in the folder of an experiment, of all its trials."""
    files, path = filesystem_and_path(place)
    found = files.get_file_info(FileSelector(path))
    folders = [info.path for info in found if info.type == FileType.Directory]
    return [row for folder in folders for row in Lines.parse(read_log(files, folder)).rows]
