"""HyperSpace: named Ray Tune domains <-> the unconstrained reals that λ lives in."""

from __future__ import annotations

import difflib
import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Integral, Real
from typing import Any

from ray.tune.search import sample
from ray.tune.search.sample import Domain
from torch import Tensor

from stn_tune.transform import (
    RESOLUTION,
    Bounded,
    Choice,
    Grid,
    HalfLine,
    Line,
    Number,
    Transform,
    call,
    is_number,
)

__all__ = ["HyperSpace", "Number", "SpaceError", "Transform", "describe", "positive", "real"]


class SpaceError(ValueError):
    """A space or a value that cannot be used; the message begins with the hyperparameter's name."""


class _LogNormal(sample.Sampler):  # type: ignore[misc]
    def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        items = domain.lower + domain.scale * random_state.lognormal(size=size)
        return items if len(items) > 1 else domain.cast(items[0])


class _Positive(sample.Float):  # type: ignore[misc]
    default_sampler_cls = _LogNormal

    def __init__(self, low: float, scale: float) -> None:
        super().__init__(low, None)
        self.scale = scale


def positive(low: float = 0.0, scale: float = 1.0) -> Domain:
    """The half-open domain (low, inf). Black-box search samples low + scale exp(z), z ~ N(0, 1)."""
    HalfLine("positive", _plain(low), _plain(scale))
    return _Positive(low, scale)


def real(loc: float = 0.0, scale: float = 1.0) -> Domain:
    """The real line, ``tune.randn(loc, scale)`` by another name. Black-box search samples N(loc, scale²)."""
    Line("real", _plain(loc), _plain(scale))
    return sample.randn(loc, scale)


class HyperSpace(Mapping[str, Domain]):
    """Named domains in a fixed order: column i of an unconstrained tensor u belongs to ``names[i]``."""

    def __init__(self, domains: Mapping[str, Domain] | Iterable[tuple[str, Domain]]) -> None:
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

    def __getitem__(self, name: str) -> Domain:
        return self._domains[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

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
        return cls([(name, _domain(name, spec)) for name, spec in data.items()])

    def _key(self) -> tuple[tuple[str, Transform], ...]:
        return tuple(self._transforms.items())

    def _require_known(self, name: str) -> None:
        if name not in self._domains:
            near = difflib.get_close_matches(str(name), self.names, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(self.names)}"
            raise SpaceError(f"{name} is not in the space: {hint}")

    def _finite(self, name: str, value: object) -> Number:
        x: Number = _plain(value)
        if not is_number(x) or not -math.inf < x < math.inf:
            raise SpaceError(f"{name}: {value!r} is not a finite number: give one in {self.transform(name)}")
        return x


_KINDS: dict[str, tuple[type[Transform], Callable[..., Domain], tuple[str, ...]]] = {
    "uniform": (Bounded, sample.uniform, ("lower", "upper")),
    "loguniform": (Bounded, sample.loguniform, ("lower", "upper")),
    "quniform": (Grid, sample.quniform, ("lower", "upper", "q")),
    "qloguniform": (Grid, sample.qloguniform, ("lower", "upper", "q")),
    "randint": (Grid, sample.randint, ("lower", "upper")),
    "lograndint": (Grid, sample.lograndint, ("lower", "upper")),
    "qrandint": (Grid, sample.qrandint, ("lower", "upper", "q")),
    "qlograndint": (Grid, sample.qlograndint, ("lower", "upper", "q")),
    "choice": (Choice, sample.choice, ("categories",)),
    "positive": (HalfLine, positive, ("low", "scale")),
    "real": (Line, real, ("loc", "scale")),
}
"""Kind -> its transform, the constructor of its domain, and that constructor's arguments."""


def describe(domain: object) -> str:
    """The domain as a user would write it: ``tune.uniform(0, 0.75)``."""
    match domain:
        case {"grid_search": values}:
            return call("grid_search", values)
        case sample.Function(func=function):
            return f"tune.sample_from({getattr(function, '__name__', function)})"
        case Domain() if signature := _signature(domain):
            return call(*signature)
        case Domain():
            return f"{type(domain).__name__}{domain.domain_str} with {type(domain.get_sampler()).__name__}"
    return reprlib.repr(domain)


def _signature(domain: Domain) -> tuple[Any, ...]:
    """The kind of a domain and its constructor's arguments; empty if no constructor makes it."""
    sampler = domain.get_sampler()
    q, step = "", list[Any]()
    if isinstance(sampler, sample.Quantized):
        q, step, sampler = "q", [sampler.q], sampler.get_sampler()
    match domain, sampler:
        case _Positive(), _LogNormal() if not q:
            return "positive", _plain(domain.lower), _plain(domain.scale)
        case sample.Categorical(), sample.Uniform():
            return "choice", tuple(map(_plain, domain.categories))
        case sample.Float(), sample.Normal() if domain.lower == -math.inf and domain.upper == math.inf:
            return "qrandn" if q else "real", *map(_plain, (sampler.mean, sampler.sd, *step))
        case sample.Float() | sample.Integer(), sample.Uniform() | sample.LogUniform():
            log = "log" if isinstance(sampler, sample.LogUniform) else ""
            bounds = map(_plain, (domain.lower, domain.upper, *step))
            if isinstance(domain, sample.Integer):
                return f"{q}{log}randint", *map(_whole, bounds)
            return f"{q}{log}uniform", *bounds
    return ()


def _transform(name: str, domain: object) -> Transform:
    match domain:
        case {"grid_search": values}:
            problem = f"is a list of trials, not a domain: use {call('choice', values)}"
        case Mapping():
            inner = ", ".join(f"'{name}/{key}'" for key in domain)
            problem = f"is a nested space: name its domains from here, as {inner}"
        case Real():
            problem = "is a constant, not a domain: leave it out, or use one such as tune.uniform(0, 1)"
        case sample.Function():
            problem = "is a function, not a domain: use one such as tune.uniform(0, 1)"
        case Domain():
            kind, *arguments = _signature(domain) or ("",)
            if kind in _KINDS:
                try:
                    return _KINDS[kind][0](kind, *arguments)
                except ValueError as error:
                    raise SpaceError(f"{name}: {error}") from None
            problem = f"has no map from the reals: use one of {', '.join(_KINDS)}"
        case _:
            problem = "is not a Tune domain: use one such as tune.uniform(0, 1)"
    raise SpaceError(f"{name}: {describe(domain)} {problem}")


def _domain(name: str, spec: Any) -> Domain:
    """The domain that ``Transform.to_json`` wrote."""
    kind = spec.get("kind") if isinstance(spec, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise SpaceError(f"{name}: {reprlib.repr(spec)} has no known kind: use one of {', '.join(_KINDS)}")
    _, constructor, keys = _KINDS[kind]
    if spec.keys() != {"kind", *keys}:
        given = ", ".join(map(str, spec))
        raise SpaceError(f"{name}: the keys of {kind} are kind, {', '.join(keys)}, not {given}")
    arguments = [spec[key] for key in keys]
    try:
        return constructor(*arguments)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise SpaceError(f"{name}: {call(kind, *arguments)} is not a domain: {error}") from None


def _plain(x: Any) -> Any:
    """NumPy's numbers as Python's; anything else as it is."""
    if isinstance(x, bool) or not isinstance(x, Real):
        return x
    return int(x) if isinstance(x, Integral) else float(x)


def _whole(x: Any) -> Any:
    return int(x) if isinstance(x, float) and x.is_integer() else x
