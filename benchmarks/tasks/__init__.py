"""The benchmark's problems: a task with its space, in a preset's size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import stn_tune as stn
from benchmarks.data import cifar10, embedded, ptb
from benchmarks.models.alexnet import AlexNet
from benchmarks.models.small_cnn import SmallCNN
from benchmarks.settings import ImageSettings, LanguageSettings, Settings, SettingsError, TheorySettings, load, nearest
from benchmarks.tasks.images import ImageTask
from benchmarks.tasks.language import LanguageTask
from benchmarks.tasks.theory import TheoryTask
from stn_tune.record import HyperparameterInfo, Kind, TaskInfo

CIFAR10_MEAN, CIFAR10_STD = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)


def _cuts(s: LanguageSettings) -> dict[str, Any]:
    return {
        "vocabulary": s.vocabulary,
        "tokens": s.tokens,
        "valid_tokens": s.valid_tokens,
        "test_tokens": s.test_tokens,
    }


def ptb_task(settings: LanguageSettings, data: Path) -> stn.Task:
    """Penn Treebank, Mikolov's split."""
    return LanguageTask(settings, partial(ptb.load, data, **_cuts(settings)))


def pydoc_task(settings: LanguageSettings, data: Path) -> stn.Task:
    """The text of Python's own documentation topics: nothing to download."""
    return LanguageTask(settings, partial(embedded.pydoc, **_cuts(settings)))


def cifar10_task(settings: ImageSettings, data: Path) -> stn.Task:
    """CIFAR-10 with AlexNet."""
    return ImageTask(settings, partial(cifar10.load, data), alexnet, CIFAR10_MEAN, CIFAR10_STD)


def digits_task(settings: ImageSettings, data: Path) -> stn.Task:
    """scikit-learn's digits with a small CNN: nothing to download."""
    return ImageTask(settings, embedded.digits, small_cnn, (0.305,), (0.376,))


def theory_task(settings: TheorySettings, data: Path) -> stn.Task:
    """Linear networks whose best response is known: nothing to download."""
    return TheoryTask(settings)


def alexnet(settings: ImageSettings) -> AlexNet:
    return AlexNet(settings.channels, settings.hidden)


def small_cnn(settings: ImageSettings) -> SmallCNN:
    return SmallCNN(settings.channels, settings.hidden)


TASKS: dict[str, tuple[type[Settings], Callable[[Any, Path], stn.Task]]] = {
    "ptb": (LanguageSettings, ptb_task),
    "cifar10": (ImageSettings, cifar10_task),
    "pydoc": (LanguageSettings, pydoc_task),
    "digits": (ImageSettings, digits_task),
    "theory": (TheorySettings, theory_task),
}
"""name -> its kind of settings, and how to make it."""


TITLES = {
    "ptb": ("Penn Treebank", "nats per token"),
    "cifar10": ("CIFAR-10", "nats"),
    "pydoc": ("Python documentation", "nats per token"),
    "digits": ("digits", "nats"),
    "theory": ("theory", ""),
}
"""name -> its title, and the unit of its loss."""

NAMES = {"alpha": "α", "beta": "β"}
UNITS = {"cutout_length": "pixels"}


def _hyperparameter(name: str, space: stn.HyperSpace, initial: float) -> HyperparameterInfo:
    domain = space.to_json()[name]
    kind: Kind = "coefficient"
    if space.transform(name).discrete:
        kind = "count"
    elif domain["lower"] >= 0 and domain["upper"] <= 1:
        kind = "rate"
    return HyperparameterInfo(NAMES.get(name, name.replace("_", " ")), kind, domain, initial, UNITS.get(name, ""))


@dataclass(frozen=True)
class Problem:
    """All that a method needs to know: one task, one space, one set of settings."""

    name: str
    preset: str
    settings: Settings
    task: stn.Task
    tuned: tuple[str, ...]
    """Which hyperparameters are tuned; all others stay at their initial values."""

    @property
    def info(self) -> TaskInfo:
        """How results of this problem are presented."""
        title, unit = TITLES[self.name]
        domains = stn.HyperSpace(self.settings.domains())
        initial = self.initial
        space = {name: _hyperparameter(name, domains, initial[name]) for name in domains}
        return TaskInfo(self.name, title, "val_loss", "min", unit, space)

    @property
    def space(self) -> dict[str, Any]:
        domains = self.settings.domains()
        return {name: domains[name] for name in self.tuned}

    @property
    def initial(self) -> dict[str, float]:
        return self.settings.initial()

    @property
    def levels(self) -> dict[str, list[float]]:
        return self.settings.levels()

    @property
    def lr(self) -> float:
        return self.settings.lr

    @property
    def grid_order(self) -> str:
        return self.settings.grid_order

    @property
    def population(self) -> int:
        return self.settings.population

    @property
    def stn_options(self) -> dict[str, Any]:
        return self.settings.stn_options(self.tuned)

    def fixed(self, **options: Any) -> type[stn.FixedTrainable]:
        return stn.FixedTrainable.of(self.task, **options)

    def self_tuned(self, **options: Any) -> type[stn.STNTrainable]:
        return stn.STNTrainable.of(self.task, space=self.space, **{**self.stn_options, **options})


def problem(
    name: str,
    preset: str,
    overrides: Sequence[str] = (),
    data: Path | None = None,
    tuned: Sequence[str] = (),
) -> Problem:
    """A task by name, in the size of a preset, with ``key=value`` overrides; ``tuned`` is all, where it is empty."""
    if name not in TASKS:
        raise SettingsError(f"unknown task {name!r}{nearest(name, TASKS)}")
    from benchmarks.data import data_dir

    kind, make = TASKS[name]
    settings = load(name, preset, kind, overrides)
    for chosen in tuned:
        if chosen not in settings.space:
            raise SettingsError(f"{name} has no hyperparameter {chosen!r}{nearest(chosen, settings.space)}")
    task = make(settings, data_dir(None) if data is None else data)
    return Problem(name, preset, settings, task, tuple(tuned) or tuple(settings.space))
