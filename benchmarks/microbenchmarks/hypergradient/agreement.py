"""How well two gradients agree: cosine with an interval, signs, size, and what the truth is worth."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.microbenchmarks.hypergradient.checkpoints import Checkpoint

Floats = NDArray[np.float64]
RESAMPLES = 1000
CONCLUSIVE = 0.5
"""The least cosine of the truth with itself from which other cosines mean something."""


class Gradient(NamedTuple):
    """A mean over samples with its standard error, both ``(n,)``; the error is NaN for one sample."""

    mean: Floats
    error: Floats


class Agreement(NamedTuple):
    """An algorithm's gradient beside the true one."""

    truth: Gradient
    """Over repeats that did not diverge."""
    estimate: Gradient
    """Over validation batches, weighted by their sizes."""
    cosine: float
    """Between the two."""
    low: float
    """Lower end of the cosine's 95 % bootstrap interval, over repeats and batches."""
    high: float
    """Its upper end."""
    right_signs: int
    """Of those that are certain."""
    certain: int
    """Hyperparameters whose true gradient is more than two standard errors from 0."""
    size: float
    """|estimate| / |truth|."""
    itself: float
    """Cosine between two halves of the repeats, the mean over random halves."""

    @property
    def conclusive(self) -> bool:
        """Whether the truth is known well enough to judge the estimate."""
        return self.itself >= CONCLUSIVE


def cosine(a: Floats, b: Floats) -> Any:
    """Over the last axis; NaN where one of the vectors is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


def mean_and_error(samples: Floats, weights: Floats | None = None) -> Gradient:
    """Of samples ``(m, n)``."""
    m, n = samples.shape
    if m == 0:
        return Gradient(np.full(n, np.nan), np.full(n, np.nan))
    error = samples.std(axis=0, ddof=1) / np.sqrt(m) if m > 1 else np.full(n, np.nan)
    return Gradient(np.average(samples, axis=0, weights=weights), error)


def agreement(checkpoint: Checkpoint) -> Agreement:
    """Always the same for the same numbers: resamples are drawn from a fixed seed."""
    repeats, batches = (np.array(x, dtype=np.float64) for x in (checkpoint.truth, checkpoint.estimate))
    repeats = repeats[np.isfinite(repeats).all(axis=1)]
    sizes = np.array(checkpoint.sizes, dtype=np.float64)
    truth, estimate = mean_and_error(repeats), mean_and_error(batches, sizes)
    random = np.random.default_rng(0)
    low = high = itself = np.nan
    if len(repeats) > 1:
        rows = random.integers(len(repeats), size=(RESAMPLES, len(repeats)))
        columns = random.integers(len(batches), size=(RESAMPLES, len(batches)))
        weights = sizes[columns] / sizes[columns].sum(axis=1, keepdims=True)
        resampled = cosine(repeats[rows].mean(axis=1), (weights[:, :, None] * batches[columns]).sum(axis=1))
        low, high = np.nanquantile(resampled, [0.025, 0.975]) if np.isfinite(resampled).any() else (np.nan, np.nan)
        shuffled = repeats[random.permuted(np.tile(np.arange(len(repeats)), (RESAMPLES, 1)), axis=1)]
        half = len(repeats) // 2
        itself = float(np.mean(cosine(shuffled[:, :half].mean(axis=1), shuffled[:, half:].mean(axis=1))))
    certain = np.abs(truth.mean) > 2 * truth.error
    right = certain & (np.sign(truth.mean) == np.sign(estimate.mean))
    with np.errstate(invalid="ignore", divide="ignore"):
        size = float(np.linalg.norm(estimate.mean) / np.linalg.norm(truth.mean))
    return Agreement(
        truth,
        estimate,
        float(cosine(truth.mean, estimate.mean)),
        float(low),
        float(high),
        int(right.sum()),
        int(certain.sum()),
        size,
        itself,
    )
