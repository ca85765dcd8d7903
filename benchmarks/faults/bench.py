"""The workbench of the fault suite: a tiny experiment, its undisturbed losses, and the verdict on a disturbed one."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from baselines import METHODS
from benchmarks.runner import budget, row_log
from benchmarks.runner.experiment import Job, run_experiment
from benchmarks.runner.log import unpack_log
from benchmarks.runner.options import Options
from benchmarks.runner.row_log import ROWS
from benchmarks.tasks import problem
from stn_tune.analysis.trials import Lines, Row
from stn_tune.raytune.internals import STATE_FILES, LocalUpload, staging_folders
from stn_tune.record import ExperimentInfo

TASK, PRESET, OVERRIDES = "digits", "smoke", ("examples=80", "patience=14")
BUDGET_S = 900.0
"""More than a training takes on the busiest machine: it ends by itself."""
GONE_S = 60.0
"""How long processes may take to end."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    survived: bool
    lost: int
    """Iterations that had been reported and were computed again, or that are missing."""
    reason: str = ""
    """Why it did not survive."""


@dataclass
class Bench:
    """A folder for one case, and what is run in it."""

    folder: Path
    seed: int
    """Of the training."""
    case: int = 0
    address: str | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def experiment(self) -> ExperimentInfo:
        """A name of its own for every case: Tune keeps files by name outside of the folder, too."""
        return ExperimentInfo("stn", self.seed, {"case": f"{self.folder.name}"})

    @property
    def storage(self) -> Path:
        """Where Tune keeps its files."""
        return self.folder / "storage"

    @property
    def options(self) -> Options:
        """Of the runner."""
        return Options(
            TASK,
            self.folder / "out",
            BUDGET_S,
            PRESET,
            OVERRIDES,
            storage=str(self.storage),
            resume=True,
            address=self.address,
        )

    def run(self) -> bytes:
        """The experiment, from wherever its files are, driven by this process; gives its log.

        Nothing but storage is left of an earlier run, as in a new process, on a machine that was started anew.
        """
        budget._here.clear()
        e = self.experiment
        for folder in staging_folders(e.name):
            shutil.rmtree(folder, ignore_errors=True)
        self.storage.mkdir(parents=True, exist_ok=True)
        return run_experiment(Job(e, METHODS[e.method], self.options.anywhere(), str(self.storage)))

    def rows(self) -> list[Row]:
        """All rows that are in storage, in the order in which they were reported."""
        logs = sorted(self.storage.glob(f"**/{ROWS}"), key=lambda path: path.stat().st_mtime_ns)
        return [row for log in logs for row in Lines.parse(_read(log)).rows]

    def once(self, rows: int, act: Callable[[list[Row]], None]) -> threading.Thread:
        """Calls ``act`` in a thread as soon as that many rows are in storage."""

        def watch() -> None:
            while not self._stop.wait(0.02):
                found = self.rows()
                if len(found) >= rows:
                    act(found)
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Ends watching."""
        self._stop.set()

    def judge(self, log: bytes, spare_rows: int = 0) -> Outcome:
        """Compares every reported loss with the undisturbed training's.

        ``spare_rows``: rows that may be missing, because the fault has damaged the file that they were in.
        """
        losses = undisturbed(self.seed)
        head, packed = unpack_log(log)
        rows = self.rows()
        found = {row["training_iteration"] for row in rows}
        missing = set(range(1, len(losses) + 1)) - found
        lost = len(rows) - len(found) + len(missing)
        wrong = [r["training_iteration"] for r in rows if r["val_loss"] != losses[r["training_iteration"] - 1]]
        if wrong:
            return Outcome(False, lost, f"the loss of iteration {wrong[0]} differs")
        if len(missing) > spare_rows or len(head["trials"]) != 1:
            return Outcome(False, lost, f"iterations missing: {len(missing)}, trials: {len(head['trials'])}")
        if not packed[-1]["done"]:
            return Outcome(False, lost, "the training did not end")
        return Outcome(True, lost)


@cache
def undisturbed(seed: int) -> list[float]:
    """The validation losses of a training that nothing disturbs, in this process."""
    torch.set_num_threads(1)  # as a trial with one CPU does: sums depend on the number of threads
    p = problem(TASK, PRESET, OVERRIDES)
    trainable = p.self_tuned()(config={**p.initial, "seed": seed})
    losses: list[float] = []
    done = False
    while not done:
        row = trainable.train()
        losses.append(row["val_loss"])
        done = row["done"]
    trainable.stop()
    return losses


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def family(*roots: int) -> list[int]:
    """Processes and all that descend from them."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in table.splitlines())}
    found = list(roots)
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def busy_workers(*roots: int) -> dict[int, str]:
    """Ray's processes below these that run a driver or a trial: process -> title."""
    titles = {pid: _read(Path(f"/proc/{pid}/cmdline")).decode(errors="replace") for pid in family(*roots)}
    return {pid: title for pid, title in titles.items() if title.startswith(("ray::run_", "ray::ResourceTrainable"))}


def left_behind(*roots: int) -> list[str]:
    """Drivers and trials that still run after a while."""
    deadline = time.monotonic() + GONE_S
    while (found := busy_workers(*roots)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return list(found.values())


def kill(pid: int) -> None:
    """SIGKILL; a process that has gone is no error."""
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return


def copy_storage(source: Path, target: Path) -> None:
    """The files of an experiment as they are at this moment, however far each was written.

    A copy takes a while, in which the experiment goes on: what is written last, the state, is copied first, then
    checkpoints, then rows. So the copy holds nothing that a crash could not leave.
    """
    for _ in range(20):
        shutil.rmtree(target, ignore_errors=True)
        try:
            for path in sorted((path for path in source.rglob("*") if path.is_file()), key=_rank):
                copied = target / path.relative_to(source)
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copied)
            return
        except OSError:  # a checkpoint was deleted meanwhile
            time.sleep(0.01)


def _rank(path: Path) -> int:
    if path.name.startswith(STATE_FILES):
        return 0
    return 1 if path.parent.name.startswith("checkpoint_") else 2 + (path.name == ROWS)


@cache
def snapshots(folder: Path, seed: int) -> list[Path]:
    """What is in storage after each row and each saved state of an undisturbed training; run once for all cases.

    The last rows are left out, so that something is left to do.
    """
    recorded = Bench(folder / f"recorded-{seed}", seed)
    whole = len(undisturbed(seed))
    found: list[Path] = []

    def then_copied(write: Callable[..., Any]) -> Callable[..., Any]:
        def written(*arguments: Any, **options: Any) -> Any:
            result = write(*arguments, **options)
            if 0 < len(recorded.rows()) <= whole - 2:
                found.append(recorded.folder / f"moment-{len(found)}")
                copy_storage(recorded.storage, found[-1])
            return result

        return written

    with (
        patch.object(row_log, "append", then_copied(row_log.append)),
        patch.object(LocalUpload, "sync_up", then_copied(LocalUpload.sync_up)),
    ):
        recorded.run()
    return found


def only(folder: Path, pattern: str) -> Any:
    """The files of a pattern, sorted."""
    return sorted(path for path in folder.glob(pattern) if path.is_file())
