"""``python -m benchmarks run``: methods × seeds at equal budgets, on this machine or a cluster, resumable."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import ray
from rich.console import Console

from baselines import Found
from benchmarks.experiment import BudgetError, Experiment, ExperimentError, Job, conduct
from benchmarks.machine import commit, machine, versions
from benchmarks.options import Options
from benchmarks.progress import Board, Line, Progress
from benchmarks.record import FORMAT, Record, difference, found, plain_settings, unpack
from benchmarks.session import Session
from benchmarks.settings import SettingsError
from benchmarks.tasks import Problem
from stn_tune import Schedule


def run(options: Options, experiments: Sequence[Experiment], console: Console | None = None) -> bool:
    """Runs what is not finished yet; True if in the end all of it is."""
    console = console or Console()
    p = options.problem()
    for e in experiments:
        options.problem(e)
    twice = [name for name, count in Counter(e.name for e in experiments).items() if count > 1]
    if twice:
        raise SettingsError(f"{', '.join(twice)}: asked for twice; give every value once")
    record = Record(options.out)
    schedule = options.given_schedule()
    config = _config(options, p, experiments, record)
    _check_needs(experiments, record)
    todo = [e for e in experiments if not record.finished(e.name)]
    if not todo:
        console.print(f"all {len(experiments)} experiments of {options.out} are finished", highlight=False)
        return True
    p.task.loaders(p.initial)
    new = record.config() is None
    record.create()
    try:
        storage = _storage(options, config)
        with Session(options) as session:
            session.check_storage(storage)
            record.write_config(config)
            return _Run(options, record, storage, session.lanes, list(experiments), todo, console, schedule).go()
    except SettingsError:
        if new:
            record.discard()
        raise


def _config(options: Options, p: Problem, experiments: Sequence[Experiment], record: Record) -> dict[str, Any]:
    """The run's config.json: new, or the one that is there with this go added."""
    fixed = {
        "command": options.command,
        "task": options.task,
        "preset": options.preset,
        "settings": plain_settings(p),
        "tuned": list(p.tuned),
        "budget_s": options.budget_s,
        "workers": options.workers,
        "cpus": options.cpus,
        "gpus": options.gpus,
    }
    replayed = None if options.schedule is None else hashlib.sha256(options.schedule.read_bytes()).hexdigest()[:12]
    before = record.config()
    if before is None and record.any_finished():
        raise SettingsError(f"{options.out} holds logs and no config.json to tell what they are: choose another --out")
    if before is not None:
        if not options.resume:
            raise SettingsError(
                f"{options.out} holds a run already: add --resume to carry it on, or choose another --out"
            )
        changed = difference({key: before.get(key) for key in fixed}, fixed)
        if changed:
            raise SettingsError(f"--resume: {options.out} was begun with other settings: {changed}")
        replays = any(name.startswith("replay-") for name in before["experiments"])
        if replays and any(e.method == "replay" for e in experiments) and before.get("schedule", replayed) != replayed:
            raise SettingsError(f"--resume: the replays in {options.out} follow another --schedule than this one")
    config = before or {
        "format": FORMAT,
        "name": options.out.name,
        "id": uuid.uuid4().hex[:8],
        "set": list(options.overrides),
        **fixed,
        "metric": "val_loss",
        "mode": "min",
        "experiments": [],
        "goes": [],
    }
    if any(e.method == "replay" for e in experiments):
        config["schedule"] = replayed
    config["experiments"] += [e.name for e in experiments if e.name not in config["experiments"]]
    go = {
        "command": command_line(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **commit(),
        "versions": versions(),
        "machine": machine(),
    }
    config["goes"] = [*config["goes"], go]
    return config


def command_line() -> str:
    """As the user typed it, whatever the path of the interpreter."""
    return shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])


def _check_needs(experiments: Sequence[Experiment], record: Record) -> None:
    names = {e.name for e in experiments}
    for e in experiments:
        if e.needed and e.needed not in names and not record.finished(e.needed):
            raise SettingsError(
                f"{e.title} builds on what {e.needs} finds at seed {e.seed}: add {e.needs} to --methods"
            )


def _storage(options: Options, config: dict[str, Any]) -> str:
    """Where Tune keeps this run's folders: a place of its own, absolute, known to exist."""
    base = options.storage or os.environ.get("RAY_AIR_LOCAL_CACHE_DIR") or "~/ray_results"
    name = f"{config['name']}-{config['id']}"
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
class _Run:
    """The loop that keeps every lane busy."""

    options: Options
    record: Record
    storage: str
    lanes: int
    experiments: list[Experiment]
    todo: list[Experiment]
    console: Console
    schedule: Schedule | None
    _running: dict[Any, Experiment] = field(default_factory=dict)
    _failed: list[str] = field(default_factory=list)

    def go(self) -> bool:
        name = f"board-{Path(self.storage).name}"
        board = Board.options(name=name).remote()
        self._lines = {e.name: Line(e, self.options.budget_s) for e in self.experiments}
        for e in self.experiments:
            if e not in self.todo:
                self._finished(e, self.record.read(e.name))
        driver = ray.remote(num_cpus=0, max_retries=-1, scheduling_strategy="SPREAD")(conduct)
        title = (
            f"{self.options.task}, preset {self.options.preset}: {len(self.experiments)} experiments of "
            f"{self.options.budget_s:.0f} compute-seconds, {self.lanes} at a time"
        )
        try:
            with Progress(title, self._lines, self.console) as progress:
                while self.todo or self._running:
                    self._start(driver, name)
                    if not self._running:
                        break
                    done, _ = ray.wait(list(self._running), timeout=0.5)
                    for ref in done:
                        e = self._running.pop(ref)
                        self._collect(e, ref)
                        progress.say(self._lines[e.name])
                    for key, state in ray.get(board.read.remote()).items():
                        if key in self._lines and self._lines[key].status == "running":
                            self._lines[key].update(state)
                    progress.update()
        except KeyboardInterrupt:
            self._interrupt()
            raise
        for line in self._failed:
            self.console.print(f"failed: {line}", style="red", highlight=False)
        return not self._failed

    def _start(self, driver: Any, board: str) -> None:
        for e in list(self.todo):
            if len(self._running) >= self.lanes:
                return
            if e.needed and not self.record.finished(e.needed):
                if self._lines[e.needed].status == "failed":
                    self._give_up(e, f"{e.needs} has failed")
                    self.todo.remove(e)
                continue
            self.todo.remove(e)
            job = self._job(e, board)
            self._running[driver.remote(job)] = e
            self._lines[e.name].status, self._lines[e.name].started = "running", time.monotonic()

    def _job(self, e: Experiment, board: str) -> Job:
        o = self.options
        data = None if o.data is None else o.data.absolute()
        job = Job(
            e, o.task, o.preset, o.overrides, o.tuned, data, o.budget_s, o.workers, o.cpus, o.gpus, self.storage, board
        )
        if e.needs and e.needed:
            return job.with_found(e.needs, found(self.record.read(e.needed), o.problem(e)))
        return job if self.schedule is None else job.with_found("stn", Found({}, {}, self.schedule))

    def _collect(self, e: Experiment, ref: Any) -> None:
        try:
            data = ray.get(ref)
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, BudgetError):
                raise SettingsError(f"--budget: {cause}") from None
            why = str(cause if isinstance(cause, ExperimentError) else error).strip().splitlines()[-1]
            self._give_up(e, why if why.startswith(e.name) else f"{e.name}: {why}")
        else:
            if e.method == "stn":
                schedule = found(data, self.options.problem(e)).schedule
                assert schedule is not None
                self.record.write_schedule(e.name, schedule)
            self.record.write(e.name, data)  # last: an experiment whose log is there is finished
            self._finished(e, data)

    def _finished(self, e: Experiment, data: bytes) -> None:
        head, rows = unpack(data)
        line = self._lines[e.name]
        line.status = "finished"
        best = min(row["best_val_loss"] for row in rows)
        line.update({"spent": rows[-1]["compute_s"], "trials": len(head["trials"]), "best": best})

    def _give_up(self, e: Experiment, why: str) -> None:
        self._failed.append(why)
        self._lines[e.name].status, self._lines[e.name].note = "failed", why

    def _interrupt(self) -> None:
        self.console.print("\nstopping: trials save where they are …", highlight=False)
        for ref in self._running:
            ray.cancel(ref, recursive=False)
        ray.wait(list(self._running), num_returns=len(self._running), timeout=20) if self._running else None
        resume = command_line() if "--resume" in sys.argv else f"{command_line()} --resume"
        self.console.print(f"carry on with:\n  {resume}", highlight=False, soft_wrap=True)
