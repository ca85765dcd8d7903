"""One conformance suite for every hyper layer: Eq. 9 and 10, exactly."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import stn_tune as stn

BATCH = 4


@dataclass
class Case:
    """A plain layer, an input for it, and which dimension of input and output is the batch."""

    plain: Callable[[], nn.Module]
    input: Callable[[], Tensor]
    batch_dim: int = 0
    fold: str | None = None


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
    "conv2d-circular": Case(lambda: nn.Conv2d(3, 5, 3, padding=1, padding_mode="circular"), x(BATCH, 3, 6, 6)),
    "embedding": Case(lambda: nn.Embedding(7, 5), words(BATCH)),
    "embedding-2d": Case(lambda: nn.Embedding(7, 5), words(BATCH, 6)),
    "embedding-time-first": Case(lambda: nn.Embedding(7, 5), words(6, BATCH), batch_dim=1),
    "lstm": Case(lambda: nn.LSTM(3, 5), x(6, BATCH, 3), batch_dim=1),
    "lstm-two-layers": Case(lambda: nn.LSTM(3, 5, num_layers=2, batch_first=True), x(BATCH, 6, 3)),
    "lstm-no-bias": Case(lambda: nn.LSTM(3, 5, bias=False), x(6, BATCH, 3), batch_dim=1),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def convert(case: Case, hyper: stn.Hyper) -> tuple[nn.Module, nn.Module]:
    """The plain layer, and a self-tuned copy of it with gates large enough to matter."""
    plain = case.plain().double()
    lstm = isinstance(plain, nn.LSTM)
    model = stn.self_tune(
        nn.Sequential(copy.deepcopy(plain)),
        hyper,
        batch_dim={"0": case.batch_dim} if case.batch_dim and not lstm else None,
        fold={"0": case.fold} if case.fold else None,
    )
    layer = model[0]
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith(("V", "C")):
                parameter.normal_()
    return plain, layer


def run(layer: nn.Module, value: Tensor) -> Tensor:
    output = layer(value)
    return output[0] if isinstance(output, tuple) else output


def materialized(plain: nn.Module, layer: nn.Module, lam: Tensor) -> nn.Module:
    """The plain layer with the weights of Eq. 9 for one λ, written out from the equation."""
    layer_parameters = dict(layer.named_parameters())
    result = copy.deepcopy(plain)
    with torch.no_grad():
        for name, parameter in result.named_parameters():
            kind, _, suffix = name.partition("_")
            suffix = name[name.index("_l") :] if "_l" in name else ""
            if name.startswith("bias_hh"):
                continue
            twin = f"hyper_bias{suffix}" if kind == "bias" else f"hyper_{name}"
            gate = layer_parameters[("C" if kind == "bias" else "V") + suffix]
            scale = gate @ lam
            if parameter.dim() > 1:
                shape = [1] * parameter.dim()
                shape[1 if isinstance(plain, nn.Embedding) else 0] = -1
                scale = scale.view(shape)
            parameter += scale * layer_parameters[twin]
    return result


def test_equals_the_plain_layer_with_materialised_weights_example_by_example(case: Case, hyper: stn.Hyper):
    plain, layer = convert(case, hyper)
    value = case.input()
    sample = hyper.sample(BATCH)
    with hyper.using(sample):
        output = run(layer, value)
    for i, lam in enumerate(sample.unconstrained):
        rows = torch.arange(value.shape[case.batch_dim])
        rows = rows[(rows // 3 if case.fold == "inner" else rows % BATCH) == i] if case.fold else rows[i : i + 1]
        expected = run(materialized(plain, layer, lam), value.index_select(case.batch_dim, rows))
        torch.testing.assert_close(output.index_select(case.batch_dim, rows), expected, rtol=1e-10, atol=1e-12)


def test_one_shared_lambda_equals_the_same_lambda_for_every_example(case: Case, hyper: stn.Hyper):
    _, layer = convert(case, hyper)
    value = case.input()
    shared = hyper.sample()
    with hyper.using(shared):
        output = run(layer, value)
    repeated = stn.HyperSample(hyper, shared.unconstrained.expand(BATCH, -1))
    with hyper.using(repeated):
        torch.testing.assert_close(output, run(layer, value), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("draw", [BATCH, None])
def test_equals_the_plain_layer_at_v_and_c_zero(case: Case, hyper: stn.Hyper, draw: int | None):
    plain, layer = convert(case, hyper)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith(("V", "C")):
                parameter.zero_()
    value = case.input()
    with hyper.using(hyper.sample(draw)):
        torch.testing.assert_close(run(layer, value), run(plain, value), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_gradcheck(case: Case, hyper: stn.Hyper, shared: bool):
    _, layer = convert(case, hyper)
    value = case.input()
    if value.is_floating_point():
        value.requires_grad_()
    lam = hyper.sample(None if shared else BATCH).unconstrained.detach().requires_grad_()
    names = [name for name, _ in layer.named_parameters()]

    def output(lam: Tensor, value: Tensor, *parameters: Tensor) -> Tensor:
        with hyper.using(stn.HyperSample(hyper, lam)):
            result = torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (value,))
        return result[0] if isinstance(result, tuple) else result

    fast = sum(p.numel() for p in layer.parameters()) > 200
    assert torch.autograd.gradcheck(output, (lam, value, *layer.parameters()), fast_mode=fast)


def test_squared_norm_is_that_of_the_materialised_weights(case: Case, hyper: stn.Hyper):
    plain, layer = convert(case, hyper)
    sample = hyper.sample(BATCH)
    with hyper.using(sample):
        norms = layer.squared_norm()
    expected = [
        sum(p.square().sum() for p in materialized(plain, layer, lam).parameters()) for lam in sample.unconstrained
    ]
    torch.testing.assert_close(norms, torch.stack(expected))


def test_parameter_counts_are_the_papers(hyper: stn.Hyper):
    n = len(hyper.space)
    linear = stn.nn.HyperLinear(7, 11, hyper)
    assert sum(p.numel() for p in linear.parameters()) == 11 * (2 * 7 + n) + 11 * (2 + n)
    plain = nn.Conv2d(3, 8, 5)
    p = sum(q.numel() for q in plain.parameters())
    conv = stn.nn.HyperConv2d(3, 8, 5, hyper=hyper)
    assert sum(q.numel() for q in conv.parameters()) == 2 * p + 2 * n * 8


def test_initialisation_is_the_listings():
    hyper = stn.Hyper({"a": stn.real(), "b": stn.real()})
    conv = stn.nn.HyperConv2d(16, 512, 3, hyper=hyper)
    bound = (16 * 9) ** -0.5
    for weight in (conv.hyper_weight, conv.hyper_bias):
        assert weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    for gate in (conv.V, conv.C):
        assert gate.shape == (512, 2)
        assert gate.std().item() == pytest.approx(0.01, rel=0.1)


def test_lstm_carries_its_hidden_state(hyper: stn.Hyper):
    layer = stn.nn.HyperLSTM(3, 5, num_layers=2, hyper=hyper).double()
    value = torch.randn(6, BATCH, 3, dtype=torch.float64)
    for draw in (BATCH, None):
        with hyper.using(hyper.sample(draw)):
            whole, (h, c) = layer(value)
            first, state = layer(value[:2])
            second, (h2, c2) = layer(value[2:], state)
        torch.testing.assert_close(torch.cat([first, second]), whole)
        torch.testing.assert_close((h2, c2), (h, c))


def test_lstm_drop_connect_is_one_mask_for_both_weight_sets(hyper: stn.Hyper):
    """With every hidden-to-hidden weight of both sets dropped, time steps do not see each other."""
    layer = stn.nn.HyperLSTM(3, 5, weight_dropout=1.0, hyper=hyper).double()
    value = torch.randn(2, BATCH, 3, dtype=torch.float64)
    with torch.no_grad():
        layer.V_l0.normal_()
    for sample in (hyper.sample(BATCH), hyper.sample()):
        with hyper.using(sample):
            _, (h, c) = layer(value[:1])
            zero = torch.zeros_like(h)
            expected, _ = layer(value[1:], (zero, c))
            output, _ = layer(value)
        torch.testing.assert_close(output[1], expected[0])
    layer.reads = {"weight_dropout": 0.5}
    with hyper.using(hyper.sample(BATCH)):
        torch.manual_seed(1)
        output, _ = layer(value)
        torch.manual_seed(1)
        mask = stn.nn.regularizers.noise((20, 5), 0.5, layer.weight_hh_l0)
        reference = copy.deepcopy(layer)
        reference.reads = {"weight_dropout": 0.0}
        object.__setattr__(reference, "source", hyper)
        with torch.no_grad():
            reference.weight_hh_l0 *= mask
            reference.hyper_weight_hh_l0 *= mask
        torch.testing.assert_close(output, reference(value)[0])


def test_no_gradient_is_computed_for_frozen_weights(case: Case, hyper: stn.Hyper):
    _, layer = convert(case, hyper)
    layer.requires_grad_(False)
    with hyper.using(hyper.sample(BATCH)):
        run(layer, case.input()).square().sum().backward()
    assert hyper.lam.grad is not None
    assert hyper.lam.grad.abs().max() > 0
    assert all(p.grad is None for p in layer.parameters())


def test_weights_are_materialised_once_per_evaluation_and_again_after_a_change(hyper: stn.Hyper):
    layer = stn.nn.HyperLinear(3, 5, hyper).double()
    value = torch.randn(BATCH, 3, dtype=torch.float64)
    with torch.no_grad(), hyper.using(hyper.mean()):
        first = layer.weights()
        assert layer.weights() is first
        before = layer(value)
        layer.bias += 1
        torch.testing.assert_close(layer(value), before + 1)


def test_rows_that_are_not_the_batch_get_a_clear_error(hyper: stn.Hyper):
    model = stn.self_tune(nn.Sequential(nn.Linear(3, 5)), hyper).double()
    with (
        hyper.using(hyper.sample(BATCH)),
        pytest.raises(stn.nn.LayoutError, match=r"0: dimension 0 of its input has size 6, but the batch has 4"),
    ):
        model(torch.randn(6, 3, dtype=torch.float64))
    lstm = stn.nn.HyperLSTM(3, 5, hyper=hyper).double()
    with hyper.using(hyper.sample(BATCH)), pytest.raises(stn.nn.LayoutError, match="pass a padded 3-D batch"):
        lstm(torch.randn(6, 3, dtype=torch.float64))


@pytest.mark.parametrize("draw", [BATCH, None])
def test_precision_and_memory_format_are_the_models(draw: int | None):
    hyper = stn.Hyper({"a": stn.real(), "b": stn.real()})
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 5)).double()
    model = stn.self_tune(model.to(memory_format=torch.channels_last), hyper)
    with hyper.using(hyper.sample(draw)):
        output = model(torch.randn(BATCH, 3, 6, 6, dtype=torch.float64))
        output.square().sum().backward()
    assert output.dtype == torch.float64
    assert all(p.grad is not None for p in [*model.parameters(), hyper.lam])


def test_the_hand_written_lstm_stays_out_of_autocast():
    hyper = stn.Hyper({"a": stn.real()})
    lstm = stn.nn.HyperLSTM(3, 5, hyper=hyper)
    value = torch.randn(6, BATCH, 3)
    with hyper.using(hyper.sample(BATCH)):
        expected = lstm(value)[0]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = lstm(value)[0]
    torch.testing.assert_close(output, expected)
    output.sum().backward()
    assert lstm.V_l0.grad is not None


def test_weights_that_are_swapped_are_noticed(hyper: stn.Hyper):
    layer = stn.nn.HyperLinear(3, 5, hyper).double()
    value = torch.randn(BATCH, 3, dtype=torch.float64)
    with torch.no_grad(), hyper.using(hyper.mean()):
        before = layer(value)
        layer.weight.data = torch.zeros_like(layer.weight)
        assert not torch.equal(layer(value), before)


def test_the_padding_word_stays_zero_and_gets_no_gradient(hyper: stn.Hyper):
    model = stn.self_tune(nn.Sequential(nn.Embedding(7, 5, padding_idx=2)), hyper).double()
    words = torch.tensor([[2, 3], [2, 2], [1, 2], [4, 5]])
    with hyper.using(hyper.sample(BATCH)):
        output = model(words)
    assert (output[words == 2] == 0).all()
    output.sum().backward()
    for weight in (model[0].weight, model[0].hyper_weight):
        assert (weight.grad[2] == 0).all()
        assert (weight.grad[3] != 0).all()
