"""Linear maps in which every example scales the rows of the hyper weight by its own vector: Eq. 9 and 10.

Example b has the weight W_b = w + scale[b] ⊙row u, shared by its T steps:

    y[t, b] = W_b x[t, b]  =  w x[t, b] + scale[b] ⊙ (u x[t, b])

On the right are two products of all steps at once, twice the work of a plain layer. On the left is one
product per example, the work of a plain layer once W_b is written out. On the CPU a block of W_b is still in
the cache when it is read, and writing it pays when an example has enough steps to share it; elsewhere the
right side is computed. The gradients have the same two forms. Nothing here is recorded by autograd.

Shapes: x (T, B, D); w, u (R, D); scale (B, R); y and its gradient d (T, B, R).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

_BLOCK = 1 << 19
"""Entries of W_b written before they are read: 2 MB in single precision."""

_FEWEST_STEPS = 16
_LEAST_WORK = 1 << 20
"""Steps, and multiplications per example, that pay for W_b and for a Python loop over the examples."""


def per_example(steps: Tensor, w: Tensor) -> bool:
    """Whether W_b is written out, for steps (T, B, ·)."""
    return steps.is_cpu and len(steps) >= _FEWEST_STEPS and len(steps) * w.numel() >= _LEAST_WORK


def product(x: Tensor, w: Tensor, u: Tensor, scale: Tensor) -> Tensor:
    """y[t, b] = W_b x[t, b]."""
    y = x.new_empty(*x.shape[:2], len(w))
    if not per_example(x, w):
        flat = x.flatten(0, 1)
        torch.mm(flat, w.t(), out=y.flatten(0, 1))
        return y.addcmul_(torch.mm(flat, u.t()).view_as(y), scale)
    for b, rows, w_b in _example_weights(w, u, scale):
        torch.mm(x[:, b], w_b.t(), out=y[:, b, rows])
    return y


def input_grad(d: Tensor, w: Tensor, u: Tensor, scale: Tensor) -> Tensor:
    """dx[t, b] = W_bᵀ d[t, b]."""
    dx = d.new_empty(*d.shape[:2], w.shape[1])
    if not per_example(d, w):
        torch.mm(d.flatten(0, 1), w, out=dx.flatten(0, 1))
        dx.flatten(0, 1).addmm_(torch.mul(d, scale).flatten(0, 1), u)
        return dx
    for b, rows, w_b in _example_weights(w, u, scale):
        dx[:, b].addmm_(d[:, b, rows], w_b, beta=int(rows.start > 0))
    return dx


def weight_grads(
    d: Tensor, x: Tensor, u: Tensor, scale: Tensor, needs: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of w, u and scale, None where not needed. With dW_b = Σ_t d[t, b] x[t, b]ᵀ they are

    dw = Σ_b dW_b,  du = Σ_b scale[b] ⊙row dW_b,  dscale[b] = the sums of the rows of dW_b ⊙ u
    """
    need_w, need_u, need_scale = needs
    if not per_example(x, u):
        flat = x.flatten(0, 1)
        return (
            torch.mm(d.flatten(0, 1).t(), flat) if need_w else None,
            torch.mm(torch.mul(d, scale).flatten(0, 1).t(), flat) if need_u else None,
            torch.mm(flat, u.t()).view_as(d).mul_(d).sum(0) if need_scale else None,
        )
    dw = torch.zeros_like(u) if need_w else None
    du = torch.zeros_like(u) if need_u else None
    dscale = torch.empty_like(scale) if need_scale else None
    for rows in _row_blocks(u) if any(needs) else []:
        block = torch.empty_like(u[rows])
        for b in range(len(scale)):
            torch.mm(d[:, b, rows].t(), x[:, b], out=block)
            if dw is not None:
                dw[rows].add_(block)
            if du is not None:
                du[rows].addcmul_(block, scale[b, rows, None])
            if dscale is not None:
                torch.sum(block.mul_(u[rows]), 1, out=dscale[b, rows])
    return dw, du, dscale


def _row_blocks(w: Tensor) -> list[slice]:
    blocks = -(-w.numel() // _BLOCK)
    size = -(-len(w) // blocks)
    return [slice(start, start + size) for start in range(0, len(w), size)]


def _example_weights(w: Tensor, u: Tensor, scale: Tensor) -> Iterator[tuple[int, slice, Tensor]]:
    """Every block of rows of every W_b as (b, rows, block), each overwritten by the next."""
    for rows in _row_blocks(w):
        w_rows, u_rows = w[rows], u[rows]
        block = torch.empty_like(w_rows)
        for b, s in enumerate(scale[:, rows, None]):
            yield b, rows, torch.addcmul(w_rows, s, u_rows, out=block)
