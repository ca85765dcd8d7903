"""FixedTrainer: a plain model at values that somebody else chose, or along a schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stn_tune.errors import UnusedError
from stn_tune.guard import Check
from stn_tune.hyper import Fixed, Value
from stn_tune.numbers import is_number
from stn_tune.training import Batch, LossFn, Trainer, batch_size, evaluating, mean_loss


class FixedTrainer(Trainer):
    """Ordinary training of a plain model; its hyperparameters are given, or follow ``schedule(step)``."""

    def __init__(
        self,
        model: nn.Module,
        source: Fixed,
        optimizer: Optimizer,
        *,
        schedule: Callable[[int], Mapping[str, float]] | None = None,
        clip: float | None = None,
        batch_size: Callable[[Batch], int] = batch_size,
        check: Check = None,
    ):
        super().__init__(model, optimizer, clip, batch_size, check)
        self.source = source
        self.schedule = schedule

    def train_step(self, loss_fn: LossFn, batch: Batch) -> Tensor:
        if self.schedule is not None:
            self.source.set(self.schedule(self.weight_steps))
        self._require_training()
        with self._unharmed():
            self._zero_grad()
            loss = self._differentiated(loss_fn, batch, self.source.current)
            self._apply(loss)
        return loss.detach()

    def epoch(self, loss_fn: LossFn, train: Iterable[Batch], valid: Iterable[Batch] | None = None) -> float:
        first = self.weight_steps == 0
        loss = mean_loss(self.train_step(loss_fn, batch) for batch in train)
        self.look()
        if first and self.schedule is not None:
            unread = [name for name in self.schedule(0) if name not in self.source.current.read]
            if unread:
                raise UnusedError(f"{', '.join(unread)}: scheduled, but read by neither the model nor the loss")
        return loss

    @contextmanager
    def evaluation(self) -> Iterator[Mapping[str, Value]]:
        with torch.no_grad(), evaluating(self.model):
            yield self.source.current

    def metrics(self) -> dict[str, float]:
        return {f"hp/{name}": v for name, v in self.source.current.items() if is_number(v) and name != "seed"}
