"""Settings of a task: read from a preset and --set, typed and checked. Imports neither torch nor Ray."""

from __future__ import annotations

import copy
import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import tomllib

from baselines.plan import SearchSettings
from benchmarks.errors import SettingsError
from benchmarks.presets import read_preset, setting_names
from stn_tune.errors import SpaceError, unknown
from stn_tune.numbers import is_finite

KINDS = ("uniform", "loguniform", "randint")
LONGEST = 400
"""Characters of KEY=VALUE on the command line."""
S = TypeVar("S")


@dataclass(frozen=True)
class Hyperparameter:
    """One line of a preset's space."""

    kind: str
    """Of the Tune domain: uniform, loguniform or randint."""
    lower: float
    """The lower end, included."""
    upper: float
    """The upper end; as in Tune, a randint excludes it."""
    init: float
    """Where the STN starts, and what every search tries first."""
    levels: Sequence[float]
    """The grid's values."""
    per_batch: bool = False
    """Whether the STN draws it once per batch."""

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return self.kind == "randint"

    def domain(self) -> Any:
        """The Tune domain."""
        from ray import tune

        if self.kind not in KINDS:
            raise SettingsError(f"kind is {self.kind!r}; it must be one of {', '.join(KINDS)}")
        ends = (int(self.lower), int(self.upper)) if self.whole else (self.lower, self.upper)
        return getattr(tune, self.kind)(*ends)

    def initial(self) -> float:
        """The initial value, an int where values are whole."""
        return int(self.init) if self.whole else self.init

    def inner_levels(self) -> list[float]:
        """The levels that lie in the domain."""
        inside = [x for x in self.levels if self.lower <= x and (x < self.upper if self.whole else x <= self.upper)]
        return [int(x) for x in inside] if self.whole else inside

    def check(self) -> None:
        """Raises SettingsError, or SpaceError for a domain that is empty or does not hold the initial value."""
        from stn_tune.space import HyperSpace

        if self.whole and any(value != int(value) for value in (self.lower, self.upper, self.init, *self.levels)):
            raise SettingsError("lower, upper, init and levels of a randint must be whole numbers")
        HyperSpace({"value": self.domain()}).unconstrain({"value": self.initial()})
        if not self.inner_levels():
            end = f"below {self.upper:g}" if self.whole else f"up to {self.upper:g}"
            raise SettingsError(f"levels has no value from {self.lower:g} {end} for the grid")


@dataclass(frozen=True, kw_only=True)
class Settings(SearchSettings):
    """What every task has: the training rules, shared by all methods, the space, and the methods' own settings."""

    space: Mapping[str, Hyperparameter]
    """The search space, in order."""
    stn: Mapping[str, Any]
    """What only the STN reads: its algorithm, and any of that algorithm's options."""
    batch_size: int
    """Examples per step."""
    hidden: int
    """Units of a hidden layer."""
    lr: float
    """The initial learning rate."""
    lr_decay: float
    """What the learning rate is multiplied with when the validation loss stalls."""
    lr_patience: int
    """Epochs without improvement after which it does."""
    lr_min: float
    """Training ends when the learning rate falls below this."""
    grid_order: str = "shuffled"
    """Or "tune": the order of Tune's own grid_search."""

    def domains(self) -> dict[str, Any]:
        """The search space, the same for every method."""
        return {name: h.domain() for name, h in self.space.items()}

    def initial(self) -> dict[str, float]:
        """The initial value of every hyperparameter."""
        return {name: h.initial() for name, h in self.space.items()}

    def levels(self) -> dict[str, list[float]]:
        """The grid's values, those that lie within their domains."""
        return {name: h.inner_levels() for name, h in self.space.items()}

    def stn_options(self, tuned: Sequence[str] | None = None) -> dict[str, Any]:
        """For ``STNTrainable.of(task, space=…, **options)``; of all hyperparameters, or of those that are tuned."""
        names = list(self.space) if tuned is None else tuned
        per_batch = [name for name in names if self.space[name].per_batch]
        init = {name: self.space[name].initial() for name in names}
        return {"init": init, "per_batch": per_batch, **self.stn}

    def check(self) -> None:
        """Raises SettingsError for what types alone do not exclude; tasks with settings of their own extend it."""
        self.require_at_least(1, "batch_size", "hidden", "lr_patience", "random_draws", "grace_period")
        self.require_at_least(1, "perturbation_interval")
        self.require_at_least(2, "population", "reduction_factor")
        if not 0 < self.quantile_fraction <= 0.5:
            raise SettingsError(f"quantile_fraction is {self.quantile_fraction:g}; it must be above 0 and at most 0.5")
        if self.grid_order not in ("shuffled", "tune"):
            raise SettingsError(f"grid_order is {self.grid_order!r}; it must be shuffled or tune")
        for name, h in self.space.items():
            try:
                h.check()
            except (SettingsError, SpaceError) as error:
                raise SettingsError(f"space.{name}: {str(error).removeprefix('value: ')}") from None
        self._check_stn()

    def _check_stn(self) -> None:
        from stn_tune.algorithms.registry import options_of

        try:
            options_of(self.stn_options())
        except (TypeError, ValueError) as error:
            raise SettingsError(f"stn: {error}") from None

    def require_at_least(self, least: int, *names: str) -> None:
        """Raises SettingsError for the first of these settings that is set and below ``least``."""
        for name in names:
            value = getattr(self, name)
            if value is not None and value < least:
                raise SettingsError(f"{name} is {value}; it must be at least {least}")


def read_settings(task: str, preset: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """A preset's settings with ``key=value`` overrides; dots reach into tables. Raises for unknown keys."""
    data = copy.deepcopy(read_preset(task, preset))
    known = sorted({*setting_names(task), *(f.name for f in fields(Settings))})
    for text in overrides:
        key, value = read_assignment(text, "--set")
        *tables, last = key.split(".")
        where = data
        for table in tables:
            if not isinstance(where.get(table), dict):
                raise SettingsError(f"--set {text}: {unknown('setting', table, where)}")
            where = where[table]
        names = known if not tables else _fields_of(tables) or list(where)
        if last not in names:
            raise SettingsError(f"--set {text}: {unknown('setting', last, names)}")
        where[last] = value
    return data


def _fields_of(tables: Sequence[str]) -> list[str]:
    """What may be set in a table: in ``stn``, or in ``space.alpha``."""
    if tables == ["stn"]:
        from stn_tune.algorithms.options import option_names

        return ["algorithm", *option_names()]
    return [f.name for f in fields(Hyperparameter)] if tables[0] == "space" and len(tables) == 2 else []


def read_assignment(text: str, option: str) -> tuple[str, Any]:
    """``KEY=VALUE`` from the command line; the value is read as TOML, bare words as strings, ``none`` as None."""
    if len(text) > LONGEST:
        raise SettingsError(f"{option} {text[:40]!r}… has {len(text)} characters; at most {LONGEST} are read")
    if not text.isprintable():
        raise SettingsError(f"{option} {text!r}: write KEY=VALUE in one line, without control characters")
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise SettingsError(f"{option} {text}: write KEY=VALUE, for example {option} lr=10")
    try:
        return key.strip(), tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):  # no TOML, or a number of thousands of digits
        return key.strip(), None if raw.strip() == "none" else raw.strip()


def load_settings(task: str, preset: str, kind: type[S], overrides: Sequence[str] = ()) -> S:
    """The settings of a task, as ``kind``, checked."""
    settings = _build(kind, read_settings(task, preset, overrides), f"{task}.{preset}")
    assert isinstance(settings, Settings)
    settings.check()
    return settings


def _build(kind: type[S], data: Mapping[str, Any], where: str) -> S:
    """A dataclass from plain data, with every key and value checked."""
    types = get_type_hints(kind)
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for key in data:
        if key not in known:
            raise SettingsError(f"{where}: {unknown('setting', key, known)}")
    for f in fields(kind):  # type: ignore[arg-type]
        if f.name not in data and f.default is MISSING and f.default_factory is MISSING:
            raise SettingsError(f"{where}: {f.name} is missing")
    return kind(**{key: _value(types[key], value, f"{where}.{key}") for key, value in data.items()})


def _value(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise SettingsError(f"{where} is {reprlib.repr(value)}; it must be a table")
        return _build(kind, value, where)  # type: ignore[arg-type]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is not None and issubclass(origin if isinstance(origin, type) else object, Mapping):
        if not isinstance(value, Mapping):
            raise SettingsError(f"{where} is {reprlib.repr(value)}; it must be a table")
        return {name: _value(arguments[1], item, f"{where}.{name}") for name, item in value.items()}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        if not isinstance(value, list):
            raise SettingsError(f"{where} is {reprlib.repr(value)}; it must be a list")
        return tuple(_value(arguments[0], item, where) for item in value)
    if type(None) in arguments:
        return _value(arguments[0], value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if is_finite(value) else math.inf
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise SettingsError(f"{where} is {reprlib.repr(value)}; it must be {_NAMED[kind]}")
    if kind in (int, float) and not 0 <= value < math.inf:
        raise SettingsError(f"{where} is {value!r}; it must be finite and not negative")
    return value


_NAMED = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
