"""The learning-rate rule of the paper's networks: decay when the validation loss stalls."""

from __future__ import annotations

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from benchmarks.tasks.settings import Settings


def decay_on_plateau(optimizer: Optimizer, settings: Settings) -> ReduceLROnPlateau:
    """The non-monotonic criterion: decays whenever the validation loss fails to improve for ``lr_patience`` epochs."""
    return ReduceLROnPlateau(
        optimizer, factor=settings.lr_decay, patience=settings.lr_patience - 1, threshold=0.0, eps=0.0
    )
