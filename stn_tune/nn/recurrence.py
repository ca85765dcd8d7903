"""The recurrence of one self-tuning LSTM layer, with its backward pass written out."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from stn_tune.nn import rowscale

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input


def lstm_layer(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_ih: Tensor,
    u_ih: Tensor,
    w_hh: Tensor,
    u_hh: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    return cast("tuple[Tensor, Tensor, Tensor]", _LSTMLayer.apply(x, h0, c0, w_ih, u_ih, w_hh, u_hh, scale, bias))


class _LSTMLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, h0, c0, w_ih, u_ih, w_hh, u_hh, scale, bias):
        steps, size = len(x), h0.shape[1]
        need_weights = any(ctx.needs_input_grad[3:7])
        keep = ctx.needs_input_grad[7] and not (need_weights and rowscale.per_example(x))
        if keep:
            flat = x.flatten(0, 1)
            gates = torch.mm(flat, w_ih.t()).unflatten(0, x.shape[:2])
            hyper = torch.mm(flat, u_ih.t()).unflatten(0, x.shape[:2])
        else:
            gates = rowscale.product(x, w_ih, u_ih, scale)
            hyper = torch.empty_like(gates[0]).expand_as(gates)
        h = x.new_empty(steps + 1, *h0.shape)
        c = torch.empty_like(h)
        tanh_c = torch.empty_like(h[1:])
        h[0], c[0] = h0, c0
        for t in range(steps):
            pre = gates[t].addmm_(h[t], w_hh.t())
            pre.addcmul_(hyper[t].addmm_(h[t], u_hh.t(), beta=int(keep)), scale)
            if bias is not None:
                pre.add_(bias)
            pre[:, : 2 * size].sigmoid_()
            pre[:, 2 * size : 3 * size].tanh_()
            pre[:, 3 * size :].sigmoid_()
            i, f, g, o = pre.chunk(4, 1)
            torch.mul(f, c[t], out=c[t + 1]).addcmul_(i, g)
            torch.mul(o, torch.tanh(c[t + 1], out=tanh_c[t]), out=h[t + 1])
        ctx.bias_dim = 0 if bias is None else bias.dim()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, w_ih, u_ih, w_hh, u_hh, scale, gates, h, c, tanh_c, hyper if keep else None)
        return h[1:], h[-1].clone(), c[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out, d_h, d_c):
        x, w_ih, u_ih, w_hh, u_hh, scale, gates, h, c, tanh_c, hyper = ctx.saved_tensors
        need_x, need_h0, need_c0, *need_w, need_scale, need_bias = ctx.needs_input_grad
        size = h.shape[2]
        d = torch.empty_like(gates)
        dh = torch.zeros_like(h[0]) if d_h is None else d_h.clone()
        dc = torch.zeros_like(h[0]) if d_c is None else d_c.clone()
        work = torch.empty_like(dh)
        d_scaled = torch.empty_like(scale)
        d_scale = torch.zeros_like(scale) if hyper is not None else None
        for t in reversed(range(len(x))):
            i, f, g, o = gates[t].chunk(4, 1)
            di, df, dg, do = d[t].chunk(4, 1)
            if d_out is not None:
                dh.add_(d_out[t])
            torch.mul(dh, tanh_c[t], out=do)
            torch.mul(dh, o, out=work)
            dc.add_(tanh_backward(work, tanh_c[t], grad_input=work))
            torch.mul(dc, g, out=di)
            torch.mul(dc, c[t], out=df)
            torch.mul(dc, i, out=dg)
            dc.mul_(f)
            sig = d[t][:, : 2 * size]
            sigmoid_backward(sig, gates[t][:, : 2 * size], grad_input=sig)
            tanh_backward(dg, g, grad_input=dg)
            sigmoid_backward(do, o, grad_input=do)
            if t or need_h0:
                torch.mm(d[t], w_hh, out=dh)
                dh.addmm_(torch.mul(d[t], scale, out=d_scaled), u_hh)
            if d_scale is not None:
                d_scale.addcmul_(d[t], hyper[t])
        dw = [None] * 4
        per = need_scale and hyper is None
        s = []
        for k, inp, u in ((0, x, u_ih), (2, h[:-1], u_hh)):
            if need_w[k] or need_w[k + 1] or per:
                dw[k], dw[k + 1], s_ = rowscale.weight_grads(d, inp, u, scale, (need_w[k], need_w[k + 1], per))
                s.append(s_)
        if per:
            d_scale = s[0] + s[1]
        d_bias = None
        if need_bias:
            d_bias = d.sum(0) if ctx.bias_dim == 2 else d.sum((0, 1))
        dx = rowscale.input_grad(d, w_ih, u_ih, scale) if need_x else None
        return dx, dh if need_h0 else None, dc if need_c0 else None, *dw, d_scale, d_bias
