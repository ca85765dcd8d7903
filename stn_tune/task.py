"""Task: what to train, said once, for every way of choosing its hyperparameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from stn_tune import rng
from stn_tune.hyper import Hyper, Value
from stn_tune.nn.convert import self_tune
from stn_tune.training import Batch, Trainer, batch_size

Config = Mapping[str, Any]


@dataclass
class Loaders:
    """Any re-iterables of batches: lists, ``DataLoader`` objects, objects with ``__iter__``.

    ``valid`` both tunes the hyperparameters of an STN and selects the best iteration of every method; ``test`` is
    evaluated only where the validation loss is the best so far, and never selects anything.
    """

    train: Iterable[Batch]
    valid: Iterable[Batch]
    test: Iterable[Batch] | None = None

    def __post_init__(self) -> None:
        for name in ("train", "valid", "test"):
            if name == "valid" and getattr(self.valid, "persistent_workers", False):
                raise TypeError(
                    "Loaders(valid=...) has persistent_workers=True: all its iterators are one, but evaluation and "
                    "hyperparameter steps iterate independently; use persistent_workers=False"
                )
            if isinstance(getattr(self, name), Iterator):
                raise TypeError(
                    f"Loaders({name}=...) is an iterator, which is used up after one pass; pass a re-iterable"
                )


class Task(ABC):
    """A model, its optimizer, its batches and its loss. Subclass it; the four abstract methods are enough.

    A task may hold settings, set in ``__init__``, and state, saved with :meth:`state_dict`. ``config`` is the trial's
    Ray Tune config.
    """

    clip: float | None = None
    """Maximum norm of the weights' gradient."""
    bind: Mapping[str, str] = {}
    """Module path -> hyperparameter, for a plain ``nn.Dropout`` that has no name of its own, self-tuned or not."""

    @abstractmethod
    def model(self, config: Config) -> nn.Module:
        """An ordinary model. Its regularisers are named after hyperparameters: ``stn.nn.Dropout("dropout")``."""

    @abstractmethod
    def optimizer(self, model: nn.Module, config: Config) -> Optimizer:
        """The optimizer of the weights."""

    @abstractmethod
    def loaders(self, config: Config) -> Loaders:
        """The data. Paths must be absolute: Ray changes the working directory."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch, hp: Mapping[str, Value]) -> Tensor:
        """The training loss where ``model.training``, else the validation loss: a scalar, or one loss per example.

        ``hp`` maps hyperparameters to floats or ``(batch,)`` tensors. What only regularises belongs into the training
        loss alone.
        """

    def convert(self, model: nn.Module, hyper: Hyper) -> nn.Module:
        """How the model becomes self-tuning; override to exclude layers or to say where their batch is."""
        return self_tune(model, hyper, bind=self.bind)

    def scheduler(self, optimizer: Optimizer, config: Config) -> LRScheduler | None:
        """A learning-rate schedule, stepped after every iteration (with the validation loss, if it takes one)."""
        return None

    def stop(self, val_losses: Sequence[float], optimizer: Optimizer, config: Config) -> bool:
        """Whether training ends after this iteration, by the task's own rule."""
        return False

    def evaluate(self, trainer: Trainer, batches: Iterable[Batch]) -> Mapping[str, float]:
        """``{"loss": …}`` and any other metrics of a split; they are reported as ``val_*`` and ``test_*``."""
        return {"loss": trainer.evaluate(self.loss, batches)}

    def batch_size(self, batch: Batch) -> int:
        """The number of examples in a batch: by default the leading dimension of its first tensor."""
        return batch_size(batch)

    def state_dict(self) -> dict[str, Any]:
        """What the task itself carries from batch to batch (hidden states); tensors and plain Python values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027  # optional, like state_dict
        """Puts back what :meth:`state_dict` gave."""


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
