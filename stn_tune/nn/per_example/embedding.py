"""Eq. 10 of ``nn.Embedding``."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stn_tune.nn.per_example import Draws, per_example


@per_example(nn.Embedding, supports=lambda layer: not layer.sparse and layer.max_norm is None)
def embedding(layer: nn.Embedding, draws: Draws, input: Tensor) -> Tensor:
    """An embedding is a linear layer on one-hot words: word w of example i becomes E[w] + (V δ_i) ⊙ U[w]."""

    def lookup(weight: Tensor) -> Tensor:
        return F.embedding(
            input, weight, layer.padding_idx, None, layer.norm_type, layer.scale_grad_by_freq, layer.sparse
        )

    u = draws.u("weight")
    assert u is not None
    plain = lookup(layer.weight)
    return torch.addcmul(plain, draws.spread(draws.scale("weight"), plain), lookup(u))
