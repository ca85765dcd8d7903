"""stn.check: all findings at once, and nothing changed."""

from __future__ import annotations

import copy

import pytest
import torch
from ray import tune
from torch import nn
from torch.nn import functional as F

import stn_tune as stn
from stn_tune import rng
from tests.zoo.models import BATCH, CASES, CLASSES, WIDTH, Case, vectors

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's
WELL = [name for name, case in CASES.items() if not case.needs and name not in ("lora, merged in eval mode",)]


def tuned(case: Case):
    hyper = case.hyper()
    return stn.self_tune(case.build(), hyper, bind=case.bind, **case.options), hyper


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(WIDTH, 16), nn.Dropout(0.5), nn.Linear(16, CLASSES)
        self.norm, self.idle, self.spare = nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(2, 2)

    def forward(self, x):
        return self.b(self.drop(F.relu(self.norm(self.a(x)))))


def snapshot(model, hyper):
    return copy.deepcopy(
        {
            "state": {**dict(model.named_parameters()), **dict(model.named_buffers())},
            "grads": [p.grad for p in model.parameters()],
            "ids": [id(p) for p in model.parameters()] + [id(b) for b in model.buffers()],
            "needs": [p.requires_grad for p in model.parameters()],
            "modes": [m.training for m in model.modules()],
            "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
            "own": [sorted(k for k in m.__dict__ if k != "weight") for m in model.modules()],
            "used": [binding.used for binding in model._modules["_stn"].bindings] if "_stn" in model._modules else [],
            "rng": rng.get_state(),
            "rates": [m.p for m in model.modules() if isinstance(m, nn.Dropout)],
        }
    )


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("name", WELL)
def test_nothing_is_found_where_all_is_well_and_nothing_is_changed(name):
    case = CASES[name]
    model, hyper = tuned(case)
    batch = case.batch()
    before = snapshot(model, hyper)
    found = stn.check(model, hyper, case.loss, batch)
    if name == "checkpointed, reentrant":
        assert "use_reentrant" in str(found)
        found.clear()
    assert not found, str(found)
    assert str(found) == "nothing was found to be wrong"
    after = snapshot(model, hyper)
    for key, value in before.items():
        assert same(value, after[key]), key
    case.steps(stn.SelfTuner(model, hyper, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)))


def test_everything_is_found_at_once():
    space = {"rate": tune.uniform(0, 0.9), "decay": tune.loguniform(1e-5, 1), "other": tune.uniform(0, 1)}
    hyper = stn.Hyper(space)
    model = stn.self_tune(Net(), hyper, bind={"drop": "rate", "idle": "rate"})

    def loss(model, batch, hp):
        dict(hp)
        return F.cross_entropy(model(batch[0]), batch[1]) + hp["decay"] * model.a.weight.square().sum()

    batch = vectors()
    before = snapshot(model, hyper)
    found = stn.check(model, hyper, loss, batch)
    assert same(before, snapshot(model, hyper))
    text = str(found)
    assert "other: nothing reads it" in text
    assert "idle.p: bound to rate, but neither called nor read" in text
    assert "spare.weight: takes no part in the training loss, so it gets no gradient" in text
    assert "spare.bias: takes no part" in text
    assert "decay: read in eval mode" in text
    assert len(found) == 5
    assert all("\n" not in finding for finding in found)


def test_a_model_in_eval_mode_is_found_and_stays_in_it():
    case = CASES["mlp"]
    model, hyper = tuned(case)
    found = stn.check(model.eval(), hyper, case.loss, case.batch())
    assert found == ["Sequential is in eval mode: call model.train() before training"]
    assert not model.training


@pytest.mark.parametrize(
    ("returned", "finding"),
    [
        (lambda model, loss: {"loss": loss}, r'a weight step fails with TypeError: .*return its ["loss"]'),
        (lambda model, loss: None, "TypeError: the loss function returned None"),
        (lambda model, loss: loss.detach(), "the loss of a weight step has no gradient"),
        (
            lambda model, loss: loss if model.training else loss.detach(),
            "the loss of a hyperparameter step has no grad",
        ),
        (lambda model, loss: loss[7], "IndexError"),
    ],
)
def test_losses_that_cannot_be_used(returned, finding):
    case = CASES["mlp"]
    model, hyper = tuned(case)

    def loss(model, batch, hp):
        return returned(model, case.loss(model, batch, hp))

    found = str(stn.check(model, hyper, loss, case.batch()))
    assert all(part in found for part in finding.split(".*"))


def test_weights_that_only_a_penalty_reads_or_that_are_merged_in_eval_mode():
    case = CASES["lora, merged in eval mode"]
    model, hyper = tuned(case)
    found = stn.check(model, hyper, case.loss, case.batch())
    assert len(found) == 1
    assert found[0].startswith("0.a, 0.b: in the training loss, but not in the validation loss")


def test_a_validation_loss_without_lambda():
    case = CASES["mlp"]
    model, hyper = tuned(case)

    def loss(model, batch, hp):
        return case.loss(model, batch, hp) if model.training else batch[0].requires_grad_().square().mean()

    assert "the validation loss does not depend on λ" in str(stn.check(model, hyper, loss, case.batch()))


def test_weights_read_past_their_module():
    class Past(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(WIDTH, CLASSES)
            self.kept = [self.fc.weight]

        def forward(self, x):
            return F.linear(x, self.kept[0], self.fc.bias)

    hyper = stn.Hyper({"smooth": tune.uniform(0, 0.5)})
    model = stn.self_tune(Past(), hyper)

    def loss(model, batch, hp):
        return F.cross_entropy(model(batch[0]), batch[1], label_smoothing=hp["smooth"] if model.training else 0.0)

    assert "fc.weight: read past its module" in str(stn.check(model, hyper, loss, vectors()))


class Rows(nn.Module):
    """A layer on time-major rows, as many as examples."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        h = self.fc(x.transpose(0, 1)).tanh().transpose(0, 1)
        return self.head(h.mean(1))


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_rows_that_leak_between_examples(reduction):
    def loss(model, batch, hp):
        out = F.cross_entropy(model(batch[0]), batch[1], reduction=reduction)
        return out + hp["decay"] * model(batch[0]).square().mean() if model.training else out

    batch = torch.randn(BATCH, BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))
    hyper = stn.Hyper({"decay": tune.loguniform(1e-5, 1)})
    leaky = stn.self_tune(Rows(), hyper)
    with torch.no_grad():
        for p in leaky._modules["_stn"].parameters():
            p.normal_()
    found = stn.check(leaky, hyper, loss, batch, draw="example")
    assert "the draw of one example changes what others compute" in str(found)
    assert len(found) == 1
    told = stn.self_tune(stn.release(leaky), hyper, batch_dim={"fc": 1})
    assert not stn.check(told, hyper, loss, batch, draw="example")
    assert not stn.check(told, hyper, loss, batch), "with shared draws there is nothing to leak"


@pytest.mark.parametrize("name", ["gpt tied by F.linear", "gpt tied by attribute"])
def test_a_responding_embedding_that_is_also_read_as_a_matrix(name):
    """With one draw per example its layer responds, and F.linear(h, embedding.weight) does not."""
    case = CASES[name]
    hyper = stn.Hyper({"decay": tune.loguniform(1e-5, 1)})
    model = stn.self_tune(case.build(), hyper, include=["tok"], exclude=["offset", "pos"])
    found = stn.check(model, hyper, case.loss, case.batch(), draw="example")
    assert ("a weight is read past its layer" in str(found)) == (name == "gpt tied by F.linear"), str(found)
    assert not stn.check(model, hyper, case.loss, case.batch())


def test_what_cannot_be_checked_is_said():
    case = CASES["mlp"]
    model, hyper = tuned(case)
    x, y = vectors()
    found = stn.check(model, hyper, case.loss, (x[:2], y[:2]), draw="example")
    assert str(found) == "- draws per example: not checked, as it takes 3 examples, and the batch has 2"
    with pytest.raises(ValueError, match="Linear is not self-tuned"):
        stn.check(nn.Linear(2, 2), hyper, case.loss, case.batch())


@pytest.mark.parametrize("name", ["mlp", "cnn with batch norm", "mixture of experts", "gru", "bidirectional lstm"])
def test_draws_per_example_in_models_of_many_kinds(name):
    case = CASES[name]
    model, hyper = tuned(case)
    found = stn.check(model, hyper, case.loss, case.batch(), draw="example")
    if name == "mixture of experts":
        assert "LayoutError" in str(found), "an expert's rows are not the batch's"
    elif name == "bidirectional lstm":
        assert "name 'rate' in per_batch" in str(found)
    else:
        assert not found, str(found)


def test_the_name_is_the_function_whatever_was_imported_before():
    import importlib

    importlib.import_module(stn.Findings.__module__)
    assert callable(stn.check)
