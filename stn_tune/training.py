"""What training at fixed and at self-tuned hyperparameters have in common: a guarded weight step, and evaluation."""

from __future__ import annotations

import copy
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from stn_tune import rng
from stn_tune.errors import NonFiniteError
from stn_tune.guard import Check, Guard, keep, masked
from stn_tune.hyper import Value

Batch = Any


class Stateful(Protocol):
    """Something with a state that can be put back: a task, a stream, a module."""

    def state_dict(self) -> Mapping[str, Any]:
        """Its state."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Puts a state back."""


LossFn = Callable[[nn.Module, Batch, Mapping[str, Value]], Tensor]
"""``loss_fn(model, batch, hp)`` -> a scalar, or one loss per example."""


def batch_size(batch: Batch) -> int:
    """The length of the first tensor found in a batch of nested tuples, lists and mappings.

    A list of single pictures, ``[(3, 32, 32), …]``, has as many examples as pictures.
    """
    if isinstance(batch, Tensor) and batch.dim():
        return batch.shape[0]
    if isinstance(batch, Mapping) or hasattr(batch, "keys"):
        batch = [batch[key] for key in batch.keys()]  # noqa: SIM118  # BatchEncoding and its like
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        pictures = [part for part in batch if isinstance(part, Tensor) and part.dim() == 3]
        channels = {p.shape[0] for p in pictures}
        if isinstance(batch, list) and len(pictures) == len(batch) > 1 and channels in ({1}, {3}, {4}):
            return len(batch)
        for part in batch:
            try:
                return batch_size(part)
            except TypeError:
                continue
    raise TypeError(f"cannot tell the batch size of a {type(batch).__name__}; pass batch_size=... to SelfTuner")


def checked_loss(loss: Any) -> Tensor:
    """``loss``, if it is a tensor."""
    if isinstance(loss, Tensor):
        return loss
    what = "None: it must return the loss" if loss is None else f"a {type(loss).__name__}"
    inside = ""
    if isinstance(loss, Mapping) and isinstance(loss.get("loss"), Tensor):
        inside = '; return its ["loss"]'
    elif isinstance(loss, (tuple, list)) and loss and isinstance(loss[0], Tensor):
        inside = "; return its first element"
    raise TypeError(f"the loss function returned {what}, not a tensor (a scalar, or one loss per example){inside}")


def moved_by(*optimizers: Optimizer) -> set[int]:
    """The ``id`` of every parameter that ``optimizers`` move."""
    return {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}


def _unwrapped(optimizer: Optimizer) -> Optimizer:
    """The optimizer inside a wrapper without hooks: Accelerate's."""
    inner = getattr(optimizer, "optimizer", None)
    return inner if isinstance(inner, Optimizer) and not hasattr(optimizer, "_optimizer_step_post_hooks") else optimizer


def weakly(method: Callable[[], None]) -> Callable[..., None]:
    """A hook that calls the method as long as its object lives, and does not keep it alive."""
    held = weakref.WeakMethod(method)

    def hook(*_: Any) -> None:
        if (call := held()) is not None:
            call()

    return hook


class Trainer(ABC):
    """A model, the optimizers of its weights, and atomic steps: a step that fails changes nothing."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer],
        clip: float | None,
        batch_size: Callable[[Batch], int],
        check: Check = None,
    ):
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip}; it must be positive, or None for no clipping")
        given = (optimizer,) if isinstance(optimizer, Optimizer) else tuple(optimizer)
        self.optimizers = tuple(map(_unwrapped, given))
        if not self.optimizers:
            raise ValueError("optimizer is empty; give at least one optimizer of the weights")
        for one in self.optimizers:
            if isinstance(one, LBFGS):
                raise TypeError(
                    "LBFGS evaluates the loss several times in a step, which a draw per step does not allow"
                )
        self.model = model
        self._require_training()
        self.clip = clip
        self.batch_size = batch_size
        self.guard = Guard(check)
        self._before: Buffers = []
        self.weight_steps = 0
        """How many weight steps have been applied: steps of the (first) optimizer, by whomever."""
        self._hook()

    def _hook(self) -> None:
        """Follows the optimizers' steps; copies of optimizers, pickled ones included, have no hooks."""
        self.optimizer.register_step_post_hook(weakly(self._count_step))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._hook()

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer of the weights; the first, where there are several."""
        return self.optimizers[0]

    def _weights(self) -> list[Tensor]:
        """What the optimizers move."""
        return [p for optimizer in self.optimizers for group in optimizer.param_groups for p in group["params"]]

    def _name(self, weight: Tensor) -> str:
        """A weight by its name; what is not the model's, by its place."""
        for name, p in self.model.named_parameters():
            if p is weight:
                return name
        place = next(k for k, p in enumerate(self._weights()) if p is weight)
        return f"parameter {place} of the optimizer"

    def _require_training(self) -> None:
        if not self.model.training:
            raise ValueError(
                f"{type(self.model).__name__} is in eval mode, where nothing regularises: call model.train()"
            )

    @abstractmethod
    def train_step(self, loss_fn: LossFn, batch: Batch) -> Tensor:
        """One step of the weights on a training batch; returns the loss."""

    @abstractmethod
    def epoch(self, loss_fn: LossFn, train: Iterable[Batch], valid: Iterable[Batch] | None) -> float:
        """Steps on all of ``train``; returns their mean loss."""

    @contextmanager
    @abstractmethod
    def evaluation(self) -> Iterator[Mapping[str, Value]]:
        """Eval mode without gradients; gives the hyperparameters to evaluate at."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """hp/<name>, and scale/<name> where it is tuned, as reported to Tune."""

    def evaluate(self, loss_fn: LossFn, batches: Iterable[Batch]) -> float:
        """The mean loss over batches, weighted by their numbers of examples."""
        total, count = None, 0
        with self.evaluation() as hp:
            for batch in batches:
                size = self.batch_size(batch)
                loss = checked_loss(loss_fn(self.model, batch, hp)).mean().double() * size
                total = loss if total is None else total + loss
                count += size
        if total is None:
            raise ValueError("there are no batches to evaluate")
        return float(total / count)

    def state_dict(self) -> dict[str, Any]:
        """Everything that training continues from, bit for bit; ``torch.load`` reads it with weights_only=True."""
        return {
            "step": self.weight_steps,
            "model": self.model.state_dict(),
            "optimizer": [optimizer.state_dict() for optimizer in self.optimizers],
            "rng": rng.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from what :meth:`state_dict` gave.

        If it does not fit, nothing is changed.
        """
        before = copy.deepcopy(self.state_dict())
        try:
            self._load(state)
        except BaseException:
            self._load(before)
            raise

    def _load(self, state: Mapping[str, Any]) -> None:
        if len(state["optimizer"]) != len(self.optimizers):
            raise ValueError(
                f"the saved state has {len(state['optimizer'])} optimizers, here are {len(self.optimizers)}"
            )
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizer"], strict=True):
            optimizer.load_state_dict(saved)
        self.weight_steps = int(state["step"])
        rng.set_state(state["rng"])

    def _zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def _differentiated(self, loss_fn: LossFn, batch: Batch, hp: Mapping[str, Value]) -> Tensor:
        """Forward and backward; :meth:`_apply` does the rest."""
        return self._backward(checked_loss(loss_fn(self.model, batch, hp)))

    def _backward(self, losses: Tensor) -> Tensor:
        loss = losses.mean()
        if not loss.requires_grad:
            raise ValueError(
                "the training loss has no gradient: it was computed without gradients (torch.no_grad, .item(), "
                ".detach()), or past the model's parameters"
            )
        try:
            torch.autograd.backward([loss])
        except RuntimeError as error:
            if "backward through the graph a second time" not in str(error):
                raise
            raise RuntimeError(
                "the backward pass needs a part of the graph twice: torch.utils.checkpoint frees it with "
                "use_reentrant=True (use use_reentrant=False), or a state of an earlier batch was not detached"
            ) from error
        return loss

    def _apply(self, loss: Tensor) -> None:
        """Checks, clips and moves the weights."""
        self._move(self._finite("training loss", loss, "gradient", self._weights(), self._name, self.clip))

    def _finite(
        self,
        loss_name: str,
        loss: Tensor,
        gradient: str,
        moved: Sequence[Tensor],
        name: Callable[[Tensor], str],
        clip: float | None = None,
        *,
        shared: bool = False,
    ) -> Tensor | None:
        """See :meth:`Guard.finite`."""
        return self.guard.finite(loss_name, loss, gradient, moved, name, self.weight_steps, clip, shared=shared)

    def _move(self, finite: Tensor | None, optimizers: Sequence[Optimizer] = (), *, noted: bool = True) -> None:
        """Steps of the optimizers, by default those of the weights; masked where not ``finite``."""
        step = self.weight_steps
        with masked(optimizers or self.optimizers, finite):
            for optimizer in optimizers or self.optimizers:
                optimizer.step()
        if finite is None:
            return
        for module, name, _, saved in self._before:
            now = module._buffers[name]
            if now is not None and now.shape == saved.shape:
                keep(now, saved, finite)
        if noted:
            self.guard.note(finite, step, weights=not optimizers)
            if self.guard.due():
                self.look()

    def look(self) -> None:
        """Raises NonFiniteError if a step since the last look was not finite.

        It waits for the device. Where every step is looked at (see ``check``)
        there is nothing to find.
        """
        self.weight_steps -= self.guard.look()
        if self.guard.told:
            raise NonFiniteError(self.guard.told)

    def _count_step(self) -> None:
        self.weight_steps += 1

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Puts back what a forward pass may have changed (running statistics) if the step fails."""
        self._before = copied_buffers(self.model)
        try:
            yield
        except BaseException:
            put_back(self._before)
            self._zero_grad()
            raise
        finally:
            self._before = []


Buffers = list[tuple[nn.Module, str, Tensor, Tensor]]
"""Of every buffer: its module, its name, itself and a copy."""


def copied_buffers(model: nn.Module) -> Buffers:
    """The buffers of a model, which a forward pass may write to or replace, for :func:`put_back`."""
    return [(m, name, b, b.clone()) for m in model.modules() for name, b in m._buffers.items() if b is not None]


@torch.no_grad()
def put_back(buffers: Buffers) -> None:
    """The model holds the same buffers as before, with the same values."""
    for module, name, buffer, saved in buffers:
        buffer.copy_(saved)
        module._buffers[name] = buffer


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
    """Eval mode; every module's own mode is put back afterwards, through its own ``train``."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        restore_modes(model, modes)


def restore_modes(module: nn.Module, modes: Mapping[nn.Module, bool]) -> None:
    """Puts back every module's mode. Some do something when it changes (merge weights), so ``train`` is called."""
    mode = modes[module]
    uniform = all(modes.get(inner, mode) == mode for inner in module.modules())
    if uniform or type(module).train is not nn.Module.train:
        module.train(mode)
    module.training = mode
    for child in () if uniform else module.children():
        if any(inner.training != modes.get(inner, inner.training) for inner in child.modules()):
            restore_modes(child, modes)


@contextmanager
def frozen(model: nn.Module, but: Collection[int] = ()) -> Iterator[None]:
    """No parameter needs a gradient, so none is computed; but those whose ``id`` is given."""
    parameters = [p for p in model.parameters() if p.requires_grad and id(p) not in but]
    for p in parameters:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in parameters:
            p.requires_grad_(True)
