"""What training at fixed and at self-tuned hyperparameters have in common: a guarded weight step, and evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stn_tune import rng
from stn_tune.errors import NonFiniteError
from stn_tune.hyper import Value

Batch = Any
LossFn = Callable[[nn.Module, Batch, Mapping[str, Value]], Tensor]
"""``loss_fn(model, batch, hp)`` -> a scalar, or one loss per example."""


def batch_size(batch: Batch) -> int:
    """The length of the first tensor found in a batch of nested tuples, lists and mappings."""
    if isinstance(batch, Tensor) and batch.dim():
        return batch.shape[0]
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        for part in batch:
            try:
                return batch_size(part)
            except TypeError:
                continue
    raise TypeError(f"cannot tell the batch size of a {type(batch).__name__}; pass batch_size=... to SelfTuner")


def moved_by(optimizer: Optimizer) -> set[int]:
    """The ``id`` of every parameter that ``optimizer`` moves."""
    return {id(p) for group in optimizer.param_groups for p in group["params"]}


class Trainer(ABC):
    """A model, the optimizer of its weights, and steps that are applied whole or not at all."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        clip: float | None,
        batch_size: Callable[[Batch], int],
    ):
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip}; it must be positive, or None for no clipping")
        if not model.training:
            raise ValueError(f"{type(model).__name__} is in eval mode, where nothing regularises: call model.train()")
        self.model = model
        self.optimizer = optimizer
        self.clip = clip
        self.batch_size = batch_size
        self.step = 0
        moved = moved_by(optimizer)
        self._parameters = {name: p for name, p in model.named_parameters() if id(p) in moved}

    @abstractmethod
    def train_step(self, loss_fn: LossFn, batch: Batch) -> Tensor:
        """One step of the weights on a training batch; returns the loss."""

    @abstractmethod
    def epoch(self, loss_fn: LossFn, train: Iterable[Batch], valid: Iterator[Batch] | None) -> float:
        """Steps on all of ``train``; returns their mean loss."""

    @contextmanager
    @abstractmethod
    def evaluation(self) -> Iterator[Mapping[str, Value]]:
        """Eval mode without gradients; gives the hyperparameters to evaluate at."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """hp/<name>, and scale/<name> where it is tuned, as reported to Tune."""

    def evaluate(self, loss_fn: LossFn, batches: Iterable[Batch]) -> float:
        """The mean loss over batches, each weighted by its number of examples."""
        total, count = torch.zeros(()), 0
        with self.evaluation() as hp:
            for batch in batches:
                size = self.batch_size(batch)
                total = total + loss_fn(self.model, batch, hp).mean().double() * size
                count += size
        if not count:
            raise ValueError("there are no batches to evaluate")
        return float(total / count)

    def state_dict(self) -> dict[str, Any]:
        """Everything that training continues from, bit for bit; ``torch.load`` reads it with weights_only=True."""
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": rng.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = int(state["step"])
        rng.set_state(state["rng"])

    def _weight_step(self, loss_fn: LossFn, batch: Batch, hp: Mapping[str, Value]) -> Tensor:
        with self._unharmed():
            loss = loss_fn(self.model, batch, hp).mean()
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward([loss])
            self._check("training loss", loss, "gradient", self._parameters, self.clip)
            self.optimizer.step()
        self.step += 1
        return loss.detach()

    def _check(
        self,
        loss_name: str,
        loss: Tensor,
        gradient: str,
        parameters: Mapping[str, Tensor],
        clip: float | None,
    ) -> None:
        """Raises, before anything is updated, if the loss or a gradient is not finite; then clips."""
        grads = {name: p.grad for name, p in parameters.items() if p.grad is not None}
        sparse = [name for name, grad in grads.items() if grad.is_sparse]
        if sparse and clip is not None:
            raise ValueError(f"clip is {clip}, but the gradient of {sparse[0]} is sparse: torch clips dense ones only")
        for name in sparse:
            grads[name] = grads[name].coalesce().values()
        norm = nn.utils.get_total_norm(list(grads.values())) if grads else torch.zeros_like(loss)
        if not torch.isfinite(torch.stack([loss.detach().to(norm), norm])).all():
            where = f"at step {self.step}"
            if not torch.isfinite(loss):
                raise NonFiniteError(f"the {loss_name} is {loss.item()} {where}; the step was not applied")
            bad = next((n for n, g in grads.items() if not torch.isfinite(g).all()), "all parameters together")
            raise NonFiniteError(f"the {gradient} of {bad} is not finite {where}; the step was not applied")
        if clip is not None:
            nn.utils.clip_grads_with_norm_(list(parameters.values()), clip, norm)

    def _stateful(self) -> list[nn.Module]:
        """Modules whose buffers a forward pass may change."""
        return [self.model]

    def _optimizers(self) -> list[Optimizer]:
        return [self.optimizer]

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Puts back what a forward pass may have changed (running statistics) if the step fails."""
        before = [(b, b.clone()) for module in self._stateful() for b in module.buffers()]
        try:
            yield
        except BaseException:
            with torch.no_grad():
                for buffer, copy in before:
                    buffer.copy_(copy)
            for optimizer in self._optimizers():
                optimizer.zero_grad(set_to_none=True)
            raise


def mean_loss(losses: Iterable[Tensor]) -> float:
    """The mean of losses that stay on their device until the end."""
    total, count = None, 0
    for loss in losses:
        total = loss.double() if total is None else total + loss
        count += 1
    if total is None:
        raise ValueError("there are no training batches")
    return float(total / count)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode; every module's own mode is put back afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No parameter needs a gradient, so none is computed."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    for p in parameters:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in parameters:
            p.requires_grad_(True)
