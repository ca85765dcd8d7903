"""The run record: what a benchmark runner tells the analysis. Typed, versioned, standard library only.

A run's folder holds ``record.json`` (a :class:`RunRecord`) and one log per finished experiment, whose first line is the
experiment's :class:`ExperimentInfo`. The analysis reads nothing else: what methods are called, how they are drawn and
what they build on, what the metric and its unit are, which hyperparameters were tuned online.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from stn_tune.atomic import write_atomic
from stn_tune.errors import RecordError, unknown
from stn_tune.numbers import is_finite
from stn_tune.plain_json import parse_json

VERSION = 2
FILE_NAME = "record.json"
LOG_FORMAT = "stn_tune.run"
LOG_SUFFIX = ".jsonl.gz"
RESERVED = "stn"
"""The key of a trial's config that holds the space, the options and the seed of online tuning."""
REPEAT = "__trial_index__"
"""The key of a trial's config under which ``ray.tune.search.Repeater`` counts the repeats of a configuration."""

Clock = Literal["cpu", "device", "worker"]
"""What compute-seconds count: CPU time of the trials' processes, the time for which they held a GPU, or (version 1) the
wall-clock time for which they occupied a worker."""

Kind = Literal["rate", "count", "coefficient"]
"""How a hyperparameter is drawn: within [0, 1], a whole number, or any other number."""

R = TypeVar("R", bound="_Part")


class _Part:
    """A frozen dataclass that is written as JSON and validated when it is read."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls: type[R], data: Any, where: str) -> R:
        """Reads what :meth:`to_json` wrote; ``where`` names the file, for errors."""
        return _build(cls, data, where)

    def __deepcopy__(self: R, memo: object) -> R:
        """A record is immutable: pandas, which copies a frame's attributes often, may share it."""
        return self


@dataclass(frozen=True)
class Style(_Part):
    """How a method's line is drawn."""

    colour: str
    """A hex code: ``#D55E00``."""
    dash: str = "solid"
    """solid, dashed, dotted or dashdot."""


@dataclass(frozen=True)
class MethodInfo(_Part):
    """A tuning method, as tables and figures present it."""

    name: str
    """Its key, as on the command line."""
    title: str
    """As people read it: "Bayesian optimisation"."""
    summary: str = ""
    """One line of help."""
    builds_on: str | None = None
    """The method whose results it starts from; its own compute-seconds leave out what finding them cost."""
    stops_early: bool = False
    """Whether it stops most of its trials before they have ended by themselves."""
    style: Style | None = None
    """None: the analysis picks one."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What it was run with beside the task's settings: ``{"population": 10, "perturbation_interval": 3}``."""


@dataclass(frozen=True)
class HyperparameterInfo(_Part):
    """A hyperparameter, as figures present it."""

    title: str
    """As people read it: "α"."""
    kind: Kind
    """Which axis it belongs to."""
    domain: Mapping[str, Any]
    """The search domain, as :meth:`HyperSpace.to_json` writes it."""
    initial: float | None = None
    """The value that every method tries first."""
    unit: str = ""
    """For the axis: "pixels"."""


@dataclass(frozen=True)
class TaskInfo(_Part):
    """What was trained, and how it is measured."""

    name: str
    """Its key, as on the command line."""
    title: str
    """As people read it: "Penn Treebank"."""
    metric: str
    """The validation metric that selects."""
    mode: Literal["min", "max"]
    """Whether the lowest or the highest value is the best."""
    unit: str = ""
    """The metric's unit: "nats per token"."""
    space: Mapping[str, HyperparameterInfo] = field(default_factory=dict)
    """The search space, in order."""


@dataclass(frozen=True)
class TrialInfo(_Part):
    """One trial of an experiment."""

    number: int
    """From 0, in the order in which trials began."""
    id: str
    """Tune's own name for it."""
    status: str
    """TERMINATED, ERROR, …"""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The hyperparameters it was started with."""
    lost: int = 0
    """Reported rows that could not be read back."""


@dataclass(frozen=True)
class ExperimentInfo(_Part):
    """One method at one seed."""

    method: str
    """The name of a :class:`MethodInfo`."""
    seed: int
    """The seed of everything random in it."""
    variant: Mapping[str, str | float | bool] = field(default_factory=dict)
    """What sets it apart from other experiments of the same method in a study: ``{"scale": 0.5}``."""
    compared: bool = True
    """False: data for a figure, not a competitor."""
    online: tuple[str, ...] = ()
    """Hyperparameters that were tuned inside the trials."""
    tuned: tuple[str, ...] = ()
    """All hyperparameters that the method chose, online or not; the others stayed at their initial values."""
    overrides: tuple[str, ...] = ()
    """Changes of settings, on top of the run's."""
    trials: tuple[TrialInfo, ...] = ()
    """Filled in when the experiment has finished."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Where it ran."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of Python and the packages it ran with."""
    searches: bool | None = None
    """Whether it tries several configurations as long as the budget allows; None: not known."""
    startup_s: float | None = None
    """Compute-seconds that its trials took to start their processes and to set up; None: not known."""
    ended_trials: int | None = None
    """Trials whose training ended by itself, neither by the budget nor by a scheduler; None: not known."""

    @property
    def label(self) -> str:
        """Method and variant: ``"stn scale=0.5"``; the same for all seeds."""
        return label_of(self.method, self.variant)

    @property
    def name(self) -> str:
        """The name of its log, unique within a run: ``"stn_scale=0.5-0"``."""
        return f"{self.label.replace(' ', '_').replace('/', '_')}-{self.seed}"


@dataclass(frozen=True)
class LogHeader(_Part):
    """The first line of an experiment's log: the experiment, and what every reader needs to know of its run."""

    experiment: ExperimentInfo
    """With its trials."""
    task: str
    """The name of a :class:`TaskInfo`."""
    metric: str
    """The validation metric that selects."""
    mode: Literal["min", "max"]
    """Whether the lowest or the highest value is the best."""
    preset: str = ""
    """The size of the task."""
    budget_s: float | None = None
    """Compute-seconds of the experiment."""
    clock: Clock = "cpu"
    """What compute-seconds count."""

    def to_json(self) -> dict[str, Any]:
        """One flat object, marked with the format and its version; the experiment's fields are among the others."""
        own = super().to_json()
        experiment = own.pop("experiment")
        return {"format": LOG_FORMAT, "version": VERSION, **experiment, **own}

    @classmethod
    def from_json(cls, data: Any, where: str) -> LogHeader:
        """Reads what :meth:`to_json` wrote; ``where`` names the file, for errors."""
        if not isinstance(data, Mapping) or data.get("format") != LOG_FORMAT:
            raise RecordError(f'{where} is not the header of a log ("format": "{LOG_FORMAT}")')
        if data.get("version") != VERSION:
            raise RecordError(f"{where}: version is {_shown(data.get('version'))}; this release reads {VERSION}")
        own = {f.name for f in dataclasses.fields(cls)}
        marks = ("format", "version")
        experiment = {key: value for key, value in data.items() if key not in own and key not in marks}
        info = ExperimentInfo.from_json(experiment, where)
        return _build(cls, {"experiment": info} | {key: data[key] for key in data if key in own}, where)


@dataclass(frozen=True)
class Invocation(_Part):
    """One call of the runner on a folder: the first, or one that resumed it."""

    command: str
    """As typed."""
    started: str
    """ISO 8601, UTC."""
    commit: str | None = None
    """Of the code that ran."""
    dirty: bool | None = None
    """Whether files differed from that commit."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of Python and the packages."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Processor, cores, memory, GPUs, system."""


@dataclass(frozen=True)
class Published(_Part):
    """Values that somebody else published, to be shown beside ours."""

    source: str
    """Where they are from: "paper (full size)"."""
    metric: str
    """Without the split: "perplexity"."""
    values: Mapping[str, Mapping[str, str]]
    """Method -> split ("val", "test") -> the value as printed."""
    note: str = ""
    """What has to be said about them."""


@dataclass(frozen=True)
class RunRecord(_Part):
    """Everything about a run but its rows."""

    name: str
    """The run's title."""
    study: str
    """Which study it is: "run", "sensitivity", …"""
    task: TaskInfo
    """What was trained."""
    methods: tuple[MethodInfo, ...]
    """In the order of tables and legends."""
    experiments: tuple[ExperimentInfo, ...]
    """All that were asked for, finished or not."""
    invocations: tuple[Invocation, ...] = ()
    """Every call that worked on this run."""
    preset: str = ""
    """The size of the task."""
    overrides: tuple[str, ...] = ()
    """Changes of the preset's settings."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All settings, resolved."""
    tuned: tuple[str, ...] = ()
    """The hyperparameters that are tuned; the others keep their initial values."""
    budget_s: float | None = None
    """Compute-seconds per experiment."""
    clock: Clock = "cpu"
    """What compute-seconds count."""
    workers: int = 1
    """Trials of an experiment at a time."""
    cpus: float = 1.0
    """Per trial."""
    gpus: float = 0.0
    """Per trial."""
    published: Published | None = None
    """Values to show beside the measured ones."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What only the runner reads."""
    version: int = VERSION
    """Of this format."""

    def method(self, name: str) -> MethodInfo:
        """The method of that name; one with nothing but a name where it is not listed."""
        return next((m for m in self.methods if m.name == name), MethodInfo(name, name))

    def experiment(self, name: str) -> ExperimentInfo:
        """The experiment of that name."""
        for e in self.experiments:
            if e.name == name:
                return e
        raise RecordError(unknown("experiment", name, [e.name for e in self.experiments]))

    def write(self, folder: Path) -> None:
        """Writes ``record.json``, atomically."""
        write_atomic(folder / FILE_NAME, (json.dumps(self.to_json(), indent=1) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> RunRecord | None:
        """The record in a folder, None where there is none."""
        path = folder / FILE_NAME
        return cls.parse(path.read_bytes(), str(path)) if path.exists() else None

    @classmethod
    def parse(cls, data: bytes, where: str) -> RunRecord:
        """The record in a file's contents; ``where`` names the file, for errors."""
        try:
            found = parse_json(data)
        except ValueError as error:
            raise RecordError(f"{where} is not JSON: {error}") from None
        if not isinstance(found, Mapping):
            raise RecordError(f"{where} is {_shown(found)}; it must be a JSON object")
        if found.get("version") != VERSION:
            raise RecordError(f"{where}: version is {_shown(found.get('version'))}; this release reads {VERSION}")
        return cls.from_json(found, where)


def label_of(method: str, variant: Mapping[str, Any]) -> str:
    """``"stn scale=0.5 tune_scale=false"``.

    >>> label_of("stn", {"scale": 0.5, "tune_scale": False})
    'stn scale=0.5 tune_scale=false'
    """
    return " ".join([method, *(f"{key}={value_text(value)}" for key, value in variant.items())])


def value_text(value: Any) -> str:
    """A value as people write it: ``0.5``, ``true``, ``ridge``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, _Part):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _build(cls: type[R], data: Any, where: str) -> R:
    if not isinstance(data, Mapping):
        raise RecordError(f"{where} is {_shown(data)}; it must be an object")
    hints = typing.get_type_hints(cls)
    known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in data:
        if key not in known:
            raise RecordError(f"{where}: {unknown('field', key, known)}")
    for f in dataclasses.fields(cls):  # type: ignore[arg-type]
        if f.name not in data and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise RecordError(f"{where}: {f.name} is missing")
    return cls(**{key: _value(hints[key], value, f"{where}: {key}") for key, value in data.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    """``value`` as the type hint asks for it, or an error that names the field."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        options = [a for a in arguments if a is not type(None)]
        if len(options) == 1:
            return _value(options[0], value, where)
        if any(_is(a, value) for a in options):
            return value
        raise RecordError(f"{where} is {_shown(value)}; it must be one of {', '.join(a.__name__ for a in options)}")
    if origin is Literal:
        if value in arguments:
            return value
        raise RecordError(f"{where} is {_shown(value)}; it must be one of {', '.join(map(repr, arguments))}")
    if isinstance(hint, type) and issubclass(hint, _Part):
        return value if isinstance(value, hint) else _build(hint, value, where)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise RecordError(f"{where} is {_shown(value)}; it must be a list")
        return tuple(_value(arguments[0], item, f"{where}[{k}]") for k, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise RecordError(f"{where} is {_shown(value)}; it must be an object")
        return {key: _value(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if not _is(hint, value):
        raise RecordError(f"{where} is {_shown(value)}; it must be {hint.__name__}")
    return float(value) if hint is float else value


def _is(hint: Any, value: Any) -> bool:
    if hint is int:  # as large as NumPy's
        return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    if hint is float:
        return is_finite(value) or isinstance(value, float)
    return isinstance(value, hint)


def _shown(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."
