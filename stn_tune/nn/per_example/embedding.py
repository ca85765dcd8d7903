"""HyperEmbedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stn_tune.errors import LayoutError
from stn_tune.hyper import Hyper
from stn_tune.nn.response import Fold, HyperLayer


class HyperEmbedding(HyperLayer, nn.Embedding):
    """``nn.Embedding`` whose vectors respond to the hyperparameters.

    An embedding is a linear layer on one-hot words without bias, so Eq. 9's row scale is one scalar per embedding
    dimension: word w of example i becomes E[w] + (V λ_i) ⊙ E_hyper[w], with V of shape ``(dim, n)``.
    """

    V: Tensor
    hyper_weight: Tensor

    def __init__(self, num_embeddings: int, embedding_dim: int, hyper: Hyper, **kwargs: Any):
        layout = {key: kwargs.pop(key) for key in ("batch_dim", "fold", "name") if key in kwargs}
        nn.Embedding.__init__(self, num_embeddings, embedding_dim, **kwargs)
        self._attach(hyper, **layout)

    @staticmethod
    def check(layer: nn.Module, name: str, batch_dim: int | None, fold: Fold | None) -> None:
        HyperLayer.check(layer, name, batch_dim, fold)
        if layer.sparse:
            raise LayoutError(f"{name}: a hyper layer cannot be sparse; use sparse=False, or exclude it")
        if layer.max_norm is not None:
            raise LayoutError(
                f"{name}: max_norm={layer.max_norm} would renormalise the elementary rows alone; "
                f"use max_norm=None, or exclude this layer"
            )

    def _init_hyper(self, n: int) -> None:
        self._twin("hyper_weight", self.weight, self.embedding_dim)
        self._gate("V", self.embedding_dim, n, self.weight)
        if self.padding_idx is not None:
            with torch.no_grad():
                self.hyper_weight[self.padding_idx].zero_()

    def _lookup(self, input: Tensor, weight: Tensor) -> Tensor:
        return F.embedding(input, weight, self.padding_idx, None, self.norm_type, self.scale_grad_by_freq, self.sparse)

    def materialize(self, lam: Tensor) -> Tensor:
        return torch.addcmul(self.weight, self.V @ lam, self.hyper_weight)

    def forward(self, input: Tensor) -> Tensor:
        lam = self.lam
        plain, correction = self._lookup(input, self.weight), self._lookup(input, self.hyper_weight)
        scale = self.V @ lam if lam.dim() == 1 else self.scalars(self.V, lam, plain)
        return torch.addcmul(plain, scale, correction)

    def _blocks(self) -> Sequence[tuple[Tensor, Tensor, Tensor, Tensor]]:
        return [(self.weight, self.weight.t(), self.hyper_weight.t(), self.V)]
