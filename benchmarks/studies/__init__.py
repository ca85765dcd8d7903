"""The paper's experiments, as lists for the runner: a stand-in for the package of studies."""

from __future__ import annotations

import argparse
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from stn_tune.record import ExperimentInfo, Published


def _nothing_published(task: str) -> Published | None:
    return None


@dataclass(frozen=True)
class Study:
    """A set of experiments that belong together."""

    name: str
    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    experiments: Callable[[argparse.Namespace], list[ExperimentInfo]]
    budget: str = "10m"
    figures: Callable[[], Sequence[Any]] = tuple
    published: Callable[[str], Published | None] = _nothing_published


def _discover() -> dict[str, Study]:
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return {module.STUDY.name: module.STUDY for module in modules if hasattr(module, "STUDY")}


STUDIES: dict[str, Study] = _discover()
