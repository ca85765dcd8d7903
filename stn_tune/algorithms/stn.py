"""Algorithm 1 of the paper: one weight step trains a parameter and its response together, at λ+ε."""

from __future__ import annotations

from stn_tune.algorithms.options import STNOptions
from stn_tune.algorithms.tuner import SelfTuner


class STN(SelfTuner):
    """Weight step: φ ← φ − α₁ ∂f(λ+ε, ŵ_φ(λ+ε))/∂φ, where φ is the weights W and their responses U and V."""

    options_type = STNOptions
