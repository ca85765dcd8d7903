"""Presets: every setting of every task in several sizes, one TOML file per task.

The sizes are smoke (seconds, for tests), small (a minute or two of one core per training), medium (about eight; the
paper's two tasks only) and paper (Section 4 and appendices D and E, number for number). A preset with
``extends = "task.preset"`` inherits what it does not set itself; its ``space``, if it has one, replaces the inherited
one.

``space`` has a Tune domain for each hyperparameter (kind, lower, upper; as in Tune, the upper end of a randint is
excluded), the STN's initial value, the grid's levels, and whether the STN draws it once per batch. ``stn`` has
T_train, T_valid, the warm-up in epochs, the learning rate of λ and σ, the entropy weight τ, the perturbation scale σ
and whether it is tuned; only the STN reads it. Everything else is shared by all methods.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import tomllib

from benchmarks.errors import SettingsError
from stn_tune.errors import unknown

FOLDER = Path(__file__).parent
OF_ONE_STUDY = ("theory",)
"""Tasks that only the study of that name runs."""


def task_names() -> list[str]:
    """Every task that has presets."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def check_task(task: str) -> None:
    """Raises SettingsError for a task without presets; it offers those that every command takes."""
    if task not in task_names():
        raise SettingsError(unknown("task", task, [name for name in task_names() if name not in OF_ONE_STUDY]))


def read_preset(task: str, preset: str) -> dict[str, Any]:
    """The settings of a preset, with all that it inherits."""
    presets = _presets(task)
    if preset not in presets:
        raise SettingsError(f"{task}: {unknown('preset', preset, presets)}")
    own = dict(presets[preset])
    base = own.pop("extends", None)
    if base is None:
        return {key: dict(value) if isinstance(value, dict) else value for key, value in own.items()}
    names = base.split(".") if isinstance(base, str) else []
    if len(names) != 2 or names == [task, preset]:
        raise SettingsError(f'{task}.{preset}: extends is {base!r}; it must be another "task.preset"')
    inherited = read_preset(*names)
    for key, value in own.items():
        replaced = key == "space" or not isinstance(value, dict)
        inherited[key] = value if replaced else {**inherited.get(key, {}), **value}
    return inherited


def setting_names(task: str) -> list[str]:
    """Every top-level setting that some preset of the task has."""
    return sorted({key for preset in _presets(task) for key in read_preset(task, preset)})


@cache
def _presets(task: str) -> Mapping[str, Mapping[str, Any]]:
    check_task(task)
    path = FOLDER / f"{task}.toml"
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path.name} is not TOML: {error}") from None
    for preset, settings in found.items():
        if not isinstance(settings, dict):
            raise SettingsError(f"{path.name}: {preset} is {reprlib.repr(settings)}; it must be a table of settings")
    return found
