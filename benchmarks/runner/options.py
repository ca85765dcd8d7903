"""What the command line says of a run: options, budgets, seeds, and which experiments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from baselines import METHODS
from benchmarks.experiment import Experiment
from benchmarks.settings import SettingsError, nearest
from benchmarks.tasks import Problem, problem
from stn_tune import Schedule, ScheduleError


@dataclass(frozen=True)
class Options:
    """What the command line says of a run, whatever its experiments are."""

    task: str
    out: Path
    budget_s: float
    preset: str = "small"
    overrides: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()
    workers: int = 1
    cpus: float = 1
    gpus: float = 0
    address: str | None = None
    storage: str | None = None
    data: Path | None = None
    resume: bool = False
    schedule: Path | None = None
    """What ``replay`` follows; by default what ``stn`` finds in the same run."""
    command: str = "run"

    def __post_init__(self) -> None:
        if not self.cpus and not self.gpus:
            raise SettingsError("--cpus is 0, and --gpus too: a trial needs some of one or the other")

    def problem(self, e: Experiment | None = None) -> Problem:
        """The run's problem, or what an experiment makes of it."""
        changes, tuned = ((), ()) if e is None else (e.changes, e.tuned)
        return problem(self.task, self.preset, [*self.overrides, *changes], self.data, tuned or self.tuned)

    def given_schedule(self) -> Schedule | None:
        """The schedule of ``--schedule``, in the task's own space."""
        if self.schedule is None:
            return None
        try:
            return Schedule.load(self.schedule).fitted(self.problem().settings.domains())
        except OSError as error:
            raise SettingsError(f"--schedule {self.schedule} cannot be read: {error.strerror}") from None
        except ScheduleError as error:
            raise SettingsError(f"--schedule {self.schedule} does not fit {self.task}: {error}") from None


def seconds(text: str) -> float:
    """``90s``, ``20m``, ``6h`` or ``1h30m`` in seconds."""
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    total = sum(float(n) * unit for n, unit in zip(parts.groups(), (3600, 60, 1), strict=True) if n) if parts else 0.0
    if not total > 0:
        raise SettingsError(f"--budget {text!r} is no duration; write 90s, 20m, 6h or 1h30m")
    return total


def seed_list(text: str) -> list[int]:
    """``5`` is a count: 0 to 4; ``0,3,7`` is a list; ``7,`` a list of one."""
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if "," not in text and numbers and numbers[0] < 2**32:
        numbers = list(range(numbers[0]))
    if not numbers or min(numbers) < 0 or max(numbers) >= 2**32 or len(set(numbers)) < len(numbers):
        raise SettingsError(
            f"--seeds {text!r} is neither a count (5) nor a list of different seeds (0,3,7), all below 2**32"
        )
    return numbers


def choose(methods: Sequence[str], seeds: Sequence[int], schedule: bool = False) -> list[Experiment]:
    """One experiment per method and seed, seed by seed, so that an early end leaves whole comparisons.

    Where a ``schedule`` is given, ``replay`` needs none of ``stn``.
    """
    for name in methods:
        if name not in METHODS:
            raise SettingsError(f"unknown method {name!r}{nearest(name, METHODS)}")
    if schedule and "replay" not in methods:
        raise SettingsError("--schedule is what replay follows: add replay to --methods")
    if len(set(methods)) < len(methods):
        raise SettingsError(f"--methods names one twice: {' '.join(methods)}")
    needs = {name: None if schedule and name == "replay" else METHODS[name].info.builds_on for name in methods}
    return [Experiment(name, seed, needs=needs[name]) for seed in seeds for name in methods]
