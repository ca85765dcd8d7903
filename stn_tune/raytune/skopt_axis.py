"""A Tune domain as an axis of scikit-optimize, and as columns of a model's inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray import tune
from ray.tune.search.sample import Domain
from ray.tune.search.variant_generator import parse_spec_vars
from skopt import space as skopt_space

from stn_tune.domains import describe, signature
from stn_tune.nested import Path, name_of, put

SUPPORTED = "uniform, loguniform, quniform, qloguniform, randint, lograndint, qrandint, qlograndint or choice"

Floats = NDArray[np.float64]


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
                        f"{name_of(path)}: the choice {choice!r} is itself a search space; give it a value"
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
                f"{name_of(path)}: {describe(domain)} has no counterpart in scikit-optimize; use tune.{SUPPORTED}"
            )
        first, last = axis.ends
        if first > last:
            grid = "" if axis.step in (None, 1) else f": no multiple of {axis.step} lies in it"
            raise ValueError(f"{name_of(path)}: {describe(domain)} is empty{grid}; it must hold at least one value")
        return axis

    @property
    def ends(self) -> tuple[float | int, float | int]:
        """The first and the last coordinate, both included."""
        if self.step is None:
            return self.lower, self.upper
        return math.ceil(round(self.lower / self.step, 9)), math.floor(round(self.upper / self.step, 9))

    @property
    def columns(self) -> int:
        """How many inputs of a model the axis has: one for each choice, otherwise one."""
        return 1 if self.choices is None else len(self.choices)

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

    def draw(self, random: np.random.Generator, count: int) -> Floats:
        """So many random coordinates."""
        first, last = self.ends
        if self.step is None or self.log:
            return self.coordinates(random.random(count))
        return random.integers(int(first), int(last) + 1, count).astype(np.float64)

    def nearby(self, random: np.random.Generator, coordinates: Floats, width: float) -> Floats:
        """Random coordinates near others: about ``width`` of the axis away, at least one step; of choices any."""
        if self.choices is not None:
            return self.draw(random, len(coordinates))
        moved = self.coordinates(np.clip(self.units(coordinates) + width * random.normal(size=len(coordinates)), 0, 1))
        if self.step is not None:
            stuck = moved == coordinates
            first, last = self.ends
            moved[stuck] += random.choice([-1, 1], stuck.sum())
            moved = np.clip(moved, first, last)
        return moved

    def units(self, coordinates: Floats) -> Floats:
        """Numbers' places between the ends, from 0 to 1, on a log scale where the domain has one."""
        first, last = self._scaled_ends()
        return np.asarray(((np.log(coordinates) if self.log else coordinates) - first) / (last - first))

    def coordinates(self, units: Floats) -> Floats:
        """The coordinates at places from 0 to 1, rounded where they are integers."""
        first, last = self._scaled_ends()
        scaled = first + units * (last - first)
        found = np.exp(scaled) if self.log else scaled
        return np.asarray(np.clip(found if self.step is None else np.round(found), *self.ends))

    def _scaled_ends(self) -> tuple[float, float]:
        first, last = self.ends
        return (math.log(first), math.log(last)) if self.log else (float(first), float(last))

    def inputs(self, coordinates: Floats) -> Floats:
        """Shape (points, columns). Two different choices are at distance 1, as the two ends of a number are."""
        if self.choices is None:
            return self.units(coordinates)[:, None]
        return np.asarray((coordinates[:, None] == np.arange(len(self.choices))) / 2**0.5)

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
            raise ValueError(f"{name_of(self.path)}: {value!r} is not one of the choices {self.choices!r}")
        if not isinstance(value, int | float | np.number) or not self.lower <= value <= self.upper:
            raise ValueError(f"{name_of(self.path)}: {value!r} is not a number from {self.lower} to {self.upper}")
        return self.native(value if self.step is None else value / self.step)


def tune_space(space: Mapping[str, Any]) -> Mapping[str, Any]:
    """``space`` itself, or that of scikit-optimize's dimensions as Tune domains.

    The latter is what Ray's own SkOptSearch took: a mapping whose values are all dimensions, tuples of two ends or
    lists of choices, nested names written as ``"model/dropout"``.
    """
    if not all(isinstance(value, skopt_space.Dimension | tuple | list) for value in space.values()):
        return space
    if any(parse_spec_vars(dict(space))[1:]):
        return space
    found: dict[str, Any] = {}
    for name, value in space.items():
        put(found, tuple(name.split("/")), _domain_of(skopt_space.check_dimension(value)))
    return found


def _domain_of(dimension: skopt_space.Dimension) -> Domain:
    if isinstance(dimension, skopt_space.Categorical):
        return tune.choice(list(dimension.categories))
    log = dimension.prior == "log-uniform"
    if isinstance(dimension, skopt_space.Integer):
        return (tune.lograndint if log else tune.randint)(int(dimension.low), int(dimension.high) + 1)
    return (tune.loguniform if log else tune.uniform)(float(dimension.low), float(dimension.high))
