"""The benchmark's problems: a task with its space, in a preset's size. Imports torch when a task is made.

A module of this package has ``ENTRIES``: task name -> :class:`TaskEntry`. Its presets are in ``presets/<name>.toml``.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stn_tune as stn
from baselines.plan import SearchSettings
from benchmarks.errors import SettingsError
from benchmarks.presets import check_task
from benchmarks.tasks.settings import Settings, load_settings
from stn_tune.errors import unknown_hyperparameter
from stn_tune.record import HyperparameterInfo, Kind, TaskInfo

if TYPE_CHECKING:
    TASKS: Mapping[str, TaskEntry]


@dataclass(frozen=True)
class TaskEntry:
    """How a task is made, and how it is presented."""

    settings: type[Settings]
    """Its kind of settings."""
    make: Callable[[Any, Path], stn.Task]
    """From its settings and the data folder."""
    title: str
    """As people read it: "Penn Treebank"."""
    unit: str = ""
    """Of its loss."""
    hyperparameter_titles: Mapping[str, str] = field(default_factory=dict)
    """Where they are not the names with spaces in place of underscores."""
    hyperparameter_units: Mapping[str, str] = field(default_factory=dict)
    """Where they have one."""


@cache
def _entries() -> dict[str, TaskEntry]:
    found: dict[str, TaskEntry] = {}
    for module in pkgutil.iter_modules(__path__):
        found |= getattr(import_module(f"{__name__}.{module.name}"), "ENTRIES", {})
    return found


def __getattr__(name: str) -> Any:
    if name == "TASKS":
        return _entries()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(frozen=True)
class Problem:
    """All that a method needs to know: one task, one space, one set of settings."""

    name: str
    """Of the task."""
    preset: str
    """Its size."""
    settings: Settings
    """All of them, resolved."""
    task: stn.Task
    """What is trained."""
    tuned: tuple[str, ...]
    """Which hyperparameters are tuned; all others keep their initial values."""

    @property
    def info(self) -> TaskInfo:
        """How results of this problem are presented."""
        entry = _entries()[self.name]
        domains = stn.HyperSpace(self.settings.domains())
        space = {name: _hyperparameter(name, domains, self.initial[name], entry) for name in domains}
        return TaskInfo(self.name, entry.title, "val_loss", "min", entry.unit, space)

    @property
    def space(self) -> dict[str, Any]:
        """What is tuned, as Tune domains."""
        domains = self.settings.domains()
        return {name: domains[name] for name in self.tuned}

    @property
    def initial(self) -> dict[str, float]:
        """The initial value of every hyperparameter, tuned or not."""
        return self.settings.initial()

    @property
    def levels(self) -> dict[str, list[float]]:
        """The grid's values."""
        return self.settings.levels()

    @property
    def lr(self) -> float:
        """The initial learning rate."""
        return self.settings.lr

    @property
    def grid_order(self) -> str:
        """``"shuffled"`` or ``"tune"``."""
        return self.settings.grid_order

    @property
    def searches(self) -> SearchSettings:
        """What the searches and populations are run with."""
        return self.settings

    @property
    def stn_options(self) -> dict[str, Any]:
        """For ``STNSearch`` and ``STNTrainable.of``."""
        return self.settings.stn_options(self.tuned)

    def plain_settings(self) -> dict[str, Any]:
        """All settings as plain data, for the run record."""
        return asdict(self.settings)

    def fixed(self, **options: Any) -> type[stn.FixedTrainable]:
        """A trainable at fixed values or along a schedule."""
        return stn.FixedTrainable.of(self.task, **options)

    def self_tuned(self, **options: Any) -> type[stn.STNTrainable]:
        """A trainable that tunes the space inside the trial."""
        return stn.STNTrainable.of(self.task, space=self.space, **{**self.stn_options, **options})


def _hyperparameter(name: str, space: stn.HyperSpace, initial: float, entry: TaskEntry) -> HyperparameterInfo:
    domain = space.to_json()[name]
    kind: Kind = "coefficient"
    if space.transform(name).discrete:
        kind = "count"
    elif domain["lower"] >= 0 and domain["upper"] <= 1:
        kind = "rate"
    title = entry.hyperparameter_titles.get(name, name.replace("_", " "))
    return HyperparameterInfo(title, kind, domain, initial, entry.hyperparameter_units.get(name, ""))


def problem(
    name: str,
    preset: str,
    overrides: Sequence[str] = (),
    data: Path | None = None,
    tuned: Sequence[str] = (),
) -> Problem:
    """A task by name, in the size of a preset, with ``key=value`` overrides; ``tuned`` empty: everything is tuned."""
    from benchmarks.data.download import data_dir

    check_task(name)
    entry = _entries()[name]
    settings = load_settings(name, preset, entry.settings, overrides)
    check_tuned(name, tuned, settings.space)
    task = entry.make(settings, data_dir(None) if data is None else data)
    return Problem(name, preset, settings, task, tuple(tuned) or tuple(settings.space))


def check_tuned(task: str, tuned: Sequence[str], space: Mapping[str, Any]) -> None:
    """Raises SettingsError for a name that is not in the task's space."""
    for name in tuned:
        if name not in space:
            raise SettingsError(f"{task}: {unknown_hyperparameter(name, space)}")
