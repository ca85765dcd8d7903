"""Eq. 9 and 10, exactly: responses against materialised weights, for shared draws and one draw per example."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest
import torch
from torch import Tensor, nn

import stn_tune as stn
from stn_tune.nn.per_example import Fold
from stn_tune.nn.response import SelfTuning, required

BATCH = 4


@dataclass
class Case:
    """A plain layer, an input for it, and which dimension of input and output is the batch."""

    plain: Callable[[], nn.Module]
    input: Callable[[], Tensor]
    batch_dim: int = 0
    fold: Fold | None = None
    per_example: bool = True


def x(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*shape, dtype=torch.float64)


def words(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, 7, shape)


CASES = {
    "linear": Case(lambda: nn.Linear(3, 5), x(BATCH, 3)),
    "linear-no-bias": Case(lambda: nn.Linear(3, 5, bias=False), x(BATCH, 3)),
    "linear-3d": Case(lambda: nn.Linear(3, 5), x(BATCH, 6, 3)),
    "linear-time-first": Case(lambda: nn.Linear(3, 5), x(6, BATCH, 3), batch_dim=1),
    "linear-fold-inner": Case(lambda: nn.Linear(3, 5), x(BATCH * 3, 3), fold="inner"),
    "linear-fold-outer": Case(lambda: nn.Linear(3, 5), x(BATCH * 3, 3), fold="outer"),
    "conv1d": Case(lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), x(BATCH, 4, 9)),
    "conv2d": Case(lambda: nn.Conv2d(3, 5, 3), x(BATCH, 3, 6, 6)),
    "conv2d-no-bias": Case(lambda: nn.Conv2d(3, 5, (3, 1), bias=False), x(BATCH, 3, 6, 6)),
    "conv2d-groups": Case(lambda: nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2), x(BATCH, 4, 7, 7)),
    "conv2d-same": Case(lambda: nn.Conv2d(3, 5, 3, padding="same"), x(BATCH, 3, 6, 6)),
    "conv2d-reflect": Case(lambda: nn.Conv2d(3, 5, 3, padding=1, padding_mode="reflect"), x(BATCH, 3, 6, 6)),
    "conv3d": Case(lambda: nn.Conv3d(2, 3, 2), x(BATCH, 2, 3, 4, 3)),
    "embedding": Case(lambda: nn.Embedding(7, 5), words(BATCH)),
    "embedding-2d": Case(lambda: nn.Embedding(7, 5), words(BATCH, 6)),
    "embedding-time-first": Case(lambda: nn.Embedding(7, 5), words(6, BATCH), batch_dim=1),
    "lstm": Case(lambda: nn.LSTM(3, 5), x(6, BATCH, 3), batch_dim=1),
    "lstm-two-layers": Case(lambda: nn.LSTM(3, 5, num_layers=2, batch_first=True), x(BATCH, 6, 3)),
    "lstm-no-bias": Case(lambda: nn.LSTM(3, 5, bias=False), x(6, BATCH, 3), batch_dim=1),
    "lstm-both-ways": Case(lambda: nn.LSTM(3, 5, bidirectional=True), x(6, BATCH, 3), batch_dim=1, per_example=False),
    "gru": Case(lambda: nn.GRU(3, 5), x(6, BATCH, 3), batch_dim=1, per_example=False),
    "transposed": Case(lambda: nn.ConvTranspose2d(3, 5, 2), x(BATCH, 3, 4, 4), per_example=False),
    "bilinear-free": Case(
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), x(BATCH, 3, 4), per_example=False
    ),
}
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
each_per_example = pytest.mark.parametrize(
    "case", [c for c in CASES.values() if c.per_example], ids=[k for k, c in CASES.items() if c.per_example]
)


def responses(tuning: SelfTuning) -> dict[str, stn.nn.Response]:
    return {name: cast(stn.nn.Response, response) for name, response in tuning.responses.items()}


def convert(case: Case, hyper: stn.Hyper) -> tuple[nn.Module, nn.Module, SelfTuning]:
    """The plain layer, a self-tuned copy of it with gates large enough to matter, and what was added to it."""
    plain = case.plain().double()
    lstm = isinstance(plain, nn.RNNBase)
    model = stn.self_tune(
        nn.Sequential(copy.deepcopy(plain)),
        hyper,
        include=["0"],
        batch_dim={"0": case.batch_dim} if case.batch_dim and not lstm else None,
        fold={"0": case.fold} if case.fold else None,
    )
    tuning = required(model)
    assert tuning is not None
    with torch.no_grad():
        for response in responses(tuning).values():
            response.V.normal_()
    return plain, model[0], tuning


def run(layer: nn.Module, value: Tensor) -> Tensor:
    output = layer(value)
    return output[0] if isinstance(output, tuple) else output


def materialized(plain: nn.Module, tuning: SelfTuning, delta: Tensor) -> nn.Module:
    """The plain layer with the weights of Eq. 9 for one δ, written out from the equation."""
    result = copy.deepcopy(plain)
    with torch.no_grad():
        for name, parameter in result.named_parameters():
            response = responses(tuning)[f"0.{name}".replace(".", "/")]
            scale = response.V @ delta
            outputs_last = isinstance(plain, (nn.Embedding, nn.ConvTranspose2d)) and parameter.dim() > 1
            shape = [1] * parameter.dim()
            shape[1 if outputs_last else 0] = -1
            parameter.add_(scale.view(shape) * response.U)
    return result


@each_per_example
def test_one_draw_per_example_equals_materialised_weights_example_by_example(case: Case, hyper: stn.Hyper):
    plain, layer, tuning = convert(case, hyper)
    value = case.input()
    sample = hyper.sample(BATCH)
    with tuning.applied(sample):
        output = run(layer, value)
    for i, delta in enumerate(sample.delta):
        rows = torch.arange(value.shape[case.batch_dim])
        rows = rows[(rows // 3 if case.fold == "inner" else rows % BATCH) == i] if case.fold else rows[i : i + 1]
        expected = run(materialized(plain, tuning, delta), value.index_select(case.batch_dim, rows))
        torch.testing.assert_close(output.index_select(case.batch_dim, rows), expected, rtol=1e-10, atol=1e-12)


@each
def test_a_shared_draw_equals_materialised_weights(case: Case, hyper: stn.Hyper):
    plain, layer, tuning = convert(case, hyper)
    value, sample = case.input(), hyper.sample()
    with tuning.applied(sample):
        output = run(layer, value)
    torch.testing.assert_close(output, run(materialized(plain, tuning, sample.delta), value), rtol=1e-10, atol=1e-12)


@each
@pytest.mark.parametrize("draw", [BATCH, None])
def test_equals_the_plain_layer_outside_of_steps_and_without_gates(case: Case, hyper: stn.Hyper, draw: int | None):
    plain, layer, tuning = convert(case, hyper)
    value = case.input()
    assert torch.equal(run(layer, value), run(plain, value)), "outside of steps it is the plain layer, to the bit"
    with torch.no_grad():
        for response in responses(tuning).values():
            response.V.zero_()
    with tuning.applied(hyper.sample(draw)):
        torch.testing.assert_close(run(layer, value), run(plain, value), rtol=1e-12, atol=1e-12)
    assert torch.equal(run(layer, value), run(plain, value))


@each_per_example
@pytest.mark.parametrize("shared", [False, True])
def test_gradcheck(case: Case, hyper: stn.Hyper, shared: bool):
    _, layer, tuning = convert(case, hyper)
    value = case.input()
    if value.is_floating_point():
        value.requires_grad_()
    delta = hyper.sample(None if shared else BATCH).delta.requires_grad_()
    parameters = dict(layer.named_parameters())
    root = tuning.model

    def output(delta: Tensor, value: Tensor, *values: Tensor) -> Tensor:
        swapped = {f"0.{name}": v for name, v in zip(parameters, values, strict=True)}
        with (
            torch.nn.utils.stateless._reparametrize_module(root, swapped),
            tuning.applied(stn.HyperSample(hyper, delta)),
        ):
            return run(layer, value)

    fast = sum(p.numel() for p in parameters.values()) > 200
    assert torch.autograd.gradcheck(output, (delta, value, *parameters.values()), fast_mode=fast)


@each_per_example
def test_squared_norm_is_that_of_the_materialised_weights(case: Case, hyper: stn.Hyper):
    plain, layer, tuning = convert(case, hyper)
    sample = hyper.sample(BATCH)
    with tuning.applied(sample):
        found = stn.nn.l2(layer, torch.tensor([2.0, 4.0, 6.0, 8.0], dtype=torch.float64))
    norms = [sum(p.square().sum() for p in materialized(plain, tuning, delta).parameters()) for delta in sample.delta]
    expected = sum(c * norm for c, norm in zip((1, 2, 3, 4), norms, strict=True)) / BATCH
    torch.testing.assert_close(found, expected)


@each
def test_absorbing_a_move_of_lambda_keeps_the_response_function(case: Case, hyper: stn.Hyper):
    """Ŵ(λ+δ) around the old centre is Ŵ(λ'+δ') around the new one, where λ'+δ' = λ+δ."""
    plain, layer, tuning = convert(case, hyper)
    value, sample = case.input(), hyper.sample()
    with tuning.applied(sample):
        before = run(layer, value)
    shift = torch.randn_like(hyper.lam)
    tuning.absorb(shift)
    with tuning.applied(stn.HyperSample(hyper, sample.delta - shift)):
        torch.testing.assert_close(run(layer, value), before, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(run(layer, value), run(materialized(plain, tuning, shift), value), rtol=1e-9, atol=1e-11)


def test_parameter_counts_are_the_papers(hyper: stn.Hyper):
    """Of a layer with its response: D_out (2 D_in + n) + D_out (2 + n), and 2p + 2 n C_out for a convolution."""
    n = len(hyper.space)
    linear = stn.self_tune(nn.Sequential(nn.Linear(7, 11)), hyper)
    assert sum(p.numel() for p in linear.parameters()) == 11 * (2 * 7 + n) + 11 * (2 + n)
    plain = nn.Conv2d(3, 8, 5)
    p = sum(q.numel() for q in plain.parameters())
    conv = stn.self_tune(nn.Sequential(plain), hyper)
    assert sum(q.numel() for q in conv.parameters()) == 2 * p + 2 * n * 8


def test_initialisation_is_the_listings():
    hyper = stn.Hyper({"a": stn.real(), "b": stn.real()})
    model = stn.self_tune(nn.Sequential(nn.Conv2d(16, 512, 3)), hyper)
    bound = (16 * 9) ** -0.5
    for response in required(model).responses.values():
        assert response.U.abs().max() <= bound
        assert response.U.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
        assert response.V.shape == (512, 2)
        assert response.V.std().item() == pytest.approx(0.01, rel=0.1)


def test_an_lstm_carries_its_hidden_state(hyper: stn.Hyper):
    model = stn.self_tune(nn.LSTM(3, 5, num_layers=2).double(), hyper)
    value = torch.randn(6, BATCH, 3, dtype=torch.float64)
    for draw in (BATCH, None):
        with required(model).applied(hyper.sample(draw)):
            whole, (h, c) = model(value)
            first, state = model(value[:2])
            second, (h2, c2) = model(value[2:], state)
        torch.testing.assert_close(torch.cat([first, second]), whole)
        torch.testing.assert_close((h2, c2), (h, c))


def test_drop_connect_is_one_mask_for_a_weight_and_its_response(hyper: stn.Hyper):
    """With every hidden-to-hidden weight of both dropped, time steps do not see each other."""
    model = stn.self_tune(stn.nn.LSTM(3, 5, weight_dropout=1.0).double(), hyper)
    tuning = required(model)
    value = torch.randn(2, BATCH, 3, dtype=torch.float64)
    with torch.no_grad():
        for response in responses(tuning).values():
            response.V.normal_()
    for sample in (hyper.sample(BATCH), hyper.sample()):
        with tuning.applied(sample):
            _, (h, c) = model(value[:1])
            expected, _ = model(value[1:], (torch.zeros_like(h), c))
            output, _ = model(value)
        torch.testing.assert_close(output[1], expected[0])
    model.reads = {"weight_dropout": 0.5}
    sample = hyper.sample(BATCH)
    torch.manual_seed(1)
    with tuning.applied(sample):
        output, _ = model(value)
    torch.manual_seed(1)
    weight = cast(nn.Parameter, model.weight_hh_l0)
    mask = stn.nn.regularizers.noise((20, 5), 0.5, weight)
    with torch.no_grad():
        weight.mul_(mask)
        responses(tuning)["weight_hh_l0"].U.mul_(mask)
    model.reads = {"weight_dropout": 0.0}
    with tuning.applied(sample):
        torch.testing.assert_close(output, model(value)[0])


@each
@pytest.mark.parametrize("draw", ["example", "batch", "mean"])
def test_only_lambda_and_sigma_get_a_gradient_in_a_hyperparameter_step(case: Case, hyper: stn.Hyper, draw: str):
    _, layer, tuning = convert(case, hyper)
    responding = tuning.responding()
    tuning.model.requires_grad_(False)
    size = BATCH if draw == "example" else None
    sample = hyper.mean(differentiable=True) if draw == "mean" else hyper.sample(size, differentiable=True)
    with tuning.applied(sample, responding):
        loss = run(layer, case.input()).square().sum()
    assert sample.lam is not None
    assert torch.autograd.grad(loss, sample.lam)[0].abs().max() > 0
    assert all(p.grad is None for p in tuning.model.parameters())


def test_rows_that_are_not_the_batch_get_a_clear_error(hyper: stn.Hyper):
    model = stn.self_tune(nn.Sequential(nn.Linear(3, 5)).double(), hyper)
    tuning = required(model)
    message = r"0: dimension 0 of its input has size 6, but the batch has 4 .* or use draw='batch'"
    with pytest.raises(stn.nn.LayoutError, match=message), tuning.applied(hyper.sample(BATCH)):
        model(torch.randn(6, 3, dtype=torch.float64))
    lstm = stn.self_tune(nn.LSTM(3, 5).double(), hyper)
    with (
        pytest.raises(stn.nn.LayoutError, match="pass a padded 3-D batch"),
        required(lstm).applied(hyper.sample(BATCH)),
    ):
        lstm(torch.randn(6, 3, dtype=torch.float64))


@pytest.mark.parametrize("draw", [BATCH, None])
def test_precision_and_memory_format_are_the_models(draw: int | None):
    hyper = stn.Hyper({"a": stn.real(), "b": stn.real()})
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 5)).double()
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in torch's stub
    model = stn.self_tune(model, hyper)
    with required(model).applied(hyper.sample(draw)):
        output = model(torch.randn(BATCH, 3, 6, 6, dtype=torch.float64))
        output.square().sum().backward()
    assert output.dtype == torch.float64
    assert all(p.grad is not None for p in model.parameters())


def test_the_hand_written_lstm_stays_out_of_autocast():
    hyper = stn.Hyper({"a": stn.real()})
    lstm = stn.self_tune(nn.LSTM(3, 5), hyper)
    value = torch.randn(6, BATCH, 3)
    with required(lstm).applied(hyper.sample(BATCH)):
        expected = lstm(value)[0]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = lstm(value)[0]
        torch.testing.assert_close(output, expected)
        output.sum().backward()
    assert all(p.grad is not None for p in required(lstm).parameters())


@pytest.mark.parametrize("draw", [BATCH, None])
def test_the_padding_word_stays_zero_and_gets_no_gradient(hyper: stn.Hyper, draw: int | None):
    model = stn.self_tune(nn.Sequential(nn.Embedding(7, 5, padding_idx=2)).double(), hyper, include=["0"])
    tuning = required(model)
    value = torch.tensor([[2, 3], [2, 2], [1, 2], [4, 5]])
    with tuning.applied(hyper.sample(draw)):
        output = model(value)
        assert (output[value == 2] == 0).all()
        output.sum().backward()
    for weight in (cast(nn.Embedding, model[0]).weight, responses(tuning)["0/weight"].U):
        assert weight.grad is not None
        assert (weight.grad[2] == 0).all()
        assert (weight.grad[3] != 0).all()


def test_a_layer_without_a_form_of_eq_10_computes_at_the_mean_of_the_draws(hyper: stn.Hyper):
    plain, layer, tuning = convert(CASES["gru"], hyper)
    sample = hyper.sample(BATCH)
    value = CASES["gru"].input()
    with tuning.applied(sample):
        output = run(layer, value)
    torch.testing.assert_close(output, run(materialized(plain, tuning, sample.delta.mean(0)), value))
    assert "has no per-example form" in stn.describe(tuning.model)


def test_steps_cannot_be_nested_and_an_error_inside_leaves_the_model_plain(hyper: stn.Hyper):
    model = stn.self_tune(nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5)), hyper, bind={"1": "rate"})
    tuning = required(model)
    weight, rate = model[0].weight, model[1].p
    for draw in (BATCH, None):
        with (
            pytest.raises(RuntimeError, match="cannot be nested"),
            tuning.applied(hyper.sample(draw)),
            tuning.applied(hyper.sample(draw)),
        ):
            pass
        assert model[0].weight is weight
        assert model[1].p == rate
        assert "forward" not in model[0].__dict__
        assert "forward" not in model[1].__dict__
