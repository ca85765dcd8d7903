"""What a Trainer's checkpoint lacks: the tuner's own state, and the generators that its draws come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import distributed

from stn_tune import rng
from stn_tune.algorithms.tuner import SelfTuner
from stn_tune.stream import Stream
from stn_tune.training import Batch

KEPT_BY_TRAINERS = ("model", "optimizer", "rng")
"""Parts of a tuner's state that a Trainer saves and restores itself, as far as it does."""


def own_state(tuner: SelfTuner) -> dict[str, Any]:
    """What training continues from beside model, optimizers and generators."""
    return {key: part for key, part in tuner.state_dict().items() if key not in KEPT_BY_TRAINERS}


def load_own_state(tuner: SelfTuner, state: Mapping[str, Any]) -> None:
    """Continues from :func:`own_state`; model and optimizers are restored already."""
    tuner.load_state_dict({**tuner.state_dict(), **state})


class Draws:
    """What a process draws: in its passes, dropout included, and for its batches of hyperparameter steps.

    Both have generators of their own, so that a resumed run continues them, whatever else has drawn.
    """

    def __init__(self, batches: Iterable[Batch], seed: int):
        self.passes, self.batches = rng.Private(rng.derived(seed, 0)), Stream(batches, rng.derived(seed, 1))

    def state_dict(self, processes: int) -> list[dict[str, Any]]:
        """The states of all ``processes``, by rank; each of them must call this."""
        states = [{"passes": self.passes.state_dict(), "batches": self.batches.state_dict()}] * processes
        if processes > 1:
            distributed.all_gather_object(states, states[0])
        return states

    def load_state_dict(self, states: Sequence[Mapping[str, Any]], rank: int, processes: int) -> None:
        """Continues from the state of this process; with another number of ``processes`` there is none."""
        if len(states) == processes:
            self.passes.load_state_dict(states[rank]["passes"])
            self.batches.load_state_dict(states[rank]["batches"])
