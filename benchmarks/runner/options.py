"""What the command line says about a run, and the checks that need neither torch nor Ray."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import stn_tune as stn
from baselines import METHODS
from benchmarks.errors import SettingsError
from benchmarks.tasks import Problem, check_tuned, problem
from benchmarks.tasks.settings import read_settings
from stn_tune.errors import ScheduleError, unknown
from stn_tune.record import Clock, ExperimentInfo, Published

if TYPE_CHECKING:
    from stn_tune import Schedule


@dataclass(frozen=True)
class Options:
    """The options of a run, whatever its experiments are."""

    task: str
    """The name of a task."""
    out: Path
    """The folder of the results."""
    budget_s: float
    """Compute-seconds per experiment."""
    preset: str = "small"
    """The size of the task."""
    overrides: tuple[str, ...] = ()
    """``--set``: changes of the preset's settings."""
    tuned: tuple[str, ...] = ()
    """Which hyperparameters are tuned; empty: all."""
    workers: int = 1
    """Trials of an experiment at a time."""
    cpus: float = 1
    """Per trial."""
    gpus: float = 0
    """Per trial."""
    address: str | None = None
    """Of a Ray cluster; None: this machine alone."""
    storage: str | None = None
    """Where Tune keeps its folders."""
    data: Path | None = None
    """The data folder; None: the default."""
    resume: bool = False
    """Whether to go on with the run in ``out``."""
    resumable: bool = True
    """Whether Tune's folders outlive the command, so that it can be resumed."""
    schedule: Path | None = None
    """What ``replay`` follows; None: what ``stn`` finds in the same run."""
    study: str = "run"
    """Which study it is."""
    published: Published | None = None
    """Values to show beside the measured ones."""

    def __post_init__(self) -> None:
        if not self.cpus and not self.gpus:
            raise SettingsError("--cpus and --gpus are both 0; a trial needs CPUs or GPUs")

    @property
    def clock(self) -> Clock:
        """What compute-seconds count."""
        return "device" if self.gpus else "cpu"

    def check_fits(self) -> None:
        """Raises SettingsError at once if this machine alone has too few cores for the trials of one experiment."""
        cores = os.cpu_count() or 1
        if self.address is None and self.workers * self.cpus > cores:
            raise SettingsError(
                f"--workers {self.workers} with --cpus {self.cpus:g} each need {self.workers * self.cpus:g} cores; "
                f"this machine has {cores}"
            )

    @property
    def oversubscribed(self) -> str:
        """A sentence about trials that share cores; empty where every trial has one."""
        cores = os.cpu_count() or 1
        if self.address is not None or self.gpus or self.workers <= cores:
            return ""
        return f"--workers {self.workers}: {self.workers} trials share {cores} cores, so they take turns"

    def anywhere(self) -> Options:
        """The same for a process with another working directory."""
        return self if self.data is None else replace(self, data=self.data.absolute())

    def check_names(self) -> None:
        """Raises SettingsError for an unknown task, preset, setting or hyperparameter."""
        data = read_settings(self.task, self.preset, self.overrides)
        if isinstance(data["space"], dict):
            check_tuned(self.task, self.tuned, data["space"])

    def problem(self, e: ExperimentInfo | None = None) -> Problem:
        """The run's problem, or an experiment's variant of it."""
        changes, tuned = ((), ()) if e is None else (e.overrides, e.tuned)
        return problem(self.task, self.preset, [*self.overrides, *changes], self.data, tuned or self.tuned)

    def given_schedule(self) -> Schedule | None:
        """The schedule of ``--schedule``, in the task's own space."""
        if self.schedule is None:
            return None
        try:
            return stn.Schedule.load(self.schedule).fitted(self.problem().settings.domains())
        except OSError as error:
            raise SettingsError(f"--schedule {self.schedule} cannot be read: {error.strerror}") from None
        except ScheduleError as error:
            raise SettingsError(f"--schedule {self.schedule} does not fit {self.task}: {error}") from None

    def needed(self, e: ExperimentInfo) -> ExperimentInfo | None:
        """The experiment whose results ``e`` builds on: another method, as it is, at the same seed."""
        method = METHODS[e.method]
        if method.info.builds_on is None or (self.schedule is not None and method.takes_schedule):
            return None
        return ExperimentInfo(method.info.builds_on, e.seed)


def check_experiments(options: Options, experiments: Sequence[ExperimentInfo], finished: Callable[[str], bool]) -> None:
    """Raises SettingsError for experiments that cannot be run together."""
    for e in experiments:
        if e.method not in METHODS:
            raise SettingsError(unknown("method", e.method, METHODS))
    followers = [name for name, method in METHODS.items() if method.takes_schedule]
    if options.schedule is not None and not any(e.method in followers for e in experiments):
        raise SettingsError(f"--schedule is only used by {', '.join(followers)}; add it to --methods")
    names = Counter(e.name for e in experiments)
    repeated = [name for name, count in names.items() if count > 1]
    if repeated:
        raise SettingsError(f"{', '.join(repeated)}: asked for twice; give every method, value and seed once")
    for e in experiments:
        needed = options.needed(e)
        if needed is not None and needed.name not in names and not finished(needed.name):
            raise SettingsError(
                f"{e.method} builds on the results of {needed.method} at seed {e.seed}; "
                f"add {needed.method} to --methods"
            )
