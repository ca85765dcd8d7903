"""The paper's Algorithm 1: its options, and SelfTuner, which runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from stn_tune.errors import UnusedError, unknown
from stn_tune.hyper import Hyper, HyperSample
from stn_tune.nn.per_example.lstm import LSTM
from stn_tune.nn.response import HyperLayer
from stn_tune.schedule import Schedule
from stn_tune.training import Batch, LossFn, Trainer, batch_size, evaluating, frozen, mean_loss, moved_by

Draw = Literal["example", "batch", "mean"]
"""How λ+ε is drawn in a step: for each example, once for the batch, or not at all (ε = 0)."""


class SelfTuner(Trainer):
    """Alternates weight steps on training batches and hyperparameter steps on validation batches.

    Args:
        model: a model converted by :func:`stn_tune.self_tune`.
        hyper: the hyperparameters it was converted with; moved to the model's device.
        optimizer: moves the weights (elementary and hyper), built after the conversion.
        hyper_optimizer, scale_optimizer: move λ and σ; Adam with learning rate ``hyper_lr`` when not given.
        train_steps, valid_steps: T_train and T_valid, used by :meth:`epoch`.
        warmup_steps: weight steps before λ and σ first move; :meth:`valid_step` does nothing until then.
        entropy_weight: τ in F − τ H (Section 3.4); acts only where σ is tuned.
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
        super().__init__(model, optimizer, clip, batch_size)
        check_settings(
            train_steps=train_steps,
            valid_steps=valid_steps,
            warmup_steps=warmup_steps,
            entropy_weight=entropy_weight,
            train_draw=train_draw,
            valid_draw=valid_draw,
        )
        _check_conversion(model, hyper, optimizer)
        _check_optimizers(hyper, hyper_optimizer, scale_optimizer)
        self.hyper = hyper.to(next(model.parameters()).device)
        self.hyper_optimizer = hyper_optimizer or Adam([hyper.lam], lr=hyper_lr)
        self.scale_optimizer = scale_optimizer or Adam([hyper.raw_sigma], lr=hyper_lr)
        self.train_steps, self.valid_steps, self.warmup_steps = train_steps, valid_steps, warmup_steps
        self.entropy_weight = entropy_weight
        self.train_draw: Draw = train_draw
        self.valid_draw: Draw = valid_draw or ("example" if hyper.tune_scale or hyper.direct else "mean")
        if hyper.direct and self.valid_draw == "mean":
            raise ValueError("valid_draw is 'mean', but direct hyperparameters need draws: use 'example' or 'batch'")
        self._plain_rnn = any(
            isinstance(layer, nn.RNNBase) and not isinstance(layer, (HyperLayer, LSTM)) for layer in model.modules()
        )
        self._read: set[str] = set()
        self._history: list[tuple[int, list[float], list[float]]] = []
        self._record()

    def train_step(self, loss_fn: LossFn, batch: Batch) -> Tensor:
        """One weight step: φ ← φ − α₁ ∂f(λ+ε, ŵ_φ(λ+ε))/∂φ. Returns the loss."""
        with torch.no_grad():
            sample = self._sample(self.train_draw, batch)
        with self.hyper.using(sample):
            loss = self._weight_step(loss_fn, batch, sample)
        self._read |= sample.read
        return loss

    def valid_step(self, loss_fn: LossFn, batch: Batch) -> Tensor | None:
        """One hyperparameter step on F(λ+ε, ŵ_φ(λ+ε)) − τ H[p(ε|σ)]; ``None`` during warm-up.

        The model is in eval mode, the weights are frozen and get no gradient.
        """
        if self.step < self.warmup_steps:
            return None
        hyper = self.hyper
        with self._unharmed(), evaluating(self.model), frozen(self.model), self._differentiable():
            sample = self._sample(self.valid_draw, batch)
            with hyper.using(sample):
                losses = loss_fn(self.model, batch, sample)
            self._check_read(sample)
            loss = losses.mean()
            objective = loss + hyper.score(losses, sample) if hyper.direct else loss
            if hyper.tune_scale and self.entropy_weight:
                objective = objective - self.entropy_weight * hyper.entropy()
            for optimizer in (self.hyper_optimizer, self.scale_optimizer):
                optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward([objective])
            moved = {"λ": hyper.lam} | ({"σ": hyper.raw_sigma} if hyper.tune_scale else {})
            self._check("validation loss", loss, "hyperparameter gradient", moved, None)
            self.hyper_optimizer.step()
            if hyper.tune_scale:
                self.scale_optimizer.step()
        self._record()
        return loss.detach()

    @contextmanager
    def _differentiable(self) -> Iterator[None]:
        """cuDNN does not differentiate a plain RNN, left out of the conversion, in eval mode: torch itself does."""
        before = torch.backends.cudnn.enabled
        torch.backends.cudnn.enabled = before and not self._plain_rnn
        try:
            yield
        finally:
            torch.backends.cudnn.enabled = before

    def epoch(self, loss_fn: LossFn, train: Iterable[Batch], valid: Iterator[Batch] | None) -> float:
        """Algorithm 1 over one pass of the training batches; returns their mean loss.

        After every T_train weight steps come T_valid hyperparameter steps, on batches taken from ``valid``, which is
        endless and keeps its place between passes; where it is ``None``, only weights move.
        """

        def losses() -> Iterator[Tensor]:
            for batch in train:
                yield self.train_step(loss_fn, batch)
                if valid is not None and self.step % self.train_steps == 0 and self.step >= self.warmup_steps:
                    for _ in range(self.valid_steps):
                        self.valid_step(loss_fn, next(valid))

        return mean_loss(losses())

    @contextmanager
    def evaluation(self) -> Iterator[HyperSample]:
        """Eval mode at the deterministic λ, without gradients, each Ŵ(λ) materialised once: F(λ, ŵ(λ))."""
        with torch.no_grad(), evaluating(self.model), self.hyper.using(self.hyper.mean()) as sample:
            yield sample

    def metrics(self) -> dict[str, float]:
        """``step``, hp/<name> and scale/<name>, as reported to Tune."""
        values: dict[str, float] = {"step": self.step}
        values |= {f"hp/{name}": value for name, value in self.hyper.values_now().items()}
        return values | {f"scale/{name}": value for name, value in self.hyper.scales_now().items()}

    @property
    def schedule(self) -> Schedule:
        """The initial values and those after every hyperparameter update."""
        steps, lam, sigma = zip(*self._history, strict=True)
        return Schedule.from_history(self.hyper.space, steps, lam, sigma, self.step)

    def state_dict(self) -> dict[str, Any]:
        steps, lam, sigma = zip(*self._history, strict=True)
        return super().state_dict() | {
            "hyper": self.hyper.state_dict(),
            "hyper_optimizer": self.hyper_optimizer.state_dict(),
            "scale_optimizer": self.scale_optimizer.state_dict(),
            "history": {
                "steps": torch.tensor(steps),
                "lam": torch.tensor(lam, dtype=torch.float64),
                "sigma": torch.tensor(sigma, dtype=torch.float64),
            },
            "read": sorted(self._read),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.hyper.load_state_dict(state["hyper"])
        super().load_state_dict(state)
        self.hyper_optimizer.load_state_dict(state["hyper_optimizer"])
        self.scale_optimizer.load_state_dict(state["scale_optimizer"])
        columns = [state["history"][key].tolist() for key in ("steps", "lam", "sigma")]
        self._history = list(zip(*columns, strict=True))
        self._read = set(state["read"])

    def _sample(self, draw: Draw, batch: Batch) -> HyperSample:
        if draw == "mean":
            return self.hyper.mean()
        return self.hyper.sample(self.batch_size(batch) if draw == "example" else None)

    def _record(self) -> None:
        """λ and σ at this step; where there are several updates in a step, the last."""
        with torch.no_grad():
            lam, sigma = torch.stack([self.hyper.lam + self.hyper.origin, self.hyper.sigma]).tolist()
        if self._history and self._history[-1][0] == self.step:
            self._history.pop()
        self._history.append((self.step, lam, sigma))

    def _check_read(self, sample: HyperSample) -> None:
        """By the first hyperparameter step, training (or, where it is direct, validation) must have read every name."""
        read = self._read | (sample.read & self.hyper.direct)
        unread = [name for name in self.hyper.space.names if name not in read]
        if unread and self.step and len(self._history) == 1:
            raise UnusedError(
                f"{', '.join(unread)}: read by neither the model nor the loss in {self.step} training steps, so "
                f"tuning would have no meaning; use hp[{unread[0]!r}] in the loss, name a regulariser after it, or "
                f"take it out of the space"
            )

    def _stateful(self) -> list[nn.Module]:
        return [self.model, self.hyper]

    def _optimizers(self) -> list[Optimizer]:
        return [self.optimizer, self.hyper_optimizer, self.scale_optimizer]


@dataclass(frozen=True)
class STNOptions:
    """What an STN needs beside task and space; plain JSON. The paper's choices are the benchmark's presets."""

    init: Mapping[str, float] = field(default_factory=dict)
    """Initial values by name; the middle of the domain where not given."""
    scale: float | Mapping[str, float] = 0.5
    """Initial σ, one for all hyperparameters or by name, in units of the unconstrained λ."""
    tune_scale: bool = True
    """Whether σ is learned, too."""
    per_batch: Sequence[str] = ()
    """Hyperparameters that are drawn once per batch instead of once per example."""
    direct: Sequence[str] | bool = ()
    """Hyperparameters on which the validation loss depends directly; ``True`` for all."""
    centered: bool = True
    """Whether λ is measured from its initial value."""
    hyper_lr: float = 0.01
    """Learning rate of λ (Adam)."""
    scale_lr: float | None = None
    """Learning rate of σ (Adam); ``hyper_lr`` if None."""
    train_steps: int = 2
    """T_train: weight steps in a row."""
    valid_steps: int = 1
    """T_valid: hyperparameter steps after them."""
    warmup: int = 0
    """Iterations in which only weights move."""
    warmup_steps: int = 0
    """Weight steps before λ and σ first move."""
    entropy_weight: float = 0.001
    """τ, the weight of the entropy of ε; acts only where σ is tuned."""
    train_draw: Draw = "example"
    """How λ+ε is drawn in weight steps: per "example", once per "batch", or not at all ("mean")."""
    valid_draw: Draw | None = None
    """The same in hyperparameter steps; by default "example" if σ is tuned, else "mean"."""

    def __post_init__(self) -> None:
        check_settings(
            train_steps=self.train_steps,
            valid_steps=self.valid_steps,
            warmup_steps=self.warmup_steps,
            entropy_weight=self.entropy_weight,
            train_draw=self.train_draw,
            valid_draw=self.valid_draw,
        )
        if not self.warmup >= 0:
            raise ValueError(f"warmup is {self.warmup}; it must be at least 0")
        for name in ("hyper_lr", "scale_lr"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> STNOptions:
        known = [f.name for f in fields(cls)]
        for name in options:
            if name not in known:
                raise TypeError(unknown("option of the STN", name, known))
        return cls(**options)

    def tuner(
        self,
        model: nn.Module,
        hyper: Hyper,
        optimizer: Optimizer,
        clip: float | None = None,
        batch_size: Callable[[Batch], int] = batch_size,
    ) -> SelfTuner:
        """A tuner with these options, all but ``warmup``, which counts iterations that it knows nothing of."""
        return SelfTuner(
            model,
            hyper,
            optimizer,
            Adam([hyper.lam], lr=self.hyper_lr),
            Adam([hyper.raw_sigma], lr=self.hyper_lr if self.scale_lr is None else self.scale_lr),
            train_steps=self.train_steps,
            valid_steps=self.valid_steps,
            warmup_steps=self.warmup_steps,
            entropy_weight=self.entropy_weight,
            clip=clip,
            train_draw=self.train_draw,
            valid_draw=self.valid_draw,
            batch_size=batch_size,
        )


class STNKeywords(TypedDict, total=False):
    """The fields of :class:`STNOptions` as typed keyword arguments."""

    init: Mapping[str, float]
    scale: float | Mapping[str, float]
    tune_scale: bool
    per_batch: Sequence[str]
    direct: Sequence[str] | bool
    centered: bool
    hyper_lr: float
    scale_lr: float | None
    train_steps: int
    valid_steps: int
    warmup: int
    warmup_steps: int
    entropy_weight: float
    train_draw: Draw
    valid_draw: Draw | None


def check_settings(
    *,
    train_steps: int,
    valid_steps: int,
    warmup_steps: int,
    entropy_weight: float,
    train_draw: Draw,
    valid_draw: Draw | None,
) -> None:
    """Raises for settings of Algorithm 1 that make no sense; they can be checked long before there is a model."""
    for option, number, least in [
        ("train_steps", train_steps, 1),
        ("valid_steps", valid_steps, 0),
        ("warmup_steps", warmup_steps, 0),
        ("entropy_weight", entropy_weight, 0),
    ]:
        if not number >= least:
            raise ValueError(f"{option} is {number}; it must be at least {least}")
    for option, draw in [("train_draw", train_draw), ("valid_draw", valid_draw or "example")]:
        if draw not in ("example", "batch", "mean"):
            raise ValueError(f"{option} is {draw!r}; it must be 'example', 'batch' or 'mean'")


def _check_optimizers(hyper: Hyper, hyper_optimizer: Optimizer | None, scale_optimizer: Optimizer | None) -> None:
    """Optimizers that the caller built: λ and σ must each be moved, and by one of them only."""
    by_hyper, by_scale = (
        None if optimizer is None else moved_by(optimizer) for optimizer in (hyper_optimizer, scale_optimizer)
    )
    if by_hyper is not None and id(hyper.lam) not in by_hyper:
        raise ValueError("hyper_optimizer does not move λ: build it with [hyper.lam]")
    if by_hyper is not None and hyper.tune_scale and id(hyper.raw_sigma) in by_hyper:
        raise ValueError("hyper_optimizer moves σ, which scale_optimizer moves too: build it with [hyper.lam] alone")
    if by_scale is not None and hyper.tune_scale and by_scale != {id(hyper.raw_sigma)}:
        raise ValueError("scale_optimizer must move σ and nothing else: build it with [hyper.raw_sigma]")


def _check_conversion(model: nn.Module, hyper: Hyper, optimizer: Optimizer) -> None:
    """The model must have hyper layers that read from ``hyper``, and the optimizer must move all their weights."""
    moved = moved_by(optimizer)
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, HyperLayer)}
    if not layers:
        raise ValueError(f"{type(model).__name__} has no hyper layers: pass it through self_tune(model, hyper)")
    for prefix, layer in layers.items():
        if layer.source is not hyper:
            raise ValueError(f"{layer.qualified_name} was converted with another Hyper than the one given here")
        for name, p in layer.named_parameters(prefix, recurse=False):
            if p.requires_grad and id(p) not in moved:
                raise ValueError(f"the optimizer does not move {name}: build it after self_tune(model, hyper)")
    if id(hyper.lam) in moved or id(hyper.raw_sigma) in moved:
        raise ValueError("the optimizer of the weights must not move λ or σ: give it model.parameters() alone")
