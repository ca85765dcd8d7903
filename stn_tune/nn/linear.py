"""HyperLinear."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stn_tune.hyper import Hyper
from stn_tune.nn.layer import HyperLayer


class HyperLinear(HyperLayer, nn.Linear):
    """``nn.Linear`` whose weights respond to the hyperparameters, D_out(2 D_in + n) + D_out(2 + n) parameters.

    x: ``(batch, ..., in_features)`` -> ``(batch, ..., out_features)``.

    Eq. 10, for example i: [W x_i + b] + [(V λ_i) ⊙ (W_hyper x_i) + (C λ_i) ⊙ b_hyper]
    """

    V: Tensor
    C: Tensor
    hyper_weight: Tensor
    hyper_bias: Tensor

    def __init__(self, in_features: int, out_features: int, hyper: Hyper, bias: bool = True, **layout: Any):
        nn.Linear.__init__(self, in_features, out_features, bias)
        self._attach(hyper, **layout)

    def _init_hyper(self, n: int) -> None:
        self._twin("hyper_weight", self.weight, self.in_features)
        self._gate("V", self.out_features, n, self.weight)
        if self.bias is not None:
            self._twin("hyper_bias", self.bias, self.in_features)
            self._gate("C", self.out_features, n, self.weight)

    def materialize(self, lam: Tensor) -> tuple[Tensor, Tensor | None]:
        weight = torch.addcmul(self.weight, (self.V @ lam)[:, None], self.hyper_weight)
        if self.bias is None:
            return weight, None
        return weight, torch.addcmul(self.bias, self.C @ lam, self.hyper_bias)

    def forward(self, input: Tensor) -> Tensor:
        lam = self.source.current.unconstrained
        if lam.dim() == 1:
            return F.linear(input, *self.weights())
        scale = self.scalars(self.V, lam, input)
        correction = F.linear(input, self.hyper_weight)
        if self.bias is None:
            return torch.addcmul(F.linear(input, self.weight), scale, correction)
        bias = torch.addcmul(self.bias, self.scalars(self.C, lam, input), self.hyper_bias)
        if input.dim() == 2:
            return torch.addcmul(torch.addmm(bias, input, self.weight.t()), scale, correction)
        return torch.addcmul(F.linear(input, self.weight) + bias, scale, correction)
