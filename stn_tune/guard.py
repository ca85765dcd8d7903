"""A step is applied whole or not at all, decided where the tensors are: no step has to wait for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stn_tune.errors import NonFiniteError

Check = int | Literal["step"] | None
"""How often the host reads whether steps were finite: every so many steps, or at once."""

READ_EVERY = 50
"""Steps between two looks at a GPU. On a CPU there is nothing to wait for: every step is looked at."""


def checked(check: Check) -> Check:
    """``check``, if it makes sense."""
    if check in ("step", None) or (isinstance(check, int) and not isinstance(check, bool) and check >= 1):
        return check
    raise ValueError(f"check is {check!r}; it must be 'step', or a number of steps, at least 1")


class Guard:
    """Keeps steps that are not finite from being applied, and tells of them.

    Where every step is looked at, one that is not finite raises before anything has moved. Otherwise it is masked on
    the device: everything that it would have moved keeps its value, and the next look raises.
    """

    def __init__(self, check: Check = None):
        self.check = checked(check)
        self._failed: Tensor | None = None
        self._seen = 0

    def finite(
        self,
        loss_name: str,
        loss: Tensor,
        gradient: str,
        moved: Sequence[Tensor],
        name: Callable[[Tensor], str],
        step: int,
        clip: float | None = None,
        *,
        shared: bool = False,
    ) -> Tensor | None:
        """Whether loss and gradients are finite, on their device; gradients are clipped.

        None where every step is looked at, and raises if they are not. With ``shared``, other processes must come to
        the same answer: gradients are alike there, losses are not.
        """
        with_gradient = [(p, p.grad) for p in moved if p.grad is not None]
        sparse = next((p for p, grad in with_gradient if grad.is_sparse), None)
        if sparse is not None and clip is not None:
            raise ValueError(
                f"clip is {clip}, but the gradient of {name(sparse)} is sparse: torch clips dense ones only"
            )
        grads = [grad.coalesce().values() if grad.is_sparse else grad for _, grad in with_gradient]
        loss = loss.detach()
        norm = nn.utils.get_total_norm(grads) if grads else torch.zeros_like(loss)
        finite = torch.isfinite(norm) if shared and grads else torch.isfinite(torch.stack([loss.to(norm), norm])).all()
        at_once = finite.is_cpu if self.check is None else self.check == "step"
        if at_once and not finite:
            if not torch.isfinite(loss):
                raise NonFiniteError(f"the {loss_name} is {loss.item()} at step {step}; the step was not applied")
            bad = next((p for (p, _), g in zip(with_gradient, grads, strict=True) if not torch.isfinite(g).all()), None)
            which = "all parameters together" if bad is None else name(bad)
            raise NonFiniteError(f"the {gradient} of {which} is not finite at step {step}; the step was not applied")
        if clip is not None:
            nn.utils.clip_grads_with_norm_(moved, clip, norm)
        return None if at_once else finite

    def note(self, finite: Tensor, step: int, *, weights: bool) -> None:
        """Counts a step, of the weights or of λ, that was masked where it was not finite; :meth:`look` tells."""
        if self._failed is None:
            self._failed = torch.zeros(3, device=finite.device, dtype=torch.long)
        failed, of_weights, first = self._failed
        first.copy_(torch.where((failed == 0) & ~finite, step, first))
        failed.add_(~finite)
        if weights:
            of_weights.add_(~finite)
        self._seen += 1

    def due(self) -> bool:
        """Whether it is time to look."""
        return self._seen >= (self.check if isinstance(self.check, int) else READ_EVERY)

    def look(self) -> int:
        """How many weight steps since the last look were not finite, and so not applied; waits for the device."""
        if self._failed is None or not self._seen:
            return 0
        failed, of_weights, first = self._failed.tolist()
        seen, self._seen, self._failed = self._seen, 0, None
        self.told = ""
        if failed:
            self.told = (
                f"the loss or a gradient was not finite in {failed} of the last {seen} steps, first at step {first}; "
                f"these steps were not applied"
            )
        return cast(int, of_weights)

    told: str = ""
    """What the last look found; empty where all was well."""


@contextmanager
def masked(optimizers: Iterable[Optimizer], finite: Tensor | None) -> Iterator[None]:
    """Within, steps of the optimizers leave everything as it is where ``finite`` is false; no effect where it is None.

    torch's fused optimizers do so by themselves. Of others, what they move is copied before, which takes about as long
    as the step. A count that an optimizer keeps on the CPU for parameters of a GPU goes on.
    """
    with ExitStack() as stack:
        for optimizer in optimizers if finite is not None else ():
            assert finite is not None
            fused = getattr(optimizer, "_step_supports_amp_scaling", False)
            stack.enter_context(_skipping(optimizer, finite) if fused else _put_back(optimizer, finite))
        yield


@contextmanager
def _skipping(optimizer: Any, finite: Tensor) -> Iterator[None]:
    """What torch's GradScaler does with a fused optimizer."""
    moved = _moved(optimizer)
    known = [set(optimizer.state.get(p, ())) for p in moved]
    optimizer.grad_scale, optimizer.found_inf = None, (~finite).float()
    try:
        yield
    finally:
        del optimizer.grad_scale, optimizer.found_inf
    for p, keys in zip(moved, known, strict=True):
        for key, now in optimizer.state.get(p, {}).items():
            if key not in keys:  # made in this step; where it was skipped, SGD leaves momentum uninitialised
                keep(now, None, finite)


@contextmanager
def _put_back(optimizer: Optimizer, finite: Tensor) -> Iterator[None]:
    moved = _moved(optimizer)
    values = [p.detach().clone() for p in moved]
    states = [{k: v.clone() for k, v in optimizer.state.get(p, {}).items() if isinstance(v, Tensor)} for p in moved]
    yield
    for p, value, state in zip(moved, values, states, strict=True):
        keep(p, value, finite)
        for key, now in optimizer.state.get(p, {}).items():
            keep(now, state.get(key), finite)


def _moved(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


@torch.no_grad()
def keep(now: Any, before: Tensor | None, finite: Tensor) -> None:
    """A tensor stays as it is where ``finite``, else it is as it was before; 0, where there was nothing before."""
    if isinstance(now, Tensor) and now.device == finite.device:
        now.copy_(torch.where(finite, now, torch.zeros_like(now) if before is None else before))
