"""Ray Tune's domains by kind and arguments: the one reading of a domain that everything else uses. Imports Ray."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

from ray.tune.search import sample
from ray.tune.search.sample import Domain

from stn_tune.errors import SpaceError
from stn_tune.transform import HalfLine, Line, call


class LogNormal(sample.Sampler):  # type: ignore[misc]  # ray has no types
    """Samples low + scale exp(z), z ~ N(0, 1)."""

    def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        items = domain.lower + domain.scale * random_state.lognormal(size=size)
        return items if len(items) > 1 else domain.cast(items[0])


class Positive(sample.Float):  # type: ignore[misc]
    """The half-open domain (low, inf)."""

    default_sampler_cls = LogNormal

    def __init__(self, low: float, scale: float) -> None:
        super().__init__(low, None)
        self.scale = scale


def positive(low: float = 0.0, scale: float = 1.0) -> Domain:
    """The half-open domain (low, inf). Black-box search samples low + scale exp(z), z ~ N(0, 1)."""
    HalfLine("positive", plain_number(low), plain_number(scale))
    return Positive(low, scale)


def real(loc: float = 0.0, scale: float = 1.0) -> Domain:
    """The real line, ``tune.randn(loc, scale)`` by another name. Black-box search samples N(loc, scale²)."""
    Line("real", plain_number(loc), plain_number(scale))
    return sample.randn(loc, scale)


CONSTRUCTORS: dict[str, tuple[Callable[..., Domain], tuple[str, ...]]] = {
    "uniform": (sample.uniform, ("lower", "upper")),
    "loguniform": (sample.loguniform, ("lower", "upper")),
    "quniform": (sample.quniform, ("lower", "upper", "q")),
    "qloguniform": (sample.qloguniform, ("lower", "upper", "q")),
    "randint": (sample.randint, ("lower", "upper")),
    "lograndint": (sample.lograndint, ("lower", "upper")),
    "qrandint": (sample.qrandint, ("lower", "upper", "q")),
    "qlograndint": (sample.qlograndint, ("lower", "upper", "q")),
    "choice": (sample.choice, ("categories",)),
    "positive": (positive, ("low", "scale")),
    "real": (real, ("loc", "scale")),
}
"""Kind -> the constructor of its domain, and that constructor's arguments."""


def describe(domain: object) -> str:
    """The domain as a user would write it: ``tune.uniform(0, 0.75)``."""
    match domain:
        case {"grid_search": values}:
            return call("grid_search", values)
        case sample.Function(func=function):
            return f"tune.sample_from({getattr(function, '__name__', function)})"
        case Domain() if found := signature(domain):
            return call(*found)
        case Domain():
            return f"{type(domain).__name__}{domain.domain_str} with {type(domain.get_sampler()).__name__}"
    return reprlib.repr(domain)


def signature(domain: Domain) -> tuple[Any, ...]:
    """The kind of a domain and its constructor's arguments; empty if no constructor makes it."""
    sampler = domain.get_sampler()
    q, step = "", list[Any]()
    if isinstance(sampler, sample.Quantized):
        q, step, sampler = "q", [sampler.q], sampler.get_sampler()
    match domain, sampler:
        case Positive(), LogNormal() if not q:
            return "positive", plain_number(domain.lower), plain_number(domain.scale)
        case sample.Categorical(), sample.Uniform():
            return "choice", tuple(map(plain_number, domain.categories))
        case sample.Float(), sample.Normal() if domain.lower == -math.inf and domain.upper == math.inf:
            return "qrandn" if q else "real", *map(plain_number, (sampler.mean, sampler.sd, *step))
        case sample.Float() | sample.Integer(), sample.Uniform() | sample.LogUniform():
            log = "log" if isinstance(sampler, sample.LogUniform) else ""
            bounds = map(plain_number, (domain.lower, domain.upper, *step))
            if isinstance(domain, sample.Integer):
                return f"{q}{log}randint", *map(_whole, bounds)
            return f"{q}{log}uniform", *bounds
    return ()


def from_json(name: str, spec: Any) -> Domain:
    """The domain that ``Transform.to_json`` wrote."""
    kind = spec.get("kind") if isinstance(spec, Mapping) else None
    if not isinstance(kind, str) or kind not in CONSTRUCTORS:
        raise SpaceError(f"{name}: {reprlib.repr(spec)} has no known kind: use one of {', '.join(CONSTRUCTORS)}")
    constructor, keys = CONSTRUCTORS[kind]
    if spec.keys() != {"kind", *keys}:
        given = ", ".join(map(str, spec))
        raise SpaceError(f"{name}: the keys of {kind} are kind, {', '.join(keys)}, not {given}")
    arguments = [spec[key] for key in keys]
    try:
        return constructor(*arguments)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise SpaceError(f"{name}: {call(kind, *arguments)} is not a domain: {error}") from None


def plain_number(x: Any) -> Any:
    """NumPy's numbers as Python's; anything else as it is."""
    if isinstance(x, bool) or not isinstance(x, Real):
        return x
    return int(x) if isinstance(x, Integral) else float(x)


def _whole(x: Any) -> Any:
    return int(x) if isinstance(x, float) and x.is_integer() else x
