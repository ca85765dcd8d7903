"""What people do to models inside and around steps: each is right, or says in one line why not."""

from __future__ import annotations

import copy

import pytest
import torch
from ray import tune
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel

import stn_tune as stn
from tests.zoo.models import CLASSES, WIDTH, vectors

SPACE = {"rate": tune.uniform(0.1, 0.9), "decay": tune.loguniform(1e-5, 1)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(WIDTH, 16), nn.Dropout(0.5), nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.b(self.drop(F.relu(self.a(x))))


def loss(model, batch, hp):
    out = model(batch[0])
    plain = F.cross_entropy(out, batch[1])
    return plain + hp["decay"] * out.square().mean() if model.training else plain


def tuned(model=None, **options):
    space, bind = (SPACE, {"drop": "rate"}) if model is None else ({"decay": SPACE["decay"]}, None)
    hyper = stn.Hyper(space)
    model = stn.self_tune(model or Net(), hyper, bind=bind)
    return stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.1), **options)


def steps(tuner, count=2):
    for _ in range(count):
        tuner.train_step(loss, vectors())
        tuner.valid_step(loss, vectors())


class TestWithinAStep:
    @pytest.mark.parametrize(
        "use",
        [lambda m: nn.utils.clip_grad_norm_(m.parameters(), 1.0), lambda m: m.zero_grad(), lambda m: m.a.weight.grad],
        ids=["clip", "zero_grad", "read"],
    )
    def test_gradients_of_the_models_parameters_are_refused(self, use):
        tuner, batch = tuned(), vectors()

        def step():
            with tuner.training(batch) as hp:
                loss(tuner.model, batch, hp).backward()
                use(tuner.model)

        with pytest.raises(RuntimeError, match=r"^the gradient of a weight is read within the step, [^\n]+$"):
            step()
        steps(tuner)

    def test_state_dict_is_refused(self):
        tuner = tuned()
        with tuner.training(vectors()), pytest.raises(RuntimeError, match=r"^state_dict within a step [^\n]+$"):
            tuner.model.state_dict()
        tuner.model.state_dict()

    def test_a_weight_that_is_moved_between_two_forward_passes_is_said(self):
        """As sharpness-aware minimisation does."""
        tuner = tuned()
        steps(tuner)
        weight = tuner.model.a.weight
        with pytest.raises(stn.ConversionError, match=r"^a.weight was written to within the step, [^\n]+$"):  # noqa: SIM117
            with tuner.training(vectors()), torch.no_grad():
                weight.add_(1)

    def test_an_initialisation_by_data_is_not_lost(self):
        class FirstBatch(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.shift, self.done = nn.Linear(WIDTH, CLASSES), nn.Parameter(torch.zeros(CLASSES)), False

            def forward(self, x):
                h = self.fc(x)
                if not self.done:
                    self.shift.data.copy_(-h.mean(0))
                    self.done = True
                return h + self.shift

        with pytest.raises(stn.ConversionError, match=r"^shift was written to within the step.* before self_tune"):
            tuned(FirstBatch()).train_step(loss, vectors())
        model = FirstBatch()
        model(vectors()[0])
        steps(tuned(model))


class TestFreezing:
    @pytest.mark.parametrize("before", [0, 2], ids=["from the start", "in the course of training"])
    def test_responses_are_frozen_and_unfrozen_with_their_parameters(self, before):
        tuner = tuned()
        steps(tuner, before)
        tuner.model.requires_grad_(False)
        tuner.model.b.requires_grad_(True)
        old = {path: r.U.clone() for path, r in tuner._tuning.responses.items()}
        steps(tuner, 2)
        moved = {path for path, r in tuner._tuning.responses.items() if not torch.equal(r.U, old[path])}
        assert moved == {"b/weight", "b/bias"}
        tuner.model.a.requires_grad_(True)
        steps(tuner, 2)
        assert not any(torch.equal(r.U, old[path]) for path, r in tuner._tuning.responses.items())


class TestLoadingAndMoving:
    def test_lambda_still_moves_after_it_was_assigned(self):
        tuner = tuned()
        steps(tuner)
        tuner.hyper.load_state_dict(copy.deepcopy(tuner.hyper.state_dict()), assign=True)
        before = tuner.hyper.lam.clone()
        steps(tuner)
        assert not torch.equal(tuner.hyper.lam, before)

    def test_a_model_built_without_memory_loads_what_was_trained(self):
        source = tuned()
        steps(source)
        with torch.device("meta"):
            model = Net()
        hyper = stn.Hyper(SPACE)
        stn.self_tune(model, hyper, bind={"drop": "rate"}).to_empty(device="cpu")
        model.load_state_dict(source.model.state_dict())
        x = vectors()[0]
        assert torch.equal(model.eval()(x), source.model.eval()(x))
        assert hyper.values_now() == source.hyper.values_now()
        noise = torch.ones(2)
        assert dict(hyper.sample_at(noise)) == dict(source.hyper.sample_at(noise))

    def test_lambda_survives_the_meta_device(self):
        tuner = tuned()
        values = tuner.hyper.values_now()
        tuner.model.to("meta")
        assert tuner.hyper.values_now() == values

    def test_dropouts_of_an_average_are_at_its_lambda(self):
        """``update_bn`` runs an average in training mode."""
        tuner = tuned()
        average = AveragedModel(tuner.model)
        for _ in range(3):
            steps(tuner)
            average.update_parameters(tuner.model)
        average.train()
        assert average.module.drop.p == tuner.model.drop.p != 0.5

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_a_script_is_made_of_the_plain_model(self):
        model, x = tuned().model.eval(), vectors()[0]
        with pytest.raises(stn.ConversionError, match=r"^torch.jit.script cannot read a self-tuned model: [^\n]+$"):
            torch.jit.script(model)
        assert "_stn.responses.a/weight.U" in model.state_dict()
        assert torch.equal(torch.jit.script(stn.release(copy.deepcopy(model)))(x), model(x))


class Odd(nn.Module):
    """Parameters that are named like methods, empty, complex, or of a type without arithmetic."""

    def __init__(self):
        super().__init__()
        self.keys, self.values = nn.Parameter(torch.randn(5, WIDTH)), nn.Parameter(torch.randn(5, CLASSES))
        self.none, self.wave = nn.Parameter(torch.empty(0, 3)), nn.Parameter(torch.randn(CLASSES, dtype=torch.cfloat))
        self.narrow = nn.Parameter(torch.zeros(2, 2).to(torch.float8_e4m3fn))

    def forward(self, x):
        return (x @ self.keys.t()).softmax(-1) @ self.values + self.wave.abs() + self.none.sum()


def test_odd_parameters_respond_or_stay_plain():
    tuner = tuned(Odd())
    assert {r.path for r in tuner._tuning.responding()} == {"keys", "values"}
    steps(tuner)
    assert all(r.response.U.grad.any() for r in tuner._tuning.responding())


def test_l2_of_complex_weights_is_that_of_their_absolute_values():
    weights = nn.ParameterList([torch.randn(3, dtype=torch.cfloat), torch.randn(3)])
    torch.testing.assert_close(stn.nn.l2(weights, 2.0), sum(p.abs().square().sum() for p in weights))


def test_orthogonal_weights_stay_orthogonal():
    model = Net()
    nn.utils.parametrizations.orthogonal(model.a)
    steps(tuned(model), 3)
    torch.testing.assert_close(model.a.weight.t() @ model.a.weight, torch.eye(WIDTH))


@pytest.mark.parametrize("check", ["step", 1], ids=["raised", "masked"])
def test_a_step_that_fails_puts_back_buffers_that_were_replaced(check):
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(WIDTH, CLASSES)
            self.register_buffer("mean", torch.zeros(WIDTH))

        def forward(self, x):
            if self.training:
                self.mean = 0.9 * self.mean + x.mean(0)
            return self.fc(x)

    tuner = tuned(Mean(), check=check)
    steps(tuner)
    before = tuner.model.mean.clone()
    with pytest.raises(stn.NonFiniteError):
        tuner.train_step(lambda *args: loss(*args) * float("nan"), vectors())
    assert torch.equal(tuner.model.mean, before)
