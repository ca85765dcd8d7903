"""The searchers that are compared on tables, each as a loop that asks for one evaluation after the other."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.microbenchmarks.searchers.tables import TableAxis

INITIAL_POINTS = 10
"""Of every model-based searcher; it is the default of all of them."""

Evaluate = Callable[[Sequence[int]], float]
Loop = Callable[[Sequence[TableAxis], Evaluate, int, int], None]
"""Takes the axes, what evaluates a point (an index for each axis), the number of evaluations and a seed."""


def random_search(axes: Sequence[TableAxis], evaluate: Evaluate, evaluations: int, seed: int) -> None:
    """Independent uniform draws."""
    random = np.random.default_rng(seed)
    for _ in range(evaluations):
        evaluate([int(random.integers(axis.size)) for axis in axes])


def skopt_search(
    axes: Sequence[TableAxis], evaluate: Evaluate, evaluations: int, seed: int, initial_points: int = INITIAL_POINTS
) -> None:
    """One trial after the other, without Ray."""
    from ray import tune

    from stn_tune import SkOptSearch

    space = {a.name: tune.randint(0, a.size) if a.ordered else tune.choice(list(range(a.size))) for a in axes}
    searcher = SkOptSearch(space, "loss", "min", n_initial_points=initial_points, seed=seed)
    for i in range(evaluations):
        config = searcher.suggest(str(i))
        searcher.on_trial_complete(str(i), {"loss": evaluate([config[axis.name] for axis in axes])})


def gp_minimize(
    axes: Sequence[TableAxis], evaluate: Evaluate, evaluations: int, seed: int, initial_points: int = INITIAL_POINTS
) -> None:
    """scikit-optimize's own loop with expected improvement, else at its defaults."""
    import skopt
    from skopt.space import Categorical, Integer

    dimensions = [Integer(0, a.size - 1) if a.ordered else Categorical(list(range(a.size))) for a in axes]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The objective has been evaluated at point", UserWarning)
        warnings.filterwarnings("ignore", "Predicted variances smaller than 0", UserWarning)
        skopt.gp_minimize(
            evaluate,
            dimensions,
            n_calls=evaluations,
            n_initial_points=initial_points,
            acq_func="EI",
            random_state=seed,
        )


def optuna_tpe(axes: Sequence[TableAxis], evaluate: Evaluate, evaluations: int, seed: int) -> None:
    """Optuna's default sampler."""
    _optuna("TPESampler", axes, evaluate, evaluations, seed)


def optuna_gp(axes: Sequence[TableAxis], evaluate: Evaluate, evaluations: int, seed: int) -> None:
    """Optuna's Gaussian process."""
    _optuna("GPSampler", axes, evaluate, evaluations, seed)


def _optuna(sampler: str, axes: Sequence[TableAxis], evaluate: Evaluate, evaluations: int, seed: int) -> None:
    import optuna

    def objective(trial: Any) -> float:
        return evaluate(
            [
                trial.suggest_int(a.name, 0, a.size - 1)
                if a.ordered
                else trial.suggest_categorical(a.name, list(range(a.size)))
                for a in axes
            ]
        )

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.WARNING)
    try:
        made = getattr(optuna.samplers, sampler)(seed=seed, n_startup_trials=INITIAL_POINTS)
        optuna.create_study(sampler=made).optimize(objective, evaluations)
    finally:
        optuna.logging.set_verbosity(level)


LOOPS: dict[str, Loop] = {
    "random": random_search,
    "SkOptSearch": skopt_search,
    "gp_minimize": gp_minimize,
    "Optuna TPE": optuna_tpe,
    "Optuna GP": optuna_gp,
}
