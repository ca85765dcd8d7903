"""Checkpoint: the raw numbers measured at one point of a run, and the files that hold them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.errors import SettingsError
from stn_tune.atomic import write_atomic
from stn_tune.errors import AnalysisError, MissingData
from stn_tune.plain_json import parse_json


@dataclass(frozen=True)
class Checkpoint:
    """Both gradients of the validation loss with respect to the unconstrained λ, before anything is averaged."""

    variant: str
    """The algorithm, and what distinguishes it from others of its kind."""
    seed: int
    """Of the run."""
    epoch: int
    """After which it was measured."""
    val_loss: float
    """Validation loss of the run there."""
    values: Mapping[str, float]
    """Every hyperparameter's value there; its keys are the order of the gradients."""
    truth: list[list[float]]
    """A gradient for each repeat; NaN where continued training diverged."""
    estimate: list[list[float]]
    """What the algorithm says on each validation batch."""
    sizes: list[int]
    """Examples in each validation batch."""
    options: Mapping[str, Any]
    """Of the algorithm, where they are not the preset's."""
    settings: Mapping[str, Any]
    """Of the task and the measurement."""


class Log:
    """The checkpoints of one run: JSON lines, written atomically after each."""

    def __init__(self, path: Path, settings: Mapping[str, Any]):
        self.path, self.settings = path, dict(settings)
        self.checkpoints = read_log(path) if path.exists() else []
        for old in (c.settings for c in self.checkpoints):
            if old != self.settings:
                key = next(key for key in self.settings if old.get(key) != self.settings[key])
                raise SettingsError(
                    f"{path} was measured with {key} = {old.get(key)!r}, not {self.settings[key]!r}: use another --out"
                )

    @property
    def epochs(self) -> set[int]:
        """Those that are finished."""
        return {c.epoch for c in self.checkpoints}

    def add(self, **measured: Any) -> None:
        """Adds a checkpoint."""
        self.checkpoints.append(Checkpoint(**measured, settings=self.settings))
        lines = [json.dumps(_without_nan(asdict(c)), allow_nan=False) for c in self.checkpoints]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path, "".join(f"{line}\n" for line in lines).encode())


def read_log(path: Path) -> list[Checkpoint]:
    """The checkpoints of a file; null is NaN."""
    known = {f.name for f in fields(Checkpoint)}
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            data = parse_json(line)
            gradients = {
                key: [[math.nan if x is None else x for x in row] for row in data[key]] for key in ("truth", "estimate")
            }
            found.append(Checkpoint(**{**data, **gradients}))
            if not isinstance(data["settings"]["task"], str):
                raise TypeError("settings name no task")
        except (KeyError, TypeError, ValueError) as error:
            message = f"{path}, line {number}: not a checkpoint with {', '.join(sorted(known))}"
            raise AnalysisError(message) from error
    return found


def read_folder(folder: Path) -> list[Checkpoint]:
    """All checkpoints of a folder: by variant in the order of file names, then by seed and epoch."""
    found = [checkpoint for path in sorted(folder.glob("*.jsonl")) for checkpoint in read_log(path)]
    if not found:
        raise MissingData(f"{folder} has no measured checkpoints")
    if len(tasks := {c.settings["task"] for c in found}) > 1:
        raise AnalysisError(f"{folder} has checkpoints of several tasks: {', '.join(sorted(tasks))}")
    return sorted(found, key=lambda c: (c.options.get("algorithm") != "stn", c.variant, c.seed, c.epoch))


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
