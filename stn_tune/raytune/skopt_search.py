"""SkOptSearch: Bayesian optimisation with a Gaussian process, as a Ray Tune searcher."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from ray import cloudpickle
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import assign_value, parse_spec_vars

try:
    from skopt import space as skopt_space
    from skopt.utils import cook_initial_point_generator
except ImportError:
    raise ImportError("SkOptSearch needs scikit-optimize: pip install 'stn-tune[skopt]'") from None

from stn_tune.checkpoint import one_line
from stn_tune.errors import CheckpointError
from stn_tune.nested import name_of, value_at
from stn_tune.raytune.acquisition import best_improvement
from stn_tune.raytune.skopt_axis import SUPPORTED, Axis, tune_space
from stn_tune.raytune.skopt_state import read_state

DESIGNS = ("lhs", "sobol", "halton", "hammersly", "random")
LARGEST = 1e100
"""Results beyond this count as diverged: their variance would overflow, and put NaN into the Gaussian process."""
RANDOM_TRIES = 100
VERSION = 1
"""Of the saved state."""

Point = tuple[float | int, ...]


class SkOptSearch(Searcher):  # type: ignore[misc]  # ray has no types
    """Bayesian optimisation: a Gaussian process (Matérn 5/2, one length scale each, noise), expected improvement.

    Stands in for the searcher of this name that Ray has removed. Dimensions and initial designs are
    scikit-optimize's; the model is that of its ``gp_minimize``, with priors on length scales and noise,
    and is fitted in milliseconds.

    First come ``points_to_evaluate``, then ``n_initial_points`` of a space-filling design, then the maxima of the
    expected improvement. Trials still running are taken to have reached the best value seen (the constant liar of
    Ginsbourger et al., 2010), so that concurrent suggestions spread. Failed trials, and results that are missing, NaN
    or infinite, count as the worst value seen. A point is repeated only if the space seems to hold no other.

    Results are standardised, so that the search does not depend on the metric's units. With ``mode="max"`` the metric
    is maximised. Results of trials that it did not suggest are ignored.

    Args:
        space: a Tune search space, also nested, or a mapping of scikit-optimize's dimensions by name; that of the
            ``tune.Tuner`` when None.
        metric: the name of the result to optimise; that of the ``tune.TuneConfig`` when None.
        mode: ``"min"`` or ``"max"``; that of the ``tune.TuneConfig`` when None.
        points_to_evaluate: configs to try first, each with a value for every hyperparameter that is searched.
        evaluated_rewards: the metric's values at ``points_to_evaluate``, where they are known: these points are then
            told to the model, and not tried.
        n_initial_points: size of the initial design.
        initial_design: ``"lhs"``, ``"sobol"``, ``"halton"``, ``"hammersly"`` or ``"random"``; only the first and last
            of these vary with the seed.
        seed: of everything random; a different one every time when None.

    >>> from ray import tune
    >>> search = SkOptSearch({"lr": tune.loguniform(1e-4, 1.0)}, "loss", "min", points_to_evaluate=[{"lr": 0.1}])
    >>> search.suggest("first")
    {'lr': 0.1}
    """

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        evaluated_rewards: Sequence[float] | None = None,
        *,
        n_initial_points: int = 10,
        initial_design: str = "lhs",
        seed: int | None = None,
    ):
        if space is not None and not isinstance(space, Mapping):
            raise TypeError(f"space is {type(space).__name__}; it must be a mapping of names to Tune domains")
        if n_initial_points < 1:
            raise ValueError(f"n_initial_points is {n_initial_points}; the model needs at least 1 point to start from")
        if initial_design not in DESIGNS:
            raise ValueError(f"initial_design is {initial_design!r}; it must be one of {', '.join(DESIGNS)}")
        super().__init__()
        self._set_objective(metric, mode)
        self.points_to_evaluate = list(points_to_evaluate or [])
        self.evaluated_rewards = None if evaluated_rewards is None else list(evaluated_rewards)
        if self.evaluated_rewards is not None and len(self.evaluated_rewards) != len(self.points_to_evaluate):
            raise ValueError(
                f"evaluated_rewards has {len(self.evaluated_rewards)} values for {len(self.points_to_evaluate)} "
                f"points_to_evaluate; it must have one for each"
            )
        self.n_initial_points = n_initial_points
        self.initial_design = initial_design
        self._random = np.random.default_rng(seed)
        self._config: dict[str, Any] = {}
        self._axes: list[Axis] = []
        self._queue: list[Point] = []
        self._pending: dict[str, Point] = {}
        self._observed: list[tuple[Point, float | None]] = []
        self._theta: list[float] | None = None
        if space is not None:
            self._set_space(space)

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Takes metric, mode and space of the tuner, where it has none of its own."""
        self._set_objective(self._metric or metric, self._mode or mode)
        if self._axes:
            return False
        self._set_space(config)
        return True

    def _set_objective(self, metric: str | None, mode: str | None) -> None:
        if mode not in (None, "min", "max"):
            raise ValueError(f"mode is {mode!r}; it must be 'min' or 'max'")
        self._metric, self._mode = metric, mode

    def _set_space(self, space: Mapping[str, Any]) -> None:
        config, axes = _split(tune_space(space))
        points = [_encode(axes, point, "points_to_evaluate") for point in self.points_to_evaluate]
        self._config, self._axes = config, axes
        if self.evaluated_rewards is not None:
            values = map(_usable, self.evaluated_rewards)
            self._observed = list(zip(points, values, strict=True))
            self._queue = self._design(points)
        else:
            self._queue = points + self._design(points)

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any]) -> dict[str, skopt_space.Dimension]:
        """scikit-optimize's dimensions of a Tune search space, by name; nested ones as ``"model/dropout"``.

        Quantised domains have none of their own: they become those of the values they are rounded from.
        """
        dimensions = {}
        for axis in _split(spec)[1]:
            if axis.choices is not None:
                dimension = skopt_space.Categorical(list(axis.choices))
            elif axis.step not in (None, 1):
                prior = "log-uniform" if axis.log else "uniform"
                kind = skopt_space.Integer if isinstance(axis.step, int) else skopt_space.Real
                dimension = kind(axis.lower, axis.upper, prior=prior)
            else:
                dimension = axis.dimension()
            dimensions[name_of(axis.path)] = dimension
        return dimensions

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """The next config; the same one if a trial asks again."""
        self._require_space()
        if self._metric is None or self._mode is None:
            raise RuntimeError(
                f"SkOptSearch has metric {self._metric!r} and mode {self._mode!r}: give it both, such as 'loss' and "
                f"'min', or a tune.TuneConfig that has them"
            )
        if trial_id not in self._pending:
            self._pending[trial_id] = self._queue.pop(0) if self._queue else self._next()
        config = copy.deepcopy(self._config)
        for axis, coordinate in zip(self._axes, self._pending[trial_id], strict=True):
            assign_value(config, axis.path, copy.deepcopy(axis.decode(coordinate)))
        return config

    def _require_space(self) -> None:
        if not self._axes:
            raise RuntimeError("SkOptSearch has no space: give it space=, or a tune.Tuner with a param_space")

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """Takes the result of a trial into the model."""
        point = self._pending.pop(trial_id, None)
        if point is not None:
            value = None if error or result is None or self._metric is None else result.get(self._metric)
            self._observed.append((point, _usable(value)))

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: float | None,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Takes a config that was evaluated elsewhere into the model.

        A failed one counts as the worst value seen. A pruned one counts with the value it had reached, as trials do
        that a scheduler stops; with the last of ``intermediate_values`` where it has none.
        """
        self._require_space()
        if value is None and pruned and intermediate_values:
            value = intermediate_values[-1]
        point = _encode(self._axes, parameters, "add_evaluated_point")
        self._observed.append((point, None if error else _usable(value)))

    def save(self, checkpoint_path: str) -> None:
        """Saves the whole state."""
        state = {**self.__dict__, "_random": self._random.bit_generator.state}
        state["_axes"] = [asdict(axis) for axis in self._axes]
        with open(checkpoint_path, "wb") as file:
            cloudpickle.dump({"version": VERSION, "state": state}, file)

    def restore(self, checkpoint_path: str) -> None:
        """Continues from a saved state, also from that of an older version."""
        state = read_state(checkpoint_path, VERSION)
        try:
            axes = [Axis(**axis) for axis in state.pop("_axes")]
            self._random.bit_generator.state = state.pop("_random")
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{checkpoint_path}: a damaged state of SkOptSearch: {one_line(repr(error))}"
            ) from None
        self.__dict__.update(state)
        self._axes = axes

    def _design(self, taken: Sequence[Point]) -> list[Point]:
        """The initial design, with random points for those that rounding made equal."""
        generator = cook_initial_point_generator(self.initial_design)
        if generator is None:
            points = self._samples(self.n_initial_points)
        else:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "The balance properties of Sobol", UserWarning)
                found = generator.generate(self._dimensions(), self.n_initial_points, random_state=self._seed())
            points = map(self._native, found)
        design: list[Point] = []
        for point in points:
            design.append(self._unless_seen(point, {*taken, *design}))
        return design

    def _next(self) -> Point:
        """The most promising point; a random one while no trial has succeeded."""
        seen = {point for point, _ in self._observed} | set(self._pending.values())
        if all(value is None for _, value in self._observed):
            return self._unless_seen(next(self._samples(1)), seen)
        points, values = self._told()
        found, self._theta = best_improvement(self._axes, points, values, self._random, self._theta)
        return self._unless_seen(self._native(found), seen)

    def _told(self) -> tuple[list[Point], list[float]]:
        """What the model learns: points with standardised values, to be minimised; failures and lies included."""
        sign = 1.0 if self._mode == "min" else -1.0
        finite = [sign * value for _, value in self._observed if value is not None]
        best, worst = min(finite), max(finite)
        told = [(point, worst if value is None else sign * value) for point, value in self._observed]
        told += [(point, best) for point in self._pending.values()]
        points, values = zip(*told, strict=True)
        standard = (np.array(values) - np.mean(values)) / (np.std(values) or 1.0)
        return list(points), standard.tolist()

    def _unless_seen(self, point: Point, seen: set[Point]) -> Point:
        """The point itself if it is new, otherwise a random one that is; the point again if none turns up."""
        if point not in seen:
            return point
        return next((other for other in self._samples(RANDOM_TRIES) if other not in seen), point)

    def _samples(self, count: int) -> Iterator[Point]:
        return map(self._native, skopt_space.Space(self._dimensions()).rvs(count, random_state=self._seed()))

    def _dimensions(self) -> list[skopt_space.Dimension]:
        """Made anew for each use: scikit-optimize changes the dimensions that it is given."""
        return [axis.dimension() for axis in self._axes]

    def _native(self, point: Sequence[Any]) -> Point:
        return tuple(axis.native(coordinate) for axis, coordinate in zip(self._axes, point, strict=True))

    def _seed(self) -> int:
        return int(self._random.integers(2**31))


def _split(space: Mapping[str, Any]) -> tuple[dict[str, Any], list[Axis]]:
    """The config that all trials share, and the axes of what is searched in it.

    Domains with one value only are part of the former: scikit-optimize has no dimension for them.
    """
    _, domains, grids = parse_spec_vars(dict(space))
    if grids:
        raise ValueError(
            f"{name_of(grids[0][0])}: grid_search cannot be searched by a model; use tune.choice for its values"
        )
    config = copy.deepcopy(dict(space))
    axes = []
    for path, domain in domains:
        axis = Axis.of(path, domain)
        first, last = axis.ends
        if first == last:
            assign_value(config, path, axis.decode(first))
        else:
            axes.append(axis)
    if not axes:
        raise ValueError(
            f"the space of {', '.join(map(repr, space)) or 'nothing'} has nothing to search: at least one entry "
            f"must be a tune.{SUPPORTED} of two values or more"
        )
    return config, axes


def _encode(axes: Sequence[Axis], config: Mapping[str, Any], what: str) -> Point:
    """The point of a config, whose nested values may also be given as ``"model/dropout"``."""
    return tuple(axis.encode(value_at(config, axis.path, what)) for axis in axes)


def _usable(value: Any) -> float | None:
    """A result as a number; None where it is missing, NaN, infinite or too large for the model."""
    return None if value is None or not abs(value) < LARGEST else float(value)
