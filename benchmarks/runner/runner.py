"""Runs experiments at equal budgets, on this machine or a cluster, resumable."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from rich.console import Console

from baselines import METHODS, EarlierResult
from benchmarks.durations import count
from benchmarks.errors import SettingsError
from benchmarks.runner.caveats import print_caveats
from benchmarks.runner.experiment import BudgetError, ExperimentError, Job, run_experiment
from benchmarks.runner.lock import FolderLock
from benchmarks.runner.log import earlier_result, unpack_log
from benchmarks.runner.options import Options, check_experiments
from benchmarks.runner.progress import Board, ProgressRow, ProgressTable
from benchmarks.runner.run_record import command_line, describe_experiment, make_record
from benchmarks.runner.session import Session
from benchmarks.runner.store import Store
from stn_tune import Schedule
from stn_tune.record import ExperimentInfo, RunRecord

CANCEL_S = 20
"""How long interrupted experiments may take to save their checkpoints."""


def run_experiments(options: Options, experiments: Sequence[ExperimentInfo], console: Console | None = None) -> bool:
    """Runs the experiments that have not finished yet; True if in the end all have."""
    with FolderLock(options.out) as lock:
        return _run_locked(options, experiments, console or Console(), lock)


def _run_locked(options: Options, experiments: Sequence[ExperimentInfo], console: Console, lock: FolderLock) -> bool:
    store = Store(options.out)
    check_experiments(options, experiments, store.finished)
    p = options.problem()
    experiments = [describe_experiment(e, options.problem(e)) for e in experiments]
    schedule = options.given_schedule()
    before = store.record()
    record = make_record(options, p, experiments, before)
    waiting = [e for e in experiments if not store.finished(e.name)]
    if not waiting:
        done = "everything" if len(experiments) > 1 else experiments[0].name
        console.print(f"{done} in {options.out} is finished", highlight=False, soft_wrap=True)
        return True
    if options.resume and before is None:
        console.print(f"nothing in {options.out} yet: starting a new run", highlight=False, soft_wrap=True)
    if options.oversubscribed:
        console.print(f"warning: {options.oversubscribed}", style="yellow", highlight=False, soft_wrap=True)
    p.task.loaders(p.initial)
    store.create()
    try:
        storage = _storage(options, record)
        if not ray.is_initialized():
            console.print("starting Ray …", highlight=False)
        with Session(options) as session:
            session.check_storage(storage)
            store.write_record(record)
            queue = _Queue(options, store, storage, session.parallel, experiments, waiting, console, schedule, lock)
            complete = queue.run()
        print_caveats(record, store, console)
        return complete
    except SettingsError:
        if before is None:
            store.discard()
        raise


def _storage(options: Options, record: RunRecord) -> str:
    """Where Tune keeps this run's folders: a place of its own, absolute, known to exist."""
    base = options.storage or os.environ.get("RAY_AIR_LOCAL_CACHE_DIR") or "~/ray_results"
    name = f"{record.name}-{record.extra['id']}"
    if "://" in base:
        return f"{base.rstrip('/')}/{name}"
    folder = Path(base).expanduser().absolute() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
    except OSError as error:
        raise SettingsError(f"--storage {base} cannot be written: {error.strerror}") from None
    return str(folder)


@dataclass
class _Queue:
    """The loop that runs as many experiments at a time as fit."""

    options: Options
    store: Store
    storage: str
    parallel: int
    experiments: Sequence[ExperimentInfo]
    waiting: list[ExperimentInfo]
    console: Console
    schedule: Schedule | None
    lock: FolderLock
    _running: dict[Any, ExperimentInfo] = field(default_factory=dict)
    _failed: list[str] = field(default_factory=list)
    _rows: dict[str, ProgressRow] = field(default_factory=dict)

    def run(self) -> bool:
        name = f"board-{Path(self.storage).name}"
        board = Board.options(name=name).remote()  # type: ignore[attr-defined]
        self._rows = {e.name: ProgressRow(e, self.options.budget_s) for e in self.experiments}
        for e in self.experiments:
            if e not in self.waiting:
                self._show_finished(e, self.store.read_log(e.name))
        # max_calls: a worker that has run a driver is not reused for a trial, whose clock counts the process's CPU time
        remote = ray.remote(num_cpus=0, max_retries=-1, max_calls=1, scheduling_strategy="SPREAD")
        driver = remote(run_experiment)
        title = (
            f"{self.options.task}, preset {self.options.preset}: {count(len(self.experiments), 'experiment')} of "
            f"{self.options.budget_s:.0f} compute-seconds"
            + (f", {self.parallel} at a time" if len(self.experiments) > 1 else "")
        )
        try:
            with ProgressTable(title, self._rows, self.console) as progress:
                while self.waiting or self._running:
                    self._start(driver, name)
                    if not self._running:
                        break
                    done, _ = ray.wait(list(self._running), timeout=0.5)
                    self.lock.check()
                    for ref in done:
                        e = self._running.pop(ref)
                        self._collect(e, ref)
                        progress.say(self._rows[e.name])
                    for key, state in ray.get(board.read.remote()).items():
                        if key in self._rows and self._rows[key].status == "running":
                            self._rows[key].update(state)
                    progress.update()
        except KeyboardInterrupt:
            self._interrupt()
            raise
        for line in self._failed:
            self.console.print(f"failed: {line}", style="red", highlight=False)
        return not self._failed

    def _start(self, driver: Any, board: str) -> None:
        for e in list(self.waiting):
            if len(self._running) >= self.parallel:
                return
            needed = self.options.needed(e)
            if needed is not None and not self.store.finished(needed.name):
                if self._rows[needed.name].status == "failed":
                    self._give_up(e, f"{e.name}: {needed.name} has failed")
                    self.waiting.remove(e)
                continue
            self.waiting.remove(e)
            self._running[driver.remote(self._job(e, board))] = e
            self._rows[e.name].status, self._rows[e.name].started = "running", time.monotonic()

    def _job(self, e: ExperimentInfo, board: str) -> Job:
        method, needed = METHODS[e.method], self.options.needed(e)
        earlier = {}
        if needed is not None:
            earlier = {needed.method: earlier_result(self.store.read_log(needed.name), self.options.problem(e))}
        elif method.info.builds_on is not None:
            earlier = {method.info.builds_on: EarlierResult({}, {}, self.schedule)}
        return Job(e, method, self.options.anywhere(), self.storage, board, earlier)

    def _collect(self, e: ExperimentInfo, ref: Any) -> None:
        try:
            data = ray.get(ref)
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, BudgetError):
                raise SettingsError(f"--budget: {cause}") from None
            why = str(cause if isinstance(cause, ExperimentError) else error).strip().splitlines()[-1]
            self._give_up(e, why if why.startswith(e.name) else f"{e.name}: {why}")
        else:
            if METHODS[e.method].online:
                schedule = earlier_result(data, self.options.problem(e)).schedule
                assert schedule is not None
                self.store.write_schedule(e.name, schedule)
            self.store.write_log(e.name, data)  # last: an experiment that has a log is finished
            self._show_finished(e, data)

    def _show_finished(self, e: ExperimentInfo, data: bytes) -> None:
        head, rows = unpack_log(data)
        row = self._rows[e.name]
        row.status = "finished"
        best = min(r["best_val_loss"] for r in rows)
        row.update({"spent": rows[-1]["compute_s"], "trials": len(head["trials"]), "best": best})

    def _give_up(self, e: ExperimentInfo, why: str) -> None:
        self._failed.append(why)
        self._rows[e.name].status, self._rows[e.name].note = "failed", why

    def _interrupt(self) -> None:
        if not self.options.resumable:
            return
        self.console.print("\ninterrupted: saving checkpoints …", highlight=False)
        for ref in self._running:
            ray.cancel(ref, recursive=False)
        if self._running:
            ray.wait(list(self._running), num_returns=len(self._running), timeout=CANCEL_S)
        resume = command_line() if "--resume" in sys.argv else f"{command_line()} --resume"
        self.console.print(f"resume with:\n  {resume}", highlight=False, soft_wrap=True)
