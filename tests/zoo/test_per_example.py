"""draw="example": each example computes with its own weights, as if they were materialised one by one."""

from __future__ import annotations

import pytest
import torch
from ray import tune
from torch import nn
from torch.nn import functional as F

import stn_tune as stn
from stn_tune.nn.per_example import has_form
from stn_tune.nn.response import required

BATCH = 3


class Words(nn.Module):
    """Embedding, two LSTM layers and a tied-size head, batch first."""

    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(7, 4), nn.LSTM(4, 5, 2, batch_first=True), nn.Linear(5, 7)

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


class Attention(nn.Module):
    """An attention layer, which has no Eq. 10 form, between layers that have one."""

    def __init__(self):
        super().__init__()
        self.first, self.attention = nn.Linear(4, 4), nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = self.first(x)
        return self.head(self.attention(x, x, x)[0])


def convolutions(kind, *size):
    conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[kind]
    return nn.Sequential(
        conv(2, 4, 3, padding=1), nn.Tanh(), conv(4, 4, 2, groups=2, bias=False), nn.Flatten(), nn.LazyLinear(3)
    )


MODELS = {
    "linear": (lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2, bias=False)), (4,)),
    "linear on sequences": (lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), (6, 4)),
    "conv1d": (lambda: convolutions(1), (2, 6)),
    "conv2d": (lambda: convolutions(2), (2, 4, 4)),
    "conv3d": (lambda: convolutions(3), (2, 3, 3, 3)),
    "embedding and lstm": (Words, None),
    "attention between linears": (Attention, (6, 4)),
    "gru has no form": (lambda: nn.GRU(4, 3, batch_first=True), (6, 4)),
}


def built(name, **options):
    build, shape = MODELS[name]
    x = torch.randint(0, 7, (BATCH, 6)) if shape is None else torch.randn(BATCH, *shape, dtype=torch.float64)
    model = build().double()
    output(model, x)  # lazy layers get their shapes
    hyper = stn.Hyper({"a": tune.uniform(0, 1), "b": tune.loguniform(1e-3, 1)}).double()
    stn.self_tune(model, hyper, **options)
    with torch.no_grad():
        for p in required(model).parameters():
            p.normal_(std=0.3)
    return model, hyper, x


def output(model, x):
    found = model(x)
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.parametrize("name", MODELS)
def test_equals_materialised_weights_and_their_gradients(name):
    model, hyper, x = built(name, include=["embed"] if name == "embedding and lstm" else [])
    tuning, sample = required(model), hyper.sample(BATCH, differentiable=True)
    responding = tuning.responding()
    wanted = [sample.lam, *(t for r in responding for t in (r.weight, r.response.U, r.response.V))]
    with tuning.applied(sample):
        found = output(model, x)
        gradients = torch.autograd.grad(found.square().sum(), wanted, retain_graph=True)
    shared = {r.path for r in responding if not has_form(_owner(model, r))}
    rows = []
    for i in range(BATCH):
        values = {
            r.path: r.response.at(r.weight, sample.delta.mean(0) if r.path in shared else sample.delta[i])
            for r in responding
        }
        rows.append(_output_with(model, values, x[i : i + 1]))
    expected = torch.cat(rows)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
    for a, b in zip(gradients, torch.autograd.grad(expected.square().sum(), wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)
    assert bool(shared) == (name in ("attention between linears", "gru has no form"))


def _owner(model, r):
    return model.get_submodule(r.path.rpartition(".")[0])


def _output_with(model, values, x):
    found = torch.func.functional_call(model, values, (x,))
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.parametrize("name", MODELS)
def test_a_draw_that_all_examples_share_is_the_shared_draw(name):
    model, hyper, x = built(name)
    tuning, noise = required(model), torch.randn(2, dtype=torch.float64)
    with torch.no_grad():
        with tuning.applied(hyper.sample_at(noise)):
            shared = output(model, x)
        with tuning.applied(hyper.sample_at(noise.expand(BATCH, 2))):
            torch.testing.assert_close(output(model, x), shared, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "marked"), [("gru has no form", True), ("attention between linears", True), ("linear", False)]
)
def test_describe_says_what_gets_the_mean_draw(name, marked):
    text = stn.describe(built(name)[0])
    assert ("* has no per-example form: with draw='example' it gets the mean of the draws" in text) == marked
    if name == "attention between linears":
        assert "attention.out_proj.weight  4×4    responds*" in text, "the attention reads it and never calls it"
        assert "first.weight               4×4    responds\n" in text


@pytest.mark.parametrize("name", MODELS)
def test_it_trains(name):
    model, hyper, x = built(name)
    tuner = stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.01), draw="example")
    lam = hyper.lam.clone()

    def loss(model, batch, hp):
        losses = output(model, batch).square().flatten(1).mean(1)
        return losses * (1 + hp["a"] + hp["b"]) if model.training else losses

    for _ in range(2):
        tuner.train_step(loss, x)
        tuner.valid_step(loss, x)
    assert (hyper.lam != lam).all()


@pytest.mark.parametrize(("fold", "shape"), [("inner", (BATCH, 2)), ("outer", (2, BATCH))])
def test_folded_rows_belong_to_their_examples(fold, shape):
    model = nn.Sequential(nn.Linear(4, 5)).double()
    hyper = stn.Hyper({"a": tune.uniform(0, 1)}).double()
    stn.self_tune(model, hyper, fold={"0": fold})
    x = torch.randn(*shape, 4, dtype=torch.float64)
    tuning, sample = required(model), hyper.sample(BATCH)
    values = [{r.path: r.response.at(r.weight, d) for r in tuning.responding()} for d in sample.delta]
    with torch.no_grad(), tuning.applied(sample):
        found = model(x.flatten(0, 1)).view(*shape, 5)
    for i in range(BATCH):
        rows = (i,) if fold == "inner" else (slice(None), i)
        expected = F.linear(x[rows], values[i]["0.weight"], values[i]["0.bias"])
        torch.testing.assert_close(found[rows], expected, rtol=1e-9, atol=1e-10)
    with (
        tuning.applied(sample),
        pytest.raises(stn.nn.LayoutError, match=r"^0: dimension 0 .* has size 7.*draw='batch'"),
    ):
        model(torch.randn(7, 4, dtype=torch.float64))
