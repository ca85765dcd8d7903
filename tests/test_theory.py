"""The paper's theorems, as the library computes them, and problems whose best hyperparameter is known."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from ray import tune
from torch import Tensor, nn

import stn_tune as stn
from stn_tune.nn.response import required

double = torch.float64


class Affine(nn.Module):
    """ŵ(λ+δ) = b + Vδ: a bias whose U is 1 is a general affine function of λ."""

    def __init__(self, size: int):
        super().__init__()
        self.layer = nn.Linear(1, size)

    def forward(self, batch: int) -> Tensor:
        return self.layer(torch.zeros(batch, 1, dtype=double))


class Quadratic:
    """f(λ, w) = ½ λᵀAλ + λᵀBw + ½ wᵀCw + dᵀλ + eᵀw with C ≻ 0, and F(λ, w) = ½‖w − t‖² + ½ρ‖λ‖².

    With ρ > 0 the validation loss depends on λ directly (Case 2).
    """

    def __init__(self, seed: int, n: int = 3, m: int = 5, rho: float = 0.0):
        g = torch.Generator().manual_seed(seed)
        self.n, self.m = n, m
        self.B, self.e, self.t = (torch.randn(*shape, generator=g, dtype=double) for shape in [(n, m), (m,), (m,)])
        self.A, self.d = torch.randn(n, n, generator=g, dtype=double), torch.randn(n, generator=g, dtype=double)
        root = torch.randn(m, m, generator=g, dtype=double)
        self.C = root @ root.t() / m + 0.5 * torch.eye(m, dtype=double)
        self.rho = rho
        self.jacobian = -torch.linalg.solve(self.C, self.B.t())
        J, offset = self.jacobian, -torch.linalg.solve(self.C, self.e)
        self.best = torch.linalg.solve(J.t() @ J + self.rho * torch.eye(n, dtype=double), J.t() @ (self.t - offset))

    def loss(self, model: nn.Module, batch: tuple[str, Tensor], hp) -> Tensor:
        which, rows = batch
        w = model(len(rows))
        if which == "valid" and not self.rho:
            return 0.5 * (w - self.t).square().sum(1).mean()
        lam = torch.stack([hp[f"l{i}"].expand(len(rows)) for i in range(self.n)], -1)
        if which == "valid":
            return 0.5 * ((w - self.t).square().sum(1) + self.rho * lam.square().sum(1))
        quadratic = 0.5 * ((lam @ self.A) * lam).sum(1) + ((lam @ self.B) * w).sum(1) + 0.5 * ((w @ self.C) * w).sum(1)
        return (quadratic + lam @ self.d + w @ self.e).mean()

    def tuner(self, **options) -> stn.SelfTuner:
        space = {f"l{i}": stn.real() for i in range(self.n)}
        hyper = stn.Hyper(space, scale=1.0, tune_scale=False, direct=self.rho > 0).double()
        model = stn.self_tune(Affine(self.m).double(), hyper)
        nn.init.ones_(response(model).U).requires_grad_(False)
        curvature = torch.linalg.eigvalsh(self.C).max().item()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5 / curvature)
        bend = torch.linalg.eigvalsh(self.jacobian.t() @ self.jacobian).max().item() + self.rho
        hyper_optimizer = torch.optim.SGD([hyper.lam], lr=0.3 / bend)
        return stn.SelfTuner(model, hyper, optimizer, hyper_optimizer, **{"draw": "example", **options})


def response(model: nn.Module) -> stn.nn.Response:
    """That of the one bias."""
    return cast(stn.nn.Response, required(model).responses["layer/bias"])


@pytest.mark.parametrize("seed", range(3))
def test_theorem_2_perturbed_training_recovers_the_best_response_jacobian(seed: int):
    problem = Quadratic(seed)
    tuner = problem.tuner()
    for _ in range(1500):
        tuner.train_step(problem.loss, ("train", torch.zeros(32)))
    learned = response(tuner.model).V.detach()
    error = (learned - problem.jacobian).norm() / problem.jacobian.norm()
    assert error < 1e-2


def test_without_perturbations_the_jacobian_is_not_recovered():
    """The converse (Figure 2, left): a point mass says nothing about the gradient."""
    problem = Quadratic(0)
    tuner = problem.tuner(draw="mean")
    for _ in range(1500):
        tuner.train_step(problem.loss, ("train", torch.zeros(32)))
    learned = response(tuner.model).V.detach()
    assert (learned - problem.jacobian).norm() / problem.jacobian.norm() > 0.5


@pytest.mark.parametrize("seed", range(2))
def test_theorem_2_holds_for_draws_that_a_batch_shares(seed: int):
    """Over steps instead of over examples, so that small steps are needed at the end."""
    problem = Quadratic(seed)
    tuner = problem.tuner(draw="batch")
    for k in range(6000):
        tuner.optimizer.param_groups[0]["lr"] *= 0.9995
        tuner.train_step(problem.loss, ("train", torch.zeros(1)))
        if k == 3000:
            middle = (response(tuner.model).V.detach() - problem.jacobian).norm() / problem.jacobian.norm()
    error = (response(tuner.model).V.detach() - problem.jacobian).norm() / problem.jacobian.norm()
    assert error < 1e-2
    assert middle < 0.2


@pytest.mark.parametrize("linearised", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("draw", ["example", "batch"])
def test_theorem_2_delta_stn_recovers_the_jacobian_although_weights_see_no_perturbation(draw: str, linearised: bool):
    problem = Quadratic(3)
    tuner = problem.tuner(algorithm="delta", response_every=1, linearised=linearised, draw=draw)
    rows = torch.zeros(32 if draw == "example" else 1)
    for _ in range(1500):
        if draw == "batch":
            tuner.optimizer.param_groups[0]["lr"] *= 0.998
        tuner.train_step(problem.loss, ("train", rows))
    weights = cast(Affine, tuner.model).layer.bias.detach()
    optimum = -torch.linalg.solve(problem.C, problem.B.t() @ tuner.hyper.lam + problem.e)
    torch.testing.assert_close(weights, optimum, rtol=1e-3, atol=1e-3)
    error = (response(tuner.model).V.detach() - problem.jacobian).norm() / problem.jacobian.norm()
    assert error < (1e-2 if draw == "example" else 5e-2)


@pytest.mark.slow
@pytest.mark.parametrize("linearised", [False, True])
def test_theorem_2_delta_stn_reaches_the_known_optimum(linearised: bool):
    problem = Quadratic(1, n=2)
    tuner = problem.tuner(algorithm="delta", linearised=linearised, valid_draw="mean", warmup_steps=300)
    tuner.epoch(problem.loss, [("train", torch.zeros(32))] * 2400, [("valid", torch.zeros(64))])
    torch.testing.assert_close(tuner.hyper.lam.detach(), problem.best, rtol=0, atol=0.02)


@pytest.mark.parametrize("valid_draw", ["mean", "example"])
@pytest.mark.parametrize("seed", range(2))
def test_theorem_2_alternating_descent_reaches_the_known_optimum(seed: int, valid_draw: str):
    problem = Quadratic(seed, n=2)
    tuner = problem.tuner(valid_draw=valid_draw, warmup_steps=300)
    train = [("train", torch.zeros(32))] * 3000
    tuner.epoch(problem.loss, train, iter([("valid", torch.zeros(512))] * 3000))
    tolerance = 0.01 if valid_draw == "mean" else 0.05
    torch.testing.assert_close(tuner.hyper.lam.detach(), problem.best, rtol=0, atol=tolerance)


def test_case_2_the_score_function_finds_the_optimum_of_a_loss_that_depends_on_lambda_directly():
    problem = Quadratic(0, rho=0.5)
    tuner = problem.tuner(warmup_steps=300)
    train = [("train", torch.zeros(32))] * 3000
    tuner.epoch(problem.loss, train, iter([("valid", torch.zeros(2048))] * 3000))
    for group in tuner.hyper_optimizer.param_groups:
        group["lr"] = 0.01
    tuner.epoch(problem.loss, train[:1000], iter([("valid", torch.zeros(2048))] * 1000))
    torch.testing.assert_close(tuner.hyper.lam.detach(), problem.best, rtol=0, atol=0.1)


def ridge_data(seed: int, train: int = 30, dim: int = 20, noise: float = 4.0) -> dict[str, tuple[Tensor, Tensor]]:
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(dim, generator=g, dtype=double)
    data = {}
    for split, size in [("train", train), ("valid", 400)]:
        x = torch.randn(size, dim, generator=g, dtype=double)
        data[split] = x, x @ w + noise * torch.randn(size, generator=g, dtype=double)
    return data


def ridge_solution(x: Tensor, t: Tensor, penalty: float) -> Tensor:
    return torch.linalg.solve(x.t() @ x + penalty * torch.eye(x.shape[1], dtype=double), x.t() @ t)


@pytest.mark.parametrize("lam", [-3.0, 0.0, 2.0, 5.0])
def test_theorem_1_sigmoid_gating_is_the_exact_best_response(lam: float):
    x, t = ridge_data(0)["train"]
    u, d, vh = torch.linalg.svd(x, full_matrices=False)
    q0, s0 = vh, (u.t() @ t) / d
    gate = torch.sigmoid(-lam + 2 * d.log())
    q, s = (gate[:, None] * q0).requires_grad_(), s0.clone().requires_grad_()
    torch.testing.assert_close(q.t() @ s, ridge_solution(x, t, torch.tensor(lam).exp().item()), rtol=1e-6, atol=1e-6)
    inputs = x.clone().requires_grad_()
    y = inputs @ q.t() @ s
    (jacobian,) = torch.autograd.grad(y.sum(), inputs, create_graph=True)
    loss = ((y - t).square() + torch.tensor(lam, dtype=double).exp() / len(t) * jacobian.square().sum(1)).sum()
    for gradient in torch.autograd.grad(loss, (q, s)):
        assert gradient.abs().max() < 1e-6


class Linear(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.layer = nn.Linear(dim, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).squeeze(-1)


def alternate(space, init, loss, data, steps: int = 4500, batch: int = 60, hyper_lr: float = 0.01) -> stn.SelfTuner:
    """An STN of linear regression; the training batch is the whole set, repeated so that each λ+ε sees it."""
    hyper = stn.Hyper(space, init=init, scale=0.5, tune_scale=False).double()
    model = stn.self_tune(Linear(data["train"][0].shape[1]).double(), hyper)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    tuner = stn.SelfTuner(model, hyper, optimizer, hyper_lr=hyper_lr, warmup_steps=200, draw="example")
    order = torch.Generator().manual_seed(0)
    x, t = data["train"]

    def batches():
        for _ in range(steps):
            rows = torch.randint(0, len(t), (batch,), generator=order)
            yield x[rows], t[rows]

    def valid():
        while True:
            yield data["valid"]

    tuner.epoch(loss, batches(), valid())
    return tuner


@pytest.mark.parametrize("start", [0.01, pytest.param(0.1, marks=pytest.mark.slow), 10.0])
def test_theorem_1_an_stn_finds_the_ridge_penalty(start: float):
    data = ridge_data(2)
    x, t = data["train"]

    def loss(model, batch, hp):
        inputs, target = batch
        error = (model(inputs) - target).square().mean()
        return error + stn.nn.l2(model, hp["decay"]) if model.training else error

    def valid_loss(penalty: float) -> float:
        w = ridge_solution(x, t, penalty)
        return (data["valid"][0] @ w - data["valid"][1]).square().mean().item()

    best = min(valid_loss(p.item()) for p in torch.logspace(-4, 5, 2000))
    assert valid_loss(0.5 * len(t) * start) > 1.02 * best, "the start is no solution"
    tuner = alternate({"decay": tune.loguniform(1e-3, 30)}, {"decay": start}, loss, data, batch=512)
    reached = tuner.evaluate(loss, [data["valid"]])
    assert reached < 1.02 * best
    found = tuner.hyper.values_now()["decay"]
    assert valid_loss(0.5 * len(t) * found) < 1.02 * best, "the penalty itself is good, not only the weights"


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
@pytest.mark.parametrize("start", ["low", pytest.param("high", marks=pytest.mark.slow)])
def test_augmentation_hyperparameters_find_the_known_best(kind: str, start: str):
    """Noise of std s added to the inputs is ridge with penalty N s²: the best s is known."""
    data = ridge_data(2)
    x, t = data["train"]
    domain = tune.uniform(0, 2.5) if kind == "continuous" else tune.quniform(0, 2.5, 0.25)

    def loss(model, batch, hp):
        inputs, target = batch
        if model.training:
            inputs = inputs + hp["noise"].view(-1, 1) * torch.randn_like(inputs)
        return (model(inputs) - target).square().mean()

    def valid_loss(s: float) -> float:
        w = ridge_solution(x, t, len(t) * s**2)
        return (data["valid"][0] @ w - data["valid"][1]).square().mean().item()

    grid = torch.linspace(0, 2.5, 251).tolist()
    best = min(grid, key=valid_loss)
    init = 0.25 if start == "low" else 2.25
    assert abs(best - init) > 0.3
    tuner = alternate({"noise": domain}, {"noise": init}, loss, data, steps=3000, batch=512)
    found = tuner.hyper.values_now()["noise"]
    assert abs(found - best) < 0.3 * abs(init - best) + (0.125 if kind == "discrete" else 0), (found, best)
    assert valid_loss(found) < 1.02 * valid_loss(best)
