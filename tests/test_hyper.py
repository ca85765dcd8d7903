from __future__ import annotations

import io
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ray import tune
from torch.distributions import Normal

import stn_tune as stn

SPACE = {"drop": tune.uniform(0, 0.8), "holes": tune.randint(0, 5), "alpha": stn.positive()}


def make(**options) -> stn.Hyper:
    return stn.Hyper(SPACE, init={"drop": 0.2, "holes": 3, "alpha": 0.5}, **options)


def test_starts_at_its_initial_values_and_scale():
    hyper = make(scale={"drop": 0.1, "holes": 1.0, "alpha": 3.0})
    assert hyper.values_now() == {"drop": pytest.approx(0.2), "holes": 3, "alpha": pytest.approx(0.5)}
    assert type(hyper.values_now()["holes"]) is int
    assert hyper.scales_now() == pytest.approx({"drop": 0.1, "holes": 1.0, "alpha": 3.0})
    middle = stn.Hyper({"drop": tune.uniform(0, 0.8)})
    assert middle.values_now()["drop"] == pytest.approx(0.4)


def test_samples_are_gaussian_around_lambda():
    hyper = make(scale=0.3)
    drawn = hyper.sample(20_000).unconstrained
    torch.testing.assert_close(drawn.mean(0), hyper.lam.detach(), atol=0.01, rtol=0)
    torch.testing.assert_close(drawn.std(0), torch.full((3,), 0.3), atol=0.01, rtol=0)
    assert torch.corrcoef(drawn.detach().t()).triu(1).abs().max() < 0.03


def test_a_sample_gives_the_constrained_values_of_what_the_layers_see():
    hyper = make()
    sample = hyper.sample(16)
    assert set(sample) == set(SPACE)
    for i, name in enumerate(hyper.space.names):
        expected = hyper.space.transform(name).constrain(sample.unconstrained[:, i])
        torch.testing.assert_close(sample[name], expected)
    assert sample.read == set(SPACE)
    assert (sample["holes"] == sample["holes"].round()).all()


def test_values_are_plain_numbers_where_torch_wants_them():
    """A shared draw is a 0-d tensor without a gradient: float(), comparisons and torch's own arguments take it."""
    sample = make().sample()
    x = torch.ones(1000)
    assert 0 < float(sample["drop"]) < 0.8
    assert torch.nn.functional.dropout(x, p=sample["drop"]).shape == x.shape
    logits, target = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
    assert torch.nn.functional.cross_entropy(logits, target, label_smoothing=sample["drop"]) > 0
    assert bool(sample["drop"] > 0)
    assert not sample["drop"].requires_grad
    assert not make().sample(differentiable=True)["drop"].requires_grad


def test_a_copy_of_everything_is_not_a_use_of_anything():
    sample = make(constants={"lr": 0.1}).sample()
    copied = [dict(sample), {**sample}, dict(sample.items()), list(sample.values()), sample.copy()]
    assert all(len(c) == 4 for c in copied)
    assert sample.read == set()
    assert sample.get("nothing") is None
    assert {name: sample[name] for name in sample}.keys() == dict(sample).keys()
    assert sample.read == {"drop", "holes", "alpha", "lr"}


def test_lambda_and_sigma_are_state_and_no_parameters():
    hyper = make()
    assert list(hyper.parameters()) == []
    assert {"lam/drop", "lam/holes", "lam/alpha", "raw_sigma/drop"} <= set(hyper.state_dict())
    optimizer = torch.optim.Adam([hyper.lam], lr=0.1)
    for convert in (stn.Hyper.half, stn.Hyper.bfloat16, stn.Hyper.double):
        dtype = torch.float64 if convert is stn.Hyper.double else torch.float32
        assert convert(hyper).lam.dtype == dtype, "half precision is not for λ"
        assert optimizer.param_groups[0]["params"][0] is hyper.lam, "optimizers stay valid"


def test_a_space_in_another_order_loads_the_right_values():
    hyper = make(scale={"drop": 0.1, "holes": 1.0, "alpha": 3.0})
    other = stn.Hyper({name: SPACE[name] for name in ("alpha", "drop", "holes")})
    other.load_state_dict(hyper.state_dict())
    assert other.values_now() == pytest.approx(hyper.values_now())
    assert other.scales_now() == pytest.approx(hyper.scales_now())


@given(st.floats(-1e6, 1e6))
def test_lambda_is_held_where_r_still_moves(u):
    """Past that point r stands still; every discrete value stays reachable."""
    hyper = stn.Hyper(SPACE | {"log": tune.loguniform(1e-4, 1), "steps": tune.lograndint(1, 1000), "free": stn.real()})
    hyper.lam.fill_(u)
    hyper.raw_sigma.fill_(u)
    hyper.hold()
    assert hyper.sigma.min() * 1.001 >= 1e-3
    assert hyper.sigma.max() <= 5.001
    values = hyper.values_now()
    assert 0.0007 < values["drop"] < 0.79999
    assert values["free"] == pytest.approx(u, rel=1e-4, abs=1e-4)
    if abs(u) > 20:
        assert values["holes"] == (4 if u > 0 else 0)
        assert values["steps"] == (999 if u > 0 else 1)


def test_an_initial_value_beyond_the_hold_stays():
    hyper = stn.Hyper({"drop": tune.uniform(0, 1)}, init={"drop": 1e-6}, scale=20.0)
    hyper.hold()
    assert hyper.values_now()["drop"] == pytest.approx(1e-6)
    assert hyper.scales_now()["drop"] == pytest.approx(20.0)


def test_per_batch_hyperparameters_are_drawn_once():
    hyper = make(per_batch=["alpha"])
    sample = hyper.sample(16)
    assert sample["alpha"].dim() == 0
    assert (sample.unconstrained[:, 2] == sample.unconstrained[0, 2]).all()
    assert sample.unconstrained[:, 0].unique().numel() == 16
    assert hyper.sample(16)["alpha"] != sample["alpha"]


def test_the_deterministic_and_the_shared_sample_hold_one_value_for_all():
    hyper = make()
    assert hyper.mean()["drop"].shape == ()
    assert hyper.mean()["drop"].item() == pytest.approx(0.2)
    assert hyper.sample()["drop"].shape == ()
    assert hyper.current["drop"].item() == pytest.approx(0.2)
    shared = hyper.sample()
    with hyper.using(shared):
        assert hyper.current is shared
    assert hyper.current is not shared


def test_constants_are_found_by_name_and_mistakes_are_named():
    hyper = make(constants={"lr": 0.1, "drop": 9.9})
    sample = hyper.sample(4)
    assert sample["lr"] == 0.1
    assert sample["drop"].shape == (4,), "what is tuned wins over a constant of the same name"
    with pytest.raises(KeyError, match=r"unknown hyperparameter 'drp'.*did you mean 'drop'\?"):
        sample["drp"]


def test_entropy_is_the_gaussians():
    hyper = make(scale={"drop": 0.1, "holes": 1.0, "alpha": 3.0})
    expected = sum(Normal(0.0, s).entropy().item() for s in (0.1, 1.0, 3.0))
    assert hyper.entropy().item() == pytest.approx(expected, rel=1e-5)
    assert expected == pytest.approx(sum(math.log(s * math.sqrt(2 * math.pi * math.e)) for s in (0.1, 1, 3)))


def test_a_fixed_scale_gets_no_gradient():
    sample = make(tune_scale=False).sample(8, differentiable=True)
    sample.delta.sum().backward()
    assert sample.lam.grad.tolist() == [8.0, 8.0, 8.0]
    assert sample.sigma.grad is None


def test_state_loads_with_weights_only_and_only_into_the_same_space():
    hyper = make(scale=0.3)
    with torch.no_grad():
        hyper.lam += 0.5
    buffer = io.BytesIO()
    torch.save(hyper.state_dict(), buffer)
    buffer.seek(0)
    state = torch.load(buffer, weights_only=True)
    other = make()
    other.load_state_dict(state)
    assert torch.equal(other.lam, hyper.lam)
    assert torch.equal(other.sigma, hyper.sigma)
    with pytest.raises(stn.SpaceError, match="drop: the saved state has"):
        stn.Hyper({"drop": tune.uniform(0, 0.9), "holes": tune.randint(0, 5), "alpha": stn.positive()}).load_state_dict(
            state
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init": {"drap": 0.1}}, "init: unknown hyperparameter 'drap'.*did you mean 'drop"),
        ({"init": {"drop": 0.9}}, "drop: .*0.9"),
        ({"init": {"drop": math.nan}}, "drop: .*nan"),
        ({"scale": 0.0}, "drop: the perturbation scale is 0.0; it must be positive"),
        ({"scale": {"drop": 1.0}}, "scale: (holes|alpha) is missing"),
        ({"per_batch": ["beta"]}, "per_batch: unknown hyperparameter 'beta'"),
        ({"direct": ["beta"]}, "direct: unknown hyperparameter 'beta'"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(stn.SpaceError, match=message):
        stn.Hyper(SPACE, **options)


class TestScoreFunction:
    """The estimator of Case 2 against a brute-force expectation."""

    @staticmethod
    def value(units):
        """A validation loss that depends directly on a discrete hyperparameter."""
        return (units - 3.0) ** 2 / 4

    def exact(self, hyper):
        """∂E[F]/∂(λ, σ) by summing F over the values times the Gaussian mass that rounds to them."""
        lam = hyper.lam.detach().double().requires_grad_()
        sigma = hyper.sigma.detach().double().requires_grad_()
        grid = torch.linspace(-12, 12, 400_001, dtype=torch.float64)
        density = Normal(lam, sigma).log_prob(grid).exp()
        units = hyper.space.transform("units").constrain(grid)
        expectation = torch.trapezoid(self.value(units) * density, grid)
        return [g.item() for g in torch.autograd.grad(expectation, (lam, sigma))]

    @pytest.mark.parametrize("reduction", ["per example", "scalar", "per batch", "shared"])
    def test_is_unbiased(self, reduction):
        space = {"units": tune.randint(0, 8)}
        per_batch = ["units"] if reduction == "per batch" else []
        hyper = stn.Hyper(space, init={"units": 5}, scale=0.8, direct=True, per_batch=per_batch)
        batch = 200 if reduction == "per example" else 4
        estimates = []
        hyper.baseline.copy_(torch.tensor([0.07, 0.1]))
        for _ in range(400 if reduction == "per example" else 2500):
            sample = hyper.sample(None if reduction == "shared" else batch, differentiable=True)
            losses = self.value(sample["units"]).expand(batch if reduction == "per batch" else sample["units"].shape)
            if reduction == "scalar":
                losses = losses.mean()
            surrogate = hyper.score(losses, sample)
            grad_lam, grad_raw = torch.autograd.grad(surrogate, (sample.lam, sample.sigma))
            estimates.append([grad_lam.item(), grad_raw.item() / torch.sigmoid(hyper.raw_sigma).item()])
        estimates = torch.tensor(estimates, dtype=torch.float64)
        error = estimates.std(0) / len(estimates) ** 0.5
        exact = torch.tensor(self.exact(hyper), dtype=torch.float64)
        assert (exact.abs() > 5 * error).all(), "the test can tell the gradient from zero"
        assert ((estimates.mean(0) - exact).abs() < 4 * error).all(), (estimates.mean(0), exact, error)

    def test_the_baseline_reduces_the_variance(self):
        hyper = stn.Hyper({"units": tune.randint(0, 8)}, init={"units": 5}, scale=0.8, direct=True)
        spread = []
        for offset in (0.0, 100.0):
            gradients = []
            for _ in range(300):
                sample = hyper.sample(50, differentiable=True)
                surrogate = hyper.score(self.value(sample["units"]) + offset, sample)
                gradients.append(torch.autograd.grad(surrogate, sample.lam)[0].item())
            spread.append(torch.tensor(gradients).std().item())
        assert spread[1] < 1.5 * spread[0], "a constant added to the loss does not add variance"

    def test_direct_values_carry_no_path_gradient(self):
        hyper = stn.Hyper({"units": tune.uniform(0, 8), "rate": tune.uniform(0, 1)}, direct=["units"])
        sample = hyper.sample(3, differentiable=True)
        gradient = torch.autograd.grad(sample.delta.sum(), sample.lam)[0]
        assert gradient.tolist() == [0.0, 3.0]


class TestGroups:
    """Draws that several examples share, and mirrored ones."""

    def test_neighbours_share_a_draw(self, hyper):
        delta = hyper.sample(7, groups=3).delta
        assert delta.shape == (7, 3)
        assert [int((delta == row).all(1).sum()) for row in delta] == [3, 3, 3, 2, 2, 2, 2]
        assert len(hyper.sample(4, groups=9).delta.unique(dim=0)) == 4, "more groups than examples: one each"

    @pytest.mark.parametrize("size", [6, 7])
    def test_the_second_half_is_mirrored(self, hyper, size):
        delta = hyper.sample(size, antithetic=True).delta
        half = size // 2
        assert torch.equal(delta[size - half :], -delta[:half])
        delta = hyper.sample(8, groups=2, antithetic=True).delta
        assert torch.equal(delta[:4], -delta[4:])
        assert len(delta.unique(dim=0)) == 2

    def test_what_is_drawn_per_batch_stays_one_value(self):
        hyper = stn.Hyper({"a": tune.uniform(0, 1), "b": tune.uniform(0, 1)}, per_batch=["b"])
        sample = hyper.sample(6, groups=3, antithetic=True)
        assert len(sample.delta[:, 1].unique()) == 1
        assert sample["b"].dim() == 0
