"""Eq. 10 of ``nn.Linear``."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear  # nn.MultiheadAttention reads it and never calls it

from stn_tune.nn.per_example import Draws, per_example


@per_example(nn.Linear, supports=lambda layer: not isinstance(layer, NonDynamicallyQuantizableLinear))
def linear(layer: nn.Linear, draws: Draws, input: Tensor) -> Tensor:
    """For example i: [W x_i + b] + [(V δ_i) ⊙ (U x_i) + (V_b δ_i) ⊙ u_b].

    x: ``(batch, ..., in_features)`` -> ``(batch, ..., out_features)``.
    """
    bias: Tensor | None = layer.bias
    if (u_bias := draws.u("bias")) is not None:
        bias = torch.addcmul(layer.bias, draws.spread(draws.scale("bias"), input), u_bias)
    if bias is not None and input.dim() == 2 and bias.dim() == 2:
        output = torch.addmm(bias, input, layer.weight.t())
    else:
        output = F.linear(input, layer.weight)
        output = output if bias is None else output + bias
    if (u := draws.u("weight")) is None:
        return output
    return output.addcmul_(draws.spread(draws.scale("weight"), input), F.linear(input, u))
