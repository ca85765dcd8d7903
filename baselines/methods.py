"""METHODS: how each tuner is run on a problem. A new method is one function and one entry.

Functions import what they need: the command line lists the methods without waiting for torch and Ray.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import stn_tune as stn
from baselines.plan import Method, Plan, Setting, TuningProblem, Values
from stn_tune.record import MethodInfo, Style

MOST_NETWORKS = 100
"""Plain networks that a refined STN may train, from seeds of their own: more than a budget has room for."""


def self_tuning(s: Setting) -> Plan:
    """One self-tuned training run."""
    return Plan(s.problem.self_tuned(), samples=1)


def delta(s: Setting) -> Plan:
    """One run of Δ-STN."""
    return Plan(s.problem.self_tuned(algorithm="delta"), samples=1)


def refined(s: Setting) -> Plan:
    """One self-tuned training run, then plain ones along its schedule until the budget is used."""
    return Plan(s.problem.self_tuned(refine=MOST_NETWORKS), samples=1)


def grid(s: Setting) -> Plan:
    """The preset's levels, shuffled by the seed or in Tune's order."""
    from ray import tune

    from baselines.points import GridSearch

    levels = {name: tune.grid_search(list(s.problem.levels[name])) for name in s.problem.space}
    search = GridSearch(None) if s.problem.grid_order == "tune" else GridSearch(s.seed, s.start)
    return Plan(s.problem.fixed(), levels, search)


def random(s: Setting) -> Plan:
    """Independent draws from the domains."""
    from baselines.points import RandomSearch

    return Plan(s.problem.fixed(), s.problem.space, RandomSearch(s.seed, s.start))


def bayes(s: Setting) -> Plan:
    """A Gaussian process with expected improvement."""
    search = stn.SkOptSearch(n_initial_points=s.problem.searches.random_draws, seed=s.seed, points_to_evaluate=s.start)
    return Plan(s.problem.fixed(), s.problem.space, search)


def tpe(s: Setting) -> Plan:
    """Optuna's default sampler."""
    return _optuna(s, "TPESampler")


def gp(s: Setting) -> Plan:
    """Optuna's Gaussian process."""
    return _optuna(s, "GPSampler")


def _optuna(s: Setting, sampler: str) -> Plan:
    import optuna
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    make = getattr(optuna.samplers, sampler)
    model = make(seed=s.seed, n_startup_trials=len(s.start) + s.problem.searches.random_draws)
    return Plan(s.problem.fixed(), s.problem.space, OptunaSearch(sampler=model, points_to_evaluate=s.start))


def asha(s: Setting) -> Plan:
    """Random search whose worst trials are stopped early."""
    from ray.tune.schedulers import ASHAScheduler

    from baselines.points import RandomSearch

    halving = ASHAScheduler(time_attr="training_iteration", max_t=1000, **halving_settings(s.problem, s.workers))
    return Plan(s.problem.fixed(), s.problem.space, RandomSearch(s.seed, s.start), halving)


def pbt(s: Setting) -> Plan:
    """A population whose worst members copy the best and perturb their values."""
    from baselines.population import LimitedPBT

    scheduler = LimitedPBT(
        workers=s.workers,
        time_attr="training_iteration",
        perturbation_interval=s.problem.searches.perturbation_interval,
        quantile_fraction=s.problem.searches.quantile_fraction,
        hyperparam_mutations=dict(s.problem.space),
        custom_explore_fn=partial(moved_inside, space=stn.HyperSpace(s.problem.space)),
    )
    return _population(s, scheduler)


def moved_inside(config: Mapping[str, Any], *, space: stn.HyperSpace) -> dict[str, Any]:
    """``config`` with every value of ``space`` moved into its domain: PBT multiplies by factors."""
    return {**config, **space.native({name: config[name] for name in space})}


def pb2(s: Setting) -> Plan:
    """A population whose perturbations a Gaussian process proposes."""
    from baselines.population import LimitedPB2

    space = stn.HyperSpace(s.problem.space)
    scheduler = LimitedPB2(
        workers=s.workers,
        time_attr="training_iteration",
        perturbation_interval=s.problem.searches.perturbation_interval,
        quantile_fraction=s.problem.searches.quantile_fraction,
        hyperparam_bounds={name: _pb2_bounds(space, name) for name in space},
    )
    return _population(s, scheduler)


def _pb2_bounds(space: stn.HyperSpace, name: str) -> list[float]:
    transform = space.transform(name)
    if not transform.discrete:
        return list(transform.ends)
    values = transform.values()
    return [values[0], values[-1] + 1 - 1e-3]  # PB2 cuts off decimals: the last value needs room above it


def _population(s: Setting, scheduler: Any) -> Plan:
    from ray.tune.search.basic_variant import BasicVariantGenerator

    members = population_size(s.problem, s.workers)
    return Plan(
        s.problem.fixed(),
        s.problem.space,
        BasicVariantGenerator(s.start, random_state=s.seed),
        scheduler,
        samples=members,
        metric="val_loss",
        keep=members,
        limited=True,
    )


def population_size(problem: TuningProblem, workers: int) -> int:
    """Members of PBT and PB2: at least as many as there are workers."""
    return max(problem.searches.population, workers)


def population_settings(problem: TuningProblem, workers: int) -> dict[str, Any]:
    """What the record says of PBT and PB2."""
    return {
        "population": population_size(problem, workers),
        "perturbation_interval": problem.searches.perturbation_interval,
        "quantile_fraction": problem.searches.quantile_fraction,
    }


def halving_settings(problem: TuningProblem, workers: int) -> dict[str, Any]:
    """What the record says of ASHA, and what its scheduler is given."""
    return {
        "grace_period": problem.searches.grace_period,
        "reduction_factor": problem.searches.reduction_factor,
    }


def model_settings(problem: TuningProblem, workers: int) -> dict[str, Any]:
    """What the record says of searches with a model."""
    return {"random_draws": problem.searches.random_draws}


def hybrid(s: Setting) -> Plan:
    """Self-tuned trials inside a search for the learning rate."""
    from ray import tune

    lr = s.problem.lr
    outer = stn.SkOptSearch(n_initial_points=3, seed=s.seed, points_to_evaluate=[{"lr": lr}])
    search = stn.STNSearch(online=list(s.problem.space), outer=outer, seed=s.seed, **s.problem.stn_options)
    config = {**s.problem.space, "lr": tune.loguniform(lr / 10, lr * 3)}
    return Plan(stn.STNTrainable.of(s.problem.task), config, search)


def fixed(s: Setting) -> Plan:
    """One training run at the initial values."""
    return Plan(s.problem.fixed(), samples=1)


def final(s: Setting) -> Plan:
    """One training run at the values at which the STN ended."""
    return Plan(s.problem.fixed(), s.earlier["stn"].final, samples=1)


def replay(s: Setting) -> Plan:
    """One training run along the STN's schedule."""
    return Plan(s.problem.fixed(schedule=s.earlier["stn"].schedule), samples=1)


def greedy(s: Setting) -> Plan:
    """One training run along the grid's best values of each epoch."""
    return Plan(s.problem.fixed(schedule=s.earlier["grid"].greedy), samples=1)


def gaussian(s: Setting) -> Plan:
    """The grid's best values with Gaussian noise."""
    return _perturbed(s, partial(gaussian_noise, std=0.05, seed=s.seed))


def sinusoid(s: Setting) -> Plan:
    """The grid's best values with a sinusoid added."""
    return _perturbed(s, partial(sinusoid_noise, amplitude=0.1, period=1200))


def _perturbed(s: Setting, noise: Callable[[int], float]) -> Plan:
    centre = {name: s.earlier["grid"].best[name] for name in s.problem.space}
    schedule = partial(perturbed, centre=centre, space=stn.HyperSpace(s.problem.space), noise=noise)
    return Plan(s.problem.fixed(schedule=schedule), centre, samples=1)


def perturbed(step: int, *, centre: Values, space: stn.HyperSpace, noise: Callable[[int], float]) -> dict[str, float]:
    """``centre`` with noise on every continuous value, kept inside its domain."""
    return space.native({k: v if space.transform(k).discrete else v + noise(step) for k, v in centre.items()})


def gaussian_noise(step: int, *, std: float, seed: int) -> float:
    """A new draw at every step, and the same one whenever that step is repeated."""
    import numpy as np

    return float(std * np.random.default_rng([seed, step]).standard_normal())


def sinusoid_noise(step: int, *, amplitude: float, period: int) -> float:
    """The same for all seeds."""
    return amplitude * math.sin(2 * math.pi * step / period)


ORANGE, BLUE, GREEN, PINK = "#D55E00", "#0072B2", "#009E73", "#CC79A7"
AMBER, SKY, BLACK, BROWN, WINE = "#E69F00", "#56B4E9", "#000000", "#8C6D1F", "#882255"
"""Okabe and Ito's colours, with a brown in place of the yellow, which is too pale on white; and a red for a ninth."""


def _info(name: str, title: str, summary: str, colour: str, dash: str = "solid", **about: Any) -> MethodInfo:
    return MethodInfo(name, title, summary, style=Style(colour, dash), **about)


_ENTRIES = [
    Method(self_tuning, _info("stn", "STN", "a self-tuning network: one training run", ORANGE), online=True),
    Method(grid, _info("grid", "grid search", "grid search over the preset's levels, in random order", BLUE)),
    Method(random, _info("random", "random search", "random search", GREEN)),
    Method(
        bayes,
        _info("bayes", "Bayesian optimisation", "Bayesian optimisation (scikit-optimize)", PINK),
        settings=model_settings,
    ),
    Method(tpe, _info("tpe", "TPE", "tree-structured Parzen estimator (Optuna)", AMBER), settings=model_settings),
    Method(gp, _info("gp", "GP (Optuna)", "Gaussian process (Optuna)", AMBER, "dashed"), settings=model_settings),
    Method(
        asha,
        _info("asha", "ASHA", "random search with successive halving (ASHA)", SKY, stops_early=True),
        settings=halving_settings,
    ),
    Method(pbt, _info("pbt", "PBT", "population-based training", BLACK), settings=population_settings),
    Method(pb2, _info("pb2", "PB2", "population-based bandits", BLACK, "dashed"), settings=population_settings),
    Method(
        hybrid,
        _info("hybrid", "STN + search", "STNs, with Bayesian optimisation of the learning rate", ORANGE, "dashed"),
        online=True,
    ),
    Method(
        delta,
        _info("delta", "Δ-STN", "a Δ-STN: weights and responses are trained in separate steps", WINE, "dotted"),
        online=True,
    ),
    Method(
        refined,
        _info("refined", "STN, refined", "an STN, then plain networks along its schedule", ORANGE, "dotted"),
        online=True,
    ),
    Method(fixed, _info("fixed", "initial values (fixed)", "no tuning: the STN's initial values", BROWN)),
    Method(
        final,
        _info(
            *("final", "final STN values (fixed)", "the values at which stn ended, from the start"),
            *(BROWN, "dashed"),
            builds_on="stn",
        ),
    ),
    Method(
        replay,
        _info(
            *("replay", "STN schedule replayed", "a plain network along the schedule that stn found"),
            *(PINK, "dashed"),
            builds_on="stn",
        ),
        takes_schedule=True,
    ),
    Method(
        greedy,
        _info(
            *("greedy", "greedy schedule of the grid", "a plain network along grid's best values per epoch"),
            *(ORANGE, "dashdot"),
            builds_on="grid",
        ),
    ),
    Method(
        gaussian,
        _info(
            *("gaussian", "Gaussian noise", "grid's best values with Gaussian noise"),
            *(BLUE, "dashed"),
            builds_on="grid",
        ),
    ),
    Method(
        sinusoid,
        _info(
            *("sinusoid", "sinusoid noise", "grid's best values with a sinusoid added"),
            *(GREEN, "dashed"),
            builds_on="grid",
        ),
    ),
]

METHODS = {method.info.name: method for method in _ENTRIES}
"""Every method by name, in the order of tables and legends."""
