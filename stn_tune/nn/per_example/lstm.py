"""LSTM with DropConnect on its hidden-to-hidden weights, and its self-tuning counterpart HyperLSTM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from stn_tune.errors import LayoutError
from stn_tune.hyper import Hyper
from stn_tune.nn.kernels.recurrence import lstm_layer
from stn_tune.nn.regularizers import Reader, checked_rate, drop_connect
from stn_tune.nn.response import Fold, HyperLayer, row_scaled

State = tuple[Tensor, Tensor]


class LSTM(Reader, nn.LSTM):
    """``nn.LSTM`` with DropConnect: ``weight_dropout`` is a rate, or the name of one (drawn once per batch)."""

    def __init__(self, *args: Any, weight_dropout: float | str = 0.0, **kwargs: Any):
        nn.LSTM.__init__(self, *args, **kwargs)
        self.reads = {"weight_dropout": checked_rate(weight_dropout)}

    def forward(self, input: Tensor, hx: State | None = None) -> tuple[Tensor, State]:  # type: ignore[override]
        if not self.training and torch.is_grad_enabled() and input.is_cuda:
            return self._run(input, hx, [self.get_parameter(name) for name in self._flat_weights_names])
        if not self.training or self.reads["weight_dropout"] == 0:
            return nn.LSTM.forward(self, input, hx)
        weights: dict[str, Tensor] = {name: self.get_parameter(name) for name in self._flat_weights_names}
        for name in weights:
            if name.startswith("weight_hh"):
                (weights[name],) = drop_connect([weights[name]], self.value("weight_dropout"))
        return self._run(input, hx, list(weights.values()))

    def _run(self, input: Tensor, hx: State | None, weights: list[Tensor]) -> tuple[Tensor, State]:
        """torch's own kernel on weights that are not this module's parameters."""
        hx = self._state(input, hx)
        # cuDNN differentiates only in training mode; dropout is switched off by its rate instead.
        train = self.training or torch.is_grad_enabled()
        dropout = self.dropout if self.training else 0.0
        output, h, c = torch.lstm(
            input,
            hx,
            weights,
            self.bias,
            self.num_layers,
            dropout,
            train,
            self.bidirectional,
            self.batch_first,
        )
        return output, (h, c)

    def _state(self, input: Tensor, hx: State | None) -> State:
        """The hidden state, zeros where there is none; ``(layers, batch, hidden)`` twice."""
        if isinstance(input, PackedSequence) or input.dim() != 3:
            kind = "a PackedSequence" if isinstance(input, PackedSequence) else f"{input.dim()}-D"
            raise LayoutError(f"{type(self).__name__}: the input is {kind}; pass a padded 3-D batch")
        if hx is not None:
            return hx
        layers = self.num_layers * (2 if self.bidirectional else 1)
        batch = input.shape[0 if self.batch_first else 1]
        return (
            input.new_zeros(layers, batch, self.proj_size or self.hidden_size),
            input.new_zeros(layers, batch, self.hidden_size),
        )


class HyperLSTM(HyperLayer, LSTM):  # type: ignore[misc]  # one source, which both bases read
    """LSTM whose weights respond to the hyperparameters; follows ``nn.LSTM``'s arguments and ``batch_first``.

    A layer's input-to-hidden and hidden-to-hidden weights are one matrix [W_ih W_hh] of 4H rows in Eq. 9, with one
    row scale Vλ and one hyper bias. DropConnect draws one mask for W_hh and its hyper counterpart.
    """

    def __init__(self, *args: Any, hyper: Hyper, **kwargs: Any):
        LSTM.__init__(self, *args, **kwargs)
        self._attach(hyper)

    def _attach(self, hyper: Hyper, name: str = "", batch_dim: int | None = None, fold: Fold | None = None) -> None:
        if "reads" not in self.__dict__:
            self.reads = {"weight_dropout": 0.0}
        if batch_dim is not None or fold is not None:
            raise LayoutError(f"{name}: an LSTM's batch dimension is set by its batch_first")
        super()._attach(hyper, name, 0 if self.batch_first else 1)

    @staticmethod
    def check(layer: nn.Module, name: str, batch_dim: int | None, fold: Fold | None) -> None:
        HyperLayer.check(layer, name, batch_dim, fold)
        if layer.bidirectional or layer.proj_size:
            option = "bidirectional=True" if layer.bidirectional else f"proj_size={layer.proj_size}"
            raise LayoutError(f"{name}: HyperLSTM has no {option}; exclude this layer")

    def _init_hyper(self, n: int) -> None:
        for k in range(self.num_layers):
            for side in ("ih", "hh"):
                like = self.get_parameter(f"weight_{side}_l{k}")
                self._twin(f"hyper_weight_{side}_l{k}", like, self.hidden_size)
            self._gate(f"V_l{k}", 4 * self.hidden_size, n, like)
            if self.bias:
                self._twin(f"hyper_bias_l{k}", self.get_parameter(f"bias_hh_l{k}"), self.hidden_size)
                self._gate(f"C_l{k}", 4 * self.hidden_size, n, like)

    def _parts(self, k: int, *names: str) -> list[Tensor]:
        return [getattr(self, f"{name}_l{k}") for name in names]

    def materialize(self, lam: Tensor) -> list[Tensor]:
        weights = []
        for k in range(self.num_layers):
            w_ih, w_hh, u_ih, u_hh, v = self._parts(
                k, "weight_ih", "weight_hh", "hyper_weight_ih", "hyper_weight_hh", "V"
            )
            weights += [row_scaled(w_ih, v @ lam, u_ih), row_scaled(w_hh, v @ lam, u_hh)]
            if self.bias:
                b_ih, b_hh, b_hyper, c = self._parts(k, "bias_ih", "bias_hh", "hyper_bias", "C")
                weights += [torch.addcmul(b_ih, c @ lam, b_hyper), b_hh]
        return weights

    def forward(self, input: Tensor, hx: State | None = None) -> tuple[Tensor, State]:  # type: ignore[override]
        lam = self.lam
        if lam.dim() == 1:
            weights = list(self.weights())
            if self.training:
                step = 4 if self.bias else 2
                for i in range(1, len(weights), step):
                    (weights[i],) = drop_connect([weights[i]], self.value("weight_dropout"))
            return self._run(input, hx, weights)
        h0, c0 = self._state(input, hx)
        x = input.transpose(0, 1) if self.batch_first else input
        last: list[State] = []
        for k in range(self.num_layers):
            w_ih, w_hh, u_ih, u_hh, v = self._parts(
                k, "weight_ih", "weight_hh", "hyper_weight_ih", "hyper_weight_hh", "V"
            )
            if self.training:
                w_hh, u_hh = drop_connect([w_hh, u_hh], self.value("weight_dropout"))
            scale = self._rows(lam @ v.t(), x.shape[1])
            bias = None
            if self.bias:
                b_ih, b_hh, b_hyper, c = self._parts(k, "bias_ih", "bias_hh", "hyper_bias", "C")
                bias = torch.addcmul(b_ih + b_hh, lam @ c.t(), b_hyper)
            if k and self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            x, h, c_n = lstm_layer(x, h0[k], c0[k], w_ih, u_ih, w_hh, u_hh, scale, bias)
            last.append((h, c_n))
        state = torch.stack([h for h, _ in last]), torch.stack([c for _, c in last])
        return (x.transpose(0, 1) if self.batch_first else x), state

    def _blocks(self) -> Sequence[tuple[Tensor, Tensor, Tensor, Tensor]]:
        blocks = []
        for k in range(self.num_layers):
            for side in ("ih", "hh"):
                w, u, v = self._parts(k, f"weight_{side}", f"hyper_weight_{side}", "V")
                blocks.append((w, w, u, v))
            if self.bias:
                b_ih, b_hh, b_hyper, c = self._parts(k, "bias_ih", "bias_hh", "hyper_bias", "C")
                blocks.append((b_ih, b_ih[:, None], b_hyper[:, None], c))
                blocks.append((b_hh, b_hh[:, None], torch.zeros_like(b_hh)[:, None], c))
        return blocks
