"""A Tune domain as an axis of scikit-optimize."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ray.tune.search.sample import Domain
from ray.tune.search.variant_generator import parse_spec_vars
from skopt import space as skopt_space

from baselines.config_paths import Path, path_text
from stn_tune.domains import describe, signature

SUPPORTED = "uniform, loguniform, quniform, qloguniform, randint, lograndint, qrandint, qlograndint or choice"


@dataclass(frozen=True)
class Axis:
    """One hyperparameter, as scikit-optimize sees it.

    A coordinate is the value itself where it is continuous, and otherwise an integer: the multiple of ``step``, or the
    index into ``choices``. So the model is told exactly what the trial ran with, and points that round to the same
    values are the same point.
    """

    path: Path
    lower: float | int
    upper: float | int
    step: float | int | None = None
    log: bool = False
    choices: Sequence[Any] | None = None

    @classmethod
    def of(cls, path: Path, domain: Domain) -> Axis:
        """The axis of a Tune domain; raises ValueError where there is none."""
        kind, *arguments = signature(domain) or ("",)
        if kind == "choice":
            choices = list(domain.categories)
            for choice in choices:
                if any(parse_spec_vars({"": choice})[1:]):
                    raise ValueError(
                        f"{path_text(path)}: the choice {choice!r} is itself a search space; give it a value"
                    )
            axis = cls(path, 0, len(choices) - 1, 1, choices=choices)
        elif kind.endswith(("uniform", "randint")):
            lower, upper, *quantum = arguments
            step = quantum[0] if quantum else None
            if kind.endswith("randint"):
                step = step or 1
                upper = upper - 1 if step == 1 else upper
            axis = cls(path, lower, upper, step, "log" in kind)
        else:
            raise ValueError(
                f"{path_text(path)}: {describe(domain)} has no counterpart in scikit-optimize; use tune.{SUPPORTED}"
            )
        first, last = axis.ends
        if first > last:
            grid = "" if axis.step in (None, 1) else f": no multiple of {axis.step} lies in it"
            raise ValueError(f"{path_text(path)}: {describe(domain)} is empty{grid}; it must hold at least one value")
        return axis

    @property
    def ends(self) -> tuple[float | int, float | int]:
        """The first and the last coordinate, both included."""
        if self.step is None:
            return self.lower, self.upper
        return math.ceil(round(self.lower / self.step, 9)), math.floor(round(self.upper / self.step, 9))

    def dimension(self) -> skopt_space.Dimension:
        """scikit-optimize's own description of the axis."""
        first, last = self.ends
        prior = "log-uniform" if self.log else "uniform"
        if self.choices is not None:
            return skopt_space.Categorical(list(range(len(self.choices))))
        if self.step is None:
            return skopt_space.Real(first, last, prior=prior)
        return skopt_space.Integer(first, last, prior=prior)

    def native(self, coordinate: Any) -> float | int:
        """A coordinate as a Python number between the ends: scikit-optimize gives NumPy's, and may round beyond."""
        first, last = self.ends
        number = float(coordinate) if self.step is None else round(float(coordinate))
        return type(number)(min(max(number, first), last))

    def decode(self, coordinate: float | int) -> Any:
        """The hyperparameter's value at a coordinate."""
        if self.choices is not None:
            return self.choices[int(coordinate)]
        if self.step is None:
            return coordinate
        return min(max(coordinate * self.step, self.lower), self.upper)

    def encode(self, value: Any) -> float | int:
        """The coordinate of a value, on the nearest grid point; raises ValueError where it is not in the domain."""
        if self.choices is not None:
            for index, choice in enumerate(self.choices):
                if choice is value or choice == value:
                    return index
            raise ValueError(f"{path_text(self.path)}: {value!r} is not one of the choices {self.choices!r}")
        if not isinstance(value, int | float | np.number) or not self.lower <= value <= self.upper:
            raise ValueError(f"{path_text(self.path)}: {value!r} is not a number from {self.lower} to {self.upper}")
        return self.native(value if self.step is None else value / self.step)
