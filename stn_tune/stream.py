"""Stream: endless passes over re-iterable batches, with a position that is saved and restored exactly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from stn_tune import rng
from stn_tune.training import Batch


class Stream:
    """Batches in endless passes over a re-iterable, with a position that can be saved and restored exactly.

    A stream draws from random generators of its own, so a shuffling ``DataLoader`` gives the same order whatever else
    has drawn numbers, and a restored stream replays its pass to the saved position. A generator that the ``DataLoader``
    was given may be drawn from by others (an evaluation in mid-pass): it ends where it was when the state was taken.
    """

    def __init__(self, batches: Iterable[Batch], seed: int):
        self._batches = batches
        self._iterator: Iterator[Batch] | None = None
        self._position = 0
        self.passes = 0
        self._generators = rng.Private(seed)
        self._start: dict[str, Any] | None = None

    @property
    def completed(self) -> int:
        """Passes that are complete, the one whose last batch has just been taken included."""
        if self._iterator is None:
            return self.passes
        try:
            length = len(self._batches)  # type: ignore[arg-type]
        except TypeError:  # a DataLoader of an IterableDataset has a __len__, and none
            return self.passes
        return self.passes + (self._position == length)

    def _loader_generators(self) -> list[torch.Generator]:
        """Generators that a DataLoader was given, and that nobody else saves."""
        sampler, batch_sampler = (getattr(self._batches, name, None) for name in ("sampler", "batch_sampler"))
        holders = [self._batches, sampler, batch_sampler, getattr(batch_sampler, "sampler", None)]
        found = {id(g): g for h in holders if isinstance(g := getattr(h, "generator", None), torch.Generator)}
        return list(found.values())

    def _generator_states(self) -> dict[str, Any]:
        return {"private": self._generators.state_dict(), "loader": self._loader_states()}

    def _loader_states(self) -> list[Tensor]:
        return [generator.get_state() for generator in self._loader_generators()]

    def _set_loader_states(self, states: Iterable[Tensor]) -> None:
        for generator, state in zip(self._loader_generators(), states, strict=True):
            generator.set_state(state.cpu())

    def one_pass(self) -> Iterator[Batch]:
        """The rest of the pass that the stream is in: all batches, where none has been taken yet."""
        while (batch := self._take()) is not None:
            yield batch

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self._take()
        if batch is None and (batch := self._take()) is None:
            raise ValueError("there are no batches in a pass over the data")
        return batch

    def _take(self) -> Batch | None:
        """The next batch, ``None`` at the end of a pass."""
        if self._iterator is None:
            self._start, self._position = self._generator_states(), 0
        with self._generators.lent():
            if self._iterator is None:
                self._iterator = iter(self._batches)
            batch = next(self._iterator, None)
        self._position += 1
        if batch is None:
            self._iterator, self._position = None, 0
            self.passes += 1
        return batch

    def state_dict(self) -> dict[str, Any]:
        start = self._start if self._iterator is not None else None
        return {
            "position": self._position,
            "passes": self.passes,
            "generators": start or self._generator_states(),
            "loader": self._loader_states(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._iterator, self._position, self.passes = None, 0, state["passes"]
        self._generators.load_state_dict(state["generators"]["private"])
        self._set_loader_states(state["generators"]["loader"])
        for _ in range(state["position"]):
            self._take()
        self._set_loader_states(state["loader"])
