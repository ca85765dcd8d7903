"""Eq. 10 of ``nn.LSTM``, and of ours with DropConnect."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stn_tune.nn.first_order import is_dual
from stn_tune.nn.kernels.recurrence import lstm_layer
from stn_tune.nn.lstm import LSTM, State, initial_state
from stn_tune.nn.per_example import Draws, per_example
from stn_tune.nn.regularizers import drop_connect


def _one_directional(layer: nn.Module) -> bool:
    return not layer.bidirectional and not layer.proj_size


@per_example(nn.LSTM, LSTM, supports=_one_directional)
def lstm(layer: nn.LSTM, draws: Draws, input: Tensor, hx: State | None = None) -> tuple[Tensor, State]:
    """Every layer's two matrices and two biases each have a row scale of their own; DropConnect draws one mask for W_hh
    and its U.
    """
    h0, c0 = initial_state(layer, input, hx)
    x = input.transpose(0, 1) if layer.batch_first else input
    last: list[State] = []
    for k in range(layer.num_layers):
        weights, scales = [], []
        for side in ("ih", "hh"):
            name = f"weight_{side}_l{k}"
            w, u = getattr(layer, name), draws.u(name)
            scale = w.new_zeros(draws.batch_size, len(w)) if u is None else draws.scale(name)
            pair = [w, torch.zeros_like(w) if u is None else u]
            if side == "hh" and isinstance(layer, LSTM) and layer.training:
                pair = drop_connect(pair, layer.value("weight_dropout"))
            weights += pair
            scales.append(scale)
        bias = None
        for side in ("ih", "hh") if layer.bias else ():
            name = f"bias_{side}_l{k}"
            own, u = getattr(layer, name), draws.u(name)
            own = own if u is None else torch.addcmul(own, draws.scale(name), u)
            bias = own if bias is None else bias + own
        if k and layer.dropout:
            x = F.dropout(x, layer.dropout, layer.training)
        w_ih, u_ih, w_hh, u_hh = weights
        compute = _by_steps if is_dual(scales[0]) else lstm_layer
        x, h, c = compute(x, h0[k], c0[k], w_ih, u_ih, w_hh, u_hh, scales[0], scales[1], bias)
        last.append((h, c))
    state = torch.stack([h for h, _ in last]), torch.stack([c for _, c in last])
    return (x.transpose(0, 1) if layer.batch_first else x), state


def _by_steps(
    x: Tensor,
    h: Tensor,
    c: Tensor,
    w_ih: Tensor,
    u_ih: Tensor,
    w_hh: Tensor,
    u_hh: Tensor,
    s_ih: Tensor,
    s_hh: Tensor,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """What :func:`lstm_layer` computes, by operations that have forward-mode derivatives."""
    inputs = F.linear(x, w_ih) + s_ih * F.linear(x, u_ih)
    inputs = inputs if bias is None else inputs + bias
    outputs = []
    for gates in inputs.unbind(0):
        i, f, g, o = (gates + F.linear(h, w_hh) + s_hh * F.linear(h, u_hh)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs), h, c
