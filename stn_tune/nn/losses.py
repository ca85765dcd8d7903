"""Cross-entropy of a linear softmax layer whose logits never exist all at once."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Needs = tuple[bool, bool, bool]
"""Which of h, weight and bias need a gradient."""


def linear_cross_entropy(
    h: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    chunk: int = 256,
    *,
    ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:
    """``F.cross_entropy(F.linear(h, weight, bias), target)`` in pieces of ``chunk`` rows.

    h ``(..., D)``, weight ``(V, D)``, target ``(...)`` of class indices, bias ``(V,)``. Returns the mean or the sum
    over the targets that are not ``ignore_index``, or with ``"none"`` the losses in the shape of ``target``, 0 where
    ignored. As in torch, the mean over no targets is nan; its gradient is 0.

    No more than ``(chunk, V)`` logits are held. The mean and the sum find their gradient during the forward pass,
    with no more work than the unfused loss; ``"none"`` computes the logits once more in the backward pass.
    Differentiable once.
    """
    _check(h, weight, target, bias, chunk, ignore_index, reduction)
    counted = target.flatten() != ignore_index
    arguments = (h.flatten(0, -2), weight, bias, target.flatten().where(counted, 0))
    if reduction == "none":
        losses = cast(Tensor, _Losses.apply(*arguments, chunk))
        return losses.where(counted, 0).view_as(target)
    row_weight = counted.to(h.dtype)
    if reduction == "mean":
        row_weight = row_weight / counted.sum().clamp(min=1)
    loss = cast(Tensor, _WeightedLoss.apply(*arguments, row_weight, chunk, torch.is_grad_enabled()))
    return loss.where(counted.any(), torch.nan) if reduction == "mean" else loss


def _check(
    h: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, chunk: int, ignore_index: int, reduction: str
) -> None:
    if h.dim() < 1 or weight.dim() != 2 or h.shape[-1] != weight.shape[1]:
        raise ValueError(f"h {tuple(h.shape)} and weight {tuple(weight.shape)} must be (..., D) and (V, D)")
    if target.shape != h.shape[:-1]:
        raise ValueError(f"target has shape {tuple(target.shape)}; h asks for {tuple(h.shape[:-1])}")
    if target.dtype != torch.int64:
        raise ValueError(f"target has dtype {target.dtype}; it must be torch.int64")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias has shape {tuple(bias.shape)}; weight asks for {tuple(weight.shape[:1])}")
    if chunk < 1:
        raise ValueError(f"chunk={chunk}; it must be at least 1")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction={reduction!r}; it must be 'mean', 'sum' or 'none'")
    if target.is_cpu:  # elsewhere the check would wait for the device, whose own check stops the program
        wrong = target[((target < 0) | (target >= len(weight))) & (target != ignore_index)]
        if len(wrong):
            raise ValueError(f"target {int(wrong[0])} is outside the vocabulary of {len(weight)}")


class _WeightedLoss(torch.autograd.Function):
    """Σ_n row_weight[n] loss[n], with the gradients found on the way."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        row_weight: Tensor,
        chunk: int,
        differentiate: bool,
    ) -> Tensor:
        needs = ctx.needs_input_grad[:3] if differentiate else (False, False, False)
        losses, grads = _sweep(h, weight, bias, target, row_weight, chunk, needs)
        ctx.save_for_backward(*grads)
        return torch.dot(losses, row_weight)

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *[None if g is None else g * grad for g in ctx.saved_tensors], None, None, None, None


class _Losses(torch.autograd.Function):
    """The losses of all rows; their gradients take a second pass over the logits."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, chunk: int) -> Tensor:
        ctx.chunk = chunk
        ctx.save_for_backward(h, weight, bias, target)
        return _sweep(h, weight, bias, target, None, chunk, (False, False, False))[0]

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _, grads = _sweep(*ctx.saved_tensors, grad, ctx.chunk, ctx.needs_input_grad[:3])
        return *grads, None, None


def _sweep(
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    row_weight: Tensor,
    chunk: int,
    needs: Needs,
) -> tuple[Tensor, tuple[Tensor | None, Tensor | None, Tensor | None]]:
    """The losses (N,) and the gradients of Σ_n row_weight[n] loss[n] in h, weight and bias where needed.

    With e = exp(z - max z), Z = Σ e and the target's column y, a row's loss is log Z - (z_y - max z) and its gradient
    in the logits z is (e - Z onehot(y)) / Z. The 1 / Z and the row's weight move from the V columns of e to the D
    columns of h and dh.
    """
    losses = h.new_empty(len(h))
    dh = torch.empty_like(h) if needs[0] else None
    # Transposed, this sum of products is a third faster on the CPU.
    dw = torch.zeros_like(weight.t(), memory_format=torch.contiguous_format) if needs[1] else None
    db = weight.new_zeros(len(weight)) if needs[2] else None
    buffer = h.new_empty(min(chunk, len(h)), len(weight))
    for start in range(0, len(h), chunk):
        rows = slice(start, start + chunk)
        h_rows, y = h[rows], target[rows, None]
        e = buffer[: len(h_rows)]
        if bias is None:
            torch.mm(h_rows, weight.t(), out=e)
        else:
            torch.addmm(bias, h_rows, weight.t(), out=e)
        e.sub_(e.amax(1, keepdim=True))
        chosen = e.gather(1, y)
        total = e.exp_().sum(1, keepdim=True)
        torch.sub(total.log(), chosen).squeeze
        losses[rows] = (total.log() - chosen).squeeze(1)
        if any(needs):
            e.scatter_add_(1, y, -total)
            factor = row_weight[rows, None] / total
            if dh is not None:
                torch.mm(e, weight, out=dh[rows]).mul_(factor)
            if dw is not None:
                dw.addmm_((h_rows * factor).t(), e)
            if db is not None:
                db.addmv_(e.t(), factor.squeeze(1))
    return losses, (dh, None if dw is None else dw.t().contiguous(), db)
