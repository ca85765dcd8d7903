"""SelfTuner: the paper's Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from stn_tune import rng
from stn_tune.hyper import Hyper, HyperSample, Value
from stn_tune.nn.layer import HyperLayer
from stn_tune.schedule import Schedule

Batch = Any
LossFn = Callable[[nn.Module, Batch, Mapping[str, Value]], Tensor]
"""``loss_fn(model, batch, hp)`` -> a scalar, or one loss per example."""

Draw = Literal["example", "batch", "mean"]
"""How λ+ε is drawn in a step: for each example, once for the batch, or not at all (ε = 0)."""


class NonFiniteError(FloatingPointError):
    """A loss or gradient was infinite or NaN. The step was not applied: everything is as it was before it."""


class UnusedError(ValueError):
    """A hyperparameter that neither the model nor the loss reads: it would drift with no meaning."""


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


class SelfTuner:
    """Alternates weight steps on training batches and hyperparameter steps on validation batches.

    Args:
        model: a model converted by :func:`stn_tune.self_tune`.
        hyper: the hyperparameters it was converted with; moved to the model's device.
        optimizer: moves the weights (elementary and hyper), built after the conversion.
        hyper_optimizer, scale_optimizer: move λ and σ; Adam with learning rate ``hyper_lr`` when not given.
        train_steps, valid_steps: T_train and T_valid, used by :meth:`epoch`.
        warmup_steps: weight steps before λ and σ first move; :meth:`valid_step` does nothing until then.
        entropy_weight: τ in F − τ H (Eq. 8); acts only where σ is tuned.
        clip: maximum norm of the weights' gradient.
        train_draw, valid_draw: how λ+ε is drawn. The default for hyperparameter steps is one ε per example where σ
            is tuned, and none where it is fixed: then the shared weights Ŵ(λ) are materialised once.
        batch_size: ``batch -> int``, where the first tensor's leading dimension is not it.
    """

    def __init__(
        self,
        model: nn.Module,
        hyper: Hyper,
        optimizer: Optimizer,
        hyper_optimizer: Optimizer | None = None,
        scale_optimizer: Optimizer | None = None,
        *,
        hyper_lr: float = 0.01,
        train_steps: int = 2,
        valid_steps: int = 1,
        warmup_steps: int = 0,
        entropy_weight: float = 0.001,
        clip: float | None = None,
        train_draw: Draw = "example",
        valid_draw: Draw | None = None,
        batch_size: Callable[[Batch], int] = batch_size,
    ):
        for option, number, least in [
            ("train_steps", train_steps, 1),
            ("valid_steps", valid_steps, 0),
            ("warmup_steps", warmup_steps, 0),
            ("entropy_weight", entropy_weight, 0),
        ]:
            if not number >= least:
                raise ValueError(f"{option} is {number}; it must be at least {least}")
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip}; it must be positive, or None for no clipping")
        layers = [layer for layer in model.modules() if isinstance(layer, HyperLayer)]
        if not layers:
            raise ValueError(f"{type(model).__name__} has no hyper layers: pass it through self_tune(model, hyper)")
        for layer in layers:
            if layer.source is not hyper:
                raise ValueError(f"{layer.qualified_name} was converted with another Hyper than the one given here")
        self.model = model
        self.hyper = hyper.to(layers[0].get_parameter(next(iter(dict(layers[0].named_parameters())))).device)
        self.optimizer = optimizer
        self._parameters = _checked(model, optimizer)
        self.hyper_optimizer = hyper_optimizer or Adam([hyper.lam], lr=hyper_lr)
        self.scale_optimizer = scale_optimizer or Adam([hyper.raw_sigma], lr=hyper_lr)
        self.train_steps, self.valid_steps, self.warmup_steps = train_steps, valid_steps, warmup_steps
        self.entropy_weight, self.clip = entropy_weight, clip
        self.train_draw: Draw = train_draw
        self.valid_draw: Draw = valid_draw or ("example" if hyper.tune_scale else "mean")
        for option, draw in [("train_draw", self.train_draw), ("valid_draw", self.valid_draw)]:
            if draw not in ("example", "batch", "mean"):
                raise ValueError(f"{option} is {draw!r}; it must be 'example', 'batch' or 'mean'")
        self.batch_size = batch_size
        self.step = 0
        self._read: set[str] = set()
        self._unread_checked = False
        self._history: list[tuple[int, list[float], list[float]]] = []
        self._record()

    def train_step(self, loss_fn: LossFn, batch: Batch) -> Tensor:
        """One weight step: φ ← φ − α₁ ∂f(λ+ε, ŵ_φ(λ+ε))/∂φ. Returns the loss."""
        with torch.no_grad():
            sample = self._sample(self.train_draw, batch)
        with self._unharmed():
            with self.hyper.using(sample):
                loss = loss_fn(self.model, batch, sample).mean()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self._check("training loss", loss, "gradient", self._parameters, self.clip)
            self.optimizer.step()
        self._read |= sample.read
        self.step += 1
        return loss.detach()

    def valid_step(self, loss_fn: LossFn, batch: Batch) -> Tensor | None:
        """One hyperparameter step on F(λ+ε, ŵ_φ(λ+ε)) − τ H[p(ε|σ)]; ``None`` during warm-up.

        The model is in eval mode, the weights are frozen and get no gradient.
        """
        if self.step < self.warmup_steps:
            return None
        self._check_read()
        hyper = self.hyper
        with self._unharmed(), _evaluating(self.model), _frozen(self.model):
            sample = self._sample(self.valid_draw, batch)
            with hyper.using(sample):
                losses = loss_fn(self.model, batch, sample)
            loss = losses.mean()
            objective = loss + hyper.score(losses, sample) if hyper.direct else loss
            if hyper.tune_scale and self.entropy_weight:
                objective = objective - self.entropy_weight * hyper.entropy()
            for optimizer in (self.hyper_optimizer, self.scale_optimizer):
                optimizer.zero_grad(set_to_none=True)
            objective.backward()
            moved = {"λ": hyper.lam} | ({"σ": hyper.raw_sigma} if hyper.tune_scale else {})
            self._check("validation loss", loss, "hyperparameter gradient", moved, None)
            self.hyper_optimizer.step()
            if hyper.tune_scale:
                self.scale_optimizer.step()
        self._record()
        return loss.detach()

    def epoch(self, loss_fn: LossFn, train: Iterable[Batch], valid: Iterator[Batch]) -> float:
        """Algorithm 1 over one pass of the training batches; returns their mean loss.

        After every T_train weight steps come T_valid hyperparameter steps, on batches taken from ``valid``, which is
        endless and keeps its place between passes.
        """
        total, count = torch.zeros((), device=self.hyper.lam.device), 0
        for batch in train:
            total += self.train_step(loss_fn, batch)
            count += 1
            if self.step % self.train_steps == 0 and self.step >= self.warmup_steps:
                for _ in range(self.valid_steps):
                    self.valid_step(loss_fn, next(valid))
        if not count:
            raise ValueError("there are no training batches")
        return float(total / count)

    @contextmanager
    def evaluation(self) -> Iterator[HyperSample]:
        """Eval mode at the deterministic λ, without gradients, each Ŵ(λ) materialised once: F(λ, ŵ(λ))."""
        with torch.no_grad(), _evaluating(self.model), self.hyper.using(self.hyper.mean()) as sample:
            yield sample

    def evaluate(self, loss_fn: LossFn, batches: Iterable[Batch]) -> float:
        """The mean loss over batches, each weighted by its number of examples."""
        total, count = torch.zeros((), device=self.hyper.lam.device), 0
        with self.evaluation() as sample:
            for batch in batches:
                size = self.batch_size(batch)
                total += loss_fn(self.model, batch, sample).mean() * size
                count += size
        if not count:
            raise ValueError("there are no batches to evaluate")
        return float(total / count)

    def metrics(self) -> dict[str, float]:
        """hp/<name> and scale/<name>, as reported to Tune."""
        values = {f"hp/{name}": value for name, value in self.hyper.values_now().items()}
        return values | {f"scale/{name}": value for name, value in self.hyper.scales_now().items()}

    @property
    def schedule(self) -> Schedule:
        """The initial values and those after every hyperparameter update."""
        last = {step: (lam, sigma) for step, lam, sigma in self._history}
        lam, sigma = zip(*last.values(), strict=True)
        return Schedule.from_history(self.hyper.space, list(last), lam, sigma, self.step)

    def state_dict(self) -> dict[str, Any]:
        """Everything that training continues from, bit for bit; ``torch.load`` reads it with weights_only=True."""
        steps, lam, sigma = zip(*self._history, strict=True)
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "hyper": self.hyper.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "hyper_optimizer": self.hyper_optimizer.state_dict(),
            "scale_optimizer": self.scale_optimizer.state_dict(),
            "history": {
                "steps": torch.tensor(steps),
                "lam": torch.tensor(lam, dtype=torch.float64),
                "sigma": torch.tensor(sigma, dtype=torch.float64),
            },
            "read": sorted(self._read),
            "rng": rng.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.hyper.load_state_dict(state["hyper"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.hyper_optimizer.load_state_dict(state["hyper_optimizer"])
        self.scale_optimizer.load_state_dict(state["scale_optimizer"])
        self.step = int(state["step"])
        history = state["history"]
        columns = [history[key].tolist() for key in ("steps", "lam", "sigma")]
        self._history = list(zip(*columns, strict=True))
        self._read = set(state["read"])
        rng.set_state(state["rng"])

    def _sample(self, draw: Draw, batch: Batch) -> HyperSample:
        if draw == "mean":
            return self.hyper.mean()
        return self.hyper.sample(self.batch_size(batch) if draw == "example" else None)

    def _record(self) -> None:
        with torch.no_grad():
            lam, sigma = torch.stack([self.hyper.lam, self.hyper.sigma]).tolist()
        self._history.append((self.step, lam, sigma))

    def _check_read(self) -> None:
        """Before the first hyperparameter step: training must have read every hyperparameter."""
        if self._unread_checked:
            return
        unread = [name for name in self.hyper.space.names if name not in self._read]
        if unread and self.step:
            raise UnusedError(
                f"{', '.join(unread)}: read by neither the model nor the loss in {self.step} training steps, so "
                f"tuning would have no meaning; use hp[{unread[0]!r}] in the loss, name a regulariser after it, or "
                f"take it out of the space"
            )
        self._unread_checked = bool(self.step)

    def _check(
        self, loss_name: str, loss: Tensor, gradient: str, parameters: Mapping[str, nn.Parameter], clip: float | None
    ) -> None:
        """Raises, before anything is updated, if the loss or a gradient is not finite; then clips."""
        grads = {name: p.grad for name, p in parameters.items() if p.grad is not None}
        norm = nn.utils.get_total_norm(list(grads.values())) if grads else torch.zeros_like(loss)
        if not torch.isfinite(torch.stack([loss.detach().to(norm), norm])).all():
            where = f"at step {self.step}"
            if not torch.isfinite(loss):
                raise NonFiniteError(f"the {loss_name} is {loss.item()} {where}; the step was not applied")
            bad = next((n for n, g in grads.items() if not torch.isfinite(g).all()), "all parameters together")
            raise NonFiniteError(f"the {gradient} of {bad} is not finite {where}; the step was not applied")
        if clip is not None:
            nn.utils.clip_grads_with_norm_(list(parameters.values()), clip, norm)

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Puts back what a forward pass may have changed (running statistics) if the step fails."""
        before = [(b, b.clone()) for module in (self.model, self.hyper) for b in module.buffers()]
        try:
            yield
        except BaseException:
            with torch.no_grad():
                for buffer, copy in before:
                    buffer.copy_(copy)
            for optimizer in (self.optimizer, self.hyper_optimizer, self.scale_optimizer):
                optimizer.zero_grad(set_to_none=True)
            raise


def _checked(model: nn.Module, optimizer: Optimizer) -> dict[str, nn.Parameter]:
    """The parameters that the optimizer moves, by name; all hyper weights must be among them."""
    moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for prefix, layer in model.named_modules():
        if isinstance(layer, HyperLayer):
            for name, p in layer.named_parameters(prefix, recurse=False):
                if p.requires_grad and id(p) not in moved:
                    raise ValueError(f"the optimizer does not move {name}: build it after self_tune(model, hyper)")
    return {name: p for name, p in model.named_parameters() if id(p) in moved}


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    parameters = [p for p in model.parameters() if p.requires_grad]
    for p in parameters:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in parameters:
            p.requires_grad_(True)
