"""HyperConv1d and HyperConv2d."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from stn_tune.hyper import Hyper
from stn_tune.nn.layer import HyperLayer


class _HyperConv(HyperLayer):
    """Appendix C: one scalar λᵀu per output channel scales the hyper kernel, λᵀa the hyper bias.

    2p + 2 n C_out parameters for a plain layer of p. Two convolutions are faster than one of twice the channels.
    """

    V: Tensor
    C: Tensor
    hyper_weight: Tensor
    hyper_bias: Tensor

    def _init_hyper(self, n: int) -> None:
        fan_in = self.weight[0].numel()
        self._twin("hyper_weight", self.weight, fan_in)
        self._gate("V", self.out_channels, n, self.weight)
        if self.bias is not None:
            self._twin("hyper_bias", self.bias, fan_in)
            self._gate("C", self.out_channels, n, self.weight)

    def materialize(self, lam: Tensor) -> tuple[Tensor, Tensor | None]:
        scale = (self.V @ lam).view(-1, *[1] * (self.weight.dim() - 1))
        weight = torch.addcmul(self.weight, scale, self.hyper_weight)
        if self.bias is None:
            return weight, None
        return weight, torch.addcmul(self.bias, self.C @ lam, self.hyper_bias)

    def forward(self, input: Tensor) -> Tensor:
        lam = self.source.current.unconstrained
        if lam.dim() == 1:
            return self._conv_forward(input, *self.weights())
        scale = self.scalars(self.V, lam, input, channel_dim=1)
        plain = self._conv_forward(input, self.weight, self.bias)
        correction = self._conv_forward(input, self.hyper_weight, None)
        output = torch.addcmul(plain, scale, correction)
        if self.bias is None:
            return output
        shift = self.scalars(self.C * self.hyper_bias[:, None], lam, input, channel_dim=1)
        return output.add_(shift)


class HyperConv1d(_HyperConv, nn.Conv1d):
    """``nn.Conv1d`` whose kernels respond to the hyperparameters; x: ``(batch, channels, length)``."""

    def __init__(self, *args: Any, hyper: Hyper, **kwargs: Any):
        nn.Conv1d.__init__(self, *args, **kwargs)
        self._attach(hyper)


class HyperConv2d(_HyperConv, nn.Conv2d):
    """``nn.Conv2d`` whose kernels respond to the hyperparameters; x: ``(batch, channels, height, width)``."""

    def __init__(self, *args: Any, hyper: Hyper, **kwargs: Any):
        nn.Conv2d.__init__(self, *args, **kwargs)
        self._attach(hyper)
