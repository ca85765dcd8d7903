"""METHODS: how each tuner is run on a problem. One small function each; a new method is one function and one line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher

import stn_tune as stn
from baselines.points import GridSearch, RandomSearch
from baselines.population import LimitedPB2, LimitedPBT
from baselines.skopt_search import SkOptSearch
from stn_tune.record import MethodInfo, Style

Values = Mapping[str, float]


class Problem(Protocol):
    """What a method has to know: one task, one space, one set of rules of training."""

    task: stn.Task
    space: Mapping[str, Any]
    """What is tuned, as Tune domains."""
    initial: Values
    """Where the STN starts; also the value of every hyperparameter that is not tuned."""
    levels: Mapping[str, Sequence[float]]
    """The grid's values of each hyperparameter."""
    lr: float
    grid_order: str
    population: int
    """Members of PBT and PB2, at least."""
    stn_options: Mapping[str, Any]

    def fixed(self, **options: Any) -> type[stn.FixedTrainable]: ...

    def self_tuned(self, **options: Any) -> type[stn.STNTrainable]: ...


@dataclass(frozen=True)
class Found:
    """What an earlier method of the same run and seed has found."""

    best: Values
    """The values with the lowest validation loss."""
    final: Values
    """The values at the end of that trial."""
    schedule: stn.Schedule | None = None
    greedy: stn.Schedule | None = None
    """At every epoch the values whose trial was the best at that epoch."""


@dataclass(frozen=True)
class Setting:
    """A problem at one seed, with a number of trials that may run at once."""

    problem: Problem
    seed: int
    workers: int
    found: Mapping[str, Found] = field(default_factory=dict)

    @property
    def start(self) -> list[Values]:
        """What every search tries first: the values that the STN starts from, so that both know as much."""
        return [{name: self.problem.initial[name] for name in self.problem.space}]


@dataclass(frozen=True)
class Plan:
    """What ``tune.Tuner`` is given."""

    trainable: type
    config: Mapping[str, Any] = field(default_factory=dict)
    """Domains, grids and values, over the problem's initial values."""
    search: Searcher | None = None
    scheduler: Any = None
    samples: int = -1
    metric: str = "best_val_loss"
    keep: int = 1
    """Checkpoints to keep per trial."""
    limited: bool = False
    """Whether the scheduler itself keeps to the number of workers."""


@dataclass(frozen=True)
class Method:
    """How a tuner is run, and how it is presented."""

    plan: Callable[[Setting], Plan]
    info: MethodInfo
    online: bool = False
    """Whether it tunes hyperparameters inside its trials."""


def grid(s: Setting) -> Plan:
    levels = {name: tune.grid_search(list(s.problem.levels[name])) for name in s.problem.space}
    search = GridSearch(None) if s.problem.grid_order == "tune" else GridSearch(s.seed, s.start)
    return Plan(s.problem.fixed(), levels, search)


def random(s: Setting) -> Plan:
    return Plan(s.problem.fixed(), s.problem.space, RandomSearch(s.seed, s.start))


DRAWN = 2
"""Configurations that a search draws at random, after the start, before its model proposes any. Libraries draw ten,
which can be all that a budget has room for."""


def bayes(s: Setting) -> Plan:
    search = SkOptSearch(n_initial_points=DRAWN, seed=s.seed, points_to_evaluate=s.start)
    return Plan(s.problem.fixed(), s.problem.space, search)


def self_tuning(s: Setting) -> Plan:
    return Plan(s.problem.self_tuned(), samples=1)


def hybrid(s: Setting) -> Plan:
    lr = s.problem.lr
    outer = SkOptSearch(n_initial_points=3, seed=s.seed, points_to_evaluate=[{"lr": lr}])
    search = stn.STNSearch(online=list(s.problem.space), outer=outer, seed=s.seed, **s.problem.stn_options)
    config = {**s.problem.space, "lr": tune.loguniform(lr / 10, lr * 3)}
    return Plan(stn.STNTrainable.of(s.problem.task), config, search)


def _optuna(s: Setting, sampler: str) -> Plan:
    import optuna
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    make = getattr(optuna.samplers, sampler)
    model = make(seed=s.seed, n_startup_trials=len(s.start) + DRAWN)
    return Plan(s.problem.fixed(), s.problem.space, OptunaSearch(sampler=model, points_to_evaluate=s.start))


def tpe(s: Setting) -> Plan:
    return _optuna(s, "TPESampler")


def gp(s: Setting) -> Plan:
    return _optuna(s, "GPSampler")


def asha(s: Setting) -> Plan:
    halving = ASHAScheduler(time_attr="training_iteration", grace_period=4, reduction_factor=3, max_t=1000)
    return Plan(s.problem.fixed(), s.problem.space, RandomSearch(s.seed, s.start), halving)


INTERVAL = 3
"""Epochs between the perturbations of a population's members."""


def pbt(s: Setting) -> Plan:
    scheduler = LimitedPBT(
        workers=s.workers,
        time_attr="training_iteration",
        perturbation_interval=INTERVAL,
        hyperparam_mutations=dict(s.problem.space),
        custom_explore_fn=partial(inside, space=stn.HyperSpace(s.problem.space)),
    )
    return _population(s, scheduler)


def inside(config: Mapping[str, Any], *, space: stn.HyperSpace) -> dict[str, Any]:
    """``config`` with the nearest value of its domain for every name of ``space``: PBT's factors know no domains."""
    return {**config, **space.native({name: config[name] for name in space})}


def pb2(s: Setting) -> Plan:
    bounds = {}
    for name, domain in s.problem.space.items():
        integer = type(domain).__name__ == "Integer"  # PB2 cuts off decimals: the last value needs room above it
        bounds[name] = [domain.lower, domain.upper - (1e-3 if integer else 0)]
    scheduler = LimitedPB2(
        workers=s.workers,
        time_attr="training_iteration",
        perturbation_interval=INTERVAL,
        hyperparam_bounds=bounds,
    )
    return _population(s, scheduler)


def _population(s: Setting, scheduler: Any) -> Plan:
    members = max(s.problem.population, s.workers)
    random_search = tune.search.basic_variant.BasicVariantGenerator(s.start, random_state=s.seed)
    return Plan(
        s.problem.fixed(),
        s.problem.space,
        random_search,
        scheduler,
        samples=members,
        metric="val_loss",
        keep=members,
        limited=True,
    )


def fixed(s: Setting) -> Plan:
    return Plan(s.problem.fixed(), samples=1)


def final(s: Setting) -> Plan:
    return Plan(s.problem.fixed(), s.found["stn"].final, samples=1)


def replay(s: Setting) -> Plan:
    return Plan(s.problem.fixed(schedule=s.found["stn"].schedule), samples=1)


def greedy(s: Setting) -> Plan:
    return Plan(s.problem.fixed(schedule=s.found["grid"].greedy), samples=1)


def gaussian(s: Setting) -> Plan:
    return _perturbed(s, partial(gaussian_noise, std=0.05, seed=s.seed))


def sinusoid(s: Setting) -> Plan:
    return _perturbed(s, partial(sinusoid_noise, amplitude=0.1, period=1200))


def _perturbed(s: Setting, noise: Callable[[int], float]) -> Plan:
    centre = {name: s.found["grid"].best[name] for name in s.problem.space}
    schedule = partial(perturbed, centre=centre, space=stn.HyperSpace(s.problem.space), noise=noise)
    return Plan(s.problem.fixed(schedule=schedule), centre, samples=1)


def perturbed(step: int, *, centre: Values, space: stn.HyperSpace, noise: Callable[[int], float]) -> dict[str, float]:
    """``centre`` with noise on every continuous value, kept inside its domain."""
    return space.native({k: v if space.transform(k).discrete else v + noise(step) for k, v in centre.items()})


def gaussian_noise(step: int, *, std: float, seed: int) -> float:
    """Drawn anew at every step, and the same whenever that step is done again."""
    return float(std * np.random.default_rng([seed, step]).standard_normal())


def sinusoid_noise(step: int, *, amplitude: float, period: int) -> float:
    return amplitude * math.sin(2 * math.pi * step / period)


ORANGE, BLUE, GREEN, PINK = "#D55E00", "#0072B2", "#009E73", "#CC79A7"
AMBER, SKY, BLACK, BROWN = "#E69F00", "#56B4E9", "#000000", "#8C6D1F"
"""Okabe and Ito's colours, with a brown in the place of the yellow that white paper swallows."""


def _method(
    plan: Callable[[Setting], Plan],
    name: str,
    title: str,
    summary: str,
    style: Style,
    *,
    online: bool = False,
    **about: Any,
) -> tuple[str, Method]:
    return name, Method(plan, MethodInfo(name, title, summary, style=style, **about), online)


METHODS = dict(
    [
        _method(self_tuning, "stn", "STN", "a self-tuning network: one training run", Style(ORANGE), online=True),
        _method(
            grid,
            "grid",
            "grid search",
            "grid search over the preset's levels, shuffled by the seed (or --set grid_order=tune)",
            Style(BLUE),
        ),
        _method(random, "random", "random search", "random search", Style(GREEN)),
        _method(
            bayes,
            "bayes",
            "Bayesian optimisation",
            "Bayesian optimisation: a Gaussian process with expected improvement (scikit-optimize)",
            Style(PINK),
        ),
        _method(tpe, "tpe", "TPE", "tree-structured Parzen estimator (Optuna)", Style(AMBER)),
        _method(gp, "gp", "GP (Optuna)", "Gaussian process (Optuna)", Style(AMBER, "dashed")),
        _method(
            asha, "asha", "ASHA", "random search with asynchronous successive halving", Style(SKY), stops_early=True
        ),
        _method(pbt, "pbt", "PBT", "population-based training", Style(BLACK)),
        _method(pb2, "pb2", "PB2", "population-based bandits", Style(BLACK, "dashed")),
        _method(
            hybrid,
            "hybrid",
            "STN + search",
            "self-tuning networks, with Bayesian optimisation of their learning rate",
            Style(ORANGE, "dashed"),
            online=True,
        ),
        _method(
            fixed, "fixed", "initial values (fixed)", "no tuning: the values at which the STN starts", Style(BROWN)
        ),
        _method(
            final,
            "final",
            "final STN values (fixed)",
            "the values at which stn ended, fixed from the beginning",
            Style(BROWN, "dashed"),
            builds_on="stn",
        ),
        _method(
            replay,
            "replay",
            "STN schedule replayed",
            "a plain network along the schedule that stn found",
            Style(PINK, "dashed"),
            builds_on="stn",
        ),
        _method(
            greedy,
            "greedy",
            "greedy schedule of the grid",
            "a plain network along the grid's best values of each epoch",
            Style(ORANGE, "dashdot"),
            builds_on="grid",
        ),
        _method(
            gaussian,
            "gaussian",
            "Gaussian noise",
            "the grid's best values with Gaussian noise",
            Style(BLUE, "dashed"),
            builds_on="grid",
        ),
        _method(
            sinusoid,
            "sinusoid",
            "sinusoid noise",
            "the grid's best values with a sinusoid added",
            Style(GREEN, "dashed"),
            builds_on="grid",
        ),
    ]
)
"""Every method by name, in the order of tables and legends."""
