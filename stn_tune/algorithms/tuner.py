"""SelfTuner: what all algorithms share. λ, σ and their step; the pieces of a step; checks; state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Adam, Optimizer

from stn_tune.algorithms.checks import (
    ValidBatches,
    check_optimizers,
    checked_tuning,
    is_compiled,
    numbers_explained,
    warn_of_recompilation,
)
from stn_tune.algorithms.distributed import Processes
from stn_tune.algorithms.options import Draw, Options
from stn_tune.algorithms.usage import Usage
from stn_tune.guard import Check
from stn_tune.hyper import Hyper, HyperSample
from stn_tune.nn.lstm import LSTM
from stn_tune.nn.response import Responding
from stn_tune.schedule import History, Schedule
from stn_tune.training import (
    Batch,
    LossFn,
    Stateful,
    Trainer,
    batch_size,
    checked_loss,
    evaluating,
    frozen,
    mean_loss,
    weakly,
)

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from stn_tune.algorithms.registry import TunerOptions


_OF_HYPER = "give it to Hyper(...), which draws"

_NOT_OF_A_TUNER = dict.fromkeys(("init", "scale", "tune_scale", "per_batch", "direct"), _OF_HYPER) | {
    "warmup": "only STNTrainable counts iterations; use warmup_steps, the number of weight steps",
    "wait": "only STNTrainable has rules that could wait; in a loop of your own ask tuner.settled()",
    "refine": "only STNTrainable trains a second time",
}
"""Options of a trial that a tuner does not read, and what to do."""


RECENT_UPDATES = 100
"""λ has settled if during so many updates it has moved by less than SETTLED_PACE of what ``hyper_lr`` allows."""
SETTLED_PACE = 0.4
"""Adam moves λ by up to ``hyper_lr`` in an update. Where gradients are noise alone, a λ covers about a tenth of what so
many updates allow, and the fastest of fifteen a fifth."""


class SelfTuner(Trainer):
    """Trains weights on training batches, hyperparameters on validation batches.

    Args:
        model: a model that went through :func:`stn_tune.self_tune`.
        hyper: the hyperparameters it was given there.
        optimizer: moves the weights and their responses; build it after
            ``self_tune``. A list of optimizers works, too.
        hyper_optimizer, scale_optimizer: move λ and σ; by default Adam with
            learning rate ``hyper_lr``.
        algorithm: "stn" (Algorithm 1 of the paper) or "delta" (Δ-STN).
        clip: maximum norm of the weights' gradient.
        batch_size: ``batch -> int``; by default the leading dimension of the
            batch's first tensor.
        carries: what the loss carries from batch to batch (the hidden state of
            a language model), with ``state_dict`` and ``load_state_dict``.
            Needed where an algorithm computes the loss of a batch twice.
        check: how often the host reads whether steps were finite: "step", or a
            number of steps. By default every step on a CPU, every 50 on a GPU,
            where reading means waiting. A step that is not finite is never
            applied.
        options: ``hyper_lr``, ``train_steps`` and others of the algorithm; see
            ``help(stn_tune.STNOptions)``. Initial values and σ go to
            :class:`Hyper`.

    A loop of your own does the same in pieces::

        with tuner.training(batch) as hp:       # forward and backward at λ+ε
            loss_fn(model, batch, hp).backward()
        optimizer.step(); optimizer.zero_grad()

        with tuner.tuning(valid_batch) as hp:   # eval mode, weights frozen
            tuner.backward(loss_fn(model, valid_batch, hp))
        tuner.step()                            # λ and σ move
    """

    options_type: ClassVar[type[Options]]
    """The algorithm's options."""

    def __new__(cls, *args: Any, algorithm: str = "stn", **options: Any) -> Self:
        """The tuner of the algorithm."""
        if cls is not SelfTuner:
            return super().__new__(cls)
        from stn_tune.algorithms.registry import algorithm_named

        return cast("Self", super().__new__(algorithm_named(algorithm)))

    def __init__(
        self,
        model: nn.Module,
        hyper: Hyper,
        optimizer: Optimizer | Sequence[Optimizer],
        hyper_optimizer: Optimizer | None = None,
        scale_optimizer: Optimizer | None = None,
        *,
        algorithm: str = "stn",
        clip: float | None = None,
        batch_size: Callable[[Batch], int] = batch_size,
        carries: Stateful | None = None,
        check: Check = None,
        **options: Unpack[TunerOptions],
    ):
        super().__init__(model, optimizer, clip, batch_size, check)
        self.options = self.checked_options(options)
        self._tuning = checked_tuning(model, hyper, self.optimizers)
        check_optimizers(hyper, hyper_optimizer, scale_optimizer)
        self.hyper, self.carries = hyper, carries
        lr, scale_lr = self.options.hyper_lr, self.options.scale_lr
        self.hyper_optimizer = hyper_optimizer or Adam([hyper.lam], lr=lr, fused=True)
        self.scale_optimizer = scale_optimizer or Adam(
            [hyper.raw_sigma], lr=lr if scale_lr is None else scale_lr, fused=True
        )
        self.draw: Draw = self.options.draw
        follow: Draw = self.draw if self.draw != "mean" else "batch"
        self.valid_draw: Draw = self.options.valid_draw or (follow if hyper.tune_scale or hyper.direct else "mean")
        if hyper.direct and self.valid_draw == "mean":
            raise ValueError("valid_draw is 'mean', but direct hyperparameters need draws: use 'example' or 'batch'")
        self._compiled = is_compiled(model)
        warn_of_recompilation(self._compiled, self._tuning)
        self._rnn = any(isinstance(m, nn.RNNBase) and not isinstance(m, LSTM) for m in model.modules())
        self._valid_batches = ValidBatches()
        self._usage = Usage(self._tuning, self.optimizers)
        self._usage.check_moved(self._tuning.responding())
        self._sample: HyperSample | None = None
        self._shared: dict[str, Tensor] = {}
        self._loss: Tensor | None = None
        self._scaled = False
        self._passes = self._tuning.passes
        self._processes = Processes(model)
        self._processes.share([hyper.lam, hyper.raw_sigma])
        self._history = History(hyper.space, self.options.algorithm)
        self._record()

    @classmethod
    def from_options(cls, options: Options, model: nn.Module, hyper: Hyper, optimizer: Optimizer, **more: Any) -> Self:
        """A tuner with those of ``options`` that a tuner reads.

        Those of ``hyper`` are left out, and ``warmup``: a tuner counts no
        iterations.
        """
        own = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in _NOT_OF_A_TUNER}
        return cls(model, hyper, optimizer, algorithm=options.algorithm, **more, **own)

    @classmethod
    def checked_options(cls, given: Mapping[str, Any]) -> Options:
        """The options of a tuner that will be built later, checked."""
        for name in given:
            if name in _NOT_OF_A_TUNER:
                raise TypeError(f"{name} is no option of a tuner: {_NOT_OF_A_TUNER[name]}")
        return cls.options_type.of(given)

    @contextmanager
    def training(self, batch: Batch, sample: HyperSample | None = None) -> Iterator[HyperSample]:
        """λ+ε in force for the forward and backward pass on a training batch.

        With the ``sample`` of another piece of the same batch, its draw is used
        again.
        """
        with self._perturbed(batch, sample) as drawn:
            yield drawn

    @contextmanager
    def responding(self, batch: Batch, sample: HyperSample | None = None) -> Iterator[HyperSample]:
        """For the pass that trains the responses, where the algorithm has one."""
        raise RuntimeError(f"algorithm {self.options.algorithm!r} trains the responses together with the weights")
        yield  # a generator, as training is

    @contextmanager
    def _perturbed(
        self, batch: Batch, like: HyperSample | None = None, moved: Collection[int] | None = None
    ) -> Iterator[HyperSample]:
        """λ+ε in force for weights and regularisers; of the parameters, only those ``moved`` (ids) need a gradient."""
        self._require_training()
        self._tuning.check_idle()
        self._usage.end_waiting()
        responding = self._tuning.responding()
        self._usage.check_moved(responding)
        sample = self._drawn(self.draw, batch, like, differentiable=False)
        held = nullcontext() if moved is None else frozen(self.model, but=moved)
        with held, self._applied(sample, responding), numbers_explained(sample):
            yield sample
        self._usage.read |= sample.read
        self._tuning.passes += 1
        if any(r.response.V.grad is not None for r in responding):
            self._check_responses()
        elif not self._compiled:
            self._usage.await_backward(responding)

    def _applied(self, sample: HyperSample, responding: list[Responding]) -> AbstractContextManager[dict[str, Tensor]]:
        """The sample in force for the model."""
        return self._tuning.applied(sample, responding, watch=not self._usage.checked and not self._compiled)

    @contextmanager
    def tuning(self, batch: Batch, sample: HyperSample | None = None) -> Iterator[HyperSample]:
        """λ+ε in force in eval mode, with all weights frozen.

        Call :meth:`backward` inside, :meth:`step` afterwards. With the
        ``sample`` of another piece of the same batch, its draw is used again.
        """
        self._tuning.check_idle()
        self._usage.end_waiting()
        responding = self._tuning.responding()
        with evaluating(self.model), frozen(self.model), self._differentiable(), self._processes.unsynchronised():
            drawn = self._drawn(self.valid_draw, batch, sample, differentiable=True)
            self._sample = drawn
            try:
                with self._tuning.applied(drawn, responding) as self._shared, numbers_explained(drawn):
                    yield drawn
            finally:
                self._sample, self._shared = None, {}

    def backward(self, losses: Tensor, scaler: GradScaler | None = None) -> Tensor:
        """Computes the gradient of λ and σ; returns the mean loss.

        It is the gradient of F(λ+ε, ŵ(λ+ε)) − τ H[p(ε|σ)]. Gradients add up
        until :meth:`step`. With the ``scaler`` of half-precision training the
        loss is scaled on the way, and a step whose gradient is infinite is left
        out, as the scaler does with weight steps.
        """
        sample, hyper = self._sample, self.hyper
        if sample is None or sample.lam is None:
            raise RuntimeError("backward belongs inside `with tuner.tuning(batch)`, before its end")
        losses = checked_loss(losses)
        if len(self._history) == 1 and self.weight_steps:
            self._usage.check_read(sample, self.weight_steps)
        loss = losses.mean()
        if not losses.requires_grad:
            raise ValueError(
                "the validation loss does not depend on λ: it was computed without gradients (torch.no_grad, "
                "set_grad_enabled(model.training), .item()), or past the model's parameters"
            )
        objective = loss + hyper.score(losses, sample) if hyper.direct else loss
        wanted = [sample.lam]
        if hyper.tune_scale and sample.sigma is not None:
            wanted.append(sample.sigma)
            if self.options.entropy_weight and hyper.raw_sigma.grad is None:  # once for all pieces of a batch
                objective = objective - self.options.entropy_weight * hyper.entropy(sample.sigma)
        self._usage.warn_of_lost(loss, self._shared)
        self._scaled = scaler is not None and scaler.is_enabled()
        factor = scaler.scale(torch.ones_like(objective)) if scaler is not None and self._scaled else None
        found = torch.autograd.grad(objective, wanted, factor, allow_unused=True)
        if found[0] is None:
            raise ValueError("the validation loss does not depend on λ: no parameter that responds took part in it")
        for own, gradient in zip((hyper.lam, hyper.raw_sigma), found, strict=False):
            if gradient is not None:
                gradient = gradient if factor is None else gradient / factor
                own.grad = gradient if own.grad is None else own.grad + gradient
        self._loss = loss.detach()
        return self._loss

    def step(self) -> None:
        """Moves λ and σ by the gradients of :meth:`backward`.

        The weights move to the response at the new λ. With several processes,
        the mean of their gradients counts. A gradient that is not finite moves
        nothing.
        """
        hyper = self.hyper
        if self._sample is not None:
            raise RuntimeError("step belongs after `with tuner.tuning(batch)`, not inside")
        if hyper.lam.grad is None or self._loss is None:
            raise RuntimeError("step without a gradient: call tuner.backward(loss) inside `with tuner.tuning(batch)`")
        moved = [hyper.lam, hyper.raw_sigma] if hyper.tune_scale else [hyper.lam]
        self._processes.average(p.grad for p in moved if p.grad is not None)
        try:
            finite = self._finite_hyper(self._loss, moved)
            before = hyper.lam.clone()
            movers = [self.hyper_optimizer, *([self.scale_optimizer] if hyper.tune_scale else [])]
            self._move(finite, movers, noted=not self._scaled)
        finally:
            hyper.lam.grad = hyper.raw_sigma.grad = self._loss = None
        hyper.hold()
        self._follow(hyper.lam - before)
        self._record()

    def _finite_hyper(self, loss: Tensor, moved: list[Tensor]) -> Tensor | None:
        """Whether the step of λ and σ is finite; with a scaler, one that is not is no mistake."""
        if self._scaled:
            return torch.isfinite(torch.stack([p.grad.norm() for p in moved if p.grad is not None])).all()
        return self._finite(
            "validation loss", loss, "hyperparameter gradient", moved, lambda p: "λ" if p is self.hyper.lam else "σ"
        )

    def _follow(self, shift: Tensor) -> None:
        """λ has moved: the weights take up their responses."""
        self._tuning.absorb(shift)

    def train_step(self, loss_fn: LossFn, batch: Batch) -> Tensor:
        """One weight step; returns the loss."""
        with self._unharmed():
            self._zero_grad()
            with self.training(batch) as sample:
                loss = self._differentiated(loss_fn, batch, sample)
            self._check_responses()
            self._apply(loss)
        return loss.detach()

    def valid_step(self, loss_fn: LossFn, batch: Batch, scaler: GradScaler | None = None) -> Tensor | None:
        """One hyperparameter step; returns the loss, ``None`` during warm-up.

        For ``scaler`` see :meth:`backward`.
        """
        if self.weight_steps < self.options.warmup_steps:
            return None
        with self._unharmed():
            with self.tuning(batch) as sample:
                loss = self.backward(loss_fn(self.model, batch, sample), scaler)
            self.step()
        return loss

    def epoch(self, loss_fn: LossFn, train: Iterable[Batch], valid: Iterable[Batch] | None) -> float:
        """One pass over the training batches; returns their mean loss.

        After every T_train weight steps come T_valid hyperparameter steps, on
        batches from ``valid``: a loader or an endless iterator. A loader starts
        again at its end, and keeps its place from epoch to epoch. If ``valid``
        is ``None``, only weights move.
        """

        o = self.options

        def losses() -> Iterator[Tensor]:
            for batch in train:
                yield self.train_step(loss_fn, batch)
                if valid is not None and self.weight_steps % o.train_steps == 0:
                    for _ in range(o.valid_steps if self.weight_steps >= o.warmup_steps else 0):
                        self.valid_step(loss_fn, self._valid_batches.next_of(valid))

        loss = mean_loss(losses())
        self.look()
        return loss

    @contextmanager
    def evaluation(self) -> Iterator[HyperSample]:
        """The plain model at λ, in eval mode and without gradients: F(λ, ŵ(λ))."""
        sample = self.hyper.mean()
        with torch.no_grad(), evaluating(self.model), self._tuning.bound(sample):  # rates as tensors: no recompilation
            yield sample

    def metrics(self) -> dict[str, float]:
        """``step``, hp/<name> and scale/<name>, as reported to Tune."""
        self._tuning.settle()
        values: dict[str, float] = {"step": self.weight_steps}
        values |= {f"hp/{name}": value for name, value in self.hyper.values_now().items()}
        return values | {f"scale/{name}": value for name, value in self.hyper.scales_now().items()}

    def settled(self) -> bool:
        """Whether λ has stopped travelling.

        It travels while one of the hyperparameters has moved by more than 40
        ``hyper_lr`` in its last 100 updates. The validation loss may stall
        then although training is not over: rules that watch it (early stopping,
        ReduceLROnPlateau) should wait. ``STNTrainable`` does by itself. In a
        loop of your own::

            if tuner.settled():
                scheduler.step(validation_loss)
        """
        if not isinstance(self.hyper_optimizer, Adam):
            raise TypeError(
                f"settled() knows how fast Adam moves λ, but hyper_optimizer is {type(self.hyper_optimizer).__name__}: "
                f"use a rule of your own, on tuner.metrics()"
            )
        reach = float(self.hyper_optimizer.param_groups[0]["lr"]) * RECENT_UPDATES
        rows = max(RECENT_UPDATES // max(self.options.valid_steps, 1), 1)
        return self._history.moved(rows) <= SETTLED_PACE * reach

    @property
    def schedule(self) -> Schedule:
        """The initial values and those after every hyperparameter update."""
        self._history.total_steps = self.weight_steps
        return self._history.schedule()

    def state_dict(self) -> dict[str, Any]:
        """Everything that training continues from, bit for bit.

        ``torch.load`` reads it with ``weights_only=True``.
        """
        self._history.total_steps = self.weight_steps
        return super().state_dict() | {
            "hyper_optimizer": self.hyper_optimizer.state_dict(),
            "scale_optimizer": self.scale_optimizer.state_dict(),
            "schedule": self._history.state_dict(),
            **self._usage.state_dict(),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        history = History.from_state(state["schedule"])
        if history.algorithm not in (None, self.options.algorithm):
            raise ValueError(
                f"the saved state is of algorithm {history.algorithm!r}, but this tuner is {self.options.algorithm!r}: "
                f"go on with SelfTuner(..., algorithm={history.algorithm!r})"
            )
        super()._load(state)
        self.hyper_optimizer.load_state_dict(state["hyper_optimizer"])
        self.scale_optimizer.load_state_dict(state["scale_optimizer"])
        if history.space.names != self.hyper.space.names:
            self._reorder([history.space.names.index(name) for name in self.hyper.space.names])
        self._history = history.reordered(self.hyper.space)
        self._usage.load_state_dict(state)
        self._tuning.settle()

    def _reorder(self, order: list[int]) -> None:
        """The saved space has the same names in another order: so have the optimizers' entries for them."""
        tensors: list[Any] = [self.hyper.lam, self.hyper.raw_sigma, *(r.V for r in self._tuning.responses.values())]
        for optimizer in (*self.optimizers, self.hyper_optimizer, self.scale_optimizer):
            for tensor in tensors:
                for key, value in optimizer.state.get(tensor, {}).items():
                    if isinstance(value, Tensor) and value.shape == tensor.shape:
                        optimizer.state[tensor][key] = value[..., order].contiguous()

    def _finite(self, *args: Any, **keywords: Any) -> Tensor | None:
        return super()._finite(*args, **keywords, shared=self._processes.several)

    def _check_responses(self) -> None:
        self._usage.check_responses(self._tuning.responding(), per_example=self.draw == "example")

    def _hook(self) -> None:
        super()._hook()
        for one in self.optimizers:
            one.register_step_pre_hook(weakly(self._before_weight_step))

    def _before_weight_step(self) -> None:
        if self._sample is not None:
            raise RuntimeError(
                "an optimizer of the weights steps inside `with tuner.tuning(batch)`, where weights are frozen: step "
                "after `with tuner.training(batch)`; λ moves by tuner.step()"
            )
        self._usage.end_waiting()

    def _count_step(self) -> None:
        if self._passes == self._tuning.passes:
            raise RuntimeError(
                "an optimizer of the weights has stepped without a forward pass in `with tuner.training(batch)`: the "
                "responses are not trained like that; put forward and backward pass into it"
            )
        self._passes = self._tuning.passes
        super()._count_step()

    def _drawn(self, draw: Draw, batch: Batch, like: HyperSample | None, *, differentiable: bool) -> HyperSample:
        if like is not None and like.noise is not None:
            return self.hyper.sample_at(like.noise, differentiable=differentiable)
        if draw == "mean":
            return self.hyper.mean(differentiable=differentiable)
        if draw == "batch":
            return self.hyper.sample(differentiable=differentiable)
        o = self.options
        return self.hyper.sample(
            self.batch_size(batch), groups=o.groups, antithetic=o.antithetic, differentiable=differentiable
        )

    def _record(self) -> None:
        self._history.record(self.weight_steps, self.hyper.lam, self.hyper.sigma)
        if self.hyper.lam.is_cpu:
            self._tuning.settle()

    @contextmanager
    def _differentiable(self) -> Iterator[None]:
        """cuDNN does not differentiate RNNs in eval mode: torch itself does."""
        before = torch.backends.cudnn.enabled
        torch.backends.cudnn.enabled = before and not self._rnn
        try:
            yield
        finally:
            torch.backends.cudnn.enabled = before

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        try:
            with super()._unharmed():
                yield
        except BaseException:
            self.hyper.lam.grad = self.hyper.raw_sigma.grad = self._loss = None
            raise
