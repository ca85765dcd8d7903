"""ScheduleFile: a saved schedule as plain numbers, checked, drawn and turned into CSV without torch or Ray."""

from __future__ import annotations

import csv
import io
import os
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stn_tune.errors import ScheduleError, unknown_hyperparameter
from stn_tune.numbers import is_finite
from stn_tune.plain_json import parse_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from stn_tune.plotting import LineEnd

FORMAT = "stn_tune.schedule"
VERSION = 1
CONTINUOUS = ("uniform", "loguniform", "positive", "real")
"""Kinds of domains whose values are not a list."""


@dataclass(frozen=True)
class ScheduleFile:
    """What the file of a :class:`~stn_tune.Schedule` holds; ``space`` as :meth:`HyperSpace.to_json` writes it."""

    space: Mapping[str, Mapping[str, Any]]
    steps: Sequence[int]
    values: Mapping[str, Sequence[float]]
    scales: Mapping[str, Sequence[float]] = field(default_factory=dict)
    total_steps: int = 0
    algorithm: str | None = None

    @classmethod
    def parse(cls, data: Any) -> ScheduleFile:
        """Reads what :meth:`to_json` wrote."""
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise ScheduleError(f'not a schedule: its "format" is not "{FORMAT}"')
        if data.get("version") != VERSION:
            raise ScheduleError(
                f"schedule of version {reprlib.repr(data.get('version'))}; this release reads {VERSION}"
            )
        _check_shape(data)
        steps, total = data["steps"], data.get("total_steps")
        total = total if total is not None else steps[-1] if steps else 0
        result = cls(data["space"], steps, data["values"], data.get("scales") or {}, total, data.get("algorithm"))
        for name in [*result.values, *result.scales]:
            if name not in result.space:
                raise ScheduleError(unknown_hyperparameter(name, result.space))
        for name in result.space:
            if name not in result.values:
                raise ScheduleError(f"{name}: 0 values for {len(steps)} steps")
        result.check()
        return result

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ScheduleFile:
        """The schedule in a file; ScheduleError, with the file's name, if there is none."""
        try:
            return cls.parse(parse_json(Path(path).read_bytes()))
        except OSError as error:
            raise ScheduleError(f"{path}: {error.strerror or error}") from None
        except ScheduleError as error:
            raise ScheduleError(f"{path}: {error}") from None
        except ValueError as error:
            raise ScheduleError(f"{path}: not a schedule, which is JSON: {error}") from None

    def check(self) -> None:
        """Raises ScheduleError if steps do not increase, or columns are not as long as they are."""
        steps = self.steps
        if not steps:
            raise ScheduleError("the schedule is empty: it needs at least one step")
        numbers = all(is_finite(step) for step in [*steps, self.total_steps])
        if not numbers or any(b <= a for a, b in pairwise(steps)) or steps[0] < 0:
            raise ScheduleError("the steps of a schedule must be non-negative and increase")
        if self.total_steps < steps[-1]:
            raise ScheduleError(f"total_steps is {self.total_steps}, but the last entry is at step {steps[-1]}")
        for name, column in [*self.values.items(), *self.scales.items()]:
            if not isinstance(column, list) or len(column) != len(steps):
                count = len(column) if isinstance(column, list) else "no list of"
                raise ScheduleError(f"{name}: {count} values for {len(steps)} steps")
            for value in column:
                if not is_finite(value):
                    raise ScheduleError(f"{name}: {reprlib.repr(value)} is not a finite number")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "space": self.space,
            "total_steps": self.total_steps,
            "steps": self.steps,
            "values": self.values,
            "scales": self.scales,
            **({"algorithm": self.algorithm} if self.algorithm else {}),
        }

    def columns(self) -> dict[str, Sequence[float]]:
        """A row per update: step, hp/<name>, scale/<name>."""
        columns = {f"hp/{name}": column for name, column in self.values.items()}
        columns |= {f"scale/{name}": column for name, column in self.scales.items()}
        return {"step": self.steps, **columns}

    def to_csv(self) -> str:
        """:meth:`columns` with a header."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        columns = self.columns()
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        return text.getvalue()

    def plot(self, names: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
        """Draws the values over training steps: see :meth:`stn_tune.Schedule.plot`."""
        from matplotlib import pyplot as plt

        from stn_tune.plotting import RC, label_ends, panels

        for name in names or ():
            if name not in self.values:
                raise ScheduleError(unknown_hyperparameter(name, self.values))
        groups = self._groups(names or list(self.space))
        style: Any = RC
        with plt.rc_context(style):
            if ax is None:
                _, axes = panels(len(groups), figure=plt.figure)
            else:
                axes = [ax]
                groups = {"value": [name for group in groups.values() for name in group]}
            ends = [self._draw(one, title, group) for one, (title, group) in zip(axes, groups.items(), strict=True)]
            label_ends(*zip(axes, ends, strict=True))
        first: Axes = axes[0]
        return first

    def _groups(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Title -> the hyperparameters that share an axis: rates, other numbers, and every whole number by itself."""
        found: dict[str, list[str]] = {}
        for name in names:
            low, high = (self.space[name].get(end) for end in ("lower", "upper"))
            rate = low is not None and high is not None and low >= 0 and high <= 1
            title = name if self._discrete(name) else "rate" if rate else "value"
            found.setdefault(title, []).append(name)
        return found

    def _draw(self, ax: Axes, title: str, names: Sequence[str]) -> list[LineEnd]:
        """Lines on given axes; returns their ends."""
        from stn_tune.plotting import STYLES, LineEnd, asks_for_log, look

        ends = []
        for k, name in enumerate(names):
            style, column = STYLES[k % len(STYLES)], self.values[name]
            ax.step([*self.steps, self.total_steps], [*column, column[-1]], where="post", label=name, **look(style))
            ends.append(LineEnd(self.total_steps, column[-1], name, style))
        values = [value for name in names for value in self.values[name]]
        if title == "value" and asks_for_log(values):
            ax.set_yscale("log")
        elif min(values) >= 0:
            ax.set_ylim(bottom=0)
        if all(self._discrete(name) for name in names):
            locator: Any = ax.yaxis.get_major_locator()
            locator.set_params(integer=True)
        ax.set_xlabel("training step")
        ax.set_ylabel(title)
        ax.margins(x=0.01)
        return ends

    def _discrete(self, name: str) -> bool:
        return self.space[name].get("kind") not in CONTINUOUS


def _check_shape(data: Mapping[str, Any]) -> None:
    """Raises :class:`ScheduleError` where a part of the file is missing, or of another kind than saved ones."""
    for key in ("space", "steps", "values"):
        if key not in data:
            raise ScheduleError(f"the schedule has no {key!r}")
    columns = {"values": data["values"], "scales": data.get("scales") or {}}
    for key, found in {"space": data["space"], **columns}.items():
        if not isinstance(found, Mapping):
            raise ScheduleError(f"{key} is {reprlib.repr(found)}; it must be an object")
    lists = {"steps": data["steps"]} | {
        f"{key} of {name}": c for key, found in columns.items() for name, c in found.items()
    }
    for key, column in lists.items():
        if not isinstance(column, list) or not all(map(is_finite, column)):
            raise ScheduleError(f"{key} is {reprlib.repr(column)}; it must be a list of finite numbers")
    if any(step != int(step) for step in data["steps"]):
        raise ScheduleError("steps must be whole numbers")
    total, algorithm = data.get("total_steps"), data.get("algorithm")
    if total is not None and not is_finite(total):
        raise ScheduleError(f"total_steps is {reprlib.repr(total)}; it must be a number of steps")
    if algorithm is not None and not isinstance(algorithm, str):
        raise ScheduleError(f"algorithm is {reprlib.repr(algorithm)}; it must be a name")
