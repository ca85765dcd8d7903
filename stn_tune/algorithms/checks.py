"""Mistakes of those who build a tuner or use it, told in one line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.optim import Optimizer

from stn_tune.hyper import Hyper, HyperSample
from stn_tune.nn.response import SelfTuning, self_tuning_of
from stn_tune.training import Batch, moved_by

NO_NUMBER = re.compile("more than one value is ambiguous|converted to (a )?(Python )?[sS]calar|must be .*, not Tensor")
"""What torch says of a tensor that should be a number."""


@contextmanager
def numbers_explained(sample: HyperSample) -> Iterator[None]:
    """With one draw per example, a hyperparameter that is used as a number gets an error that says what to do."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        each = [n for n in sorted(sample.read) if getattr(dict.__getitem__(sample, n), "ndim", 0)]
        if each and NO_NUMBER.search(str(error)):
            raise ValueError(
                f"{', '.join(each)}: with draw='example' a tensor, one value per example, where one number is needed "
                f"({error}): name it in Hyper(per_batch=[...]), or use draw='batch'"
            ) from error
        raise


class ValidBatches:
    """Batches for hyperparameter steps without end: of a loader, pass after pass, or of an endless iterator."""

    def __init__(self) -> None:
        self._given: Iterable[Batch] | None = None
        self._batches: Iterator[Batch] = iter(())

    def next_of(self, valid: Iterable[Batch]) -> Batch:
        """The next batch. A loader keeps its place from call to call, until another one is given.

        A loader may be its own iterator (those of Ray Train are): whether there is a next pass is seen by asking.
        """
        if valid is not self._given:
            self._given, self._batches = valid, iter(valid)
        for _ in range(2):
            try:
                return next(self._batches)
            except StopIteration:
                self._batches = iter(valid)
        self._given = None
        raise ValueError("the validation batches ran out: valid must be a loader with batches, or an endless iterator")

    def __reduce__(self) -> tuple[Any, ...]:
        return ValidBatches, ()  # iterators of loaders cannot be copied: a copy begins a pass of its own


def check_optimizers(hyper: Hyper, hyper_optimizer: Optimizer | None, scale_optimizer: Optimizer | None) -> None:
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


def is_compiled(model: nn.Module) -> bool:
    """Whether a module of the model went through torch.compile."""
    return any(hasattr(m, "_orig_mod") or m._compiled_call_impl is not None for m in model.modules())


def warn_of_recompilation(compiled: bool, tuning: SelfTuning) -> None:
    """torch.compile compiles for one value of a number that a module holds, and these change in every step."""
    numbers = [binding.where for binding in tuning.bindings if binding.is_number(tuning.model)]
    if compiled and numbers:
        warnings.warn(
            f"{', '.join(numbers)}: read as a number, for every value of which torch.compile compiles the model again; "
            f"use nn.Dropout modules, leave it out of bind, or do not compile",
            stacklevel=3,
        )


def checked_tuning(model: nn.Module, hyper: Hyper, optimizers: Sequence[Optimizer]) -> SelfTuning:
    """The model must be self-tuned with ``hyper``, and the optimizers must move all responses, and not λ or σ."""
    tuning = self_tuning_of(model)
    if tuning is None:
        raise ValueError(f"{type(model).__name__} is not self-tuned: pass it through self_tune(model, hyper)")
    if tuning.hyper is not hyper:
        raise ValueError(f"{type(model).__name__} was self-tuned with another Hyper than the one given here")
    moved = moved_by(*optimizers)
    if id(hyper.lam) in moved or id(hyper.raw_sigma) in moved:
        raise ValueError("the optimizer of the weights must not move λ or σ: give it model.parameters() alone")
    for r in tuning.responding():
        for name, p in r.response.named_parameters():
            if p.requires_grad and id(p) not in moved:
                raise ValueError(
                    f"the optimizer does not move the response of {r.path} ({name}): build it after "
                    f"self_tune(model, hyper), with model.parameters()"
                )
    return tuning
