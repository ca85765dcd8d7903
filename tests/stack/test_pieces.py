"""A loop of one's own: pieces, misuse, half precision, accumulation, several optimizers, no wait for the device."""

from __future__ import annotations

import copy

import pytest
import torch
from ray import tune
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import stn_tune as stn
from stn_tune.errors import NonFiniteError
from stn_tune.guard import Guard, masked

ALGORITHMS = ("stn", "delta")


def network(norm: bool = False) -> nn.Module:
    layers = [nn.Linear(6, 16), *([nn.BatchNorm1d(16)] if norm else []), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3)]
    return nn.Sequential(*layers)


def make(seed=0, algorithm="stn", *, norm=False, optimizer=None, tune_scale=True, bind=True, **options):
    torch.manual_seed(seed)
    space = {"decay": tune.loguniform(1e-4, 1.0)} | ({"dropout": tune.uniform(0, 0.9)} if bind else {})
    hyper = stn.Hyper(space, scale=0.5, tune_scale=tune_scale)
    net = network(norm)
    place = next(name for name, m in net.named_modules() if isinstance(m, nn.Dropout))
    if not bind:
        net[int(place)].p = 0.0
    model = stn.self_tune(net, hyper, bind={place: "dropout"} if bind else None)
    optimizer = (optimizer or (lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9)))(list(model.parameters()))
    return stn.SelfTuner(model, hyper, optimizer, algorithm=algorithm, **options)


def batch(seed: int, n: int = 12):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator)
    return x, x[:, :3].argmax(1)


def loss_fn(model, batch, hp):
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    return loss + hp["decay"] * stn.nn.l2(model, 1.0) if model.training else loss


def state(tuner):
    return {k: v.clone() for k, v in tuner.model.state_dict().items() if isinstance(v, torch.Tensor)}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for key, value in a.items():
        assert torch.equal(value, b[key]), key


def in_pieces(tuner, k):
    """What train_step and valid_step do."""
    tuner.optimizer.zero_grad()
    if tuner.options.algorithm == "delta" and tuner.weight_steps % tuner.options.response_every == 0:
        with tuner.responding(batch(k)) as hp:
            loss_fn(tuner.model, batch(k), hp).backward()
    with tuner.training(batch(k)) as hp:
        loss_fn(tuner.model, batch(k), hp).backward()
    tuner.optimizer.step()
    with tuner.tuning(batch(100 + k)) as hp:
        tuner.backward(loss_fn(tuner.model, batch(100 + k), hp))
    tuner.step()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_pieces_are_the_whole_steps_bit_for_bit(algorithm):
    whole, pieces = make(algorithm=algorithm), make(algorithm=algorithm)
    torch.manual_seed(1)
    for k in range(6):
        whole.train_step(loss_fn, batch(k))
        whole.valid_step(loss_fn, batch(100 + k))
    torch.manual_seed(1)
    for k in range(6):
        in_pieces(pieces, k)
    assert_same(state(whole), state(pieces))
    assert whole.weight_steps == pieces.weight_steps == 6
    assert whole.schedule == pieces.schedule


class TestMisuse:
    def test_step_without_backward(self):
        with pytest.raises(RuntimeError, match=r"step without a gradient: call tuner\.backward"):
            make().step()

    def test_step_inside_tuning(self):
        tuner = make()
        tuner.train_step(loss_fn, batch(0))
        with tuner.tuning(batch(1)) as hp:
            tuner.backward(loss_fn(tuner.model, batch(1), hp))
            with pytest.raises(RuntimeError, match="step belongs after"):
                tuner.step()

    def test_backward_outside(self):
        tuner = make()
        with pytest.raises(RuntimeError, match="backward belongs inside"):
            tuner.backward(loss_fn(tuner.model, batch(0), tuner.hyper.mean()))

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize("inner", ["training", "tuning"])
    def test_nested(self, algorithm, inner):
        tuner = make(algorithm=algorithm)
        with (
            pytest.raises(RuntimeError, match="cannot be nested"),
            tuner.training(batch(0)),
            getattr(tuner, inner)(batch(0)),
        ):
            pass

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_a_forward_outside_of_training(self, algorithm):
        tuner = make(algorithm=algorithm)
        loss_fn(tuner.model, batch(0), tuner.hyper.mean()).backward()
        with pytest.raises(RuntimeError, match=r"without a forward pass in `with tuner\.training"):
            tuner.optimizer.step()
        assert tuner.weight_steps == 0

    def test_an_optimizer_step_inside_tuning(self):
        tuner = make()
        tuner.train_step(loss_fn, batch(0))
        before = state(tuner)
        with pytest.raises(RuntimeError, match=r"steps inside `with tuner\.tuning"), tuner.tuning(batch(1)):
            tuner.optimizer.step()
        assert_same(before, state(tuner))

    def test_responding_where_there_is_none(self):
        with pytest.raises(RuntimeError, match="trains the responses together"), make().responding(batch(0)):
            pass

    def test_another_tuner_on_the_same_optimizer_does_not_mind(self):
        first = make()
        second = stn.SelfTuner(first.model, first.hyper, first.optimizer)
        second.train_step(loss_fn, batch(0))
        first.train_step(loss_fn, batch(1))
        assert (first.weight_steps, second.weight_steps) == (2, 2)


class TestAccumulation:
    def test_pieces_with_one_draw_are_one_large_batch(self):
        one, several = make(bind=False), make(bind=False)
        whole = batch(0, 12)
        parts = [(whole[0][k : k + 4], whole[1][k : k + 4]) for k in (0, 4, 8)]
        torch.manual_seed(5)
        with one.training(whole) as hp:
            loss = loss_fn(one.model, whole, hp)
            loss.backward()
        torch.manual_seed(5)
        total, hp = 0.0, None
        for part in parts:
            with several.training(part, hp) as hp:
                piece = loss_fn(several.model, part, hp) / 3
                piece.backward()
            total += float(piece.detach())
        assert total == pytest.approx(float(loss.detach()), abs=1e-6)
        for p, q in zip(one.model.parameters(), several.model.parameters(), strict=True):
            assert torch.allclose(p.grad, q.grad, atol=1e-6)

    def test_so_are_pieces_of_a_validation_batch(self):
        one, several = make(bind=False), make(bind=False)
        for tuner in (one, several):
            torch.manual_seed(2)
            tuner.train_step(loss_fn, batch(0))
        whole = batch(1, 12)
        torch.manual_seed(5)
        with one.tuning(whole) as hp:
            one.backward(loss_fn(one.model, whole, hp))
        torch.manual_seed(5)
        hp = None
        for k in (0, 6):
            part = (whole[0][k : k + 6], whole[1][k : k + 6])
            with several.tuning(part, hp) as hp:
                several.backward(loss_fn(several.model, part, hp) / 2)
        assert torch.allclose(one.hyper.lam.grad, several.hyper.lam.grad, atol=1e-6)
        assert torch.allclose(one.hyper.raw_sigma.grad, several.hyper.raw_sigma.grad, atol=1e-6)

    def test_a_draw_for_each_piece(self):
        tuner = make()
        seen = []
        for k in range(3):
            with tuner.training(batch(k)) as hp:
                (loss_fn(tuner.model, batch(k), hp) / 3).backward()
            seen.append(hp.delta.clone())
        tuner.optimizer.step()
        assert tuner.weight_steps == 1
        assert not torch.equal(seen[0], seen[1])


class Scalars(TorchDispatchMode):
    """Counts the reads of a tensor's value by the host."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def fused(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=True)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("optimizer", [None, fused])
@pytest.mark.parametrize("tune_scale", [True, False])
def test_twenty_steps_do_not_wait_for_the_device(algorithm, optimizer, tune_scale):
    tuner = make(algorithm=algorithm, norm=True, optimizer=optimizer, tune_scale=tune_scale, check=1000, clip=1.0)
    for k in range(3):
        tuner.train_step(loss_fn, batch(k))
        tuner.valid_step(loss_fn, batch(100 + k))
    with Scalars() as scalars:
        for k in range(20):
            tuner.train_step(loss_fn, batch(k))
            tuner.valid_step(loss_fn, batch(100 + k))
    assert scalars.count == 0
    tuner.look()
    assert len(tuner.schedule) == 24


class TestGuard:
    """A step that is not finite is not applied, also where nobody looks at every step."""

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize(
        "optimizer",
        [
            lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.1),
            fused,
            lambda ps: torch.optim.Adam(ps, lr=0.01),
            lambda ps: torch.optim.AdamW(ps, lr=0.01, foreach=True),
            lambda ps: torch.optim.AdamW(ps, lr=0.01, fused=True),
        ],
        ids=["sgd", "sgd-fused", "adam", "adamw-foreach", "adamw-fused"],
    )
    @pytest.mark.parametrize("after", [0, 3])
    def test_it_changes_nothing(self, algorithm, optimizer, after):
        tuner = make(algorithm=algorithm, norm=True, optimizer=optimizer, check=100)
        for k in range(after):
            tuner.train_step(loss_fn, batch(k))
            tuner.valid_step(loss_fn, batch(100 + k))
        before, moments = state(tuner), copy.deepcopy(tuner.optimizer.state_dict()["state"])
        x, y = batch(0)
        tuner.train_step(loss_fn, (x * float("nan"), y))
        tuner.train_step(loss_fn, (x * float("inf"), y))
        if after:
            tuner.valid_step(loss_fn, (x * float("nan"), y))
        assert_same(before, state(tuner))
        for place, saved in tuner.optimizer.state_dict()["state"].items():
            for key, value in saved.items():
                if isinstance(value, torch.Tensor):
                    old = moments.get(place, {}).get(key)
                    assert torch.equal(value, torch.zeros_like(value) if old is None else old), key
        failed = 3 if after else 2
        seen = failed + 2 * after
        with pytest.raises(NonFiniteError, match=f"in {failed} of the last {seen} steps, first at step {after}"):
            tuner.look()
        assert tuner.weight_steps == after
        tuner.train_step(loss_fn, batch(9))
        tuner.look()

    def test_it_is_told_after_so_many_steps(self):
        tuner = make(check=3)
        x, y = batch(0)
        tuner.train_step(loss_fn, (x * float("nan"), y))
        tuner.train_step(loss_fn, (x, y))
        with pytest.raises(NonFiniteError, match="in 1 of the last 3 steps, first at step 0"):
            tuner.train_step(loss_fn, (x, y))
        assert tuner.weight_steps == 2

    def test_or_at_the_end_of_a_pass(self):
        tuner = make(check=100)
        x, y = batch(0)
        with pytest.raises(NonFiniteError, match="in 1 of the last 2 steps"):
            tuner.epoch(loss_fn, [(x, y), (x * float("nan"), y)], None)

    def test_or_at_once(self):
        tuner = make(check="step")
        x, y = batch(0)
        with pytest.raises(NonFiniteError, match="the training loss is nan at step 0"):
            tuner.train_step(loss_fn, (x * float("nan"), y))

    def test_losses_are_the_same_as_with_a_look_at_every_step(self):
        one, other = make(norm=True, check="step"), make(norm=True, check=7)
        for tuner in (one, other):
            torch.manual_seed(3)
            for k in range(6):
                tuner.train_step(loss_fn, batch(k))
                tuner.valid_step(loss_fn, batch(100 + k))
        assert_same(state(one), state(other))

    def test_pieces_guard_the_step_of_lambda(self):
        tuner = make()
        tuner.train_step(loss_fn, batch(0))
        lam = tuner.hyper.lam.clone()
        with tuner.tuning(batch(1)) as hp:
            tuner.backward(loss_fn(tuner.model, batch(1), hp) * float("inf"))
        with pytest.raises(NonFiniteError, match="not applied"):
            tuner.step()
        assert torch.equal(tuner.hyper.lam, lam)
        assert tuner.hyper.lam.grad is None

    @pytest.mark.parametrize("value", [0, -1, 2.5, True, "always"])
    def test_bad_values(self, value):
        with pytest.raises(ValueError, match=r"check is .*; it must be 'step', or a number of steps"):
            Guard(value)

    def test_nothing_is_masked_where_all_is_finite(self):
        p = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([p], lr=1.0)
        p.grad = torch.ones(3)
        with masked([optimizer], torch.tensor(True)):
            optimizer.step()
        assert torch.equal(p.detach(), torch.zeros(3))


def half(dtype):
    """Whether this CPU multiplies matrices of the type: on some it ends the process."""
    import subprocess
    import sys

    code = f"import torch; a = torch.ones(8, 8, dtype={dtype}); (a @ a).sum().item()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_scaler(algorithm, dtype):
    if not half(dtype):
        pytest.skip(f"this CPU has no {dtype} matrix product")
    tuner = make(algorithm=algorithm)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, enabled=dtype == torch.float16)
    losses = []
    for k in range(30):
        tuner.optimizer.zero_grad()
        pieces = [tuner.responding, tuner.training] if algorithm == "delta" else [tuner.training]
        for piece in pieces:
            with piece(batch(k)) as hp:
                with torch.autocast("cpu", dtype=dtype):
                    loss = loss_fn(tuner.model, batch(k), hp)
                scaler.scale(loss).backward()
        scaler.step(tuner.optimizer)
        scaler.update()
        losses.append(float(loss.detach()))
        with tuner.tuning(batch(100 + k)) as hp:
            with torch.autocast("cpu", dtype=dtype):
                loss = loss_fn(tuner.model, batch(100 + k), hp)
            tuner.backward(loss, scaler)
        tuner.step()
    assert tuner.weight_steps == 30
    assert sum(losses[-5:]) < sum(losses[:5])
    assert tuner.hyper.lam.dtype == torch.float32
    assert all(p.dtype == torch.float32 for p in tuner.model.parameters())


def test_a_scaler_gives_the_gradient_of_lambda_that_there_is_without_one():
    gradients = []
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=2.0**10)):
        tuner = make()
        torch.manual_seed(3)
        tuner.train_step(loss_fn, batch(0))
        with tuner.tuning(batch(1)) as hp:
            tuner.backward(loss_fn(tuner.model, batch(1), hp), scaler)
        gradients.append(tuner.hyper.lam.grad)
    assert torch.allclose(*gradients, rtol=1e-5)


def test_infinite_gradients_are_skipped_by_the_scaler_and_lambda_stays():
    tuner = make(norm=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    tuner.train_step(loss_fn, batch(0))
    before = state(tuner)
    x, y = batch(1)
    bad = (x, y)
    tuner.optimizer.zero_grad()
    with tuner.training(bad) as hp:
        scaler.scale(loss_fn(tuner.model, bad, hp) * float("inf")).backward()
    scaler.step(tuner.optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**7
    with tuner.tuning(bad) as hp:
        tuner.backward(loss_fn(tuner.model, bad, hp) * float("inf"), scaler)
    tuner.step()
    tuner.look()
    assert tuner.weight_steps == 1
    after = state(tuner)
    for key in before:
        assert torch.equal(before[key], after[key]) or "running" in key or "num_batches" in key, key


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_muon_and_adamw(algorithm):
    torch.manual_seed(0)
    hyper = stn.Hyper({"dropout": tune.uniform(0, 0.9)})
    model = stn.self_tune(network(), hyper, bind={"2": "dropout"})
    flat = [p for p in model.parameters() if p.dim() == 2]
    rest = [p for p in model.parameters() if p.dim() != 2]
    optimizers = [
        torch.optim.Muon(flat, lr=0.02),
        torch.optim.AdamW([{"params": rest[:1], "lr": 0.1}, {"params": rest[1:]}]),
    ]
    schedulers = [torch.optim.lr_scheduler.StepLR(o, 5) for o in optimizers]
    tuner = stn.SelfTuner(model, hyper, optimizers, algorithm=algorithm)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}

    def loss(model, batch, hp):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    for k in range(6):
        tuner.train_step(loss, batch(k))
        tuner.valid_step(loss, batch(100 + k))
        for scheduler in schedulers:
            scheduler.step()
    assert tuner.weight_steps == 6
    for name, p in model.named_parameters():
        assert not torch.equal(before[name], p), name
    saved = copy.deepcopy(tuner.state_dict())
    tuner.train_step(loss, batch(7))
    tuner.load_state_dict(saved)
    assert tuner.weight_steps == 6
