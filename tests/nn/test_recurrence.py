"""lstm_layer against torch's own LSTM, example by example, and against finite differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stn_tune.nn.kernels import rowscale
from stn_tune.nn.kernels.recurrence import lstm_layer

NAMES = ("x", "h0", "c0", "w_ih", "u_ih", "w_hh", "u_hh", "scale_ih", "scale_hh", "bias")


@pytest.fixture(params=["written out", "apart"], autouse=True)
def strategy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with W_b written out, in uneven blocks of rows, and with the products apart."""
    if request.param == "written out":
        monkeypatch.setattr(rowscale, "_FEWEST_STEPS", 1)
        monkeypatch.setattr(rowscale, "_LEAST_WORK", 0)
        monkeypatch.setattr(rowscale, "_BLOCK", 9)
    else:
        monkeypatch.setattr(rowscale, "_FEWEST_STEPS", 1 << 30)


def inputs(steps: int = 4, batch: int = 3, features: int = 3, hidden: int = 2, bias: str = "BR") -> list[Tensor]:
    torch.manual_seed(0)
    size = {"T": steps, "B": batch, "D": features, "H": hidden, "R": 4 * hidden}
    shapes = ("TBD", "BH", "BH", "RD", "RD", "RH", "RH", "BR", "BR", bias)
    return [torch.randn([size[s] for s in shape], dtype=torch.float64, requires_grad=True) for shape in shapes]


def grads(outputs: tuple[Tensor, ...], wrt: list[Tensor]) -> tuple[Tensor, ...]:
    """The gradient of a fixed random combination of the outputs."""
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(o.shape, dtype=o.dtype, generator=generator) for o in outputs]
    return torch.autograd.grad(outputs, wrt, weights)


def torch_lstm(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_ih: Tensor,
    u_ih: Tensor,
    w_hh: Tensor,
    u_hh: Tensor,
    scale_ih: Tensor,
    scale_hh: Tensor,
    bias: Tensor,
) -> tuple[Tensor, ...]:
    """nn.LSTM once per example, on the weights W + scale[b] ⊙row U."""
    outputs = []
    for b in range(len(scale_ih)):
        lstm = nn.LSTM(x.shape[2], h0.shape[1], dtype=x.dtype)
        weights = {
            "weight_ih_l0": w_ih + scale_ih[b, :, None] * u_ih,
            "weight_hh_l0": w_hh + scale_hh[b, :, None] * u_hh,
            "bias_ih_l0": bias[b] if bias.dim() == 2 else bias,
            "bias_hh_l0": torch.zeros_like(bias[0] if bias.dim() == 2 else bias),
        }
        out, (h, c) = torch.func.functional_call(lstm, weights, (x[:, b], (h0[b, None], c0[b, None])))
        outputs.append((out, h[0], c[0]))
    out, h, c = zip(*outputs, strict=True)
    return torch.stack(out, 1), torch.stack(h), torch.stack(c)


@pytest.mark.parametrize("bias", ["BR", "R"])
@pytest.mark.parametrize(("steps", "batch"), [(4, 3), (1, 3), (4, 1), (1, 1)])
def test_equals_torch_example_by_example(steps: int, batch: int, bias: str) -> None:
    arguments = inputs(steps, batch, bias=bias)
    ours, theirs = lstm_layer(*arguments), torch_lstm(*arguments)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(grads(ours, arguments), grads(theirs, arguments))


@pytest.mark.parametrize("bias", ["BR", "R"])
def test_gradcheck(bias: str) -> None:
    assert torch.autograd.gradcheck(lstm_layer, inputs(3, 2, bias=bias))


@pytest.mark.parametrize("arriving", [0, 1, 2])
def test_a_gradient_may_arrive_on_one_output_alone(arriving: int) -> None:
    arguments = inputs()
    ours, theirs = lstm_layer(*arguments)[arriving], torch_lstm(*arguments)[arriving]
    torch.testing.assert_close(grads((ours,), arguments), grads((theirs,), arguments))


SUBSETS = {
    **{name: {name} for name in NAMES},
    "hyperparameter step": {"x", "scale_ih", "scale_hh", "bias"},
    "hyperparameter step, first layer": {"scale_ih", "scale_hh", "bias"},
    "weight step, first batch": set(NAMES) - {"x", "h0", "c0"},
    "elementary weights": {"w_ih", "w_hh"},
    "hyper weights and scale": {"u_ih", "u_hh", "scale_ih", "scale_hh"},
    "one scale": {"scale_hh"},
    "input weights and scale": {"w_ih", "scale_ih"},
}


@pytest.mark.parametrize("needed", SUBSETS.values(), ids=SUBSETS)
def test_what_needs_a_gradient_does_not_change_it(needed: set[str]) -> None:
    arguments = inputs()
    expected = dict(zip(NAMES, grads(lstm_layer(*arguments), arguments), strict=True))
    for name, argument in zip(NAMES, arguments, strict=True):
        argument.requires_grad_(name in needed)
    wrt = [argument for argument in arguments if argument.requires_grad]
    found = grads(lstm_layer(*arguments), wrt)
    torch.testing.assert_close(found, tuple(expected[name] for name in NAMES if name in needed))


def test_carried_state_continues_the_sequence() -> None:
    x, h0, c0, *rest = arguments = inputs(steps=7)
    first, h, c = lstm_layer(x[:3], h0, c0, *rest)
    second, h, c = lstm_layer(x[3:], h, c, *rest)
    split, whole = (torch.cat([first, second]), h, c), lstm_layer(*arguments)
    torch.testing.assert_close(split, whole)
    torch.testing.assert_close(grads(split, arguments), grads(whole, arguments))


def test_no_bias() -> None:
    *arguments, bias = inputs()
    torch.testing.assert_close(lstm_layer(*arguments), lstm_layer(*[*arguments, torch.zeros_like(bias)]))


def test_batch_first_input_needs_no_copy_of_the_caller() -> None:
    x, *rest = inputs()
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    ours, contiguous = lstm_layer(strided, *rest), lstm_layer(x, *rest)
    torch.testing.assert_close(ours, contiguous)
    torch.testing.assert_close(grads(ours, rest), grads(contiguous, rest))


def test_backward_twice_and_without_grad() -> None:
    arguments = inputs()
    out, _, _ = lstm_layer(*arguments)
    once = torch.autograd.grad(out.sum(), arguments, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), arguments), once)
    with torch.no_grad():
        torch.testing.assert_close(lstm_layer(*arguments)[0], out)


def test_overwritten_output_is_noticed() -> None:
    out, _, _ = lstm_layer(*inputs())
    with pytest.raises(RuntimeError, match=r"modified (by an )?in-?place"):
        out.mul_(2).sum().backward()


def test_scale_needs_a_row_per_example() -> None:
    *arguments, scale, bias = inputs()
    with pytest.raises(ValueError, match=r"scale has shape \(1, 8\); one row of 4H per example is \(3, 8\)"):
        lstm_layer(*[*arguments, scale[:1], bias])


def test_product_and_its_gradients() -> None:
    x, _, _, w, u, _, _, scale, *_ = inputs()
    y = torch.einsum("tbd,brd->tbr", x, w + scale[:, :, None] * u)
    d = torch.randn_like(y)
    dx, *rest = torch.autograd.grad(y, [x, w, u, scale], d)
    with torch.no_grad():
        torch.testing.assert_close(rowscale.product(x, w, u, scale), y)
        torch.testing.assert_close(rowscale.input_grad(d, w, u, scale), dx)
        torch.testing.assert_close(rowscale.weight_grads(d, x, u, scale, (True, True, True)), tuple(rest))
        assert rowscale.weight_grads(d, x, u, scale, (False, False, False)) == (None, None, None)


def test_frozen_weights_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    weight_grads = rowscale.weight_grads

    def recorded(*a: Any) -> Any:
        asked.append(a[-1])
        return weight_grads(*a)

    monkeypatch.setattr(rowscale, "weight_grads", recorded)
    monkeypatch.setattr(rowscale, "input_grad", lambda *a: pytest.fail("x needs no gradient"))
    arguments = inputs()
    for argument in arguments[:7]:
        argument.requires_grad_(False)
    grads(lstm_layer(*arguments), arguments[7:])
    assert asked == [(False, False, False)] * 2


def test_needs_no_values_on_the_host() -> None:
    """Tensors without values: any read of one, or a tensor of the CPU beside them, would raise."""
    arguments = [t.detach().to("meta").requires_grad_() for t in inputs()]
    outputs = lstm_layer(*arguments)
    found = torch.autograd.grad(outputs, arguments, [torch.empty_like(o) for o in outputs])
    assert [g.shape for g in found] == [a.shape for a in arguments]
