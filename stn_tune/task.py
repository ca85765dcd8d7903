"""Task: what to train, said once, for every way of choosing its hyperparameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from stn_tune.hyper import Hyper, Value
from stn_tune.nn.attach import self_tune
from stn_tune.training import Batch, Trainer, batch_size

Config = Mapping[str, Any]


@dataclass
class Loaders:
    """Any re-iterables of batches: lists, ``DataLoader`` objects, objects with ``__iter__``.

    ``valid`` both tunes the hyperparameters of an STN and selects the best iteration of every method; ``test`` is
    evaluated only where the validation loss is the best so far, and never selects anything.
    """

    train: Iterable[Batch]
    """For weight steps."""
    valid: Iterable[Batch]
    """For hyperparameter steps and for selection."""
    test: Iterable[Batch] | None = None
    """For nothing but the final numbers."""

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
