"""Eq. 10 of convolutions (appendix C)."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from stn_tune.nn.per_example import Draws, per_example


@per_example(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def conv(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, draws: Draws, input: Tensor) -> Tensor:
    """One scalar V δ_i per output channel scales the kernel's U; two convolutions are faster than one of twice the
    channels. x: ``(batch, channels, ...)``.
    """

    def convolve(weight: Tensor, bias: Tensor | None) -> Tensor:
        return cast(Tensor, cast(Any, layer)._conv_forward(input, weight, bias))

    output = convolve(layer.weight, layer.bias)
    if (u := draws.u("weight")) is not None:
        output = output.addcmul_(draws.spread(draws.scale("weight"), input, 1), convolve(u, None))
    if (u_bias := draws.u("bias")) is not None:
        output = output.add_(draws.spread(draws.scale("bias") * u_bias, input, 1))
    return output
