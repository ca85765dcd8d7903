"""Study: what a study is, and how studies are found."""

from __future__ import annotations

import argparse
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from stn_tune.record import ExperimentInfo, Published, TaskInfo

if TYPE_CHECKING:
    from stn_tune.analysis import Figure


def nothing_published(task: str) -> Published | None:
    """For studies that the paper has no table of."""
    return None


@dataclass(frozen=True)
class Study:
    """Experiments that are run by one command and reported together."""

    name: str
    """The command's name."""
    summary: str
    """One line of help."""
    arguments: Callable[[argparse.ArgumentParser], None]
    """Adds the study's own options."""
    experiments: Callable[[argparse.Namespace], list[ExperimentInfo]]
    """What the options ask for; may raise :class:`~benchmarks.errors.SettingsError`."""
    budget: str = "10m"
    """Compute-seconds per method and seed, by default."""
    figures: Callable[[], Sequence[Figure]] = tuple
    """Imports the figures that belong to the study."""
    published: Callable[[str], Published | None] = nothing_published
    """The paper's values for a task, or None."""

    def published_for(self, task: TaskInfo, tuned: Iterable[str]) -> Published | None:
        """The paper's values for a run: only if it tunes every hyperparameter of the task, as the paper does."""
        return self.published(task.name) if set(tuned) == set(task.space) else None


def discover(package: str, path: Iterable[str]) -> dict[str, Study]:
    """The ``STUDY`` of every module in a package, by name, alphabetically after ``run``."""
    modules = [import_module(f"{package}.{info.name}") for info in pkgutil.iter_modules(path)]
    found = [module.STUDY for module in modules if hasattr(module, "STUDY")]
    return {study.name: study for study in sorted(found, key=lambda study: (study.name != "run", study.name))}
