"""HyperConv1d and HyperConv2d."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from stn_tune.hyper import Hyper
from stn_tune.nn.response import AffineLayer


class HyperConv(AffineLayer):
    """Appendix C: one scalar λᵀu per output channel scales the hyper kernel, λᵀa the hyper bias.

    2p + 2 n C_out parameters for a plain layer of p. Two convolutions are faster than one of twice the channels.
    """

    def _convolve(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return cast(Tensor, cast(Any, self)._conv_forward(input, weight, bias))

    def forward(self, input: Tensor) -> Tensor:
        lam = self.lam
        if lam.dim() == 1:
            return self._convolve(input, *self.weights())
        scale = self.scalars(self.V, lam, input, channel_dim=1)
        correction = self._convolve(input, self.hyper_weight, None)
        output = self._convolve(input, self.weight, self.bias).addcmul_(scale, correction)
        if self.bias is None:
            return output
        return output.add_(self.scalars(self.C * self.hyper_bias[:, None], lam, input, channel_dim=1))


class HyperConv1d(HyperConv, nn.Conv1d):
    """``nn.Conv1d`` whose kernels respond to the hyperparameters; x: ``(batch, channels, length)``."""

    def __init__(self, *args: Any, hyper: Hyper, **kwargs: Any):
        nn.Conv1d.__init__(self, *args, **kwargs)
        self._attach(hyper)


class HyperConv2d(HyperConv, nn.Conv2d):
    """``nn.Conv2d`` whose kernels respond to the hyperparameters; x: ``(batch, channels, height, width)``."""

    def __init__(self, *args: Any, hyper: Hyper, **kwargs: Any):
        nn.Conv2d.__init__(self, *args, **kwargs)
        self._attach(hyper)
