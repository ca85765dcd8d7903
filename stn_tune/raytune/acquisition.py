"""Where a Gaussian process expects the greatest improvement, over axes of numbers, integers and choices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize

from stn_tune.raytune.gaussian_process import Floats, GaussianProcess
from stn_tune.raytune.skopt_axis import Axis

RANDOM, LOCAL = 1000, 100
"""Candidates: anywhere, and in each round around each of the best."""
WIDTHS = (0.2, 0.05, 0.01)
"""Of the rounds, as parts of an axis."""
KEPT = 5
"""How many of the best observations and candidates are searched around."""
CONTINUOUS_STARTS, CONTINUOUS_ITERATIONS = 2, 30


def best_improvement(
    axes: Sequence[Axis],
    points: Sequence[Sequence[float]],
    values: Sequence[float],
    random: np.random.Generator,
    theta: Sequence[float] | None = None,
) -> tuple[list[float], list[float]]:
    """The point of the greatest expected improvement among those not in ``points``, and the model's θ.

    Args:
        points: the coordinates of what was observed, with ``values`` of mean 0 and variance 1, to be minimised.
        theta: θ of an earlier model, from which the fit starts.
    """
    observed = np.array(points, dtype=np.float64)
    axis_of = np.repeat(np.arange(len(axes)), [axis.columns for axis in axes])
    model = GaussianProcess(axis_of, None if theta is None else np.array(theta))
    inputs = model_inputs(axes, observed)
    model.fit(inputs, np.array(values))
    expected, _ = model.predict(inputs)
    best = float(expected.min())  # of the model's means: single results may be lucky
    seen = {tuple(row) for row in observed}

    def improvement(candidates: Floats) -> Floats:
        gain = model.improvement(model_inputs(axes, candidates), best)
        return np.where([tuple(row) in seen for row in candidates], -1.0, gain)

    candidates = np.column_stack([axis.draw(random, RANDOM) for axis in axes])
    centers = observed[np.argsort(expected)[:KEPT]]
    gains = improvement(candidates)
    for width in WIDTHS:
        around = _around(axes, centers, width, random)
        candidates, gains = np.vstack([candidates, around]), np.concatenate([gains, improvement(around)])
        keep = np.argsort(-gains)[: 4 * KEPT]
        candidates, gains = candidates[keep], gains[keep]
        centers = candidates[:KEPT]
    if any(axis.step is None for axis in axes):
        moved = np.array([_climb(axes, model, start, best) for start in candidates[:CONTINUOUS_STARTS]])
        candidates, gains = np.vstack([candidates, moved]), np.concatenate([gains, improvement(moved)])
    return candidates[int(np.argmax(gains))].tolist(), model.theta.tolist()


def model_inputs(axes: Sequence[Axis], points: Floats) -> Floats:
    """Coordinates of shape (points, axes) as inputs of the model."""
    return np.column_stack([axis.inputs(points[:, k]) for k, axis in enumerate(axes)])


def _around(axes: Sequence[Axis], centers: Floats, width: float, random: np.random.Generator) -> Floats:
    """Points around each center that differ from it in one axis or in several."""
    points = np.repeat(centers, LOCAL, axis=0)
    chance = np.where(np.arange(len(points)) % 2 == 0, 1.5 / len(axes), 0.6)
    moves = random.random(points.shape) < chance[:, None]
    moves[np.arange(len(points)), random.integers(len(axes), size=len(points))] = True
    for k, axis in enumerate(axes):
        rows = moves[:, k]
        points[rows, k] = axis.nearby(random, points[rows, k], width)
    return points


def _climb(axes: Sequence[Axis], model: GaussianProcess, start: Floats, best: float) -> Floats:
    """From a point along the gradient of the expected improvement, in the continuous axes alone."""
    inputs = model_inputs(axes, start[None])[0]
    free = np.flatnonzero([axes[k].step is None for k in model.axis_of])

    def negative(values: Floats) -> tuple[float, Floats]:
        value, gradient = model.negative_improvement(_with(inputs, free, values), best)
        return value, gradient[free]

    found = minimize(
        negative,
        inputs[free],
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * len(free),
        options={"maxiter": CONTINUOUS_ITERATIONS},
    )
    point = start.copy()
    for column, value in zip(free, found.x, strict=True):
        k = model.axis_of[column]
        point[k] = axes[k].coordinates(np.array([value]))[0]
    return point


def _with(inputs: Floats, places: np.ndarray[tuple[int, ...], np.dtype[np.int64]], values: Floats) -> Floats:
    changed = inputs.copy()
    changed[places] = values
    return changed
