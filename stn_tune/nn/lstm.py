"""LSTM with DropConnect on its hidden-to-hidden weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from stn_tune.errors import LayoutError
from stn_tune.nn.regularizers import Reader, checked_rate, drop_connect

State = tuple[Tensor, Tensor]


class LSTM(Reader, nn.LSTM):
    """``nn.LSTM`` with DropConnect: ``weight_dropout`` is a rate, or the name of one (drawn once per batch)."""

    def __init__(self, *args: Any, weight_dropout: float | str = 0.0, **kwargs: Any):
        nn.LSTM.__init__(self, *args, **kwargs)
        self.reads = {"weight_dropout": checked_rate(weight_dropout)}

    def forward(self, input: Tensor, hx: State | None = None) -> tuple[Tensor, State]:  # type: ignore[override]
        """As ``nn.LSTM``; in training mode with a part of the hidden-to-hidden weights zeroed."""
        differentiated = torch.is_grad_enabled() and input.is_cuda  # cuDNN refuses to in eval mode
        dropped = self.training and self.reads["weight_dropout"] != 0
        if not dropped and (self.training or not differentiated):
            return nn.LSTM.forward(self, input, hx)
        weights: dict[str, Tensor] = {name: getattr(self, name) for name in self._flat_weights_names}
        for name in weights:
            if dropped and name.startswith("weight_hh"):
                (weights[name],) = drop_connect([weights[name]], self.value("weight_dropout"))
        hx = initial_state(self, input, hx)
        output, h, c = torch.lstm(
            input,
            hx,
            list(weights.values()),
            self.bias,
            self.num_layers,
            self.dropout if self.training else 0.0,
            True,
            self.bidirectional,
            self.batch_first,
        )
        return output, (h, c)


def initial_state(layer: nn.LSTM, input: Tensor, hx: State | None) -> State:
    """The hidden state, zeros where there is none; ``(layers, batch, hidden)`` twice."""
    if isinstance(input, PackedSequence) or input.dim() != 3:
        kind = "a PackedSequence" if isinstance(input, PackedSequence) else f"{input.dim()}-D"
        raise LayoutError(f"{type(layer).__name__}: the input is {kind}; pass a padded 3-D batch, or use draw='batch'")
    if hx is not None:
        return hx
    layers = layer.num_layers * (2 if layer.bidirectional else 1)
    batch = input.shape[0 if layer.batch_first else 1]
    return (
        input.new_zeros(layers, batch, layer.proj_size or layer.hidden_size),
        input.new_zeros(layers, batch, layer.hidden_size),
    )
