"""Presets and overrides, read into typed settings; every mistake is named with its key and value."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import tomllib
from ray import tune

from benchmarks.errors import SettingsError
from stn_tune.algorithms.stn import STNOptions
from stn_tune.errors import SpaceError
from stn_tune.space import HyperSpace

PRESETS = Path(__file__).with_name("presets.toml")
S = TypeVar("S")


@dataclass(frozen=True)
class Hyperparameter:
    """One line of a preset's space."""

    kind: str
    lower: float
    upper: float
    init: float
    levels: Sequence[float]
    """The grid's values."""
    per_batch: bool = False

    def domain(self) -> Any:
        """The Tune domain; both ends of an integer range are included in presets."""
        if self.kind == "randint":
            return tune.randint(int(self.lower), int(self.upper) + 1)
        makers = {"uniform": tune.uniform, "loguniform": tune.loguniform}
        if self.kind not in makers:
            raise SettingsError(f"kind is {self.kind!r}; it must be randint, {' or '.join(makers)}")
        return makers[self.kind](self.lower, self.upper)


@dataclass(frozen=True)
class STN:
    """What only the STN reads."""

    hyper_lr: float
    train_steps: int
    valid_steps: int
    warmup: int
    scale: float
    tune_scale: bool
    entropy_weight: float


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every task has: the rules of training, shared by all methods, and the space."""

    space: Mapping[str, Hyperparameter]
    stn: STN
    batch_size: int
    hidden: int
    lr: float
    lr_decay: float
    lr_patience: int
    lr_min: float
    grid_order: str = "shuffled"
    """Or "tune": the order of Tune's own grid_search."""
    population: int = 4
    """Members of pbt and pb2, which end when these have trained: as many as fit into the budget."""

    def domains(self) -> dict[str, Any]:
        """The search space, the same for every method."""
        return {name: h.domain() for name, h in self.space.items()}

    def initial(self) -> dict[str, float]:
        return {name: int(h.init) if h.kind == "randint" else h.init for name, h in self.space.items()}

    def levels(self) -> dict[str, list[float]]:
        """The grid's values, those that lie within their domains."""
        return {
            name: [int(x) if h.kind == "randint" else x for x in h.levels if h.lower <= x <= h.upper]
            for name, h in self.space.items()
        }

    def stn_options(self, tuned: Sequence[str] | None = None) -> dict[str, Any]:
        """For ``STNTrainable.of(task, space=…, **options)``; of all hyperparameters, or of those that are tuned."""
        names = list(self.space) if tuned is None else tuned
        per_batch = [name for name in names if self.space[name].per_batch]
        init = {name: self.initial()[name] for name in names}
        return {"init": init, "per_batch": per_batch, **vars(self.stn)}


@dataclass(frozen=True, kw_only=True)
class LanguageSettings(Settings):
    vocabulary: int
    layers: int
    sequence: int
    clip: float
    tokens: int | None = None
    valid_tokens: int | None = None
    test_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class ImageSettings(Settings):
    channels: Sequence[int]
    valid_fraction: float
    momentum: float
    patience: int
    examples: int | None = None
    test_examples: int | None = None


@dataclass(frozen=True, kw_only=True)
class TheorySettings(Settings):
    """``hidden`` is D of Theorem 1: the inputs, and the hidden units of the gated network."""

    network: str
    """ridge: ridge regression; gated: two linear layers with an L2 penalty on the Jacobian."""
    steps: int
    """Updates in an iteration."""


def load(task: str, preset: str, kind: type[S], overrides: Sequence[str] = (), path: Path = PRESETS) -> S:
    """The settings of a task's preset, with ``key=value`` overrides; dots reach into tables."""
    presets = tomllib.loads(path.read_text(encoding="utf-8"))
    if task not in presets:
        raise SettingsError(f"unknown task {task!r}{nearest(task, presets)}")
    if preset not in presets[task]:
        raise SettingsError(f"{task} has no preset {preset!r}{nearest(preset, presets[task])}")
    data = _extended(presets, task, preset)
    for override in overrides:
        _override(data, override)
    settings = build(kind, data, f"{task}.{preset}")
    _check(settings)
    return settings


def _extended(presets: Mapping[str, Any], task: str, preset: str) -> dict[str, Any]:
    own = dict(presets[task][preset])
    base = own.pop("extends", None)
    if base is None:
        return own
    inherited = _extended(presets, *base.split("."))
    for key, value in own.items():
        replace = key == "space" or not isinstance(value, dict)
        inherited[key] = value if replace else {**inherited.get(key, {}), **value}
    return inherited


def _override(data: dict[str, Any], text: str) -> None:
    """``lr=10`` or ``space.alpha.upper=2``."""
    key, value = read_assignment(text, "--set")
    *tables, last = key.split(".")
    where = data
    for table in tables:
        if not isinstance(where.get(table), dict):
            raise SettingsError(f"--set {text}: there is no {table!r}{nearest(table, where)}")
        where = where[table]
    where[last] = value


def read_assignment(text: str, option: str) -> tuple[str, Any]:
    """``KEY=VALUE`` from the command line; the value is read as TOML, bare words as strings."""
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise SettingsError(f"{option} {text}: write KEY=VALUE, for example {option} lr=10")
    try:
        return key.strip(), tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), raw.strip()


def build(kind: type[S], data: Mapping[str, Any], where: str) -> S:
    """A dataclass from plain data, with every key and value checked."""
    types = get_type_hints(kind)
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for key in data:
        if key not in known:
            raise SettingsError(f"{where}: unknown setting {key!r}{nearest(key, known)}")
    for f in fields(kind):  # type: ignore[arg-type]
        if f.name not in data and f.default is MISSING and f.default_factory is MISSING:
            raise SettingsError(f"{where}: {f.name} is missing")
    return kind(**{key: _value(types[key], value, f"{where}.{key}") for key, value in data.items()})


def _value(kind: Any, value: Any, where: str) -> Any:
    if is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise SettingsError(f"{where} is {value!r}; it must be a table")
        return build(kind, value, where)  # type: ignore[type-var]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is not None and issubclass(origin if isinstance(origin, type) else object, Mapping):
        if not isinstance(value, Mapping):
            raise SettingsError(f"{where} is {value!r}; it must be a table")
        return {name: _value(arguments[1], item, f"{where}.{name}") for name, item in value.items()}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        if not isinstance(value, list):
            raise SettingsError(f"{where} is {value!r}; it must be a list")
        return tuple(_value(arguments[0], item, where) for item in value)
    if type(None) in arguments:
        return _value(arguments[0], value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise SettingsError(f"{where} is {value!r}; it must be {_article(kind)}")
    if kind in (int, float) and not 0 <= value < math.inf:
        raise SettingsError(f"{where} is {value!r}; it must be finite and not negative")
    return value


def _article(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[kind]


def _check(settings: Any) -> None:
    """What types alone do not say."""
    for name in ("batch_size", "hidden", "lr_patience", "layers", "sequence", "vocabulary", "steps"):
        if getattr(settings, name, 1) < 1:
            raise SettingsError(f"{name} is {getattr(settings, name)}; it must be at least 1")
    for name in ("tokens", "valid_tokens", "test_tokens"):
        if getattr(settings, name, None) in (0, 1):
            raise SettingsError(f"{name} is {getattr(settings, name)}; it must be at least 2, a word and its next")
    if min(getattr(settings, "channels", (1,)), default=0) < 1:
        raise SettingsError(f"channels is {list(settings.channels)}; it must have at least one layer of at least 1")
    if settings.population < 2:
        raise SettingsError(f"population is {settings.population}; it must be at least 2")
    if settings.grid_order not in ("shuffled", "tune"):
        raise SettingsError(f"grid_order is {settings.grid_order!r}; it must be shuffled or tune")
    if getattr(settings, "network", "ridge") not in ("ridge", "gated"):
        raise SettingsError(f"network is {settings.network!r}; it must be ridge or gated")
    if not 0 < getattr(settings, "valid_fraction", 0.5) < 1:
        raise SettingsError(f"valid_fraction is {settings.valid_fraction}; it must lie between 0 and 1")
    for name, h in settings.space.items():
        if h.kind == "randint" and any(value != int(value) for value in (h.lower, h.upper, h.init, *h.levels)):
            raise SettingsError(f"space.{name}: lower, upper, init and levels of a randint must be whole numbers")
        try:
            HyperSpace({name: h.domain()}).unconstrain({name: settings.initial()[name]})
        except SettingsError as error:
            raise SettingsError(f"space.{name}: {error}") from None
        except SpaceError as error:
            raise SettingsError(f"space.{error}") from None
        if not settings.levels()[name]:
            raise SettingsError(f"space.{name}.levels has no value from {h.lower:g} to {h.upper:g} for the grid")
    try:
        STNOptions.of(settings.stn_options())
    except ValueError as error:
        raise SettingsError(f"stn.{error}") from None


def nearest(key: str, known: Any) -> str:
    """What was meant, or else all there is: the end of a sentence about an unknown ``key``."""
    near = difflib.get_close_matches(key, list(known), n=1)
    return f": did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
