"""What a method is asked (a Setting) and what it answers (a Plan). Imports neither torch nor Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from stn_tune.record import MethodInfo

if TYPE_CHECKING:
    from ray.tune.search import Searcher

    from stn_tune import FixedTrainable, Schedule, STNTrainable, Task

Values = Mapping[str, float]
"""Hyperparameters by name."""


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """What the searches and populations are run with: chosen per preset, as the STN's options are."""

    random_draws: int = 2
    """Configurations that bayes, tpe and gp draw at random after the initial values, before their model proposes any.
    Libraries draw ten, which can be all that a budget has room for."""
    grace_period: int = 4
    """Epochs that asha gives to every trial."""
    reduction_factor: int = 3
    """Of asha: it promotes one trial in so many."""
    population: int = 4
    """Members of pbt and pb2; these end when all members have trained, so choose as many as fit into the budget."""
    perturbation_interval: int = 3
    """Epochs between the perturbations of a member of pbt or pb2."""
    quantile_fraction: float = 0.25
    """The part of the population that copies, and the part that is copied, in pbt and pb2."""


class TuningProblem(Protocol):
    """What a method has to know: one task, one search space, one set of training rules."""

    @property
    def task(self) -> Task:
        """What is trained."""

    @property
    def space(self) -> Mapping[str, Any]:
        """What is tuned, as Tune domains."""

    @property
    def initial(self) -> Values:
        """Where the STN starts; also the value of every hyperparameter that is not tuned."""

    @property
    def levels(self) -> Mapping[str, Sequence[float]]:
        """The grid's values of each hyperparameter."""

    @property
    def lr(self) -> float:
        """The learning rate."""

    @property
    def grid_order(self) -> str:
        """``"shuffled"``, or ``"tune"`` for the order of Tune's own grid_search."""

    @property
    def searches(self) -> SearchSettings:
        """The settings of the searches and populations."""

    @property
    def stn_options(self) -> Mapping[str, Any]:
        """For ``STNSearch`` and ``STNTrainable.of``."""

    def fixed(self, **options: Any) -> type[FixedTrainable]:
        """A trainable at fixed values or along a schedule."""

    def self_tuned(self, **options: Any) -> type[STNTrainable]:
        """A trainable that tunes the space inside the trial."""


@dataclass(frozen=True)
class EarlierResult:
    """What another method has found in the same run with the same seed."""

    best: Values
    """The values with the lowest validation loss."""
    final: Values
    """The values at the end of that trial."""
    schedule: Schedule | None = None
    """The values of that trial, step by step."""
    greedy: Schedule | None = None
    """For every epoch the values of the trial that was the best at that epoch."""


@dataclass(frozen=True)
class Setting:
    """A problem at one seed, and the number of trials that may run at a time."""

    problem: TuningProblem
    seed: int
    workers: int
    earlier: Mapping[str, EarlierResult] = field(default_factory=dict)
    """Method -> what it has found: of the method that this one builds on."""

    @property
    def start(self) -> list[Values]:
        """What every search tries first: the values that the STN starts from."""
        return [{name: self.problem.initial[name] for name in self.problem.space}]


@dataclass(frozen=True)
class Plan:
    """What ``tune.Tuner`` is given."""

    trainable: type
    config: Mapping[str, Any] = field(default_factory=dict)
    """Domains, grids and values, over the problem's initial values."""
    search: Searcher | None = None
    """None: Tune's default."""
    scheduler: Any = None
    """A Tune trial scheduler; None: first in, first out."""
    samples: int = -1
    """The number of trials; -1: until the budget is used up."""
    metric: str = "best_val_loss"
    """What searcher and scheduler minimise."""
    keep: int = 1
    """Checkpoints to keep per trial."""
    limited: bool = False
    """Whether the scheduler itself keeps to the number of workers."""


def no_settings(problem: TuningProblem, workers: int) -> Mapping[str, Any]:
    """For methods that have none of their own."""
    return {}


@dataclass(frozen=True)
class Method:
    """How a tuner is run, and how it is presented."""

    plan: Callable[[Setting], Plan]
    """Called on the machine that runs the experiment."""
    info: MethodInfo
    """For help, tables and figures."""
    online: bool = False
    """Whether it tunes hyperparameters inside its trials."""
    settings: Callable[[TuningProblem, int], Mapping[str, Any]] = no_settings
    """What the run record says it was run with; called with the problem and the number of workers."""
    takes_schedule: bool = False
    """Whether ``--schedule FILE`` can replace the result that it builds on."""
