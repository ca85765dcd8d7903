"""Options of the algorithms: plain JSON, documented, and checked long before there is a model or even torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict

from stn_tune.algorithms.field_docs import with_field_docs
from stn_tune.errors import unknown
from stn_tune.numbers import is_number

if TYPE_CHECKING:
    from typing_extensions import Self

Draw = Literal["batch", "example", "mean"]
"""How λ+ε is drawn in a step: once for the batch, for each example, or not at all (ε = 0)."""

DRAWS = ("batch", "example", "mean")


@dataclass(frozen=True)
class Options:
    """What an algorithm needs beside task and space; plain JSON. The paper's choices are the benchmark's presets."""

    algorithm: ClassVar[str] = ""
    """The algorithm's name, under which :data:`stn_tune.algorithms.ALGORITHMS` has it."""

    init: Mapping[str, float] = field(default_factory=dict)
    """Initial values by name. Where not given: the rate that ``stn.dropouts`` found, else the middle of the domain."""
    scale: float | Mapping[str, float] = 0.5
    """Initial σ, one for all hyperparameters or by name, in units of the unconstrained λ."""
    tune_scale: bool = True
    """Whether σ is learned, too."""
    per_batch: Sequence[str] = ()
    """Hyperparameters that are drawn once per batch instead of once per example."""
    direct: Sequence[str] | bool = ()
    """Hyperparameters on which the validation loss depends directly; ``True`` for all."""
    hyper_lr: float = 0.01
    """Learning rate of λ (Adam)."""
    scale_lr: float | None = None
    """Learning rate of σ (Adam); ``hyper_lr`` if None."""
    train_steps: int = 4
    """T_train: weight steps in a row."""
    valid_steps: int = 1
    """T_valid: hyperparameter steps after them."""
    warmup: int = 0
    """Iterations of a trial in which only weights move. Only ``STNTrainable`` has them; else use ``warmup_steps``."""
    warmup_steps: int = 0
    """Weight steps before λ and σ first move."""
    entropy_weight: float = 0.001
    """τ, the weight of the entropy of ε; acts only where σ is tuned."""
    draw: Draw = "batch"
    """How λ+ε is drawn in weight steps: once per "batch", per "example" (the paper's listing, for layers that have
    Eq. 10), or not at all ("mean")."""
    groups: int | None = None
    """With draws per example: how many groups of neighbouring examples share a draw each; None: no groups."""
    antithetic: bool = False
    """With draws per example: the second half of a batch's draws is the first, mirrored at λ."""
    valid_draw: Draw | None = None
    """``draw`` in hyperparameter steps; by default that of ``draw`` if σ is tuned, else "mean"."""
    wait: bool = True
    """Whether ReduceLROnPlateau and ``Task.stop`` wait while λ is travelling (see ``SelfTuner.settled``): iterations
    without a better validation loss do not count then. They wait for at most as many iterations as the best loss had
    taken. Only ``STNTrainable`` does this."""
    refine: bool | int = False
    """After the STN has ended, train plain networks along its schedule: one if true, else the number given. The best by
    validation loss, the STN's own network included, is the result. Only ``STNTrainable`` does this."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__doc__ = with_field_docs(cls)

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raises ValueError for invalid values; subclasses extend it."""
        self.require_at_least(1, "train_steps")
        self.require_at_least(0, "valid_steps", "warmup", "warmup_steps", "entropy_weight")
        if not isinstance(self.refine, int) or self.refine < 0:
            raise ValueError(f"refine is {self.refine!r}; it must be true, false or a number of networks")
        if not isinstance(self.scale, Mapping) and not (is_number(self.scale) and self.scale > 0):
            raise ValueError(f"scale is {self.scale!r}; it must be positive")
        self.require_positive("hyper_lr")
        if self.scale_lr is not None:
            self.require_positive("scale_lr")
        if self.groups is not None:
            self.require_at_least(2, "groups")
        for name in ("groups", "antithetic"):
            if getattr(self, name) and "example" not in (self.draw, self.valid_draw):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, but draw is {self.draw!r}; it needs draw='example'"
                )
        for f in fields(self):
            if f.type in ("bool", bool) and not isinstance(value := getattr(self, f.name), bool):
                raise ValueError(f"{f.name} is {value!r}; it must be true or false")
        for name in ("draw", "valid_draw"):
            if (how := getattr(self, name)) not in DRAWS and (name == "draw" or how is not None):
                raise ValueError(f"{name} is {how!r}; it must be 'batch', 'example' or 'mean'")

    def require_at_least(self, least: int, *names: str) -> None:
        """Raises ValueError unless these options are numbers, at least ``least``."""
        for name in names:
            if not is_number(value := getattr(self, name)) or not value >= least:
                raise ValueError(f"{name} is {value!r}; it must be a number, at least {least}")

    def require_positive(self, *names: str) -> None:
        """Raises ValueError unless these options are positive numbers."""
        for name in names:
            if not is_number(value := getattr(self, name)) or not value > 0:
                raise ValueError(f"{name} is {value!r}; it must be a positive number")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """From keywords; an unknown one raises an error that lists all options."""
        known = [f.name for f in fields(cls)]
        for name in options:
            if name not in known:
                raise TypeError(unknown(f"{cls.algorithm} option", name, known))
        return cls(**options)


@dataclass(frozen=True)
class STNOptions(Options):
    """Options of Algorithm 1: those that every algorithm has."""

    algorithm: ClassVar[str] = "stn"
    """Its name."""


@dataclass(frozen=True)
class DeltaOptions(Options):
    """Options of Δ-STN; each of its differences to the STN can be turned off."""

    algorithm: ClassVar[str] = "delta"
    """Its name."""

    response_every: int = 2
    """K: the responses are trained in every K-th weight step."""
    paired: bool | None = None
    """Whether a response step has the random numbers of the weight step on the same batch, and its gradient is taken
    relative to that step's: unbiased, and most of the noise cancels. Needs shared draws; None: where draws are."""
    damping: float | None = 0.1
    """In pairs, responses move at the pace at which training itself would move the weights: the gradient of a row of U
    is divided by ‖σ⊙V‖² + damping, that of V by (‖U‖² + damping) σ², of the same row. None: plain steps."""
    separate: bool = True
    """Whether weights are trained at λ and responses in steps of their own; else both together at λ+ε."""
    linearised: bool = False
    """Whether responses are trained on the model's output to first order in ε; needs forward-mode derivatives."""
    centred: bool = True
    """Whether responses are a function of λ+ε − λ; else of λ+ε − λ₀, the offset from where λ started."""
    follow: bool = False
    """Whether weights take up their response when λ moves; else they follow by their own training alone."""

    def check(self) -> None:
        """Those of every algorithm, K, and pairs."""
        super().check()
        self.require_at_least(1, "response_every")
        if self.damping is not None:
            self.require_positive("damping")
        if self.paired is not None and not isinstance(self.paired, bool):
            raise ValueError(f"paired is {self.paired!r}; it must be true, false or none")
        if self.paired and (self.draw != "batch" or not self.separate):
            raise ValueError("paired is True; it needs draw='batch' and separate=True")

    @property
    def in_pairs(self) -> bool:
        """Whether response steps are paired with weight steps."""
        return self.separate and self.draw == "batch" if self.paired is None else self.paired


class TunerKeywords(TypedDict, total=False):
    """The fields of :class:`Options` that a tuner reads, as typed keyword arguments."""

    hyper_lr: float
    scale_lr: float | None
    train_steps: int
    valid_steps: int
    warmup_steps: int
    entropy_weight: float
    draw: Draw
    groups: int | None
    antithetic: bool
    valid_draw: Draw | None


class OptionKeywords(TunerKeywords, total=False):
    """All fields of :class:`Options` as typed keyword arguments."""

    init: Mapping[str, float]
    scale: float | Mapping[str, float]
    tune_scale: bool
    per_batch: Sequence[str]
    direct: Sequence[str] | bool
    warmup: int
    wait: bool
    refine: bool | int


class DeltaKeywords(TypedDict, total=False):
    """What :class:`DeltaOptions` adds, as typed keyword arguments."""

    response_every: int
    paired: bool | None
    damping: float | None
    separate: bool
    linearised: bool
    centred: bool
    follow: bool


def option_names() -> list[str]:
    """The options that at least one algorithm has."""
    kinds: list[type[Options]] = [Options, *Options.__subclasses__()]
    return list(dict.fromkeys(f.name for kind in kinds for f in fields(kind)))
