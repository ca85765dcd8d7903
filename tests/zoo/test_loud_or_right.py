"""Mistakes that once went unnoticed, crashed or confused: each now works, or says in one line what to do."""

from __future__ import annotations

import copy
import itertools
import re
import warnings

import pytest
import torch
from ray import tune
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import stn_tune as stn
from tests.zoo.models import BATCH, CASES, CLASSES, WIDTH, Checkpointed, mlp, vectors

RATE, DECAY = tune.uniform(0, 0.9), tune.loguniform(1e-5, 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(WIDTH, 16), nn.Dropout(0.5), nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.b(self.drop(F.relu(self.a(x))))


def plain_loss(model, batch, hp):
    return F.cross_entropy(model(batch[0]), batch[1])


def decay_loss(model, batch, hp):
    loss = plain_loss(model, batch, hp)
    return loss + stn.nn.l2(model, hp["decay"]) if model.training else loss


def tuner_of(
    model=None, space=None, bind=None, optimizer=torch.optim.SGD, lr=0.05, self_tune=None, hyper=None, **options
):
    hyper = stn.Hyper(space or {"decay": DECAY}, **(hyper or {}))
    model = stn.self_tune(Net() if model is None else model, hyper, bind=bind, **(self_tune or {}))
    moved = [p for p in model.parameters() if p.requires_grad]
    return stn.SelfTuner(model, hyper, optimizer(moved, lr=lr), **options)


def steps(tuner, loss=decay_loss, count=2, batch=vectors):
    for _ in range(count):
        tuner.train_step(loss, batch())
        tuner.valid_step(loss, batch())


def one_line(error) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


class TestSilentlyWrong:
    def test_resuming_with_the_space_in_another_order_keeps_every_names_value_and_goes_on_exactly(self):
        def build(names):
            torch.manual_seed(1)
            space = {"rate": RATE, "decay": DECAY}
            return tuner_of(Net(), {name: space[name] for name in names}, {"drop": "rate"}, torch.optim.Adam)

        tuner = build(["rate", "decay"])
        steps(tuner)
        resumed = build(["decay", "rate"])
        resumed.load_state_dict(copy.deepcopy(tuner.state_dict()))
        assert resumed.hyper.values_now() == tuner.hyper.values_now()
        assert resumed.hyper.scales_now() == tuner.hyper.scales_now()
        a, b = (t._tuning.responding()[0].response.V for t in (tuner, resumed))
        assert torch.equal(a, b.flip(1))
        batch = vectors()
        for one in (tuner, resumed):
            one.draw = one.valid_draw = "mean"
            torch.manual_seed(5)
            steps(one, batch=lambda: batch)
        for name, value in tuner.hyper.values_now().items():
            assert resumed.hyper.values_now()[name] == pytest.approx(value, rel=1e-5)
        torch.testing.assert_close(stn.plain_state_dict(tuner.model), stn.plain_state_dict(resumed.model))

    def test_a_refused_load_changes_nothing(self):
        tuner = tuner_of(space={"decay": DECAY})
        steps(tuner)
        others = tuner_of(space={"decay": tune.loguniform(1e-3, 1)}), tuner_of(nn.Linear(WIDTH, CLASSES))
        before = copy.deepcopy(tuner.state_dict())
        for other in others:
            steps(other)
            with pytest.raises((stn.SpaceError, RuntimeError)):
                tuner.load_state_dict(other.state_dict())
            after = tuner.state_dict()
            for key in ("model", "optimizer", "hyper_optimizer", "step"):
                assert _equal(before[key], after[key]), key

    def test_a_refused_load_of_the_model_alone_leaves_lambda(self):
        tuner, other = tuner_of(), tuner_of(space={"decay": tune.loguniform(1e-3, 1)})
        steps(other)
        before = tuner.hyper.lam.clone()
        with pytest.raises((stn.SpaceError, RuntimeError), match="decay"):
            tuner.model.load_state_dict(other.model.state_dict())
        assert torch.equal(tuner.hyper.lam, before)

    def test_gradients_switched_off_by_the_mode(self):
        def loss(model, batch, hp):
            with torch.set_grad_enabled(model.training):
                return decay_loss(model, batch, hp)

        tuner = tuner_of()
        tuner.train_step(loss, vectors())
        with pytest.raises(ValueError, match=r"the validation loss does not depend on λ: .*set_grad_enabled") as error:
            tuner.valid_step(loss, vectors())
        one_line(error)

    def test_a_penalty_that_is_not_guarded_by_the_mode(self):
        def loss(model, batch, hp):
            return plain_loss(model, batch, hp) + stn.nn.l2(model, hp["decay"])

        tuner = tuner_of()
        tuner.train_step(loss, vectors())
        with pytest.warns(UserWarning, match="^decay: read in eval mode.*guard .* or name it in Hyper"):
            tuner.valid_step(loss, vectors())

    def test_a_direct_name_may_be_read_in_eval_mode(self):
        def loss(model, batch, hp):
            return plain_loss(model, batch, hp) + hp["decay"] * model(batch[0]).square().mean()

        tuner = tuner_of(hyper={"direct": True})
        steps(tuner, loss)

    @pytest.mark.parametrize("name", ["gpt tied by F.linear", "cosine head", "gpt, tied embedding responds"])
    def test_weights_that_are_read_functionally_respond(self, name):
        case = CASES[name]
        tuner = case.tuner()
        case.steps(tuner)
        for r in tuner._tuning.responding():
            assert r.response.U.grad.any(), r.path

    def test_weights_read_past_their_module_are_found(self):
        class Past(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(WIDTH, CLASSES)
                self.kept = [self.fc.weight]

            def forward(self, x):
                return F.linear(x, self.kept[0], self.fc.bias)

        tuner = tuner_of(Past())
        with pytest.raises(
            stn.ConversionError, match=r"^fc.weight was read past its module .* exclude=\['fc.weight'\]"
        ):
            tuner.train_step(plain_loss, vectors())

    def test_weights_kept_elsewhere_are_found_even_where_a_penalty_reads_the_right_ones(self):
        class Past(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(WIDTH, CLASSES)
                self.kept = [self.fc.weight]

            def forward(self, x):
                return F.linear(x, self.kept[0], self.fc.bias)

        tuner = tuner_of(Past(), self_tune={"exclude": ["fc.bias"]})
        tuner.train_step(decay_loss, vectors())
        with pytest.raises(ValueError, match="does not depend on λ"):
            tuner.valid_step(decay_loss, vectors())

    def test_a_layer_that_fuses_its_weights_elsewhere_is_trained_with_them(self):
        """The flat weights of recurrent layers lie beside their parameters."""
        model = nn.LSTM(WIDTH, CLASSES, batch_first=True)

        def loss(model, batch, hp):
            x, y = batch
            out = F.cross_entropy(model(x[:, None])[0][:, 0], y)
            return out + stn.nn.l2(model, hp["decay"]) if model.training else out

        tuner = tuner_of(model, optimizer=torch.optim.Adam)
        steps(tuner, loss)
        assert all(a is b for a, b in zip(model._flat_weights, model._parameters.values(), strict=False))
        assert all(r.response.U.grad.any() for r in tuner._tuning.responding())

    def test_rows_that_equal_the_batch_size_are_told_apart_by_batch_dim(self):
        """Time-major, and as many steps as examples: with one draw per example, only the user knows the batch."""
        model = nn.Sequential(nn.Linear(WIDTH, CLASSES))
        tuner = tuner_of(model, self_tune={"batch_dim": {"0": 1}}, draw="example")
        x = torch.randn(BATCH, BATCH, WIDTH)
        with tuner.training((x.transpose(0, 1),)) as hp, torch.no_grad():
            found = model(x)
            for i, delta in enumerate(hp.delta):
                rs = {r.path: r.response.at(r.weight, delta) for r in tuner._tuning.responding()}
                torch.testing.assert_close(found[:, i], F.linear(x[:, i], rs["0.weight"], rs["0.bias"]))

    def test_an_unused_binding_is_an_error_even_where_its_name_is_used_elsewhere(self):
        class Idle(Net):
            def __init__(self):
                super().__init__()
                self.idle = nn.Dropout(0.1)

        tuner = tuner_of(Idle(), {"rate": RATE}, {"drop": "rate", "idle": "rate"})
        tuner.train_step(plain_loss, vectors())
        with pytest.raises(stn.UnusedError, match=r"^idle.p: bound, but in 1 training steps neither called nor read"):
            tuner.valid_step(plain_loss, vectors())

    def test_a_dropout_read_as_p_by_a_fused_kernel_follows_lambda(self):
        class Fused(Net):
            seen: list

            def forward(self, x):
                self.seen = [*getattr(self, "seen", []), float(self.drop.p)]
                h = self.a(x)[:, None]
                h = F.scaled_dot_product_attention(h, h, h, dropout_p=self.drop.p if self.training else 0.0)
                return self.b(h[:, 0])

        tuner = tuner_of(Fused(), {"rate": RATE}, {"drop": "rate"})
        with tuner.training(vectors()) as hp:
            tuner.model(vectors()[0])
            assert tuner.model.seen[-1] == pytest.approx(float(hp["rate"]))
        tuner.model(vectors()[0])
        steps(tuner, plain_loss)
        assert len(set(tuner.model.seen)) == len(tuner.model.seen), "another value in every step"
        assert tuner.model.drop.p == pytest.approx(tuner.hyper.values_now()["rate"])

    def test_frozen_parameters_have_no_response_and_stay(self):
        model = Net()
        model.a.requires_grad_(False)
        before = model.a.weight.clone()
        tuner = tuner_of(model)
        steps(tuner, count=4)
        assert torch.equal(model.a.weight, before)
        assert "a.weight" not in tuner._tuning.places

    def test_a_parameter_frozen_after_self_tune_stays_where_it_is(self):
        model = Net()
        tuner = tuner_of(model)
        steps(tuner)
        model.a.requires_grad_(False)
        before = model.a.weight.clone()
        steps(tuner, count=3)
        assert torch.equal(model.a.weight, before), "neither a step nor λ moves it"

    def test_training_does_not_go_on_in_eval_mode(self):
        tuner = tuner_of()
        tuner.model.eval()
        with pytest.raises(ValueError, match=r"is in eval mode, where nothing regularises: call model.train\(\)"):
            tuner.train_step(decay_loss, vectors())
        with pytest.raises(ValueError, match="is in eval mode"):
            tuner_of(Net().eval())

    def test_clipping_and_the_finiteness_check_cover_all_that_the_optimizer_moves(self):
        class Criterion(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(()))

        criterion, hyper = Criterion(), stn.Hyper({"decay": DECAY})
        model = stn.self_tune(Net(), hyper)
        optimizer = torch.optim.SGD([*model.parameters(), *criterion.parameters()], lr=1.0)
        tuner = stn.SelfTuner(model, hyper, optimizer, clip=0.1)

        def loss(model, batch, hp):
            return decay_loss(model, batch, hp) * criterion.scale * 100

        before = [p.detach().clone() for p in (*model.parameters(), criterion.scale)]
        tuner.train_step(loss, vectors())
        moved = torch.cat(
            [(p - b).flatten() for p, b in zip((*model.parameters(), criterion.scale), before, strict=True)]
        )
        assert moved.norm().item() == pytest.approx(0.1, rel=1e-3)
        assert criterion.scale != 1

        def infinite(model, batch, hp):
            return decay_loss(model, batch, hp) + (criterion.scale - criterion.scale.detach()).sqrt()

        with pytest.raises(stn.NonFiniteError, match=r"the gradient of parameter \d+ of the optimizer is not finite"):
            tuner.train_step(infinite, vectors())

    @pytest.mark.parametrize("log", [dict, lambda hp: list(hp.items()), lambda hp: {**hp}, str, lambda hp: hp.copy()])
    def test_a_log_line_is_no_use_of_a_hyperparameter(self, log):
        def loss(model, batch, hp):
            log(hp)
            return plain_loss(model, batch, hp)

        tuner = tuner_of()
        tuner.train_step(loss, vectors())
        with pytest.raises(stn.UnusedError, match=r"^decay: read by neither the model nor the loss"):
            tuner.valid_step(loss, vectors())

    def test_lambda_does_not_run_away_where_r_is_saturated(self):
        tuner = tuner_of(space={"rate": RATE}, bind={"drop": "rate"}, hyper_lr=10.0)
        for _ in range(30):
            steps(tuner, plain_loss, 1)
            low, high = tuner.hyper.space.transform("rate").held
            assert low - 1e-5 <= float(tuner.hyper.lam) <= high + 1e-5
        assert all(p.isfinite().all() for p in tuner.model.parameters())

    def test_l2_by_hand_counts_the_responses_and_l2_of_the_library_does_not(self):
        model = Net()
        expected = sum(p.square().sum() for p in model.parameters()) / 2
        stn.self_tune(model, stn.Hyper({"decay": DECAY}))
        torch.testing.assert_close(stn.nn.l2(model, 1.0), expected)
        assert sum(p.square().sum() for p in model.parameters()) / 2 > expected
        assert "a sum over ``model.parameters()`` would" in stn.nn.l2.__doc__

    def test_a_head_that_was_replaced_after_self_tune_is_said(self):
        for replace in (
            lambda model: setattr(model, "b", nn.Linear(16, 3)),
            lambda model: setattr(model, "b", nn.Identity()),
            lambda model: delattr(model, "b"),
        ):
            tuner = tuner_of()
            replace(tuner.model)
            with pytest.raises(stn.ConversionError, match=r"b.weight .* module was replaced after") as error:
                tuner.train_step(decay_loss, vectors())
            one_line(error)

    def test_a_head_of_the_same_shape_that_was_replaced_after_self_tune_is_said(self):
        """The optimizer still moves the old one."""
        tuner = tuner_of()
        tuner.model.b = nn.Linear(16, CLASSES)
        with pytest.raises(ValueError, match=r"the optimizer does not move b.weight.*build the optimizer after"):
            tuner.train_step(decay_loss, vectors())

    def test_state_dict_alone_holds_weights_and_lambda(self):
        tuner = tuner_of(space={"decay": DECAY, "rate": RATE}, bind={"drop": "rate"})
        steps(tuner, count=4)
        x = vectors()[0]
        expected = tuner.model.eval()(x)
        fresh = tuner_of(space={"decay": DECAY, "rate": RATE}, bind={"drop": "rate"})
        fresh.model.load_state_dict(tuner.model.state_dict())
        assert torch.equal(fresh.model.eval()(x), expected)
        assert fresh.hyper.values_now() == tuner.hyper.values_now()
        assert fresh.model.drop.p == tuner.model.drop.p, "bound dropouts follow what was loaded"

    def test_sgd_of_the_models_parameters_never_moves_lambda(self):
        tuner = tuner_of()
        assert not {id(tuner.hyper.lam), id(tuner.hyper.raw_sigma)} & {id(p) for p in tuner.model.parameters()}
        assert tuner.model.state_dict()["_stn.hyper.lam/decay"] == tuner.hyper.lam[0]

    def test_a_scheduler_that_changes_an_online_name_is_told_that_it_has_no_effect(self, tmp_path):
        """As PBT does: the checkpoint of one trial, and another config."""
        from tests.digits_task import CONFIG, ONLINE, Digits

        trainable = stn.STNTrainable.of(Digits, space=ONLINE)
        donor = trainable(dict(CONFIG))
        donor.save_checkpoint(str(tmp_path))
        same = trainable({**CONFIG, "lr": 0.01})
        same.load_checkpoint(str(tmp_path))
        changed = trainable({**CONFIG, "dropout": 0.4})
        with pytest.warns(UserWarning, match=r"^dropout=0.4 of the config has no effect: it is tuned online"):
            changed.load_checkpoint(str(tmp_path))
        assert changed._trainer.hyper.values_now() == donor._trainer.hyper.values_now()


class TestCrashed:
    def test_parameters_are_given_to_a_task_class(self):
        from tests.digits_task import CONFIG, ONLINE, Digits

        class Sized(Digits):
            def __init__(self, data=None):
                self.data = data

        with_data = tune.with_parameters(stn.STNTrainable.of(Sized, space=ONLINE), data=[1, 2, 3])
        trainable = with_data(dict(CONFIG))
        assert trainable._task.data == [1, 2, 3]
        trainable.reset_config(dict(CONFIG))
        assert trainable._task.data == [1, 2, 3]
        fixed = tune.with_parameters(stn.FixedTrainable.of(Sized), data="x")(dict(CONFIG))
        assert fixed._task.data == "x"

    def test_parameters_for_a_task_object_are_refused(self):
        from tests.digits_task import CONFIG, ONLINE, Digits

        trainable = tune.with_parameters(stn.STNTrainable.of(Digits(), space=ONLINE), data=[1])
        with pytest.raises(TypeError, match=r"with_parameters gives data to the constructor of the task.*class Digits"):
            trainable(dict(CONFIG))

    def test_reentrant_checkpoints_that_cannot_work_say_what_does(self):
        """Its inner backward pass frees the graph of Ŵ, which a penalty outside of it needs, too."""
        case = CASES["checkpointed, reentrant"]
        tuner = tuner_of(Checkpointed(True))
        with pytest.raises(RuntimeError, match=r"use_reentrant=False") as error:
            tuner.train_step(decay_loss, case.batch())
        one_line(error)

    @pytest.mark.parametrize("reentrant", [False, True])
    @pytest.mark.parametrize("algorithm", ["stn", "delta"])
    def test_a_backward_pass_after_the_step_cannot_compute_activations_again(self, algorithm, reentrant):
        """At λ, and not at λ+ε, they would give other gradients."""
        tuner, batch = tuner_of(Checkpointed(reentrant), algorithm=algorithm), vectors()
        pass_of = tuner.training if algorithm == "stn" else tuner.responding
        with pass_of(batch) as hp:
            loss = plain_loss(tuner.model, batch, hp)
        with pytest.raises(RuntimeError, match=r"no longer at λ\+ε: call loss.backward\(\) within") as error:
            loss.backward()
        one_line(error)
        tuner.optimizer.zero_grad()
        if not reentrant:
            steps(tuner)

    def test_a_backward_pass_after_the_step_is_right_without_checkpoints(self):
        tuner, batch = tuner_of(), vectors()
        found = []
        for inside in (False, True):
            tuner.optimizer.zero_grad()
            torch.manual_seed(0)
            with tuner.training(batch, tuner.hyper.sample_at(torch.ones(1))) as hp:
                loss = decay_loss(tuner.model, batch, hp)
                if inside:
                    loss.backward()
            if not inside:
                loss.backward()
            found.append([p.grad.clone() for p in tuner.model.parameters() if p.grad is not None])
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))

    def test_reentrant_checkpoints_in_eval_mode_say_what_works(self):
        class Always(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.c = nn.Linear(WIDTH, 16), nn.Linear(16, 16), nn.Linear(16, CLASSES)

            def forward(self, x):
                return self.c(checkpoint(self.b, self.a(x), use_reentrant=True))

        tuner = tuner_of(Always())

        def loss(model, batch, hp):
            out = model(batch[0])
            loss = F.cross_entropy(out, batch[1])
            return loss + hp["decay"] * out.square().mean() if model.training else loss

        tuner.train_step(loss, vectors())
        with pytest.raises(RuntimeError, match="use_reentrant=False") as error:
            tuner.valid_step(loss, vectors())
        one_line(error)

    def test_a_step_in_a_step_is_refused(self):
        tuner = tuner_of()
        with (
            tuner.training(vectors()),
            pytest.raises(RuntimeError, match="a step is under way already"),
            tuner.tuning(vectors()),
        ):
            pass
        steps(tuner)

    def test_copying_the_model_within_a_step_is_refused_or_right(self):
        tuner = tuner_of()
        with tuner.training(vectors()), pytest.raises(RuntimeError):
            copy.deepcopy(tuner.model)
        steps(tuner)


class TestConfusing:
    @pytest.mark.parametrize(
        "use",
        [
            lambda x, rate: F.dropout(x, p=rate),
            lambda x, rate: F.dropout(x, p=float(rate)),
            lambda x, rate: F.dropout2d(x[:, :, None, None], rate)[:, :, 0, 0],
            lambda x, rate: x * rate if rate else x,
            lambda x, rate: x if rate > 0.2 else x * 2,
            lambda x, rate: x * (1 - rate),
            lambda x, rate: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], dropout_p=rate)[:, 0],
            lambda x, rate: x + 0 * len(f"{rate:.3f}"),
        ],
        ids=["F.dropout", "float", "F.dropout2d", "if", "compare", "arithmetic", "attention", "format"],
    )
    def test_a_shared_value_is_a_number_where_torch_wants_one(self, use):
        def loss(model, batch, hp):
            x = use(batch[0], hp["rate"]) if model.training else batch[0]
            return F.cross_entropy(model(x), batch[1])

        steps(tuner_of(space={"rate": RATE}), loss)

    @pytest.mark.parametrize("draw", ["batch", "example"])
    def test_label_smoothing(self, draw):
        def loss(model, batch, hp):
            smoothing = hp["rate"] if model.training else 0.0
            return F.cross_entropy(model(batch[0]), batch[1], label_smoothing=smoothing)

        tuner = tuner_of(space={"rate": RATE}, draw=draw)
        if draw == "batch":
            steps(tuner, loss)
            return
        with pytest.raises(ValueError, match=r"rate.*one value per example.*per_batch") as error:
            tuner.train_step(loss, vectors())
        one_line(error)

    @pytest.mark.parametrize("use", [float, bool, lambda v: F.dropout(torch.ones(3), p=v)], ids=["float", "if", "p"])
    def test_a_value_per_example_is_no_number_and_says_what_to_do(self, use):
        def loss(model, batch, hp):
            use(hp["rate"])
            return plain_loss(model, batch, hp)

        tuner = tuner_of(space={"rate": RATE}, draw="example")
        with pytest.raises(ValueError, match=r"rate.*one value per example.*per_batch") as error:
            tuner.train_step(loss, vectors())
        one_line(error)

    @pytest.mark.parametrize(
        ("returned", "message"),
        [
            (lambda loss: {"loss": loss, "acc": 1.0}, r'returned a dict, not a tensor.*return its \["loss"\]'),
            (lambda loss: (loss, 1.0), "returned a tuple, not a tensor.*return its first element"),
            (lambda loss: None, "returned None: it must return the loss"),
            (lambda loss: loss.item(), "returned a float, not a tensor"),
        ],
    )
    def test_a_loss_of_another_type(self, returned, message):
        def loss(model, batch, hp):
            return returned(decay_loss(model, batch, hp))

        tuner = tuner_of()
        with pytest.raises(TypeError, match=message) as error:
            tuner.train_step(loss, vectors())
        one_line(error)
        tuner.train_step(decay_loss, vectors())
        with pytest.raises(TypeError, match=message):
            tuner.valid_step(loss, vectors())
        with pytest.raises(TypeError, match=message):
            tuner.evaluate(loss, [vectors()])

    def test_a_training_loss_without_gradient(self):
        tuner = tuner_of()
        with pytest.raises(ValueError, match="the training loss has no gradient") as error:
            tuner.train_step(lambda model, batch, hp: decay_loss(model, batch, hp).detach(), vectors())
        one_line(error)

    def test_validation_batches_that_run_out(self):
        loader = DataLoader(TensorDataset(*vectors()), batch_size=2)
        tuner = tuner_of(train_steps=1)
        with pytest.raises(ValueError, match="the validation batches ran out: valid must be a loader with") as error:
            tuner.epoch(decay_loss, [vectors() for _ in range(4)], iter(loader))
        one_line(error)
        with pytest.raises(ValueError, match="the validation batches ran out"):
            tuner.epoch(decay_loss, [vectors()], [])
        tuner.epoch(decay_loss, [vectors() for _ in range(4)], loader)
        tuner.epoch(decay_loss, [vectors() for _ in range(4)], itertools.cycle(loader))

    def test_a_loader_that_is_its_own_iterator_keeps_its_place(self):
        """As those of ``ray.train.torch.prepare_data_loader``."""
        seen, rows = [], list(DataLoader(TensorDataset(*vectors()), batch_size=2))

        class Own:
            def __iter__(self):
                self.left = enumerate(rows)
                return self

            def __next__(self):
                k, batch = next(self.left)
                seen.append(k)
                return batch

        tuner, loader = tuner_of(train_steps=1), Own()
        for _ in range(2):
            tuner.epoch(decay_loss, [vectors() for _ in range(3)], loader)
        assert seen == [k % len(rows) for k in range(6)]

    def test_lists_of_images_are_batches(self):
        class Pictures(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, CLASSES)

            def forward(self, images):
                return self.head(torch.stack([self.conv(image[None]).mean((0, 2, 3)) for image in images]))

        def batch():
            return [torch.randn(3, 8, 6 + k) for k in range(BATCH)], torch.randint(0, CLASSES, (BATCH,))

        tuner = tuner_of(Pictures())
        steps(tuner, batch=batch)
        assert tuner.batch_size(batch()) == BATCH
        assert tuner.evaluate(decay_loss, [batch(), batch()]) > 0

    def test_a_batch_without_a_tensor_says_so(self):
        tuner = tuner_of(draw="example")
        with pytest.raises(TypeError, match=r"cannot tell the batch size of a .*; pass batch_size=... to SelfTuner"):
            tuner.train_step(decay_loss, "text")

    def test_bind_takes_globs_and_says_what_can_be_bound(self):
        model = nn.Sequential(mlp(), mlp())
        stn.self_tune(model, stn.Hyper({"rate": RATE}), bind={"*.2": "rate"})
        assert model[0][2].p == model[1][2].p
        with pytest.raises(stn.ConversionError, match=r"bind: '\*.drop' matches no module.*can be bound: 2"):
            stn.self_tune(mlp(), stn.Hyper({"rate": RATE}), bind={"*.drop": "rate"})


def _equal(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return a == b


def test_warnings_are_single_lines():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tuner = tuner_of()

        def loss(model, batch, hp):
            return plain_loss(model, batch, hp) + stn.nn.l2(model, hp["decay"])

        steps(tuner, loss, 3)
    assert len(caught) == 1, "said once"
    assert re.match(r"decay: read in eval mode[^\n]+$", str(caught[0].message))


def test_weights_that_are_merged_in_eval_mode_are_said():
    """λ gets no gradient through them."""
    case = CASES["lora, merged in eval mode"]
    tuner, batch = case.tuner(), case.batch()
    tuner.train_step(case.loss, batch)
    with pytest.warns(UserWarning, match=r"0\.a, 0\.b: in the training loss, but not in the validation loss"):
        tuner.valid_step(case.loss, batch)
    tuner.train_step(case.loss, batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuner.valid_step(case.loss, batch)


class ReadTwice(nn.Module):
    """Its embedding is also the head, read functionally."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)

    def forward(self, x):
        assert self.embed.weight.dtype == torch.float32, "reading its type is harmless"
        return F.linear(self.embed(x), self.embed.weight)


def test_with_a_draw_per_example_a_weight_that_is_read_past_its_layer_is_an_error():
    hyper = stn.Hyper({"decay": tune.loguniform(1e-4, 1)})
    model = stn.self_tune(ReadTwice(), hyper, include=["embed"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randint(0, 7, (3, 5))

    def loss(model, x, hp):
        return model(x).square().mean((1, 2)) * (hp["decay"] if model.training else 1)

    tuner = stn.SelfTuner(model, hyper, optimizer, draw="example")
    before = model.embed.weight.clone()
    with pytest.raises(stn.ConversionError, match=r"embed\.weight is read past its layer.*exclude=\['embed\.weight'\]"):
        tuner.train_step(loss, x)
    assert torch.equal(model.embed.weight, before)
    assert type(model.embed._parameters) is dict
    stn.SelfTuner(model, hyper, optimizer).train_step(loss, x)
