"""HyperSpace: named Ray Tune domains <-> the unconstrained reals that λ lives in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from numbers import Real
from types import ModuleType
from typing import Any

from torch import Tensor

from stn_tune.errors import SpaceError, unknown_hyperparameter
from stn_tune.numbers import Number, is_number
from stn_tune.transform import (
    RESOLUTION,
    Bounded,
    Choice,
    Grid,
    HalfLine,
    Line,
    Transform,
    call,
)

Domain = Any
"""A Ray Tune domain: ``tune.uniform(0, 1)``."""

_TRANSFORMS: dict[str, type[Transform]] = {
    "uniform": Bounded,
    "loguniform": Bounded,
    "quniform": Grid,
    "qloguniform": Grid,
    "randint": Grid,
    "lograndint": Grid,
    "qrandint": Grid,
    "qlograndint": Grid,
    "choice": Choice,
    "positive": HalfLine,
    "real": Line,
}
"""Kind of domain -> the kind of map onto it."""


def _domains() -> ModuleType:
    """Ray's side, imported with the first domain."""
    from stn_tune import domains

    return domains


class HyperSpace(Mapping[str, Any]):
    """Named domains in a fixed order: column i of an unconstrained tensor u belongs to ``names[i]``.

    ``init`` are default initial values by name. ``space | {"noise": tune.uniform(0, 0.5)}`` is a space with more
    domains, in which all default initial values stay.
    """

    def __init__(
        self, domains: Mapping[str, Domain] | Iterable[tuple[str, Domain]], init: Mapping[str, float] | None = None
    ) -> None:
        self._domains: dict[str, Domain] = {}
        self._transforms: dict[str, Transform] = {}
        for name, domain in domains.items() if isinstance(domains, Mapping) else domains:
            if not isinstance(name, str) or not name:
                raise SpaceError(f"{name!r}: a hyperparameter's name must be a string that is not empty")
            if name in self._domains:
                raise SpaceError(f"{name}: appears twice: names must be unique")
            self._domains[name] = domain
            self._transforms[name] = _transform(name, domain)
        if not self._domains:
            raise SpaceError("the space is empty: give it at least one domain")
        self.names = tuple(self._domains)
        self.init = dict(init or {})
        for name, value in self.init.items():
            self.check(name, value)

    def __getitem__(self, name: str) -> Domain:
        return self._domains[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __or__(self, other: Mapping[str, Domain]) -> HyperSpace:
        return _joined(self, other) if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[str, Domain]) -> HyperSpace:
        return _joined(other, self) if isinstance(other, Mapping) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HyperSpace) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"HyperSpace({{{', '.join(f'{name!r}: {t}' for name, t in self._transforms.items())}}})"

    def domain(self, name: str) -> Domain:
        """The Tune domain of that name."""
        self._require_known(name)
        return self._domains[name]

    def transform(self, name: str) -> Transform:
        """The map r of that name."""
        self._require_known(name)
        return self._transforms[name]

    def constrain(self, u: Tensor) -> dict[str, Tensor]:
        """r(u): from u ``(..., n)`` to a tensor ``(...)`` for each name."""
        if u.ndim == 0 or u.shape[-1] != len(self):
            raise SpaceError(f"u: its shape {tuple(u.shape)} must end in {len(self)}, one for each name")
        columns = zip(self._transforms.items(), u.unbind(-1), strict=True)
        return {name: transform.constrain(column) for (name, transform), column in columns}

    def unconstrain(self, values: Mapping[str, float]) -> list[float]:
        """The finite u with r(u) = values, in the order of ``names``."""
        for name in values:
            self._require_known(name)
        us = []
        for name, transform in self._transforms.items():
            if name not in values:
                raise SpaceError(f"{name}: has no value: give one to each of {', '.join(self.names)}")
            value = self.check(name, values[name])
            us.append(transform.unconstrain(value))
            if math.isinf(us[-1]):
                raise SpaceError(f"{name}: {value} is on the edge of {transform}: start strictly inside")
        return us

    def check(self, name: str, value: float) -> Number:
        """The value as a native number, if it is in the closed domain (on a grid, up to float32 rounding)."""
        transform, x = self.transform(name), self._finite(name, value)
        near = transform.native(x)
        rounded = transform.discrete and isinstance(near, float) and math.isclose(x, near, rel_tol=RESOLUTION)
        if x != near and not rounded:
            raise SpaceError(f"{name}: {x} is not in {transform}: the nearest value is {near}")
        return near

    def native(self, values: Mapping[str, float]) -> dict[str, Number]:
        """The nearest values of the domains, as Python's own ints and floats."""
        return {name: self.transform(name).native(self._finite(name, x)) for name, x in values.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: ``{"dropout": {"kind": "uniform", "lower": 0, "upper": 0.75}}``."""
        return {name: transform.to_json() for name, transform in self._transforms.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HyperSpace:
        """The space that ``to_json`` wrote, over new Tune domains."""
        return cls([(name, _domains().from_json(name, spec)) for name, spec in data.items()])

    def _key(self) -> tuple[tuple[str, Transform], ...]:
        return tuple(self._transforms.items())

    def _require_known(self, name: str) -> None:
        if name not in self._domains:
            raise SpaceError(unknown_hyperparameter(name, self.names))

    def _finite(self, name: str, value: object) -> Number:
        x: Number = _domains().plain_number(value)
        if not is_number(x) or not -math.inf < x < math.inf:
            raise SpaceError(f"{name}: {value!r} is not a finite number: give one in {self.transform(name)}")
        return x


def _joined(*spaces: Mapping[str, Domain]) -> HyperSpace:
    init = {name: value for space in spaces if isinstance(space, HyperSpace) for name, value in space.init.items()}
    return HyperSpace([item for space in spaces for item in space.items()], init)


def _transform(name: str, domain: object) -> Transform:
    domains = _domains()
    match domain:
        case {"grid_search": values}:
            problem = f"is a list of trials, not a domain: use {call('choice', values)}"
        case Mapping():
            inner = ", ".join(f"'{name}/{key}'" for key in domain)
            problem = f"is a nested space: name its domains from here, as {inner}"
        case Real():
            problem = "is a constant, not a domain: leave it out, or use one such as tune.uniform(0, 1)"
        case domains.sample.Function():
            problem = "is a function, not a domain: use one such as tune.uniform(0, 1)"
        case domains.Domain():
            kind, *arguments = domains.signature(domain) or ("",)
            if kind in _TRANSFORMS:
                try:
                    return _TRANSFORMS[kind](kind, *arguments)
                except ValueError as error:
                    raise SpaceError(f"{name}: {error}") from None
            problem = f"has no map from the reals: use one of {', '.join(_TRANSFORMS)}"
        case _:
            problem = "is not a Tune domain: use one such as tune.uniform(0, 1)"
    raise SpaceError(f"{name}: {domains.describe(domain)} {problem}")
