from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np
import pytest
import torch
from torch.autograd.functional import jacobian

from benchmarks.errors import SettingsError
from benchmarks.studies import STUDIES
from benchmarks.studies.theory import NETWORKS, SCALES
from benchmarks.tasks import problem
from benchmarks.tasks.theory import EXACT, POINTS, gated_response, make_data, ridge_response
from stn_tune.analysis import MissingData, Results, load
from tests.analysis import logs


def training_data() -> tuple[torch.Tensor, torch.Tensor]:
    x, t = make_data(8)["train"]
    return x.double(), t.double()


@pytest.mark.parametrize("penalty", [0.03, 0.2, 4.0])
@pytest.mark.parametrize("network", EXACT)
def test_the_exact_response_minimises_the_regularised_loss(network, penalty):
    x, t = training_data()
    u = EXACT[network](x, t, torch.tensor(penalty, dtype=torch.float64)).requires_grad_()
    loss = (x @ u - t).square().mean() + penalty * u.square().sum()
    (gradient,) = torch.autograd.grad(loss, u)
    assert gradient.norm() < 1e-10 * u.norm()


@pytest.mark.parametrize("network", EXACT)
def test_the_exact_jacobian_is_that_of_finite_differences(network):
    trainable = trained(network, RIGHT, iterations=0)
    exact = trainable._task.exact(trainable._trainer.hyper)
    lam, h = torch.tensor([0.3]).double(), 1e-6
    expected = (exact(lam + h) - exact(lam - h)) / (2 * h)
    torch.testing.assert_close(jacobian(exact, lam)[:, 0], expected, rtol=1e-6, atol=1e-8)


def test_theorem_1_gating_is_ridge_regression():
    x, t = training_data()
    for penalty in torch.tensor([0.01, 1.0, 50.0]).double():
        torch.testing.assert_close(gated_response(x, t, penalty), ridge_response(x, t, penalty))


def trained(network: str, scale: float, iterations: int | None = None):
    p = problem("theory", "smoke", [f"network={network}", f"stn.scale={scale}"])
    trainable = p.self_tuned()(config={**p.initial, "seed": 0})
    trainable.rows = []
    while len(trainable.rows) != iterations and not (trainable.rows and trainable.rows[-1]["done"]):
        trainable.rows.append(trainable.train())
    return trainable


RIGHT, SHORT = SCALES[1], 6


@pytest.fixture(scope="module")
def runs():
    """Trained to the end in the right neighbourhood; a third of that is enough to see the others go wrong."""
    torch.set_num_threads(1)
    return {
        (network, scale): trained(network, scale, iterations=None if scale == RIGHT else SHORT)
        for network in NETWORKS
        for scale in SCALES
    }


@pytest.mark.parametrize("network", NETWORKS)
def test_only_the_right_neighbourhood_gives_the_right_gradient(runs, network):
    small, right, wide = (runs[network, scale].rows[-1] for scale in SCALES)
    for error in ("val_response/gradient_error", "val_response/jacobian_error"):
        assert right[error] < 0.05
        as_long = runs[network, RIGHT].rows[SHORT - 1][error]
        assert small[error] > max(0.9, 2 * as_long), "the slope is not learned in as many steps"
        assert wide[error] > max(0.3, 2 * right[error]), "an affine response cannot follow"
    assert small["val_response/weight_error"] < 0.001, "a point mass is enough for the weights themselves"
    assert wide["val_response/weight_error"] > 0.05


def test_training_ends_with_the_schedule_of_its_learning_rate(runs):
    rows = runs["ridge", RIGHT].rows
    assert [row["lr"] for row in rows[::SHORT]] == pytest.approx([0.02, 0.005, 0.00125])
    assert len(rows) == 3 * SHORT


def test_every_row_holds_the_same_finite_numbers_and_lambda_stays(runs):
    for trainable in runs.values():
        assert len({frozenset(row) for row in trainable.rows}) == 1
        assert all(math.isfinite(v) for row in trainable.rows for k, v in row.items() if k.startswith("val_"))
        assert [row["hp/penalty"] for row in trainable.rows] == pytest.approx([0.2] * len(trainable.rows))


@pytest.mark.parametrize("network", NETWORKS)
def test_what_is_reported_is_what_the_network_does(runs, network):
    trainable = runs[network, RIGHT]
    row, tuner = trainable.rows[-1], trainable._trainer
    x, t = (part.double() for part in trainable._loaders.valid[0])
    learned, exact = trainable._task.learned(tuner), trainable._task.exact(tuner.hyper)

    def slope_of_loss(response):
        lam, h = tuner.hyper.lam.detach().double(), 1e-2
        low, high = ((x @ response(lam + d).detach() - t).square().mean() for d in (-h, h))
        return float((high - low) / (2 * h))

    assert row["val_response/gradient"] == pytest.approx(slope_of_loss(learned), rel=1e-2)
    assert row["val_response/gradient_exact"] == pytest.approx(slope_of_loss(exact), rel=1e-2)
    at = np.linspace(row["val_response/first"], row["val_response/last"], POINTS)
    drawn, curve = (
        np.array([row[f"val_response/{kind}_{k:02}"] for k in range(POINTS)]) for kind in ("learned", "exact")
    )
    assert np.diff(drawn) == pytest.approx(np.diff(at) * row["val_response/slope"], rel=1e-3), "the response is affine"
    middle = POINTS // 2
    assert drawn[middle] == pytest.approx(curve[middle], rel=0.02)
    assert 1 / (1 + math.exp(-at[middle])) == pytest.approx(math.log(0.2 / 0.03) / math.log(4 / 0.03), rel=1e-5)
    if network == "gated":
        assert (curve > 0).all()
        assert (curve < 1).all(), "a gate is a sigmoid"


def test_training_at_a_fixed_penalty_reaches_the_closed_form():
    p = problem("theory", "smoke")
    trainable = p.fixed()(config=p.initial)
    for _ in range(8):
        row = trainable.train()
    x, t = training_data()
    best = ridge_response(x, t, torch.tensor(0.2).double())
    torch.testing.assert_close(trainable._trainer.model.output.weight[0].detach().double(), best, rtol=1e-3, atol=1e-3)
    assert "val_response/gradient_error" not in row


def test_an_unknown_network_is_named():
    with pytest.raises(SettingsError, match="network is 'deep'; it must be ridge or gated"):
        problem("theory", "small", ["network=deep"])


def words(figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(mpl.text.Text)).replace("\n", " ")


def as_frame(folder, reported):
    for (network, scale, seed), rows in reported.items():
        timed = [{**row, "trial": 0, "elapsed_s": row["wall_s"], "compute_s": row["wall_s"]} for row in rows]
        logs.write_run(folder, "stn", seed, timed, variant={"network": network, "scale": scale})
    return load(folder)


def neighbourhood(frame):
    (figure,) = STUDIES["theory"].figures()
    return figure.draw(figure.select(Results.of(frame)))


def plain(row) -> dict:
    return {key: value for key, value in row.items() if isinstance(value, (int, float, str))}


def test_the_figure_has_a_panel_per_neighbourhood_with_its_error(runs, tmp_path):
    reported = {(*key, seed): [plain(row) for row in run.rows] for key, run in runs.items() for seed in (0, 1)}
    for row in reported["ridge", 2.0, 1]:
        row["val_response/gradient_error"] += 0.2
    reported["gated", 0.01, 0][-1] |= {"val_response/gradient_error": math.nan, "val_loss": math.inf}
    reported["gated", 0.01, 1][-1] |= {"val_response/gradient_error": math.nan, "val_loss": math.inf}
    figure = neighbourhood(as_frame(tmp_path, reported))
    assert [ax.get_title("left") for ax in figure.axes[:3]] == [
        "too small: σ = 0.01",
        "right: σ = 0.2",
        "too wide: σ = 2",
    ]
    wide = runs["ridge", 2.0].rows[-1]
    assert f"gradient error {100 * (wide['val_response/gradient_error'] + 0.1):.0f} %" in [
        text.get_text() for text in figure.axes[2].texts
    ], "the mean of both seeds, at the last iteration"
    exact = figure.axes[2].lines[0]
    assert exact.get_ydata()[0] == pytest.approx(wide["val_response/exact_00"])
    assert "no finite result" in [text.get_text() for text in figure.axes[3].texts]
    assert "n = 2 seeds (thin: one each), as are the errors; 2 diverged and left out" in words(figure)


def test_the_figure_needs_the_theory_task(tmp_path):
    logs.write_run(tmp_path, "stn", 0, logs.rows([2.0, 1.0]), variant={"scale": 0.5})
    with pytest.raises(MissingData, match="no run reports val_response/gradient_error"):
        neighbourhood(load(tmp_path))
    reported = logs.rows([2.0, 1.0], **{"val_response/gradient_error": 0.1})
    logs.write_run(tmp_path, "stn", 0, reported, variant={"scale": 0.5})
    with pytest.raises(MissingData, match="no variants of network and scale"):
        neighbourhood(load(tmp_path))
