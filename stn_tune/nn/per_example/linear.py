"""HyperLinear."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stn_tune.hyper import Hyper
from stn_tune.nn.response import AffineLayer


class HyperLinear(AffineLayer, nn.Linear):
    """``nn.Linear`` whose weights respond to the hyperparameters, D_out(2 D_in + n) + D_out(2 + n) parameters.

    x: ``(batch, ..., in_features)`` -> ``(batch, ..., out_features)``.

    Eq. 10, for example i: [W x_i + b] + [(V λ_i) ⊙ (W_hyper x_i) + (C λ_i) ⊙ b_hyper]
    """

    def __init__(self, in_features: int, out_features: int, hyper: Hyper, bias: bool = True, **layout: Any):
        nn.Linear.__init__(self, in_features, out_features, bias)
        self._attach(hyper, **layout)

    def forward(self, input: Tensor) -> Tensor:
        lam = self.lam
        if lam.dim() == 1:
            return F.linear(input, *self.weights())
        scale = self.scalars(self.V, lam, input)
        correction = F.linear(input, self.hyper_weight)
        if self.bias is None:
            return F.linear(input, self.weight).addcmul_(scale, correction)
        bias = torch.addcmul(self.bias, self.scalars(self.C, lam, input), self.hyper_bias)
        if input.dim() == 2:
            return torch.addmm(bias, input, self.weight.t()).addcmul_(scale, correction)
        return (F.linear(input, self.weight) + bias).addcmul_(scale, correction)
