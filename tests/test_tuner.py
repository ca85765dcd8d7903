from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest
import torch
from ray import tune
from torch import nn

import stn_tune as stn
from stn_tune.training import batch_size


def loss_fn(model, batch, hp):
    x, y = batch
    return nn.functional.cross_entropy(model(x), y)


def batches(count: int, size: int = 8, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    return [(torch.randn(size, 6, generator=g), torch.randint(0, 3, (size,), generator=g)) for _ in range(count)]


def make(space=None, net=None, lr=0.1, hyper_options=None, **options) -> stn.SelfTuner:
    torch.manual_seed(0)
    hyper = stn.Hyper(space or {"drop": tune.uniform(0, 0.9)}, **(hyper_options or {}))
    net = net or nn.Sequential(nn.Linear(6, 16), nn.ReLU(), stn.nn.Dropout("drop"), nn.Linear(16, 3))
    model = stn.self_tune(net, hyper)
    return stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9), **options)


def snapshot(tuner):
    named = {**dict(tuner.model.named_parameters()), **dict(tuner.model.named_buffers())}
    return {name: value.detach().clone() for name, value in named.items()}


def changed(before, after):
    return {
        name.rpartition("hyper.")[2] for name in before if not torch.allclose(before[name], after[name], 0, 0, True)
    }


def test_train_steps_move_weights_and_valid_steps_move_lambda_and_sigma():
    tuner = make()
    train, valid = batches(2)
    before = snapshot(tuner)
    loss = tuner.train_step(loss_fn, train)
    middle = snapshot(tuner)
    assert changed(before, middle) == {name for name, _ in tuner.model.named_parameters()}
    assert loss.shape == ()
    assert not loss.requires_grad
    assert tuner.hyper.lam.grad is None, "λ gets no gradient in weight steps"
    tuner.optimizer.zero_grad()
    tuner.valid_step(loss_fn, valid)
    assert changed(middle, snapshot(tuner)) == {"lam", "raw_sigma", "0.weight", "0.bias", "3.weight", "3.bias"}
    for r in tuner._tuning.responding():
        expected = r.response.at(middle[r.path], tuner.hyper.lam - middle["0._stn.hyper.lam"])
        torch.testing.assert_close(r.weight.detach(), expected.detach(), msg="the weights take up the response")
    assert all(p.grad is None for p in tuner.model.parameters()), "weights get no gradient work"
    assert all(p.requires_grad for p in tuner.model.parameters())
    assert tuner.model.training


def test_a_fixed_scale_stays():
    tuner = make(hyper_options={"tune_scale": False})
    assert tuner.valid_draw == "mean"
    train, valid = batches(2)
    tuner.train_step(loss_fn, train)
    before = snapshot(tuner)
    tuner.valid_step(loss_fn, valid)
    assert changed(before, snapshot(tuner)) == {"lam", "0.weight", "0.bias", "3.weight", "3.bias"}


def test_valid_steps_see_eval_mode_and_restore_what_was_there():
    modes = []

    def spy(model, batch, hp):
        modes.append([m.training for m in model.modules()])
        return loss_fn(model, batch, hp)

    tuner = make()
    tuner.model[0].eval()
    expected = [m.training for m in tuner.model.modules()]
    for batch in batches(2):
        tuner.train_step(spy, batch)
    tuner.valid_step(spy, batches(1)[0])
    tuner.evaluate(spy, batches(1))
    assert modes[:2] == [expected] * 2
    assert not any(modes[2])
    assert not any(modes[3])
    assert [m.training for m in tuner.model.modules()] == expected


@pytest.mark.parametrize("draw", ["batch", "example"])
def test_the_gradient_of_a_hyperparameter_step_is_that_of_the_objective(draw):
    tuner = make(hyper_options={"scale": 0.4}, entropy_weight=0.3, valid_draw=draw)
    tuner.train_step(loss_fn, batches(1)[0])
    batch = batches(1, seed=1)[0]
    hyper, model = tuner.hyper, tuner.model
    lam, raw = hyper.lam.detach().clone().requires_grad_(), hyper.raw_sigma.detach().clone().requires_grad_()
    torch.manual_seed(5)
    noise = torch.randn(8, 1) if draw == "example" else torch.randn(1).expand(8, 1)
    sigma = nn.functional.softplus(raw)
    delta = lam - hyper.lam + sigma * noise
    x = batch[0]
    for path in ("0", "3"):
        layer = model[int(path)]
        weight, bias = (tuner._tuning.responses[f"{path}/{name}"] for name in ("weight", "bias"))
        x = (
            nn.functional.linear(x, layer.weight, layer.bias)
            + (delta @ weight.V.t()) * (x @ weight.U.t())
            + (delta @ bias.V.t()) * bias.U
        )
        x = x.relu() if path == "0" else x
    entropy = torch.log(sigma * (2 * torch.pi * torch.e) ** 0.5).sum()
    expected = torch.autograd.grad(nn.functional.cross_entropy(x, batch[1]) - 0.3 * entropy, (lam, raw))
    torch.manual_seed(5)
    with tuner.tuning(batch) as hp:
        tuner.backward(loss_fn(model, batch, hp))
    torch.testing.assert_close(hyper.lam.grad, expected[0])
    torch.testing.assert_close(hyper.raw_sigma.grad, expected[1])


def test_steps_and_their_pieces_are_the_same():
    """A loop that owns its backward and its steps does what train_step and valid_step do, bit for bit."""
    whole, pieces = make(), make()
    for k, (train, valid) in enumerate(zip(batches(4), batches(4, seed=1), strict=True)):
        torch.manual_seed(k)
        whole.train_step(loss_fn, train)
        whole.valid_step(loss_fn, valid)
        torch.manual_seed(k)
        with pieces.training(train) as hp:
            loss_fn(pieces.model, train, hp).backward()
        pieces.optimizer.step()
        pieces.optimizer.zero_grad()
        with pieces.tuning(valid) as hp:
            pieces.backward(loss_fn(pieces.model, valid, hp))
        pieces.step()
        assert changed(snapshot(whole), snapshot(pieces)) == set()
    assert whole.schedule == pieces.schedule


def test_pieces_out_of_order_are_told():
    tuner = make()
    train, valid = batches(2)
    with pytest.raises(RuntimeError, match="step without a gradient"):
        tuner.step()
    with pytest.raises(RuntimeError, match="backward belongs inside"):
        tuner.backward(loss_fn(tuner.model, valid, {}))
    tuner.train_step(loss_fn, train)
    with pytest.raises(RuntimeError, match="cannot be nested"), tuner.training(train), tuner.tuning(valid):
        pass
    assert tuner.model.training
    tuner.model.eval()
    with pytest.raises(ValueError, match="eval mode"):
        tuner.train_step(loss_fn, train)


def test_algorithm_1_alternates_after_the_warm_up():
    calls = []

    def spy(model, batch, hp):
        calls.append("T" if model.training else "V")
        return loss_fn(model, batch, hp)

    tuner = make(train_steps=2, valid_steps=3, warmup_steps=4)
    valid = cycle(batches(3, seed=1))
    tuner.epoch(spy, batches(5), valid)
    tuner.epoch(spy, batches(5), valid)
    assert "".join(calls) == "TTTTVVVTTVVVTTVVVTTVVV", "the place in the cycle survives the end of a pass"
    assert make(warmup_steps=1).valid_step(loss_fn, batches(1)[0]) is None


def test_draws_per_example_per_batch_or_not_at_all():
    shapes = []

    def spy(model, batch, hp):
        shapes.append(tuple(hp["drop"].shape))
        return loss_fn(model, batch, hp)

    for draw in ("example", "batch", "mean"):
        make(draw=draw).train_step(spy, batches(1)[0])
    assert shapes == [(8,), (), ()]


def test_clipping_bounds_the_gradient_that_is_applied():
    for clip in (None, 0.01):
        tuner = make(lr=1.0, clip=clip, net=nn.Sequential(nn.Linear(6, 3), stn.nn.Dropout("drop")))
        before = snapshot(tuner)
        tuner.train_step(loss_fn, batches(1)[0])
        after = snapshot(tuner)
        names = [name for name, _ in tuner.model.named_parameters()]
        moved = torch.stack([(after[n] - before[n]).norm() for n in names]).norm().item()
        assert (moved == pytest.approx(0.01, rel=1e-3)) if clip else moved > 0.1


def test_metrics_and_schedule_follow_every_update():
    space = {"drop": tune.uniform(0, 0.9), "noise": tune.randint(0, 4)}

    def loss(model, batch, hp):
        return loss_fn(model, (batch[0] * hp["noise"] if model.training else batch[0], batch[1]), hp)

    tuner = make(space=space, hyper_lr=0.3, train_steps=2)
    start = tuner.metrics()
    assert start.pop("step") == 0
    assert set(start) == {"hp/drop", "hp/noise", "scale/drop", "scale/noise"}
    assert start["hp/drop"] == pytest.approx(0.45)
    tuner.epoch(loss, batches(10), cycle(batches(3, seed=1)))
    schedule = tuner.schedule
    assert schedule.steps == [0, 2, 4, 6, 8, 10]
    assert schedule.at(step=0)["drop"] == pytest.approx(start["hp/drop"])
    assert schedule.at(step=10)["drop"] == pytest.approx(tuner.metrics()["hp/drop"])
    assert schedule.at(step=5) == schedule.at(step=4)
    assert len(set(schedule.values["drop"])) == 6
    assert all(type(v) is int for v in schedule.values["noise"])


def travel(tuner, targets, updates):
    """Hyperparameter steps on losses that pull λ to each of the targets in turn."""

    def pull(target):
        return lambda model, batch, hp: loss_fn(model, batch, hp) * 0 + (hp.lam - target).abs().sum()

    for update in range(updates):
        tuner.train_step(loss_fn, batches(1)[0])
        tuner.valid_step(pull(targets[update % len(targets)]), batches(1)[0])


def test_lambda_has_settled_when_it_no_longer_goes_anywhere():
    tuner = make(hyper_options={"tune_scale": False}, hyper_lr=0.01)
    assert tuner.settled(), "nothing has moved yet"
    travel(tuner, [5.0], 80)
    assert not tuner.settled(), "80 steps in one direction"
    state = tuner.state_dict()
    travel(tuner, [5.0, -5.0], 100)
    assert tuner.settled(), "100 steps to and fro"
    tuner.load_state_dict(state)
    assert not tuner.settled()


def through_pickle(tuner):
    return pickle.loads(pickle.dumps(tuner))


@pytest.mark.parametrize("algorithm", ["stn", "delta"])
@pytest.mark.parametrize("copied", [copy.deepcopy, through_pickle], ids=["deepcopy", "pickle"])
def test_a_copy_of_a_tuner_trains_as_the_tuner_does(copied, algorithm):
    tuner = make(algorithm=algorithm, train_steps=2)
    data = torch.utils.data.DataLoader(batches(4), batch_size=None)
    tuner.epoch(loss_fn, data, data)
    before = snapshot(tuner)
    other = copied(tuner)
    states = []
    for one in (other, tuner):
        torch.manual_seed(3)
        one.epoch(loss_fn, data, batches(2, seed=1))
        states.append(snapshot(one))
        assert one.weight_steps == 8
        assert one.schedule.steps == [0, 2, 4, 6, 8]
    assert not changed(*states)
    assert changed(before, states[0])


def test_training_goes_on_after_steps_that_were_left_out():
    tuner = make(check=100, train_steps=1)
    good = batches(4)
    bad = (good[0][0] * torch.nan, good[0][1])
    with pytest.raises(stn.NonFiniteError, match="not finite in 3 of the last"):
        tuner.epoch(loss_fn, [bad, bad, bad, *good], batches(1))
    assert tuner.weight_steps == 4
    tuner.epoch(loss_fn, good[:1], batches(1))
    assert tuner.schedule.steps[-1] == tuner.weight_steps == 5


def test_an_unknown_pace_is_told():
    tuner = make()
    tuner.hyper_optimizer = torch.optim.SGD([tuner.hyper.lam], lr=0.1)
    with pytest.raises(TypeError, match="knows how fast Adam moves λ, but hyper_optimizer is SGD: use a rule"):
        tuner.settled()


def test_a_hyperparameter_that_nobody_reads_is_an_error():
    tuner = make(space={"drop": tune.uniform(0, 0.9), "idle": tune.uniform(0, 1)})
    tuner.train_step(loss_fn, batches(1)[0])
    with pytest.raises(stn.UnusedError, match="idle: read by neither the model nor the loss in 1 training steps"):
        tuner.valid_step(loss_fn, batches(1)[0])


class TestDirect:
    @staticmethod
    def loss(model, batch, hp):
        losses = nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")
        return losses if model.training else losses + (hp["shift"] - 4.0) ** 2

    def make(self, **options):
        space = {"drop": tune.uniform(0, 0.9), "shift": tune.randint(0, 5)}
        hyper_options = {"direct": ["shift"], "tune_scale": False}
        return make(space=space, hyper_options=hyper_options, **{"draw": "example", **options})

    def test_a_fixed_scale_still_draws_and_moves_towards_the_optimum(self):
        tuner = self.make(hyper_lr=0.05, train_steps=2)
        tuner.epoch(self.loss, batches(120, size=32), cycle(batches(5, size=32)))
        assert tuner.hyper.values_now()["shift"] == 4
        with pytest.raises(ValueError, match="direct hyperparameters need draws"):
            self.make(valid_draw="mean")

    def test_losses_must_be_one_per_example(self):
        tuner = self.make()
        tuner.train_step(self.loss, batches(1)[0])
        with pytest.raises(ValueError, match=r"the loss has shape \(8, 3\)"):
            tuner.valid_step(lambda model, batch, hp: model(batch[0]) + hp["shift"][:, None], batches(1)[0])


def test_a_model_in_eval_mode_is_refused():
    with pytest.raises(ValueError, match=r"Sequential is in eval mode.*call model.train\(\)"):
        make(net=nn.Sequential(nn.Linear(6, 3), stn.nn.Dropout("drop")).eval())


class TestNonFinite:
    @staticmethod
    def poison(when):
        """A loss that is NaN, or whose gradient is, in training or in validation."""

        def loss(model, batch, hp):
            value = loss_fn(model, batch, hp)
            if when == "training loss" and model.training:
                return value * float("nan")
            if when == "training gradient" and model.training:
                return value + torch.sqrt(model[0].weight.square().sum() * 0.0)
            if when == "validation loss" and not model.training:
                return value + float("inf")
            if when == "validation gradient" and not model.training:
                return value + torch.sqrt(model[0].weight.square().sum() * 0.0)
            return value

        return loss

    @pytest.mark.parametrize(
        ("when", "message"),
        [
            ("training loss", "the training loss is nan at step 1; the step was not applied"),
            ("training gradient", "the gradient of 0.weight is not finite at step 1"),
            ("validation loss", "the validation loss is inf at step 1"),
            ("validation gradient", "the hyperparameter gradient of λ is not finite at step 1"),
        ],
    )
    def test_the_step_is_not_applied_and_training_goes_on(self, when, message):
        net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), stn.nn.Dropout("drop"), nn.Linear(16, 3))
        tuner = make(net=net)
        tuner.train_step(loss_fn, batches(1)[0])
        before, history = snapshot(tuner), tuner.schedule
        step = tuner.train_step if "training" in when else tuner.valid_step
        with pytest.raises(stn.NonFiniteError, match=message):
            step(self.poison(when), batches(1, seed=2)[0])
        assert changed(before, snapshot(tuner)) == set()
        assert tuner.schedule == history
        tuner.train_step(loss_fn, batches(1)[0])
        tuner.valid_step(loss_fn, batches(1)[0])
        named = {name: value for name, value in snapshot(tuner).items() if not name.endswith(("baseline", "est"))}
        assert all(value.isfinite().all() for value in named.values())


def test_evaluation_weighs_batches_by_their_size_at_the_deterministic_lambda():
    tuner = make()
    x, y = batches(1, size=10)[0]
    whole = tuner.evaluate(loss_fn, [(x, y)])
    assert tuner.evaluate(loss_fn, [(x[:7], y[:7]), (x[7:], y[7:])]) == pytest.approx(whole)
    assert tuner.evaluate(loss_fn, [(x, y)]) == whole, "no randomness"
    with pytest.raises(ValueError, match="no batches to evaluate"):
        tuner.evaluate(loss_fn, [])


def test_mistakes_in_the_set_up_are_named():
    plain = nn.Linear(2, 2)
    hyper = stn.Hyper({"drop": tune.uniform(0, 1)})
    with pytest.raises(ValueError, match="Linear is not self-tuned: pass it through self_tune"):
        stn.SelfTuner(plain, hyper, torch.optim.SGD(plain.parameters(), lr=1))
    early = torch.optim.SGD(plain.parameters(), lr=1)
    model = stn.self_tune(plain, hyper)
    with pytest.raises(ValueError, match=r"does not move the response of weight \(U\): build it after self_tune"):
        stn.SelfTuner(model, hyper, early)
    other = stn.Hyper({"drop": tune.uniform(0, 1)})
    with pytest.raises(ValueError, match="self-tuned with another Hyper"):
        stn.SelfTuner(model, other, torch.optim.SGD(model.parameters(), lr=1))
    for options, message in [
        ({"train_steps": 0}, "train_steps is 0; it must be a number, at least 1"),
        ({"hyper_lr": "a"}, "hyper_lr is 'a'; it must be a positive number"),
        ({"clip": 0.0}, "clip is 0.0; it must be positive"),
        ({"draw": "epoch"}, "draw is 'epoch'; it must be 'batch', 'example' or 'mean'"),
    ]:
        with pytest.raises(ValueError, match=message):
            make(**options)


def test_optimizers_of_the_callers_own_move_each_of_lambda_and_sigma_once():
    tuner = make()
    hyper, adam = tuner.hyper, torch.optim.Adam

    def again(*optimizers):
        return stn.SelfTuner(tuner.model, hyper, torch.optim.SGD(tuner.model.parameters(), lr=0.1), *optimizers)

    with pytest.raises(ValueError, match=r"hyper_optimizer moves σ, .*: build it with \[hyper\.lam\] alone"):
        again(adam([hyper.lam, hyper.raw_sigma]))
    with pytest.raises(ValueError, match="hyper_optimizer does not move λ"):
        again(adam([hyper.raw_sigma]))
    with pytest.raises(ValueError, match="scale_optimizer must move σ and nothing else"):
        again(None, adam([hyper.lam]))
    other = again(adam([hyper.lam], lr=0.02), adam([hyper.raw_sigma], lr=0.01))
    train, valid = batches(2)
    other.train_step(loss_fn, train)
    before = snapshot(other)
    other.valid_step(loss_fn, valid)
    now = snapshot(other)
    moved = {key: (now[f"0._stn.hyper.{key}"] - before[f"0._stn.hyper.{key}"]).abs() for key in ("lam", "raw_sigma")}
    assert moved["lam"] == pytest.approx(0.02, rel=1e-4)
    assert moved["raw_sigma"] == pytest.approx(0.01, rel=1e-4)


def test_a_plain_rnn_is_differentiated_without_cudnn():
    """Which refuses to in eval mode, the mode of hyperparameter steps."""

    class Excluded(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.drop = nn.Linear(6, 6), stn.nn.Dropout("drop")
            self.rnn, self.last = nn.GRU(6, 6, batch_first=True), nn.Linear(6, 3)
            self.seen = []

        def forward(self, x):
            self.seen.append((self.training, torch.backends.cudnn.enabled))
            return self.last(self.rnn(self.drop(self.first(x))[:, None])[0][:, 0])

    torch.manual_seed(0)
    hyper = stn.Hyper({"drop": tune.uniform(0, 0.9)})
    model = stn.self_tune(Excluded(), hyper, exclude=["rnn"])
    tuner = stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.1))
    train, valid = batches(2)
    tuner.train_step(loss_fn, train)
    tuner.valid_step(loss_fn, valid)
    assert model.seen == [(True, True), (False, False)]
    assert torch.backends.cudnn.enabled


def test_sparse_gradients_are_checked_and_not_clipped():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.drop = nn.Embedding(5, 4, sparse=True), stn.nn.Dropout("drop")
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            return self.fc(self.drop(self.embedding(x)))

    hyper = stn.Hyper({"drop": tune.uniform(0, 0.9)})
    model = stn.self_tune(Words(), hyper)
    batch = torch.tensor([0, 3, 3, 1]), torch.tensor([0, 1, 2, 0])
    before = model.embedding.weight.detach().clone()
    stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.1)).train_step(loss_fn, batch)
    assert (model.embedding.weight != before).any(1).tolist() == [True, True, False, True, False]
    clipped = stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.1), clip=1.0)
    with pytest.raises(ValueError, match=r"clip is 1.0, but the gradient of embedding.weight is sparse"):
        clipped.train_step(loss_fn, batch)
    with torch.no_grad():
        model.embedding.weight[3] = torch.inf
    with pytest.raises(stn.NonFiniteError):
        stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.1)).train_step(loss_fn, batch)


def test_batch_size_of_common_batches():
    x = torch.zeros(5, 2)
    assert batch_size(x) == batch_size((x, x)) == batch_size({"x": [x], "y": 1}) == batch_size(["a", (x,)]) == 5
    with pytest.raises(TypeError, match="cannot tell the batch size of a str"):
        batch_size("abc")


@pytest.mark.slow
def test_six_epochs_equal_three_and_three_in_a_fresh_process(tmp_path: Path):
    """Bit for bit: losses, λ and σ."""
    job = Path(__file__).with_name("resume_job.py")

    def start(*arguments: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, str(job), *arguments], stdout=subprocess.PIPE, text=True)

    def lines(process: subprocess.Popen) -> list[str]:
        output, _ = process.communicate()
        assert process.returncode == 0
        return output.splitlines()

    uninterrupted = start("6")
    first = lines(start("3", "--save", str(tmp_path / "state.pt")))
    second = lines(start("3", "--load", str(tmp_path / "state.pt")))
    whole = lines(uninterrupted)
    assert len(whole) == 6
    assert len(set(whole)) == 6
    assert first + second == whole
