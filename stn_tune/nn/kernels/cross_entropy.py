"""Cross-entropy of a linear softmax layer whose logits never exist all at once."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from stn_tune.nn.kernels.autocast import full_precision

Grads = tuple[Tensor | None, Tensor | None, Tensor | None]


def linear_cross_entropy(
    h: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    chunk: int = 384,
    *,
    ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:
    """``F.cross_entropy(F.linear(h, weight, bias), target)``, with the logits of ``chunk`` rows at a time.

    h ``(..., D)``; weight ``(V, D)``; target ``(...)``, classes below V; bias ``(V,)``. Returns the mean or
    the sum over the targets other than ``ignore_index``, or with ``"none"`` the losses in the shape of
    ``target``, 0 where ignored. The mean over no targets is nan, as in torch, and its gradient 0.

    The mean and the sum find their gradient during the forward pass, from the same logits, and scale it in
    the backward pass; ``"none"`` computes the logits again there. Differentiable once.
    """
    _check(h, weight, target, bias, chunk, reduction)
    counted = target.flatten() != ignore_index
    classes = target.flatten().where(counted, 0)
    if target.is_cpu:  # elsewhere this would wait for the device, and CUDA itself stops at a wrong index
        wrong = classes[(classes < 0) | (classes >= len(weight))]
        if len(wrong):
            raise ValueError(f"target {int(wrong[0])} is outside the vocabulary of {len(weight)} classes")
    with full_precision(h.device):
        arguments = (h.reshape(-1, h.shape[-1]).to(weight.dtype), weight, bias, classes, chunk)
        if reduction == "none":
            losses = cast(Tensor, _Losses.apply(*arguments))  # type: ignore[no-untyped-call]
            return losses.where(counted, 0).view_as(target)
        row_weight = counted.to(weight.dtype)
        if reduction == "mean":
            row_weight = row_weight / counted.sum().clamp(min=1)
        differentiate = torch.is_grad_enabled()
        loss = cast(Tensor, _WeightedLoss.apply(*arguments, row_weight, differentiate))  # type: ignore[no-untyped-call]
    return loss.where(counted.any(), torch.nan) if reduction == "mean" else loss


def _check(h: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, chunk: int, reduction: str) -> None:
    if h.dim() < 1 or weight.dim() != 2 or h.shape[-1] != weight.shape[1]:
        raise ValueError(f"h {tuple(h.shape)} and weight {tuple(weight.shape)} must be (..., D) and (V, D)")
    if target.shape != h.shape[:-1]:
        raise ValueError(f"target has shape {tuple(target.shape)}; h asks for {tuple(h.shape[:-1])}")
    if target.dtype != torch.int64:
        raise ValueError(f"target has dtype {target.dtype}; classes are torch.int64")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias has shape {tuple(bias.shape)}; weight asks for {tuple(weight.shape[:1])}")
    if chunk < 1:
        raise ValueError(f"chunk={chunk}: it must be at least 1")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction={reduction!r}: it must be 'mean', 'sum' or 'none'")


class _WeightedLoss(torch.autograd.Function):
    """Σ_n row_weight[n] loss[n]; its gradients are found on the way."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        chunk: int,
        row_weight: Tensor,
        differentiate: bool,
    ) -> Tensor:
        needs = ctx.needs_input_grad[:3] if differentiate else (False, False, False)
        losses, grads = _sweep(h, weight, bias, target, chunk, row_weight, needs)
        ctx.save_for_backward(*grads)
        return torch.dot(losses, row_weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        dh, dw, db = (None if g is None else g * grad for g in ctx.saved_tensors)
        return dh, dw, db, None, None, None, None


class _Losses(torch.autograd.Function):
    """loss[n] of all rows; the gradients take a second pass, weighted by those that arrive."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, chunk: int) -> Tensor:
        ctx.chunk = chunk
        ctx.save_for_backward(h, weight, bias, target)
        losses, _ = _sweep(h, weight, bias, target, chunk, h.new_ones(len(h)), (False, False, False))
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, weight, bias, target = ctx.saved_tensors
        _, (dh, dw, db) = _sweep(h, weight, bias, target, ctx.chunk, grad, ctx.needs_input_grad[:3])
        return dh, dw, db, None, None


def _sweep(
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    chunk: int,
    row_weight: Tensor,
    needs: tuple[bool, bool, bool],
) -> tuple[Tensor, Grads]:
    """The losses (N,), and the gradients of Σ_n row_weight[n] loss[n] in h, weight and bias where needed.

    For a row with logits z and target y let e = exp(z - max z) and Z = Σ e. Its loss is
    log Z - (z_y - max z), with the gradient (e - Z onehot(y)) / Z in z. The division and the row's weight are
    applied to the D columns of h and dh, not to the V columns of e.
    """
    losses = h.new_empty(len(h))
    dh = torch.empty_like(h) if needs[0] else None
    dw_transposed = h.new_zeros(h.shape[1], len(weight)) if needs[1] else None  # a third faster on the CPU
    db = h.new_zeros(len(weight)) if needs[2] else None
    logits = h.new_empty(min(chunk, len(h)), len(weight))
    for start in range(0, len(h), chunk):
        rows = slice(start, start + chunk)
        h_rows, y = h[rows], target[rows, None]
        e = logits[: len(h_rows)]
        if bias is None:
            torch.mm(h_rows, weight.t(), out=e)
        else:
            torch.addmm(bias, h_rows, weight.t(), out=e)
        e.sub_(e.amax(1, keepdim=True))
        z_y = e.gather(1, y)
        total = e.exp_().sum(1, keepdim=True)
        losses[rows] = (total.log() - z_y).squeeze(1)
        if not any(needs):
            continue
        e.scatter_add_(1, y, -total)
        factor = row_weight[rows, None] / total
        if dh is not None:
            torch.mm(e, weight, out=dh[rows]).mul_(factor)
        if dw_transposed is not None:
            dw_transposed.addmm_((h_rows * factor).t(), e)
        if db is not None:
            db.addmv_(e.t(), factor.squeeze(1))
    return losses, (dh, None if dw_transposed is None else dw_transposed.t().contiguous(), db)
