from __future__ import annotations

import pytest
import torch
from torch import nn

import stn_tune as stn
from stn_tune.nn import regularizers as reg
from stn_tune.nn.response import required

RATES = torch.tensor([0.0, 0.25, 0.5, 0.95, 1.0])
LAYOUTS = {
    "dropout": lambda x, rate: reg.dropout(x, rate),
    "dropout2d": lambda x, rate: reg.dropout2d(x, rate),
    "locked": lambda x, rate: reg.locked_dropout(x, rate, time_dim=2, batch_dim=0),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_example_is_dropped_at_its_own_rate(name):
    x = torch.rand(5, 400, 30) + 0.5
    out = LAYOUTS[name](x, RATES)
    assert torch.equal(out[0], x[0]), "rate 0 is exactly the identity"
    assert (out[4] == 0).all()
    for i, rate in enumerate(RATES.tolist()):
        dropped = (out[i] == 0).double().mean().item()
        assert dropped == pytest.approx(rate, abs=0.08)
        if rate < 1:
            kept = out[i] != 0
            torch.testing.assert_close(out[i][kept], x[i][kept] / (1 - rate))


def test_masks_have_the_right_shape():
    x = torch.ones(5, 40, 30)
    rate = torch.full((5,), 0.5)
    channels = reg.dropout2d(x, rate)
    assert ((channels == channels[:, :, :1]).all(2)).all(), "whole channels"
    assert 0.3 < (channels[:, :, 0] == 0).double().mean() < 0.7
    locked = reg.locked_dropout(x.transpose(0, 1), rate)
    assert (locked == locked[:1]).all(), "one mask for all time steps"
    assert 0.3 < (locked[0] == 0).double().mean() < 0.7


@pytest.mark.parametrize("rate", [0.3, torch.tensor(0.3), torch.full((50,), 0.3)], ids=["float", "0-d", "batch"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_number_and_a_tensor_mean_the_same(name, rate):
    out = LAYOUTS[name](torch.ones(50, 200, 4), rate)
    assert out.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert (out == 0).double().mean() == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("name", LAYOUTS)
def test_rate_zero_is_the_same_tensor_for_a_number(name):
    x = torch.randn(3, 4, 5)
    assert LAYOUTS[name](x, 0.0) is x


def test_gradient_at_rate_one_is_zero_not_nan():
    x = torch.randn(2, 3, requires_grad=True)
    reg.dropout(x, torch.tensor([1.0, 0.0])).sum().backward()
    assert x.grad.tolist() == [[0.0] * 3, [1.0] * 3]


def test_modules_do_nothing_in_eval_mode_and_check_their_rate():
    x = torch.randn(4, 5, 6)
    words = torch.zeros(4, 5, dtype=torch.long)
    for module in (stn.nn.Dropout(0.5), stn.nn.Dropout2d(0.5), stn.nn.LockedDropout(0.5)):
        assert module.eval()(x) is x
    assert stn.nn.EmbeddingDropout(0.5, 10).eval()(x, words) is x
    with pytest.raises(ValueError, match=r"dropout rate 1.5 is outside \[0, 1\]"):
        stn.nn.Dropout(1.5)


def test_embedding_dropout_drops_words_from_all_sequences():
    words = torch.randint(0, 1000, (70, 40))
    for rate in (0.4, torch.tensor(0.4), torch.full((40,), 0.4)):
        out = reg.embedding_dropout(torch.ones(70, 40, 3), words, rate, 1000)
        by_word = {}
        for word, vector in zip(words.flatten().tolist(), out.flatten(0, 1).tolist(), strict=True):
            assert by_word.setdefault(word, vector) == vector, "a word is dropped everywhere or nowhere"
        assert (out == 0).double().mean() == pytest.approx(0.4, abs=0.06)
        assert out.max() == pytest.approx(1 / 0.6)


def test_drop_connect_needs_one_rate_per_batch():
    a, b = torch.ones(30, 30), torch.full((30, 30), 2.0)
    dropped_a, dropped_b = reg.drop_connect([a, b], torch.tensor(0.5))
    assert torch.equal(dropped_b, 2 * dropped_a), "one mask for both"
    with pytest.raises(stn.nn.LayoutError, match="per_batch"):
        reg.drop_connect([a], torch.full((4,), 0.5))


def test_activation_regularisation_per_example():
    h = torch.randn(7, 3, 5, dtype=torch.float64)
    alpha = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    expected = sum(alpha[i] * h[:, i].square().mean() for i in range(3)) / 3
    torch.testing.assert_close(reg.activation_reg(h, alpha), expected)
    torch.testing.assert_close(reg.activation_reg(h, 2.0), 2 * h.square().mean())
    expected = sum(alpha[i] * (h[1:, i] - h[:-1, i]).square().mean() for i in range(3)) / 3
    torch.testing.assert_close(reg.temporal_activation_reg(h, alpha), expected)
    assert reg.temporal_activation_reg(h[:1], 2.0) == 0


def test_l2_is_torchs_weight_decay():
    torch.manual_seed(3)
    plain = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    before = [p.detach().clone() for p in plain.parameters()]
    optimizer = torch.optim.SGD(plain.parameters(), lr=1.0, weight_decay=0.1)
    for p in plain.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    decayed = [p.detach().clone() for p in plain.parameters()]
    with torch.no_grad():
        for p, value in zip(plain.parameters(), before, strict=True):
            p.copy_(value)
    gradients = torch.autograd.grad(stn.nn.l2(plain, 0.1), list(plain.parameters()))
    for value, gradient, expected in zip(before, gradients, decayed, strict=True):
        torch.testing.assert_close(value - gradient, expected)


def test_l2_of_a_self_tuned_model_is_that_of_the_weights_it_computes_with(hyper):
    model = stn.self_tune(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)).double(), hyper)
    tuning = required(model)
    plain = stn.nn.l2(model, 0.5).item()
    assert plain == pytest.approx(
        0.25 * sum(p.square().sum().item() for p in [*model[0].parameters(recurse=False)]) + 1
    )
    with torch.no_grad():
        for response in tuning.responses.values():
            response.V.normal_()
    with tuning.applied(hyper.sample()):
        inside = stn.nn.l2(model, 0.5)
        weight, bias = model[0].weight, model[0].bias
    torch.testing.assert_close(inside, 0.25 * (weight.square().sum() + bias.square().sum() + 4))
    assert inside.item() != pytest.approx(plain)


def test_l2_counts_tied_weights_once(hyper):
    a, b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    b.weight = a.weight
    model = nn.Sequential(a, b).double()
    plain = stn.nn.l2(model, 2.0).item()
    assert plain == pytest.approx(a.weight.square().sum().item())
    stn.self_tune(model, hyper)
    assert stn.nn.l2(model, 2.0).item() == pytest.approx(plain)


def test_a_strength_of_the_wrong_length_is_named():
    with pytest.raises(stn.nn.LayoutError, match=r"shape \(3,\) does not fit dimension 0 .* \(4, 5\)"):
        reg.dropout(torch.ones(4, 5), torch.zeros(3))
