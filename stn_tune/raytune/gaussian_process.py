"""A Gaussian process with closed-form gradients, small enough to be fitted in milliseconds. NumPy and SciPy only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import ndtr

Floats = NDArray[np.float64]

ROOT5 = 5**0.5
BOUNDS = {"scale": (1e-2, 1e2), "length": (1e-2, 1e2), "noise": (1e-6, 1.0)}
LENGTH, LENGTH_SPREAD = 0.5, 1.0
"""Median and log-scale deviation of the length scales' prior, for inputs in [0, 1]; the median grows with √axes."""
NOISE, NOISE_SPREAD = 1e-3, 2.0
"""Median and log-scale deviation of the noise variance's prior, for outputs of variance 1."""
ITERATIONS = 40


class GaussianProcess:
    """y = f(x) + noise, f ~ GP(0, s k(r)), Matérn 5/2: k(r) = (1 + √5 r + 5r²/3) exp(-√5 r).

    r² = Σ_a ‖x_a - x'_a‖² / ℓ_a², with one length scale ℓ_a for all columns of axis a. The hyperparameters
    θ = log(s, ℓ_1, …, noise) maximise the marginal likelihood times log-normal priors of ℓ and noise.

    Args:
        axis_of: for each column of the inputs the number of its axis, from 0.
        start: θ from which to start the fit, besides the prior's medians.
    """

    def __init__(self, axis_of: Any, start: Floats | None = None):
        self.axis_of = np.asarray(axis_of)
        axes = int(self.axis_of.max()) + 1
        self.prior_mean = np.log([1.0, *[LENGTH * axes**0.5] * axes, NOISE])
        self.precision = np.array([0.0, *[LENGTH_SPREAD**-2] * axes, NOISE_SPREAD**-2])
        limits = [BOUNDS["scale"], *[BOUNDS["length"]] * axes, BOUNDS["noise"]]
        self.bounds = np.log(np.array(limits))
        self.starts = [self.prior_mean] + ([] if start is None else [start])

    def fit(self, x: Floats, y: Floats) -> GaussianProcess:
        """Takes inputs of shape (n, columns) and outputs of shape (n,), of mean 0 and variance 1."""
        self.x, self.y = x, y
        found = [
            minimize(self.loss, start, jac=True, method="L-BFGS-B", bounds=self.bounds, options={"maxiter": ITERATIONS})
            for start in self.starts
        ]
        self.theta: Floats = min(found, key=lambda each: float(each.fun)).x
        self.scale, self.lengths, noise = self._parts(self.theta)
        kernel, _ = matern(squared_distances(x / self.lengths, x / self.lengths))
        self.factor = cholesky(self.scale * kernel + noise * np.eye(len(x)), lower=True)
        self.alpha: Floats = cho_solve((self.factor, True), y)
        return self

    def _parts(self, theta: Floats) -> tuple[float, Floats, float]:
        values = np.exp(theta)
        return float(values[0]), values[1:-1][self.axis_of], float(values[-1])

    def loss(self, theta: Floats) -> tuple[float, Floats]:
        """The negative log posterior of θ up to a constant, and its gradient.

        With K = s k + noise I, A = K⁻¹ y yᵀ K⁻¹ - K⁻¹: ∂ log p / ∂θ_i = ½ Σ A ⊙ ∂K/∂θ_i. For length scales ∂K/∂θ has
        the factor (x_j - x_k)²; its sum needs only row sums and a product, never an array of shape (n, n, columns).
        """
        scale, lengths, noise = self._parts(theta)
        scaled = self.x / lengths
        kernel, slope = matern(squared_distances(scaled, scaled))
        n = len(scaled)
        try:
            factor = cholesky(scale * kernel + noise * np.eye(n), lower=True)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse = cho_solve((factor, True), np.eye(n))
        alpha = inverse @ self.y
        off = theta - self.prior_mean
        loss = 0.5 * self.y @ alpha + np.log(np.diag(factor)).sum() + 0.5 * self.precision @ off**2
        a = np.outer(alpha, alpha) - inverse
        b = a * slope
        columns = 2 * (b.sum(axis=1) @ scaled**2 - (scaled * (b @ scaled)).sum(axis=0))
        per_axis = np.bincount(self.axis_of, columns, minlength=len(theta) - 2)
        likelihood = [0.5 * scale * (a * kernel).sum(), *0.5 * scale * per_axis, 0.5 * noise * np.trace(a)]
        return float(loss), self.precision * off - np.array(likelihood)

    def predict(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of f at inputs of shape (m, columns)."""
        kernel, _ = matern(squared_distances(x / self.lengths, self.x / self.lengths))
        kernel *= self.scale
        half = solve_triangular(self.factor, kernel.T, lower=True)
        variance = self.scale - (half**2).sum(axis=0)
        return kernel @ self.alpha, np.sqrt(np.maximum(variance, 1e-12))

    def improvement(self, x: Floats, best: float) -> Floats:
        """The expected improvement of f below ``best`` at inputs of shape (m, columns)."""
        mean, deviation = self.predict(x)
        z = (best - mean) / deviation
        return np.asarray(deviation * (z * ndtr(z) + density(z)))

    def negative_improvement(self, x: Floats, best: float) -> tuple[float, Floats]:
        """Minus the expected improvement at one input, and its gradient."""
        difference = (x - self.x) / self.lengths
        kernel, slope = matern((difference**2).sum(axis=1))
        d_kernel = -self.scale * slope[:, None] * difference / self.lengths
        kernel = self.scale * kernel
        solved = cho_solve((self.factor, True), kernel)
        deviation = max(self.scale - kernel @ solved, 1e-12) ** 0.5
        z = (best - kernel @ self.alpha) / deviation
        d_deviation = -(d_kernel.T @ solved) / deviation
        cumulative, dense = ndtr(z), density(z)
        value = deviation * (z * cumulative + dense)
        return -float(value), np.asarray(cumulative * (d_kernel.T @ self.alpha) - dense * d_deviation)


def squared_distances(x: Floats, y: Floats) -> Floats:
    """Of all rows of ``x`` to all rows of ``y``."""
    return np.asarray(np.maximum((x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1) - 2 * x @ y.T, 0.0))


def matern(squared: Floats) -> tuple[Floats, Floats]:
    """k(r) by r², and -2 ∂k/∂(r²)."""
    r = ROOT5 * np.sqrt(squared)
    decay = np.exp(-r)
    return (1 + r + r**2 / 3) * decay, 5 / 3 * (1 + r) * decay


def density(z: Any) -> Any:
    """Of the standard normal distribution."""
    return np.exp(-0.5 * z**2) / (2 * np.pi) ** 0.5
