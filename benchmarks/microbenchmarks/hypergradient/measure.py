"""Measuring one run: its hypergradients at checkpoints, the truth there, and the run itself left undisturbed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import stn_tune as stn
from benchmarks.microbenchmarks.hypergradient.checkpoints import Log
from benchmarks.tasks import Problem
from stn_tune import rng
from stn_tune.algorithms.fixed import FixedTrainer
from stn_tune.errors import NonFiniteError
from stn_tune.hyper import HyperSample
from stn_tune.stream import Stream

Tick = Callable[[], None]
CLOSED_FORM, LEARNED = "val_response/gradient_exact", "val_response/gradient"
"""What the theory task reports after every epoch."""


@dataclass(frozen=True)
class Variant:
    """An algorithm with options of its own."""

    name: str
    """In tables, figures and file names."""
    options: Mapping[str, Any] = field(hash=False)
    """For ``Problem.self_tuned``."""


@dataclass(frozen=True)
class Measurement:
    """How the truth is measured."""

    step: float = 0.7
    """h of the central difference, in units of the unconstrained λ."""
    passes: int = 3
    """Over the training data, at λ+h and at λ−h."""
    repeats: int = 3
    """With other batches and other random numbers."""

    def settings(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def ticks(self, p: Problem, epochs: Sequence[int]) -> int:
        """How often progress is reported: once per epoch and once per continued training."""
        truths = 0 if p.name == "theory" else 2 * len(p.tuned) * self.repeats
        return max(epochs) + truths * len(epochs)


def measure_run(
    p: Problem,
    variant: Variant,
    seed: int,
    epochs: Sequence[int],
    measurement: Measurement,
    log: Log,
    tick: Tick = lambda: None,
) -> int | None:
    """Trains until the last of ``epochs`` and adds a checkpoint to the log at each.

    Returns the epoch in which training ended by the task's own rule, if it was before the last.
    """
    trainable = p.self_tuned(**{**variant.options, "refine": False})(config={**p.initial, "seed": seed})
    for epoch in range(1, max(epochs) + 1):
        result = trainable.train()
        tick()
        if result["diverged"]:
            return epoch - 1
        if epoch in epochs:
            log.add(
                variant=variant.name,
                seed=seed,
                epoch=epoch,
                val_loss=result["val_loss"],
                values={name: result[f"hp/{name}"] for name in p.space},
                options=dict(variant.options),
                **measure(trainable, result, measurement, rng.derived(seed, epoch), tick),
            )
        if result["done"] and epoch < max(epochs):
            return epoch
    return None


def measure(
    trainable: stn.STNTrainable, result: Mapping[str, Any], how: Measurement, seed: int, tick: Tick = lambda: None
) -> dict[str, Any]:
    """The algorithm's gradient and the true one; where the task reports a closed form, that is the truth."""
    if CLOSED_FORM in result:
        return {"truth": [[result[CLOSED_FORM]]], "estimate": [[result[LEARNED]]], "sizes": [1]}
    estimate, sizes = estimated_gradients(trainable)
    truth = [finite_differences(trainable, how, rng.derived(seed, k), tick) for k in range(how.repeats)]
    return {"truth": truth, "estimate": estimate.tolist(), "sizes": sizes}


def tuner_of(trainable: stn.STNTrainable) -> stn.SelfTuner:
    """Its tuner."""
    tuner = trainable._trainer
    assert isinstance(tuner, stn.SelfTuner)
    return tuner


@contextmanager
def undisturbed(trainable: stn.STNTrainable) -> Iterator[None]:
    """Puts back the random generators, and what the task carries from batch to batch."""
    task, generators = trainable._task, rng.get_state()
    carried = copy.deepcopy(task.state_dict())
    try:
        yield
    finally:
        task.load_state_dict(carried)
        rng.set_state(generators)


def estimated_gradients(trainable: stn.STNTrainable) -> tuple[Tensor, list[int]]:
    """∂F(λ, ŵ(λ))/∂λ on each validation batch, as a hyperparameter step without a draw sees it; the batches' sizes.

    Gradients are ``(batches, n)``.
    """
    task, tuner = trainable._task, tuner_of(trainable)
    gradients, sizes = [], []
    draw, tuner.valid_draw = tuner.valid_draw, "mean"
    try:
        with undisturbed(trainable):
            for batch in trainable._on_device(trainable._loaders.valid):
                with tuner.tuning(batch) as hp:
                    assert hp.lam is not None
                    gradients.append(torch.autograd.grad(task.loss(tuner.model, batch, hp).mean(), hp.lam)[0].cpu())
                sizes.append(task.batch_size(batch))
    finally:
        tuner.valid_draw = draw
    return torch.stack(gradients), sizes


def finite_differences(
    trainable: stn.STNTrainable, how: Measurement, seed: int, tick: Tick = lambda: None
) -> list[float]:
    """(F(λ+h) − F(λ−h)) / 2h for each hyperparameter, F the validation loss after continued training."""
    hyper = tuner_of(trainable).hyper
    plain = stn.release(copy.deepcopy(trainable.model))

    def loss_at(delta: Tensor) -> float:
        tick()
        return continued_loss(trainable, copy.deepcopy(plain), HyperSample(hyper, delta), how.passes, seed)

    steps = how.step * torch.eye(len(hyper.space)).to(hyper.lam)
    return [(loss_at(h) - loss_at(-h)) / (2 * how.step) for h in steps]


def continued_loss(trainable: stn.STNTrainable, model: nn.Module, values: HyperSample, passes: int, seed: int) -> float:
    """The validation loss after plain training at ``values`` from where the run is; NaN where it diverges.

    Values are tensors: a dropout then draws its mask from uniform numbers, which all values share.
    """
    task, current = trainable._task, trainable._trainer.optimizer
    source = stn.fix(model, dict(values), bind=task.bind)
    optimizer = task.optimizer(model, trainable._config)
    for group, now in zip(optimizer.param_groups, current.param_groups, strict=False):
        group["lr"] = now["lr"]
    trainer = FixedTrainer(model, source, optimizer, clip=task.clip, batch_size=task.batch_size)
    batches = Stream(trainable._loaders.train, seed)
    with undisturbed(trainable):
        rng.seed_all(seed)
        try:
            for _ in range(passes):
                trainer.epoch(task.loss, trainable._on_device(batches.one_pass()))
        except NonFiniteError:
            return math.nan
        return float(task.evaluate(trainer, trainable._on_device(trainable._loaders.valid))["loss"])
