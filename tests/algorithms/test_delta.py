"""Δ-STN does what its paper says: compared with plain training, torch.func.jvp and an explicit parametrisation."""

from __future__ import annotations

import copy

import pytest
import torch
from ray import tune
from torch import nn
from torch.func import functional_call, jvp

import stn_tune as stn
from stn_tune.nn.response import required


class Words(nn.Module):
    """An embedding, an LSTM and a head; gives more than one output."""

    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(7, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        hidden = self.rnn(self.embed(x))[0]
        return self.head(hidden), hidden


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Linear(27, 2)

    def forward(self, x):
        return self.fc(torch.relu(self.norm(self.conv(x))).flatten(1))


MODELS = {
    "words": (Words, lambda: torch.randint(0, 7, (3, 6))),
    "pictures": (Pictures, lambda: torch.randn(3, 2, 5, 5)),
}


def outputs(result):
    return result if isinstance(result, tuple) else (result,)


def made(name, **options):
    build, batch = MODELS[name]
    torch.manual_seed(1)
    hyper = stn.Hyper({"a": tune.uniform(0, 1), "b": tune.loguniform(1e-3, 1)}, scale=0.4).double()
    model = stn.self_tune(build().double(), hyper)
    with torch.no_grad():
        for r in required(model).responding():
            r.response.V.normal_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = batch()
    return stn.SelfTuner(
        model, hyper, optimizer, algorithm="delta", **options
    ), x.double() if x.is_floating_point() else x


def loss(model, x, hp):
    value = sum(y.square().flatten(1).mean(1) for y in outputs(model(x)))
    return value * (1 + hp["a"] + hp["b"]) if model.training else value


@pytest.mark.parametrize("name", MODELS)
def test_the_linearised_output_is_that_of_a_jvp(name):
    tuner, x = made(name, linearised=True)
    tuning = required(tuner.model)
    weights = {r.path: r.weight.detach().clone() for r in tuning.responding()}
    for module in tuner.model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    with tuner.responding(x) as hp:
        found = [y.detach() for y in outputs(tuner.model(x))]
        epsilon = torch.autograd.forward_ad.unpack_dual(hp.delta).tangent.clone()
    tangents = {r.path: r.response.term(epsilon).detach() for r in tuning.responding()}

    def f(weights):
        return outputs(functional_call(tuner.model, weights, (x,)))

    with torch.backends.mkldnn.flags(False, deterministic=None, allow_tf32=None):
        value, tangent = jvp(f, (weights,), (tangents,))
    for y, v, t in zip(found, value, tangent, strict=True):
        torch.testing.assert_close(y, v + t)
        assert t.abs().max() > 1e-6


@pytest.mark.parametrize("name", MODELS)
def test_per_example_and_shared_linearisations_agree_for_equal_draws(name):
    found = {}
    for draw in ("batch", "example"):
        tuner, x = made(name, linearised=True, draw=draw)
        noise = torch.tensor([0.3, -1.0], dtype=torch.float64)
        tuner._drawn = lambda how, batch, like, differentiable, t=tuner, n=noise, d=draw: t.hyper.sample_at(
            n if d == "batch" else n.expand(3, -1)
        )
        with tuner.responding(x) as hp:
            loss(tuner.model, x, hp).mean().backward()
        found[draw] = {k: p.grad.clone() for k, p in tuner.model.named_parameters() if p.grad is not None}
    assert found["batch"].keys() == found["example"].keys()
    assert all("_stn" in key for key in found["batch"]), "weights are held"
    for key, grad in found["batch"].items():
        torch.testing.assert_close(found["example"][key], grad, msg=key)


def test_weights_are_trained_as_in_a_plain_network():
    """Without a hyperparameter step, to the bit."""
    tuner, x = made("pictures", response_every=1)
    plain = Pictures().double()
    plain.load_state_dict(stn.plain_state_dict(tuner.model))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    values = tuner.hyper.mean()
    for _ in range(5):
        tuner.train_step(loss, x)
        optimizer.zero_grad()
        loss(plain, x, values).mean().backward()
        optimizer.step()
    for key, value in stn.plain_state_dict(tuner.model).items():
        assert torch.equal(value, plain.state_dict()[key]), key
    response = required(tuner.model).responding()[0].response
    assert response.U.grad is not None


@pytest.mark.parametrize("first", ["weights", "responses"])
def test_uncentred_weights_follow_responses_that_another_optimizer_moves(first):
    def trained(split):
        torch.manual_seed(1)
        hyper = stn.Hyper({"a": tune.uniform(0, 1), "b": tune.loguniform(1e-3, 1)}, scale=0.4).double()
        model = stn.self_tune(Pictures().double(), hyper)
        responses = list(required(model).responses.parameters())
        own = {id(p) for p in responses}
        weights = [p for p in model.parameters() if id(p) not in own]
        groups = split(weights, responses)
        optimizers = [torch.optim.SGD(group, lr=0.1, momentum=0.9) for group in groups]
        tuner = stn.SelfTuner(model, hyper, optimizers, algorithm="delta", centred=False)
        with torch.no_grad():
            for r in required(model).responding():
                r.response.V.normal_()
            hyper.lam += 0.5
        torch.manual_seed(2)
        for _ in range(3):
            tuner.train_step(loss, torch.randn(3, 2, 5, 5).double())
        return {name: p.detach() for name, p in model.named_parameters()}

    together = trained(lambda weights, responses: [weights + responses])
    apart = trained(lambda weights, responses: [weights, responses][:: 1 if first == "weights" else -1])
    for name, p in together.items():
        torch.testing.assert_close(apart[name], p, rtol=1e-12, atol=1e-12)


def test_uncentred_is_the_explicit_parametrisation():
    """W₀ + V(λ+ε − λ₀) ⊙ U with plain SGD on W₀, U and V, against what the tuner does to the weights at λ."""
    tuner, x = made("pictures", centred=False, separate=False)
    tuning = required(tuner.model)
    origin = tuner.hyper.lam.clone()
    with torch.no_grad():
        tuner.hyper.lam += 0.5
        tuning.absorb(torch.full_like(origin, 0.5))
    offset = tuner.hyper.lam - origin
    own = {}
    for r in tuning.responding():
        w0 = (r.weight - r.response.term(offset)).detach().clone().requires_grad_()
        response = copy.deepcopy(r.response)
        own[r.path] = w0, response
    plain = {k: v for k, v in tuner.model.state_dict().items() if isinstance(v, torch.Tensor)}
    others = {k: plain[k].clone().requires_grad_(plain[k].is_floating_point()) for k in ("norm.weight", "norm.bias")}
    moved = [t for w0, response in own.values() for t in (w0, *response.parameters())] + list(others.values())
    optimizer = torch.optim.SGD(moved, lr=0.1, momentum=0.9)
    reference = Pictures().double()
    for _ in range(3):
        noise = torch.randn(2, dtype=torch.float64)
        tuner._drawn = lambda how, batch, like, differentiable, n=noise: tuner.hyper.sample_at(n)
        tuner.train_step(loss, x)
        hp = tuner.hyper.sample_at(noise)
        weights = {path: response.at(w0, offset + hp.delta) for path, (w0, response) in own.items()}
        value = (functional_call(reference, {**weights, **others}, (x,))).square().mean(1) * (1 + hp["a"] + hp["b"])
        optimizer.zero_grad()
        value.mean().backward()
        optimizer.step()
    for r in tuning.responding():
        w0, response = own[r.path]
        torch.testing.assert_close(r.response.V, response.V)
        torch.testing.assert_close(r.weight, response.at(w0, offset), msg=r.path)


def test_what_is_carried_from_batch_to_batch_is_put_back():
    class Carried:
        calls = 0

        def state_dict(self):
            return {"calls": self.calls}

        def load_state_dict(self, state):
            self.calls = state["calls"]

    carried = Carried()
    tuner, x = made("pictures", response_every=1, carries=carried)

    def counting(model, x, hp):
        carried.calls += 1
        return loss(model, x, hp)

    tuner.train_step(counting, x)
    assert carried.calls == 1
    norm = tuner.model.norm
    assert int(norm.num_batches_tracked) == 1, "running statistics are updated once"


def test_a_layer_without_forward_mode_is_said():
    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x):
            return Odd.apply(self.fc(x))

    hyper = stn.Hyper({"a": tune.uniform(0, 1), "b": tune.uniform(0, 1)})
    model = stn.self_tune(Net(), hyper)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tuner = stn.SelfTuner(model, hyper, optimizer, algorithm="delta", linearised=True)
    with pytest.raises(RuntimeError, match=r"linearised=True needs forward-mode derivatives.*use linearised=False"):
        tuner.train_step(loss, torch.randn(3, 4))
    required(model).check_idle()


def test_a_penalty_on_weights_is_evaluated_at_the_perturbed_ones():
    tuner, x = made("pictures", linearised=True)
    tuning = required(tuner.model)
    with tuner.responding(x) as hp:
        found = stn.nn.l2(tuner.model, 2.0)
        epsilon = torch.autograd.forward_ad.unpack_dual(hp.delta).tangent.clone()
    expected = sum(p.square().sum() for p in tuner.model.norm.parameters()) + sum(
        r.response.at(r.weight, epsilon).square().sum() for r in tuning.responding()
    )
    torch.testing.assert_close(found, expected)

    def by_hand(model, x, hp):
        return loss(model, x, hp).mean() + model.fc.weight.square().sum()

    with pytest.raises(RuntimeError, match=r"reads weights past the model's output.*stn_tune\.nn\.l2"):
        tuner.train_step(by_hand, x)


class Dropped(nn.Module):
    """A dropout whose rate is tuned, and a weight that is a vector."""

    def __init__(self):
        super().__init__()
        self.first, self.drop, self.second = nn.Linear(6, 8), nn.Dropout(0.3), nn.Linear(8, 3)

    def forward(self, x):
        return self.second(self.drop(torch.tanh(self.first(x))))


def dropped(**options):
    torch.manual_seed(2)
    model = Dropped().double()
    space, bind = stn.dropouts(model)
    hyper = stn.Hyper(space, scale=0.7).double()
    model = stn.self_tune(model, hyper, bind=bind)
    with torch.no_grad():
        for r in required(model).responding():
            r.response.V.normal_(std=0.3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tuner = stn.SelfTuner(model, hyper, optimizer, algorithm="delta", response_every=1, **options)
    return tuner, torch.randn(5, 6).double()


def squares(model, x, hp):
    return model(x).square().mean()


def response_gradients(tuner):
    return {name: p.grad.clone() for name, p in required(tuner.model).responses.named_parameters()}


@pytest.mark.parametrize("centred", [True, False])
def test_gradients_of_a_pair_are_those_of_the_responses_at_the_difference_of_the_weights_gradients(centred):
    tuner, x = dropped(centred=centred)
    tuner.hyper.lam.add_(0.2)
    with tuner.responding(x) as hp:
        squares(tuner.model, x, hp).backward()
        epsilon = hp.delta.clone()
    alone = response_gradients(tuner)
    with tuner.training(x) as hp:
        squares(tuner.model, x, hp).backward()
    for name, r in zip(tuner._tuning.responses, tuner._tuning.responding(), strict=True):
        du, dv = torch.autograd.grad(r.response.term(epsilon), [r.response.U, r.response.V], r.weight.grad)
        torch.testing.assert_close(r.response.U.grad, alone[f"{name}.U"] - du)
        torch.testing.assert_close(r.response.V.grad, alone[f"{name}.V"] - dv)


def test_a_pair_has_the_same_masks_so_that_without_an_effect_there_is_no_gradient():
    gradients = {}
    for paired in (True, False):
        tuner, x = dropped(paired=paired)
        tuner.hyper.raw_sigma.fill_(-30.0)  # σ = 1e-13: λ+ε is λ, the masks alone could differ
        for pieces in (tuner.responding, tuner.training):
            with pieces(x) as hp:
                squares(tuner.model, x, hp).backward()
        gradients[paired] = torch.cat([g.flatten() for g in response_gradients(tuner).values()]).norm() / 1e-13
    assert gradients[True] < 1e-3 * gradients[False]


def test_pairs_add_up_over_pieces_of_a_batch():
    tuner, x = dropped()
    single, total = [], None
    for part in (x[:2], x[2:]):
        torch.manual_seed(len(part))
        for pieces in (tuner.responding, tuner.training):
            with pieces(part) as hp:
                squares(tuner.model, part, hp).backward()
        single.append(response_gradients(tuner))
        tuner._zero_grad()
    for part in (x[:2], x[2:]):
        torch.manual_seed(len(part))
        for pieces in (tuner.responding, tuner.training):
            with pieces(part) as hp:
                squares(tuner.model, part, hp).backward()
    total = response_gradients(tuner)
    for name, gradient in total.items():
        torch.testing.assert_close(gradient, single[0][name] + single[1][name])


def test_a_response_pass_that_no_training_pass_followed_is_paired_with_none():
    tuner, x = dropped()
    for pieces in (tuner.training, tuner.responding):  # the wrong way round: nothing to pair with
        with pieces(x) as hp:
            squares(tuner.model, x, hp).backward()
    tuner.optimizer.step()
    tuner._zero_grad()
    with tuner.training(x) as hp:
        squares(tuner.model, x, hp).backward()
    assert all(p.grad is None for p in tuner._tuning.responses.parameters())


@pytest.mark.parametrize("given", [{"draw": "example"}, {"separate": False}])
def test_pairs_need_shared_draws_and_steps_of_their_own(given):
    with pytest.raises(ValueError, match="paired is True; it needs draw='batch' and separate=True"):
        dropped(paired=True, **given)
    assert dropped(**given)[0].options.in_pairs is False
    with pytest.raises(ValueError, match="paired is 'yes'; it must be true, false or none"):
        dropped(paired="yes")


def moved(tuner, x):
    """By how much one step of the optimizer moves the response to a unit of λ."""
    before = [r.response.term(torch.ones(1).double()).detach() for r in tuner._tuning.responding()]
    torch.manual_seed(3)
    tuner.train_step(squares, x)
    now = [r.response.term(torch.ones(1).double()).detach() for r in tuner._tuning.responding()]
    return torch.cat([(b - a).flatten() for a, b in zip(before, now, strict=True)])


@pytest.mark.parametrize("damping", [1e-15, None])
def test_steps_do_not_depend_on_how_a_response_is_divided_between_its_factors(damping):
    steps = []
    for factor in (1.0, 3.0):
        tuner, x = dropped(damping=damping)
        tuner.optimizer.param_groups[0]["lr"] = 1e-4
        with torch.no_grad():
            for r in tuner._tuning.responding():
                r.response.U.mul_(factor)
                r.response.V.div_(factor)
        steps.append(moved(tuner, x))
    same = (steps[1] - steps[0]).norm() / steps[0].norm()
    assert same < 1e-3 if damping else same > 0.5


def test_a_response_moves_at_the_pace_of_the_weights():
    """A step of V alone: −α (G(λ+ε) − G(λ)) · U / ‖U‖², in units of ε / σ²."""
    tuner, x = dropped(damping=1e-15)
    responses = [r.response for r in tuner._tuning.responding()]
    for response in responses:
        response.U.requires_grad_(False)
    for pieces in (tuner.responding, tuner.training):
        with pieces(x) as hp:
            squares(tuner.model, x, hp).backward()
    raw = [response.V.grad.clone() for response in responses]
    before = [response.V.detach().clone() for response in responses]
    tuner.optimizer.step()
    for response, gradient, old in zip(responses, raw, before, strict=True):
        size = response._rows(response.U).square().sum(1, keepdim=True) * tuner.hyper.sigma**2
        torch.testing.assert_close(response.V.detach(), old - 0.1 * gradient / size)


def test_passes_within_a_step_are_refused_unless_steps_are_plain():
    def step(tuner, x):
        def closure():
            tuner._zero_grad()
            for pieces in (tuner.responding, tuner.training):
                with pieces(x) as hp:
                    loss = squares(tuner.model, x, hp)
                    loss.backward()
            return loss

        tuner.optimizer.step(closure)

    with pytest.raises(RuntimeError, match=r"inside optimizer.step\(closure\).* or use damping=None"):
        step(*dropped())
    step(*dropped(damping=None))


def test_after_a_training_pass_there_is_none_to_pair_with():
    """Pieces of a batch the wrong way round are not paired with the next piece."""
    gradients = []
    for paired in (True, False):
        tuner, x = dropped(paired=paired)
        torch.manual_seed(3)
        for part in (x[:2], x[2:]):
            for pieces in (tuner.training, tuner.responding):
                with pieces(part) as hp:
                    squares(tuner.model, part, hp).backward()
        gradients.append(response_gradients(tuner))
    for name, gradient in gradients[0].items():
        assert torch.equal(gradient, gradients[1][name])


def test_a_factor_that_is_frozen_stays_while_the_other_learns():
    tuner, x = dropped()
    responses = [r.response for r in tuner._tuning.responding()]
    for response in responses:
        response.U.requires_grad_(False)
    old = copy.deepcopy([response.state_dict() for response in responses])
    for _ in range(2):
        tuner.train_step(squares, x)
    for response, before in zip(responses, old, strict=True):
        assert torch.equal(response.U, before["U"])
        assert not torch.equal(response.V, before["V"])


def test_damping_is_positive_or_none():
    with pytest.raises(ValueError, match="damping is 0; it must be a positive number"):
        dropped(damping=0)
