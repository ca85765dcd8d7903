"""Penalties on the weights of a model, self-tuned or not."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stn_tune.hyper import Value
from stn_tune.nn.first_order import first_order
from stn_tune.nn.response import PER_EXAMPLE, SelfTuning


def l2(module: nn.Module, coefficient: Value) -> Tensor:
    """½ · coefficient · ‖w‖² over all parameters: torch's ``weight_decay`` as a term of the loss.

    Where the model is self-tuned, w is ŵ(λ+ε), with one draw per example that of each example, and the mean over
    examples is returned. The responses themselves are not penalised; a sum over ``model.parameters()`` would.
    """
    own = {id(p) for m in module.modules() if isinstance(m, SelfTuning) for p in m.parameters()}
    terms: list[Tensor] = []
    for p in module.parameters():
        if id(p) in own:
            continue
        if id(p) in PER_EXAMPLE:
            response, delta = PER_EXAMPLE[id(p)]
            terms.append(response.squared_norm(p, first_order(delta)))
        else:
            terms.append(first_order(torch.view_as_real(p) if p.is_complex() else p).square().sum())
    if not terms:
        raise ValueError(f"l2: {type(module).__name__} has no parameters to penalise")
    return 0.5 * (coefficient * sum(terms[1:], terms[0])).mean()
