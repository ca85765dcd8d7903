"""What all hyper layers share: the structured best response of Eq. 9."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from stn_tune.errors import LayoutError
from stn_tune.hyper import Hyper

Fold = Literal["inner", "outer"]
"""How a layer's leading dimension holds more rows than the batch has examples: ``(batch, k)`` flattened keeps an
example's rows together (``inner``), ``(k, batch)`` flattened repeats the batch k times (``outer``)."""


class HyperLayer(nn.Module):
    """Mixin: Ŵ(λ) = W_elem + (Vλ) ⊙row W_hyper, b̂(λ) = b_elem + (Cλ) ⊙ b_hyper   (Eq. 9).

    W_elem and b_elem are the plain layer's own ``weight`` and ``bias``, so a converted layer keeps its weights,
    its ties and its place in the state dict. A layer reads λ+ε from ``source.current``.
    """

    source: Hyper
    qualified_name: str
    batch_dim: int
    fold: Fold | None

    def _attach(self, hyper: Hyper, name: str = "", batch_dim: int | None = None, fold: Fold | None = None) -> None:
        """Makes this plain layer a hyper layer. ``hyper`` is a reference, not a submodule: λ is no weight."""
        self.check(self, name or type(self).__name__, batch_dim, fold)
        object.__setattr__(self, "source", hyper)
        self.qualified_name = name or type(self).__name__
        self.batch_dim = 0 if batch_dim is None else batch_dim
        self.fold = fold
        self._init_hyper(len(hyper.space))

    @staticmethod
    def check(layer: nn.Module, name: str, batch_dim: int | None, fold: Fold | None) -> None:
        """Raises if the plain ``layer`` has a setting that its hyper counterpart cannot honour."""
        if fold not in (None, "inner", "outer"):
            raise LayoutError(f"{name}: fold={fold!r}; it must be 'inner' or 'outer'")

    def _init_hyper(self, n: int) -> None:
        """Adds the hyper weights and the gates V and C for n hyperparameters."""
        raise NotImplementedError

    @torch.no_grad()
    def _gate(self, name: str, rows: int, n: int, like: Tensor) -> None:
        """A map from λ to one scalar per row, ``(rows, n)``, initialised as in the paper's listings."""
        self.register_parameter(name, nn.Parameter(torch.empty(rows, n, dtype=like.dtype, device=like.device)))
        self.get_parameter(name).normal_(std=0.01)

    @torch.no_grad()
    def _twin(self, name: str, like: Tensor, fan_in: int) -> None:
        """A hyper weight beside an elementary one of the same shape, uniform in ±1/√fan_in."""
        bound = 1 / math.sqrt(fan_in)
        self.register_parameter(name, nn.Parameter(torch.empty_like(like).uniform_(-bound, bound)))

    @property
    def lam(self) -> Tensor:
        """λ+ε of the sample in use, in the precision of the weights: ``(batch, n)``, or ``(n,)`` where it is shared."""
        return self.source.current.unconstrained.to(next(self.parameters(recurse=False)).dtype)

    def scalars(self, gate: Tensor, lam: Tensor, x: Tensor, channel_dim: int = -1) -> Tensor:
        """Vλ for every row of x, shaped to broadcast against the layer's output: ``gate`` is V or C."""
        per_row = self._rows(lam @ gate.t(), x.shape[self.batch_dim] if x.dim() else 0)
        shape = [1] * x.dim()
        shape[self.batch_dim] = per_row.shape[0]
        shape[channel_dim] = per_row.shape[1]
        return per_row.view(shape)

    def _rows(self, per_example: Tensor, rows: int) -> Tensor:
        batch = per_example.shape[0]
        if rows == batch:
            return per_example
        if self.fold is not None and rows % batch == 0:
            k = rows // batch
            return per_example.repeat_interleave(k, 0) if self.fold == "inner" else per_example.repeat(k, 1)
        raise LayoutError(
            f"{self.qualified_name}: dimension {self.batch_dim} of its input has size {rows}, but the batch has "
            f"{batch} examples; if it holds several rows per example, say so with "
            f"fold={{'{self.qualified_name}': 'inner'}} ('outer' if the batch is repeated as a whole), "
            f"if the batch is another dimension, with batch_dim={{'{self.qualified_name}': 1}}"
        )

    def materialize(self, lam: Tensor) -> Any:
        """The plain layer's weights Ŵ(λ) for one λ of shape ``(n,)``."""
        raise NotImplementedError

    def weights(self) -> Any:
        """:meth:`materialize` at the shared λ in use, computed once for as long as nothing has changed."""
        sample = self.source.current
        parameters = list(self.parameters(recurse=False))
        state = (torch.is_grad_enabled(), *[(p._version, p.data_ptr()) for p in parameters])
        known = sample.materialized.get(id(self))
        if known is None or known[0] != state:
            sample.materialized[id(self)] = known = (state, self.materialize(self.lam))
        return known[1]

    def squared_norm(self, counted: set[int] | None = None) -> Tensor:
        """‖Ŵ(λ+ε)‖² + ‖b̂(λ+ε)‖² of the sample in use: ``(batch,)``, or 0-d where λ is shared.

        Parameters whose ``id`` is in ``counted`` are left out, and the others entered: tied weights count once.
        """
        counted = set() if counted is None else counted
        lam = self.lam
        total = lam.new_zeros(lam.shape[:-1])
        for parameter, elementary, hyper, gate in self._blocks():
            if id(parameter) not in counted:
                counted.add(id(parameter))
                s = lam @ gate.t()
                constant, linear = elementary.square().sum(1), (elementary * hyper).sum(1)
                total = total + (constant + 2 * s * linear + s.square() * hyper.square().sum(1)).sum(-1)
        return total

    def _blocks(self) -> Sequence[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Every elementary parameter with its elementary and hyper ``(rows, -1)`` matrix and its gate."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, hyperparameters={len(self.source.space)}"


class _RowScaled(torch.autograd.Function):
    """``addcmul`` with a backward pass that reads the weights once, block by block, and needs no large buffer."""

    BLOCK = 1 << 18

    @staticmethod
    def forward(ctx: Any, elementary: Tensor, scale: Tensor, hyper: Tensor) -> Tensor:
        ctx.save_for_backward(scale, hyper)
        return torch.addcmul(elementary, scale.view(-1, *[1] * (hyper.dim() - 1)), hyper)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        scale, hyper = ctx.saved_tensors
        need, need_scale, need_hyper = ctx.needs_input_grad
        d_hyper = torch.empty_like(hyper, memory_format=torch.contiguous_format) if need_hyper else None
        d_scale = torch.empty_like(scale) if need_scale else None
        rows = max(1, _RowScaled.BLOCK // hyper[0].numel()) if hyper.is_cpu else len(hyper)
        flat, flat_hyper = d.reshape(len(d), -1), hyper.reshape(len(hyper), -1)
        for start in range(0, len(hyper), rows):
            block = slice(start, start + rows)
            if d_scale is not None:
                torch.sum(flat[block] * flat_hyper[block], 1, out=d_scale[block])
            if d_hyper is not None:
                torch.mul(flat[block], scale[block, None], out=d_hyper.view(len(hyper), -1)[block])
        return d if need else None, d_scale, d_hyper


def row_scaled(elementary: Tensor, scale: Tensor, hyper: Tensor) -> Tensor:
    """W_elem + scale ⊙row W_hyper, for weights whose leading dimension is the rows."""
    return cast(Tensor, _RowScaled.apply(elementary, scale, hyper))  # type: ignore[no-untyped-call]


class AffineLayer(HyperLayer):
    """Hyper layers with one weight, whose leading dimension is the output's, and perhaps one bias."""

    weight: Tensor
    bias: Any
    hyper_weight: nn.Parameter
    hyper_bias: nn.Parameter
    V: nn.Parameter
    C: nn.Parameter

    def _init_hyper(self, n: int) -> None:
        rows, fan_in = len(self.weight), self.weight[0].numel()
        self._twin("hyper_weight", self.weight, fan_in)
        self._gate("V", rows, n, self.weight)
        if self.bias is not None:
            self._twin("hyper_bias", self.bias, fan_in)
            self._gate("C", rows, n, self.weight)

    def materialize(self, lam: Tensor) -> tuple[Tensor, Tensor | None]:
        weight = row_scaled(self.weight, self.V @ lam, self.hyper_weight)
        if self.bias is None:
            return weight, None
        return weight, torch.addcmul(self.bias, self.C @ lam, self.hyper_bias)

    def _blocks(self) -> Sequence[tuple[Tensor, Tensor, Tensor, Tensor]]:
        blocks: list[tuple[Tensor, Tensor, Tensor, Tensor]]
        blocks = [(self.weight, self.weight.flatten(1), self.hyper_weight.flatten(1), self.V)]
        if self.bias is not None:
            blocks.append((self.bias, self.bias[:, None], self.hyper_bias[:, None], self.C))
        return blocks
