"""check: one dry run of a weight step and a hyperparameter step, and everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from stn_tune import rng
from stn_tune.algorithms.options import Draw
from stn_tune.hyper import Hyper, HyperSample
from stn_tune.nn.response import SelfTuning, self_tuning_of
from stn_tune.training import Batch, LossFn, batch_size, checked_loss, copied_buffers, put_back, restore_modes

T = TypeVar("T")
Gradients = Sequence[Tensor | None]


class Findings(list[str]):
    """What :func:`check` found, one line each; empty, and so false, where all is well."""

    def __str__(self) -> str:
        return "\n".join(f"- {finding}" for finding in self) or "nothing was found to be wrong"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def check(
    model: nn.Module,
    hyper: Hyper,
    loss: LossFn,
    batch: Batch,
    valid_batch: Batch | None = None,
    draw: Draw = "batch",
) -> Findings:
    """Tries a weight step and a hyperparameter step, and reports all mistakes at once; nothing is changed.

    It finds hyperparameters that nothing reads, bound dropouts that are never called, responding parameters without a
    gradient, a validation loss that does not depend on λ, hyperparameters that are read in eval mode without being
    ``direct``, losses of a wrong type, and, with ``draw="example"``, examples that see the draws of others.

    Args:
        model, hyper: as given to :func:`stn_tune.self_tune`.
        loss: ``loss(model, batch, hp)``, as given to the tuner.
        valid_batch: the batch of the hyperparameter step; ``batch`` where not given.
        draw: as given to the tuner.

    >>> from ray import tune
    >>> model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.2), nn.Linear(3, 1))
    >>> hyper = Hyper({"dropout": tune.uniform(0, 0.9), "decay": tune.loguniform(1e-5, 1)})
    >>> from stn_tune import self_tune
    >>> model = self_tune(model, hyper, bind={"1": "dropout"})
    >>> print(check(model, hyper, lambda model, batch, hp: model(batch).square().mean(), torch.randn(8, 3)))
    - decay: nothing reads it; use hp['decay'] in the loss, bind a dropout to it, or take it out of the space
    """
    tuning = self_tuning_of(model)
    if tuning is None or tuning.hyper is not hyper:
        how = "is not self-tuned" if tuning is None else "was self-tuned with another Hyper"
        raise ValueError(f"{type(model).__name__} {how}: pass it through self_tune(model, hyper)")
    return _DryRun(model, tuning, loss, draw).findings_of(batch, batch if valid_batch is None else valid_batch)


class _DryRun:
    def __init__(self, model: nn.Module, tuning: SelfTuning, loss: LossFn, draw: Draw):
        self.model, self.tuning, self.hyper, self.loss, self.draw = model, tuning, tuning.hyper, loss, draw
        self.responding = tuning.responding()
        self.findings = Findings()

    def findings_of(self, batch: Batch, valid_batch: Batch) -> Findings:
        if not self.model.training:
            self.findings.append(f"{type(self.model).__name__} is in eval mode: call model.train() before training")
        with _unchanged(self.model, self.tuning), torch.backends.cudnn.flags(enabled=False):
            self.model.train()
            read, trained = self._weight_step(batch)
            self.model.eval()
            direct = self._hyper_step(valid_batch, trained)
            if read is not None:
                self._unread(read | direct)
            if self.draw == "example":
                self._leaks(valid_batch)
        return self.findings

    def _weight_step(self, batch: Batch) -> tuple[set[str] | None, set[str]]:
        """Which names it read (None where it failed), and which parameters took part with their responses."""
        for binding in self.tuning.bindings:
            binding.used = False
        sample = self._drawn(batch, differentiable=False)
        if sample is None:
            return None, set()
        wanted = [t for r in self.responding for t in (r.weight, r.response.V)]
        found = self._gradients("weight step", batch, sample, wanted)
        if found is None:
            return None, set()
        trained = set()
        for r, of_weight, of_response in zip(self.responding, found[::2], found[1::2], strict=True):
            if of_response is not None:
                trained.add(r.path)
            elif of_weight is not None:
                self.findings.append(
                    f"{r.path}: read past its module (kept in a list, or under another name), where it does not "
                    f"respond; read it from its module in forward, or exclude=[{r.path!r}]"
                )
            else:
                self.findings.append(f"{r.path}: takes no part in the training loss, so it gets no gradient")
        for binding in self.tuning.bindings:
            if not binding.used:
                self.findings.append(
                    f"{binding.where}: bound to {binding.name}, but neither called nor read in a weight step"
                )
        return sample.read, trained

    def _hyper_step(self, batch: Batch, trained: set[str]) -> set[str]:
        """Which direct names it read."""
        sample = self._drawn(batch, differentiable=True)
        if sample is None:
            return set()
        wanted = [sample.lam, *(r.response.V for r in self.responding)]
        found = self._gradients("hyperparameter step", batch, sample, wanted)
        if found is None:
            return set()
        of_lam, *of_responses = found
        if (of_lam is None or not of_lam.any()) and len(self.hyper.direct) < len(self.hyper.space):
            self.findings.append("the validation loss does not depend on λ: no parameter that responds took part in it")
        else:
            lost = [
                r.path for r, g in zip(self.responding, of_responses, strict=True) if g is None and r.path in trained
            ]
            if lost:
                self.findings.append(
                    f"{', '.join(lost)}: in the training loss, but not in the validation loss (read by a penalty "
                    f"alone, or merged with others in eval mode), so λ gets no gradient through it"
                )
        for name in sorted(sample.read - self.hyper.direct - set(self.hyper.constants)):
            self.findings.append(
                f"{name}: read in eval mode, where its direct effect on the validation loss gets no gradient; guard "
                f"what only regularises by `if model.training`, or name it in Hyper(direct=[...])"
            )
        return sample.read & self.hyper.direct

    def _unread(self, read: set[str]) -> None:
        for name in self.hyper.space.names:
            if name not in read:
                self.findings.append(
                    f"{name}: nothing reads it; use hp[{name!r}] in the loss, bind a dropout to it, or take it out of "
                    f"the space"
                )

    def _leaks(self, batch: Batch) -> None:
        """Other draws for the first two examples, their mean kept, must not change what the rest computes."""
        size = self._size(batch)
        if size is None or size < 3:
            self.findings.append(f"draws per example: not checked, as it takes 3 examples, and the batch has {size}")
            return
        noise = torch.randn(size, len(self.hyper.space)).to(self.hyper.lam)
        noise[:, self.hyper._per_batch_mask] = noise[:1, self.hyper._per_batch_mask]
        other = noise.clone()
        change = torch.where(self.hyper._per_batch_mask, 0.0, 2.0)
        other[0] += change
        other[1] -= change
        before, after = (self._per_example(batch, n, size) for n in (noise, other))
        if before is None or after is None:
            self.findings.append(
                "draws per example: not checked, as neither the loss nor the model's output has one row per example; "
                "return one loss per example"
            )
            return
        self._past_their_layers(batch, 3 * noise[0], size)
        change = (after - before).abs().reshape(size, -1).amax(1)
        if change[2:].max() > 1e-3 * change[:2].max() and change[2:].max() > 1e-6:
            self.findings.append(
                "draws per example: the draw of one example changes what others compute, so rows of a layer belong to "
                "other examples than it seems; say which with batch_dim or fold, or use draw='batch'"
            )

    def _past_their_layers(self, batch: Batch, noise: Tensor, size: int) -> None:
        """One draw for all must compute the same as that draw for each, unless a weight is read past its layer."""
        none, shared, each = (
            self._per_example(batch, n, size) for n in (torch.zeros_like(noise), noise, noise.expand(size, -1))
        )
        if none is None or shared is None or each is None:
            return
        if (shared - each).abs().max() > 0.05 * (shared - none).abs().max() + 1e-6:
            self.findings.append(
                "draws per example: a weight is read past its layer, as in F.linear(h, embedding.weight), where it "
                "does not respond; exclude it, or use draw='batch'"
            )

    def _per_example(self, batch: Batch, noise: Tensor, size: int) -> Tensor | None:
        """One row per example: of the losses, else of the model's output."""
        outputs: list[Any] = []
        handle = self.model.register_forward_hook(lambda module, inputs, output: outputs.extend(_parts(output)))
        try:
            with torch.no_grad():
                losses = self._run("hyperparameter step", batch, self.hyper.sample_at(noise), lambda losses: losses)
        finally:
            handle.remove()
        rows = [t for t in (losses, *outputs) if isinstance(t, Tensor) and t.is_floating_point() and t.dim()]
        return next((t.double() for t in rows if len(t) == size), None)

    def _gradients(self, step: str, batch: Batch, sample: HyperSample, wanted: Sequence[Any]) -> Gradients | None:
        def differentiate(losses: Tensor) -> Gradients | None:
            if losses.requires_grad:
                return torch.autograd.grad(losses.mean(), wanted, allow_unused=True)
            self.findings.append(
                f"the loss of a {step} has no gradient: it was computed without gradients (torch.no_grad, "
                f"set_grad_enabled(model.training), .item()), or past the model's parameters"
            )
            return None

        return self._run(step, batch, sample, differentiate)

    def _run(self, step: str, batch: Batch, sample: HyperSample, use: Callable[[Tensor], T]) -> T | None:
        """What ``use`` makes of the loss while the sample is in force; None where anything fails."""
        try:
            with self.tuning.applied(sample, self.responding):
                return use(checked_loss(self.loss(self.model, batch, sample)))
        except Exception as error:
            finding = f"a {step} fails with {type(error).__name__}: {' '.join(str(error).split())}"
            if finding not in self.findings:
                self.findings.append(finding)
            return None

    def _drawn(self, batch: Batch, *, differentiable: bool) -> HyperSample | None:
        if self.draw == "mean":
            return self.hyper.mean(differentiable=differentiable)
        if self.draw == "batch":
            return self.hyper.sample(differentiable=differentiable)
        size = self._size(batch)
        return None if size is None else self.hyper.sample(size, differentiable=differentiable)

    def _size(self, batch: Batch) -> int | None:
        try:
            return batch_size(batch)
        except TypeError as error:
            if str(error) not in self.findings:
                self.findings.append(str(error))
            return None


def _parts(output: Any) -> list[Any]:
    """The tensors that a model returned, alone, in a sequence or by name."""
    if isinstance(output, (tuple, list)):
        return list(output)
    return list(output.values()) if hasattr(output, "keys") else [output]


@contextmanager
def _unchanged(model: nn.Module, tuning: SelfTuning) -> Iterator[None]:
    """Puts back whatever a forward and a backward pass may have changed."""
    modes = {module: module.training for module in model.modules()}
    parameters = [(p, p.detach().clone(), p.grad) for p in model.parameters()]
    buffers = copied_buffers(model)
    used = [binding.used for binding in tuning.bindings]
    generators = rng.get_state()
    try:
        yield
    finally:
        restore_modes(model, modes)
        with torch.no_grad():
            for p, value, grad in parameters:
                if not torch.equal(p, value):
                    p.copy_(value)
                p.grad = grad
        put_back(buffers)
        for binding, before in zip(tuning.bindings, used, strict=True):
            binding.used = before
        rng.set_state(generators)
