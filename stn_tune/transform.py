"""The maps r from the unconstrained reals, where λ lives, onto a hyperparameter's domain.

Each is monotone. With s = sigmoid(u),

    uniform       r(u) = lower + (upper - lower) s
    loguniform    log r(u) = log lower + (log upper - log lower) s
    positive      r(u) = low + scale softplus(u)
    real          r(u) = loc + scale u
    integers and multiples of q: the (log-)uniform map onto [first - q/2, last + q/2], rounded to the grid
    choice        the integer map onto the index of an ordered category

Rounded maps carry no gradient. For |u| up to 1e4, in float32 too, r and its gradient are finite, a continuous
r(u) lies inside the domain, and every discrete value is reached.
"""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from stn_tune.numbers import Number, is_number

LARGEST, SMALLEST = 1e30, 1e-30  # leaves float32 room for r(u) and its gradient
RESOLUTION = 2.0**-22  # four float32 steps, relative to a number's size
MOST_VALUES = 2**20
NEGLIGIBLE = 1e-3
"""The fraction of a domain next to an end where λ is held: r hardly changes there, and λ would run away."""


@dataclass(frozen=True)
class Transform(ABC):
    """The map r of one domain; the fields are the arguments of the domain's constructor, ``kind``."""

    kind: str
    discrete: ClassVar[bool] = False

    @abstractmethod
    def _map(self, u: Tensor) -> Tensor:
        """r(u), up to rounding error at the ends."""

    @abstractmethod
    def unconstrain(self, value: float) -> float:
        """The u with r(u) = value: ±inf at a continuous domain's ends, mid-cell for a discrete value."""

    @property
    def ends(self) -> tuple[Number, Number]:
        """What a continuous r(u) must not leave."""
        return -math.inf, math.inf

    @property
    def held(self) -> tuple[float, float]:
        """Between which u an optimizer may move: beyond, r stands still."""
        return -math.inf, math.inf

    def constrain(self, u: Tensor) -> Tensor:
        """r(u) element by element, with u's shape, dtype and device; detached if the domain is discrete."""
        x = self._map(u.float() if torch.finfo(u.dtype).bits < 32 else u).to(u.dtype)
        return x.detach() if self.discrete else x.clamp(*_inward(*self.ends, u.dtype))

    def native(self, x: float) -> Number:
        """The value of the closed domain that is nearest to x, as Python's own int or float."""
        low, high = self.ends
        return float(min(max(x, low), high))

    def values(self) -> Sequence[Number]:
        """All values of a discrete domain, in the order of u."""
        raise TypeError(f"{self} is continuous: its values cannot be listed")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: ``{"kind": "uniform", "lower": 0, "upper": 0.75}``."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items() if v is not None}

    def __str__(self) -> str:
        return call(*self.to_json().values())

    def _require(self, condition: bool, problem: str) -> None:
        if not condition:
            raise ValueError(f"{self} {problem}")

    def _require_numbers(self, *numbers: Number) -> None:
        for x in numbers:
            usable = is_number(x) and abs(x) <= LARGEST
            self._require(usable, f"has {x!r} in it: give finite numbers, at most {LARGEST:g} in size")

    def _require_resolved(self, what: str, gap: Number, *points: Number) -> None:
        least = max(SMALLEST, RESOLUTION * max(map(abs, points)))
        self._require(gap >= least, f"is too fine for float32: {what} {gap:g} must be at least {least:g}")

    def _require_count(self, count: int, kind: str, lower: Number, upper: Number) -> None:
        self._require(count > 1, "holds a single value: make it a constant")
        problem = f"has {count} values, more than the {MOST_VALUES} that float32 can tell apart"
        self._require(count <= MOST_VALUES, f"{problem}: use {call(kind, lower, upper)}")

    def _require_scale(self, origin: Number, scale: Number) -> None:
        self._require_numbers(origin, scale)
        self._require(scale > 0, "is empty: scale must be above 0")
        self._require_resolved("the scale", scale, origin)


@dataclass(frozen=True)
class Bounded(Transform):
    """uniform, loguniform: a sigmoid scaled to [lower, upper], on the log axis for the latter."""

    lower: Number
    upper: Number

    def __post_init__(self) -> None:
        self._require_numbers(self.lower, self.upper)
        self._require(self.lower != self.upper, "holds a single value: make it a constant")
        self._require(self.lower < self.upper, "is empty: lower must be below upper")
        self._require_resolved("the width", self.upper - self.lower, self.lower, self.upper)
        if self.kind == "loguniform":
            self._require(self.lower >= SMALLEST, f"is too wide: lower must be at least {SMALLEST:g}")

    @property
    def ends(self) -> tuple[Number, Number]:
        return self.lower, self.upper

    @property
    def held(self) -> tuple[float, float]:
        return -_logit(1 - NEGLIGIBLE), _logit(1 - NEGLIGIBLE)

    def _map(self, u: Tensor) -> Tensor:
        s = torch.sigmoid(u)
        if self.kind == "uniform":
            return float(self.lower) + float(self.upper - self.lower) * s
        # Taken around the geometric mean, exp cannot overflow.
        return math.sqrt(self.lower * self.upper) * torch.exp(math.log(self.upper / self.lower) * (s - 0.5))

    def unconstrain(self, value: float) -> float:
        below, above = value - self.lower, self.upper - value
        if self.kind == "loguniform":
            below, above = math.log1p(below / self.lower), math.log1p(above / value)
        return _log(below) - _log(above)


@dataclass(frozen=True)
class HalfLine(Transform):
    """positive: r(u) = low + scale softplus(u), in (low, inf)."""

    low: Number
    scale: Number

    def __post_init__(self) -> None:
        self._require_scale(self.low, self.scale)

    @property
    def ends(self) -> tuple[Number, Number]:
        return math.nextafter(self.low, math.inf), math.inf

    @property
    def held(self) -> tuple[float, float]:
        return math.log(math.expm1(NEGLIGIBLE)), math.inf

    def _map(self, u: Tensor) -> Tensor:
        return float(self.low) + float(self.scale) * F.softplus(u)

    def unconstrain(self, value: float) -> float:
        y = (value - self.low) / self.scale
        return y + _log(-math.expm1(-y))

    def native(self, x: float) -> Number:
        return float(max(x, self.low))


@dataclass(frozen=True)
class Line(Transform):
    """real: r(u) = loc + scale u."""

    loc: Number
    scale: Number

    def __post_init__(self) -> None:
        self._require_scale(self.loc, self.scale)

    def _map(self, u: Tensor) -> Tensor:
        return float(self.loc) + float(self.scale) * u

    def unconstrain(self, value: float) -> float:
        return (value - self.loc) / self.scale


@dataclass(frozen=True)
class Grid(Transform):
    """The integer and quantised kinds: the values k q, k = first .. last, that Tune can sample.

    r(u) = q round(y), where y is the (log-)uniform map onto [first - 1/2, last + 1/2].
    """

    lower: Number
    upper: Number
    q: Number | None = None
    discrete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._require_numbers(self.lower, self.upper, self._step)
        self._require(self._step >= SMALLEST, f"has no usable step: q must be at least {SMALLEST:g}")
        if self._whole:
            whole = all(isinstance(x, int) for x in (self.lower, self.upper, self._step))
            self._require(whole, "is over the integers: give whole numbers")
        count = len(self._grid)
        self._require(count > 0 or self.lower < self.upper, "is empty: lower must be below upper")
        self._require(count > 0, f"is empty: no multiple of {self._step} lies in it")
        self._require_count(count, "loguniform" if self._log else "uniform", self.lower, self.upper)
        self._require_resolved("the step", self._step, self.lower, self.upper)

    @property
    def _whole(self) -> bool:
        return self.kind.endswith("randint")

    @property
    def _log(self) -> bool:
        return "log" in self.kind

    @property
    def _step(self) -> Number:
        return 1 if self.q is None else self.q

    @cached_property
    def _grid(self) -> range:
        """The k: Tune leaves out the upper end of integers with a step of 1, and of nothing else."""
        exclusive = self._whole and self._step == 1
        first = _grid_index(self.lower / self._step, math.ceil)
        return range(first, _grid_index(self.upper / self._step, math.floor) + (not exclusive))

    @cached_property
    def _ratio(self) -> tuple[Number, int]:
        """q as a fraction where there is one: 3 * 1 / 10 is 0.3, but 3 * 0.1 is not."""
        near = Fraction(self._step).limit_denominator(10**12)
        return near.as_integer_ratio() if float(near) == self._step else (self._step, 1)

    def _index(self, x: float) -> int:
        k = round(min(max(x, self.lower), self.upper) / self._step)
        return min(max(k, self._grid[0]), self._grid[-1])

    def _value(self, k: int) -> Number:
        times, over = self._ratio
        return k * times if self._whole else k * times / over

    @property
    def held(self) -> tuple[float, float]:
        if not self._log:
            return _inside_last_cells(len(self._grid))
        low, high = self._grid[0] - 0.5, self._grid[-1] + 0.5
        width = math.log(high / low)
        return -_logit(1 - math.log((low + 1) / low) / 4 / width), _logit(1 - math.log(high / (high - 1)) / 4 / width)

    def _map(self, u: Tensor) -> Tensor:
        first, last = self._grid[0], self._grid[-1]
        if self._log:
            # Each half of the axis starts at its own end, so that the narrowest cells survive float32.
            low, high = first - 0.5, last + 0.5
            way = math.log(high / low) * torch.sigmoid(-u.abs())
            k = torch.where(u < 0, low * way.exp(), high * (-way).exp()).round().clamp(first, last)
        else:
            k = first + _cell(u, len(self._grid))
        times, over = self._ratio
        return k * float(times) / float(over)

    def unconstrain(self, value: float) -> float:
        k, low, high = self._index(value), self._grid[0] - 0.5, self._grid[-1] + 0.5
        if self._log:
            return math.log(math.log(k / low) / math.log(high / k))
        return math.log((k - low) / (high - k))

    def native(self, x: float) -> Number:
        return self._value(self._index(x))

    def values(self) -> Sequence[Number]:
        return _Lazy(self._grid, self._value)


@dataclass(frozen=True)
class Choice(Transform):
    """choice over n ordered numbers: category number floor(n sigmoid(u))."""

    categories: tuple[Number, ...]
    discrete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        rule = "has no order: give numbers that only rise or only fall"
        self._require(all(map(is_number, self.categories)), rule)
        self._require(len(self.categories) > 0, "is empty: give at least two categories")
        self._require_count(len(self.categories), "uniform", min(self.categories), max(self.categories))
        pairs = list(pairwise(self.categories))
        self._require(all(a < b for a, b in pairs) or all(a > b for a, b in pairs), rule)
        self._require_numbers(*self.categories)
        for a, b in pairs:
            self._require_resolved("the gap", abs(b - a), a, b)

    @property
    def held(self) -> tuple[float, float]:
        return _inside_last_cells(len(self.categories))

    def _map(self, u: Tensor) -> Tensor:
        table = torch.tensor([float(x) for x in self.categories], dtype=u.dtype, device=u.device)
        index = _cell(u, len(self.categories)).nan_to_num().long()
        return torch.where(u.isnan(), u, table[index])

    def unconstrain(self, value: float) -> float:
        index = self.categories.index(self.native(value))
        return math.log((index + 0.5) / (len(self.categories) - index - 0.5))

    def native(self, x: float) -> Number:
        return min(self.categories, key=lambda category: abs(category - x))

    def values(self) -> Sequence[Number]:
        return self.categories


class _Lazy(Sequence[Number]):
    """value(k) for each k of a range."""

    def __init__(self, indices: range, value: Callable[[int], Number]) -> None:
        self._indices, self._value = indices, value

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, at: Any) -> Any:
        picked = self._indices[at]
        return _Lazy(picked, self._value) if isinstance(picked, range) else self._value(picked)


def call(kind: str, *arguments: object) -> str:
    """The call that makes a domain, as a user would write it: ``tune.uniform(0, 0.75)``."""
    name = {"positive": "stn.positive", "real": "tune.randn"}.get(kind, f"tune.{kind}")
    return f"{name}({', '.join(map(_text, arguments))})"


def _text(x: object) -> str:
    if isinstance(x, float) and x.is_integer() and abs(x) < 1e15:
        return str(int(x))
    return reprlib.repr(list(x) if isinstance(x, tuple) else x)


@cache
def _inward(low: Number, high: Number, dtype: torch.dtype) -> tuple[float, float]:
    """The outermost numbers of ``dtype`` that lie in [low, high]."""
    ends = torch.tensor([float(low), float(high)], dtype=dtype, device="cpu")
    (a, b), (inner_a, inner_b) = ends.tolist(), torch.nextafter(ends, ends.flip(0)).tolist()
    return (a if a >= low else inner_a), (b if b <= high else inner_b)


def _cell(u: Tensor, n: int) -> Tensor:
    """floor(n sigmoid(u)): which of n equal cells of (0, 1) sigmoid(u) is in, from 0 to n - 1."""
    return (n * torch.sigmoid(u)).floor().clamp(max=n - 1)


def _inside_last_cells(n: int) -> tuple[float, float]:
    """The u a quarter of a cell away from the ends of (0, 1)."""
    return -_logit(1 - 0.25 / n), _logit(1 - 0.25 / n)


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


def _grid_index(scaled: float, inwards: Callable[[float], int]) -> int:
    """A bound in units of q, rounded to the grid as Tune does: to a very near multiple, else inwards."""
    nearest = round(scaled)
    return nearest if math.isclose(scaled, nearest) else inwards(scaled)


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf
