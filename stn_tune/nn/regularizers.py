"""Regularisers whose strength is a number, or one value per example: pure functions first, modules after.

A module takes a number, or the *name* of the hyperparameter that it reads. Strength 0 is exactly the identity.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stn_tune.errors import LayoutError
from stn_tune.hyper import Source, Value


def spread(value: Value, x: Tensor, batch_dim: int = 0) -> Value:
    """``value`` shaped to broadcast against x: ``(batch,)`` becomes ``(1, …, batch, …, 1)``."""
    if not isinstance(value, Tensor) or value.dim() == 0:
        return value
    if value.dim() != 1 or x.shape[batch_dim] != len(value):
        raise LayoutError(
            f"a strength of shape {tuple(value.shape)} does not fit dimension {batch_dim} of an input of shape "
            f"{tuple(x.shape)}: it must hold one value per example"
        )
    return value.view([len(value) if d == batch_dim % x.dim() else 1 for d in range(x.dim())])


def noise(shape: Sequence[int], rate: Value, like: Tensor) -> Tensor:
    """Dropout's multiplicative noise: 0 with probability ``rate``, else 1/(1 − rate). Broadcasts ``rate``."""
    if not isinstance(rate, Tensor):
        keep = 1.0 - rate
        mask = torch.empty(shape, dtype=like.dtype, device=like.device).bernoulli_(keep)
        return mask.div_(keep) if keep > 0 else mask
    drawn = torch.rand(shape, dtype=like.dtype, device=like.device)
    rate = rate.detach().to(like.dtype)
    return drawn.ge_(rate).mul_((1 - rate).clamp_min(torch.finfo(like.dtype).tiny).reciprocal())


def dropout(x: Tensor, rate: Value, training: bool = True, batch_dim: int = 0) -> Tensor:
    """Each element is zeroed with its example's rate, and the rest scaled by 1/(1 − rate)."""
    if not training or (not isinstance(rate, Tensor) and rate == 0):
        return x
    if not isinstance(rate, Tensor):
        return F.dropout(x, rate)
    return x * noise(x.shape, spread(rate, x, batch_dim), x)


def feature_dropout(x: Tensor, rate: Value, training: bool = True, batch_dim: int = 0) -> Tensor:
    """Whole channels of x ``(batch, channels, ...)`` are zeroed."""
    if not training or (not isinstance(rate, Tensor) and rate == 0):
        return x
    return x * noise(_per_channel(x), spread(rate, x, batch_dim), x)


dropout2d = feature_dropout


def alpha_dropout(x: Tensor, rate: Value, training: bool = True, batch_dim: int = 0) -> Tensor:
    """``F.alpha_dropout``: keeps mean and variance of self-normalising networks."""
    return _alpha(x, rate, training, batch_dim, x.shape)


def feature_alpha_dropout(x: Tensor, rate: Value, training: bool = True, batch_dim: int = 0) -> Tensor:
    """``F.feature_alpha_dropout``: whole channels."""
    return _alpha(x, rate, training, batch_dim, _per_channel(x))


SATURATED = -1.7580993408473766
"""The value of SELU far below 0, which takes the place of what is dropped."""


def _alpha(x: Tensor, rate: Value, training: bool, batch_dim: int, shape: Sequence[int]) -> Tensor:
    if not training or (not isinstance(rate, Tensor) and rate == 0):
        return x
    p = torch.as_tensor(spread(rate, x, batch_dim), dtype=x.dtype, device=x.device).detach()
    scale = ((SATURATED**2 * p + 1) * (1 - p)).clamp_min(torch.finfo(x.dtype).tiny).rsqrt()
    dropped = torch.rand(shape, dtype=x.dtype, device=x.device) < p
    return torch.where(dropped, SATURATED, x) * scale - SATURATED * p * scale


def _per_channel(x: Tensor) -> list[int]:
    return [*x.shape[:2], *[1] * (x.dim() - 2)]


def locked_dropout(x: Tensor, rate: Value, training: bool = True, time_dim: int = 0, batch_dim: int = 1) -> Tensor:
    """Variational dropout: one mask for all time steps of a sequence, x ``(time, batch, features)``."""
    if not training or (not isinstance(rate, Tensor) and rate == 0):
        return x
    shape = list(x.shape)
    shape[time_dim] = 1
    return x * noise(shape, spread(rate, x, batch_dim), x)


def embedding_dropout(
    vectors: Tensor,
    words: Tensor,
    rate: Value,
    num_embeddings: int,
    training: bool = True,
    batch_dim: int = 1,
) -> Tensor:
    """Drops whole words from all sequences of a batch: equal to zeroing rows of the embedding matrix.

    vectors ``(time, batch, dim)`` are the looked-up rows of ``words`` ``(time, batch)``. One uniform number is
    drawn per word of the vocabulary and compared with the rate, so the mask touches the looked-up rows only.
    """
    if not training or (not isinstance(rate, Tensor) and rate == 0):
        return vectors
    threshold = torch.rand(num_embeddings, dtype=vectors.dtype, device=vectors.device)[words]
    rate = spread(rate, words, batch_dim)
    if isinstance(rate, Tensor):
        rate = rate.detach().to(vectors.dtype)
        scale = (1 - rate).clamp_min(torch.finfo(vectors.dtype).tiny).reciprocal()
    else:
        scale = torch.as_tensor(1.0 / (1.0 - rate) if rate < 1 else 0.0, dtype=vectors.dtype).to(vectors.device)
    return vectors * ((threshold >= rate) * scale).unsqueeze(-1)


def drop_connect(weights: Sequence[Tensor], rate: Value, training: bool = True) -> list[Tensor]:
    """Zeroes weights instead of activations; all of ``weights`` (of one shape) get the same mask."""
    if not training or (not isinstance(rate, Tensor) and rate == 0):
        return list(weights)
    if isinstance(rate, Tensor) and rate.dim():
        raise LayoutError(
            "DropConnect acts on the weights, which the whole batch shares: its rate must be drawn once per batch; "
            "name it in per_batch=[...]"
        )
    mask = noise(weights[0].shape, rate, weights[0])
    return [weight * mask for weight in weights]


def activation_reg(h: Tensor, coefficient: Value, batch_dim: int = 1) -> Tensor:
    """AR: α · mean(h²), h the (dropped-out) output of the last LSTM layer (Merity et al., 2017)."""
    return (spread(coefficient, h, batch_dim) * h.square()).mean()


def temporal_activation_reg(h: Tensor, coefficient: Value, time_dim: int = 0, batch_dim: int = 1) -> Tensor:
    """TAR: β · mean((h_{t+1} − h_t)²); 0 for a sequence of one step."""
    if h.shape[time_dim] < 2:
        return h.new_zeros(())
    return activation_reg(h.diff(dim=time_dim), coefficient, batch_dim)


class Reader(nn.Module):
    """A module that reads hyperparameters by name from ``source``, set by ``self_tune`` or ``fix``.

    ``reads`` maps the module's attributes to what they hold: a number, or a hyperparameter's name.
    """

    reads: dict[str, float | str]
    source: Source | None = None
    path: str = ""

    def value(self, attribute: str) -> Value:
        held = self.reads[attribute]
        if not isinstance(held, str):
            return held
        if self.source is None:
            raise RuntimeError(
                f"{type(self).__name__} reads the hyperparameter {held!r}, but nothing sets it: pass the model "
                f"through stn_tune.self_tune(model, hyper) or stn_tune.fix(model, {{{held!r}: 0.5}})"
            )
        return self.source.current[held]

    @property
    def names(self) -> list[str]:
        return [held for held in self.reads.values() if isinstance(held, str)]

    def extra_repr(self) -> str:
        own = [f"{attribute}={held!r}" for attribute, held in self.reads.items()]
        return ", ".join(filter(None, [super().extra_repr(), *own]))


class Dropout(Reader):
    """:func:`dropout` with a rate, or the name of one: ``Dropout("dropout")``."""

    def __init__(self, rate: float | str, batch_dim: int = 0):
        super().__init__()
        self.reads = {"rate": checked_rate(rate)}
        self.batch_dim = batch_dim

    def forward(self, x: Tensor) -> Tensor:
        try:
            return dropout(x, self.value("rate"), True, self.batch_dim) if self.training else x
        except LayoutError as error:
            raise LayoutError(
                f"{self.path}: {error}; if another dimension is the batch, say so with batch_dim={{{self.path!r}: 1}}"
            ) from None


class Dropout2d(Reader):
    """:func:`dropout2d` with a rate, or the name of one."""

    def __init__(self, rate: float | str):
        super().__init__()
        self.reads = {"rate": checked_rate(rate)}

    def forward(self, x: Tensor) -> Tensor:
        return dropout2d(x, self.value("rate")) if self.training else x


class LockedDropout(Reader):
    """:func:`locked_dropout` with a rate, or the name of one."""

    def __init__(self, rate: float | str, batch_first: bool = False):
        super().__init__()
        self.reads = {"rate": checked_rate(rate)}
        self.time_dim, self.batch_dim = (1, 0) if batch_first else (0, 1)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return locked_dropout(x, self.value("rate"), True, self.time_dim, self.batch_dim)


class EmbeddingDropout(Reader):
    """:func:`embedding_dropout` with a rate, or the name of one: ``drop(embedding(words), words)``."""

    def __init__(self, rate: float | str, num_embeddings: int, batch_first: bool = False):
        super().__init__()
        self.reads = {"rate": checked_rate(rate)}
        self.num_embeddings = num_embeddings
        self.batch_dim = 0 if batch_first else 1

    def forward(self, vectors: Tensor, words: Tensor) -> Tensor:
        if not self.training:
            return vectors
        return embedding_dropout(vectors, words, self.value("rate"), self.num_embeddings, batch_dim=self.batch_dim)


def checked_rate(rate: float | str) -> float | str:
    """A rate within [0, 1], or the name of one."""
    if not isinstance(rate, str) and not 0 <= rate <= 1:
        raise ValueError(f"dropout rate {rate} is outside [0, 1]")
    return rate
