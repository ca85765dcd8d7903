"""The model of SkOptSearch, against scikit-learn's and against differences."""

from __future__ import annotations

import numpy as np
import pytest
from ray import tune
from scipy.optimize import check_grad
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from stn_tune.raytune.acquisition import best_improvement, model_inputs
from stn_tune.raytune.gaussian_process import GaussianProcess
from stn_tune.raytune.skopt_axis import Axis


@pytest.fixture
def data():
    random = np.random.default_rng(0)
    x = random.random((25, 4))
    y = np.sin(5 * x[:, 0]) + x[:, 1] ** 2 + 0.1 * random.normal(size=25)
    return x, (y - y.mean()) / y.std()


def sklearn_of(model: GaussianProcess, noise: bool = True) -> GaussianProcessRegressor:
    scale, lengths, variance = model._parts(model.theta)
    kernel = ConstantKernel(scale) * Matern(lengths, nu=2.5)
    if noise:
        return GaussianProcessRegressor(kernel + WhiteKernel(variance), optimizer=None, alpha=0.0)
    return GaussianProcessRegressor(kernel, optimizer=None, alpha=variance)


def test_likelihood_and_predictions_are_scikit_learns(data):
    model = GaussianProcess(range(4)).fit(*data)
    reference = sklearn_of(model).fit(*data)
    prior = 0.5 * model.precision @ (model.theta - model.prior_mean) ** 2
    constant = 0.5 * len(data[1]) * np.log(2 * np.pi)
    assert -(model.loss(model.theta)[0] - prior) - constant == pytest.approx(reference.log_marginal_likelihood_value_)
    elsewhere = np.random.default_rng(1).random((10, 4))
    found = model.predict(elsewhere)
    for mine, theirs in zip(
        found, sklearn_of(model, noise=False).fit(*data).predict(elsewhere, return_std=True), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("axis_of", [[0, 1, 2, 3], [0, 1, 1, 2]])
def test_gradients_are_those_of_differences(data, axis_of):
    model = GaussianProcess(axis_of).fit(*data)
    theta = model.prior_mean + np.random.default_rng(2).normal(size=len(model.prior_mean)) * 0.3
    assert check_grad(lambda t: model.loss(t)[0], lambda t: model.loss(t)[1], theta) < 1e-3
    x = np.full(4, 0.4)
    gradient = model.negative_improvement(x, 0.5)[1]
    assert np.linalg.norm(gradient) > 1e-3
    assert check_grad(lambda z: model.negative_improvement(z, 0.5)[0], lambda z: gradient, x) < 1e-5
    assert model.improvement(x[None], 0.5)[0] == pytest.approx(-model.negative_improvement(x, 0.5)[0])


def test_a_fit_finds_which_axes_matter(data):
    scale, lengths, noise = GaussianProcess(range(4)).fit(*data)._parts(GaussianProcess(range(4)).fit(*data).theta)
    assert max(lengths[:2]) < min(lengths[2:])
    assert noise < 0.2
    assert scale > 0.1


def test_a_start_from_an_earlier_fit_ends_at_the_same_place(data):
    first = GaussianProcess(range(4)).fit(*data)
    again = GaussianProcess(range(4), first.theta).fit(*data)
    assert again.loss(again.theta)[0] == pytest.approx(first.loss(first.theta)[0], abs=0.05)


def test_choices_are_as_far_apart_as_the_ends_of_a_number():
    axes = [Axis.of(("x",), tune.uniform(2, 4)), Axis.of(("c",), tune.choice("abc"))]
    inputs = model_inputs(axes, np.array([[2.0, 0], [4.0, 0], [2.0, 2]]))
    assert inputs.shape == (3, 4)
    assert np.linalg.norm(inputs[0] - inputs[1]) == pytest.approx(1)
    assert np.linalg.norm(inputs[0] - inputs[2]) == pytest.approx(1)


def test_the_greatest_improvement_is_found_in_the_continuous_and_in_the_discrete():
    axes = [
        Axis.of(("x",), tune.uniform(0, 1)),
        Axis.of(("k",), tune.randint(0, 50)),
        Axis.of(("c",), tune.choice("ab")),
    ]
    random = np.random.default_rng(0)
    points = np.column_stack([axis.draw(random, 40) for axis in axes])
    values = (points[:, 0] - 0.3) ** 2 + ((points[:, 1] - 31) / 50) ** 2 + points[:, 2]
    standard = (values - values.mean()) / values.std()
    (x, k, c), theta = best_improvement(axes, points.tolist(), standard.tolist(), random)
    assert x == pytest.approx(0.3, abs=0.1)
    assert abs(k - 31) <= 5
    assert c == 0
    assert len(theta) == 5


def test_what_was_observed_is_not_suggested_again_while_there_is_anything_else():
    axes = [Axis.of(("k",), tune.randint(0, 6))]
    points = [[0.0], [1.0], [2.0], [4.0], [5.0]]
    for seed in range(3):
        found, _ = best_improvement(axes, points, [1.0, -1.5, -0.5, 0.5, 0.5], np.random.default_rng(seed))
        assert found == [3.0]
