"""linear_cross_entropy against F.cross_entropy and finite differences."""

from __future__ import annotations

from typing import Any, Literal, cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from stn_tune.nn.kernels.cross_entropy import linear_cross_entropy

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS: tuple[Reduction, ...] = ("mean", "sum", "none")


def problem(*shape: int, classes: int = 11, features: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """h, weight, target, bias in double precision."""
    torch.manual_seed(0)
    h = torch.randn(*shape, features, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(classes, features, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(classes, dtype=torch.float64, requires_grad=True)
    return h, weight, torch.randint(classes, shape), bias


def unfused(h: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None, **options: Any) -> Tensor:
    loss = F.cross_entropy(F.linear(h, weight, bias).flatten(0, -2), target.flatten(), **options)
    return loss.view_as(target) if options.get("reduction") == "none" else loss


def grads(loss: Tensor, wrt: list[Tensor]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    return torch.autograd.grad(loss, wrt, torch.randn(loss.shape, dtype=loss.dtype, generator=generator))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("chunk", [1, 4, 21, 256])
@pytest.mark.parametrize("shape", [(21,), (7, 3), (1,)])
def test_equals_torch(shape: tuple[int, ...], chunk: int, biased: bool, reduction: Reduction) -> None:
    h, weight, target, bias = problem(*shape)
    target.view(-1)[1::5] = -100
    own, wrt = (bias, [h, weight, bias]) if biased else (None, [h, weight])
    ours = linear_cross_entropy(h, weight, target, own, chunk=chunk, reduction=reduction)
    theirs = unfused(h, weight, target, own, reduction=reduction)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(grads(ours, wrt), grads(theirs, wrt))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_gradcheck(reduction: Reduction) -> None:
    h, weight, target, bias = problem(2, 3)
    target[1, 1] = -100

    def loss(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return linear_cross_entropy(h, weight, target, bias, chunk=4, reduction=reduction)

    assert torch.autograd.gradcheck(loss, (h, weight, bias))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("needed", [0, 1, 2])
def test_what_needs_a_gradient_does_not_change_it(needed: int, reduction: Reduction) -> None:
    h, weight, target, bias = problem(9)
    wrt = [h, weight, bias]
    expected = grads(unfused(h, weight, target, bias, reduction=reduction), wrt)[needed]
    for k, tensor in enumerate(wrt):
        tensor.requires_grad_(k == needed)
    loss = linear_cross_entropy(h, weight, target, bias, chunk=4, reduction=reduction)
    torch.testing.assert_close(grads(loss, [wrt[needed]])[0], expected)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_without_grad_and_backward_twice(reduction: Reduction) -> None:
    h, weight, target, bias = problem(9)
    loss = linear_cross_entropy(h, weight, target, bias, reduction=reduction)
    with torch.no_grad():
        torch.testing.assert_close(linear_cross_entropy(h, weight, target, bias, reduction=reduction), loss)
    once = torch.autograd.grad(loss.sum(), [h, weight, bias], retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss.sum(), [h, weight, bias]), once)


def test_logits_far_apart() -> None:
    h, weight, target, _ = problem(9)
    for factor in (1e3, -1e3):
        ours, theirs = linear_cross_entropy(factor * h, weight, target), unfused(factor * h, weight, target)
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(grads(ours, [h, weight]), grads(theirs, [h, weight]))


def test_single_precision_at_a_usual_size() -> None:
    double_h, double_weight, target, double_bias = problem(300, classes=1001, features=67)
    h, weight, bias = wrt = [t.detach().float().requires_grad_() for t in (double_h, double_weight, double_bias)]
    ours, theirs = linear_cross_entropy(h, weight, target, bias), unfused(h, weight, target, bias)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(grads(ours, wrt), grads(theirs, wrt))


def test_one_row_without_dimensions() -> None:
    h, weight, target, bias = problem(1)
    for reduction in REDUCTIONS:
        loss = linear_cross_entropy(h[0], weight, target[0], bias, reduction=reduction)
        torch.testing.assert_close(loss, unfused(h, weight, target, bias))


def test_strided_rows() -> None:
    h, weight, target, bias = problem(4, 6)
    loss = linear_cross_entropy(h.transpose(0, 1), weight, target.t(), bias)
    torch.testing.assert_close(loss, unfused(h, weight, target, bias))


def test_ignored_class_inside_the_vocabulary() -> None:
    h, weight, target, bias = problem(30)
    assert (target == 3).any()
    ours = linear_cross_entropy(h, weight, target, bias, ignore_index=3)
    torch.testing.assert_close(ours, unfused(h, weight, target, bias, ignore_index=3))


@pytest.mark.parametrize("rows", [0, 3])
def test_no_targets(rows: int) -> None:
    h, weight, target, bias = problem(rows)
    target.fill_(-100)
    mean = linear_cross_entropy(h, weight, target, bias)
    assert mean.isnan()
    assert not any(g.count_nonzero() for g in torch.autograd.grad(mean, [h, weight, bias]))
    assert linear_cross_entropy(h, weight, target, bias, reduction="sum") == 0
    losses = linear_cross_entropy(h, weight, target, bias, reduction="none")
    assert losses.shape == (rows,)
    assert not any(g.count_nonzero() for g in torch.autograd.grad(losses.sum(), [h, weight, bias]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": torch.tensor([1, 11])}, "target 11 is outside the vocabulary of 11 classes"),
        ({"target": torch.tensor([-1, 0])}, "target -1 is outside the vocabulary of 11 classes"),
        ({"target": torch.tensor([1, 2, 3])}, r"target has shape \(3,\); h asks for \(2,\)"),
        ({"target": torch.tensor([1.0, 2.0])}, "target has dtype torch.float32; classes are torch.int64"),
        (
            {"weight": torch.zeros(11, 4)},
            r"h \(2, 5\) and weight \(11, 4\) must be \(\.\.\., D\) and \(V, D\)",
        ),
        ({"bias": torch.zeros(5)}, r"bias has shape \(5,\); weight asks for \(11,\)"),
        ({"chunk": 0}, "chunk=0: it must be at least 1"),
        ({"reduction": "max"}, "reduction='max': it must be 'mean', 'sum' or 'none'"),
    ],
)
def test_errors_name_the_value(change: dict[str, Any], message: str) -> None:
    h, weight, target, bias = problem(2)
    with pytest.raises(ValueError, match=message):
        linear_cross_entropy(**{"h": h, "weight": weight, "target": target, "bias": bias, **change})


def test_frozen_weight_costs_nothing() -> None:
    h, weight, target, bias = problem(9)
    loss = linear_cross_entropy(h, weight.detach(), target, bias.detach(), reduction="sum")
    _, dw, db = cast(Any, loss.grad_fn).saved_tensors
    assert dw is None
    assert db is None


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_needs_no_values_on_the_host(reduction: Reduction) -> None:
    """Tensors without values: any read of one, or a tensor of the CPU beside them, would raise."""
    h, weight, target, bias = problem(9)
    h, weight, bias = (t.detach().to("meta").requires_grad_() for t in (h, weight, bias))
    loss = linear_cross_entropy(h, weight, target.to("meta"), bias, chunk=4, reduction=reduction)
    assert [g.shape for g in torch.autograd.grad(loss, [h, weight, bias], torch.empty_like(loss))] == [
        h.shape,
        weight.shape,
        bias.shape,
    ]
