"""Algorithm 1 of the paper: one weight step trains a parameter and its response together, at λ+ε."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stn_tune.algorithms.options import Options
from stn_tune.algorithms.tuner import SelfTuner


@dataclass(frozen=True)
class STNOptions(Options):
    """Options of Algorithm 1: those that every algorithm has."""

    algorithm: ClassVar[str] = "stn"
    """Its name."""


class STN(SelfTuner):
    """Weight step: φ ← φ − α₁ ∂f(λ+ε, ŵ_φ(λ+ε))/∂φ, where φ is the weights W and their responses U and V."""

    options_type = STNOptions
