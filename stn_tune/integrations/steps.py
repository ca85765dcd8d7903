"""Steps of a SelfTuner in a Trainer's hooks: which are due, and λ+ε in force from one hook to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from stn_tune.algorithms.options import DeltaOptions
from stn_tune.algorithms.tuner import SelfTuner
from stn_tune.hyper import HyperSample
from stn_tune.nn.response import required
from stn_tune.rng import Private
from stn_tune.training import Batch, LossFn


def response_due(tuner: SelfTuner) -> bool:
    """Whether the responses need a pass of their own in this step."""
    o = tuner.options
    return isinstance(o, DeltaOptions) and o.separate and tuner.weight_steps % o.response_every == 0


def hyper_steps_due(tuner: SelfTuner, before: int) -> int:
    """How many hyperparameter steps follow the weight steps made since there were ``before``."""
    o, now = tuner.options, tuner.weight_steps
    return (now // o.train_steps - before // o.train_steps) * o.valid_steps if now >= o.warmup_steps else 0


class Passes:
    """λ+ε in force for a batch: until the Trainer calls :meth:`leave`, and again where it calls :meth:`enter`.

    Draws, dropout's included, are from the ``generators`` that are given. As a context manager, it cleans up.
    """

    def __init__(self, tuner: SelfTuner, generators: Private):
        self.tuner, self.generators, self._tuning = tuner, generators, required(tuner.model)
        self._batch: Batch | None = None
        self._sample: HyperSample | None = None
        self._moved: list[Tensor] = []
        self._in_force, self._hooks = ExitStack(), ExitStack()

    def __enter__(self) -> Passes:
        return self

    def __exit__(self, *error: Any) -> None:
        self._batch = None
        self._hooks.close()
        self._in_force.__exit__(*error)

    @contextmanager
    def of(self, batch: Batch, *, until_left: bool) -> Iterator[None]:
        """In force for a batch, with a draw of its own; ``until_left`` beyond the end of the block."""
        self._batch, self._sample, self._responded = batch, None, False
        owed, before = response_due(self.tuner), self.tuner.weight_steps
        self._moved = [p for p in self.tuner.model.parameters() if p.requires_grad]
        with self._in_force as stack:
            self.enter()
            yield
            if until_left:
                self._in_force = stack.pop_all()
        if not until_left:
            self._batch = None
            if owed and not self._responded and self.tuner.weight_steps > before:
                raise RuntimeError(
                    "the weights moved without self.manual_backward(loss), after which algorithm 'delta' trains the "
                    "responses: use it in place of loss.backward()"
                )

    def enter(self, *_: Any) -> None:
        """In force for the batch, if there is one, with its draw."""
        if self._batch is None or self._tuning._applied:
            return
        frozen = [p for p in self._moved if not p.requires_grad]  # by toggle_optimizer: they respond all the same
        for p in frozen:
            p.requires_grad_(True)
        self._in_force.enter_context(self.generators.lent())
        self._sample = self._in_force.enter_context(self.tuner.training(self._batch, self._sample))
        for p in frozen:
            p.requires_grad_(False)

    def leave(self, *_: Any) -> None:
        """The model is the plain one."""
        self._in_force.close()

    def respond(self, loss: LossFn) -> None:
        """The pass of Δ-STN that trains the responses, if it is due; its gradients are added to those of the batch."""
        self._responded = True
        if response_due(self.tuner):
            with self.generators.lent(), self.tuner.responding(self._batch) as hp:
                self.tuner._differentiated(loss, self._batch, hp)
            self.tuner._processes.average(p.grad for p in self._tuning.responses.parameters() if p.grad is not None)

    def follow_forward(self) -> None:
        """For loops that own their backward passes and steps: enters before forward passes, leaves before steps."""
        own = {id(r.weight) for r in self._tuning.responding()}
        for module in self.tuner.model.modules():
            if any(id(p) in own for p in module.parameters()):
                self._hooks.callback(module.register_forward_pre_hook(self.enter).remove)
        for optimizer in self.tuner.optimizers:
            self._hooks.callback(optimizer.register_step_pre_hook(self.leave).remove)


@contextmanager
def metrics_kept(model: nn.Module) -> Iterator[None]:
    """The torchmetrics in a model have the state afterwards that they had before."""
    metrics: list[Any] = [m for m in model.modules() if hasattr(m, "metric_state")]
    states = [{k: v.clone() if isinstance(v, Tensor) else [*v] for k, v in m.metric_state.items()} for m in metrics]
    kept = [{**vars(m), **state} for m, state in zip(metrics, states, strict=True)]
    try:
        yield
    finally:
        for metric, state in zip(metrics, kept, strict=True):
            vars(metric).update(state)
