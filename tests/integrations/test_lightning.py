"""The Lightning callback: with real Trainers, of both package names."""

from __future__ import annotations

import copy
import csv
import logging
import os
import struct
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import lightning.pytorch as L
import pytest
import pytorch_lightning
import torch
import torchmetrics
from lightning.pytorch import callbacks
from lightning.pytorch.callbacks import ModelCheckpoint, StochasticWeightAveraging
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.plugins.precision import MixedPrecision
from ray import tune
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import stn_tune as stn
from stn_tune import rng
from stn_tune.integrations.lightning import SelfTuning, hyperparameters
from stn_tune.integrations.lightning_checks import check_strategy

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

pytestmark = [  # Lightning's hints to users, and what it uses of torch that torch has deprecated
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore::lightning_fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used to create the checkpoint"),
]

ALGORITHMS = ("stn", "delta")
QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
}


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))


def loss_fn(model, batch, hp=None):
    return F.cross_entropy(model(batch[0]), batch[1])


class Steps:
    """A module as users write it, for either package."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        loss = loss_fn(self, batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", loss_fn(self, batch))

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class Net(Steps, L.LightningModule):  # type: ignore[misc]
    pass


class OldNet(Steps, pytorch_lightning.LightningModule):  # type: ignore[misc]
    pass


class ManualNet(Net):
    """The same optimisation, by hand."""

    raw = False

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers(use_pl_optimizer=not self.raw)
        optimizer.zero_grad()
        self.manual_backward(loss_fn(self, batch))
        optimizer.step()


class Positioned:
    """A loader that Lightning resumes in mid-epoch."""

    def __init__(self, batches):
        self.batches, self.place = batches, 0

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        self.place %= len(self.batches)
        return _Iterator(self)

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class _Iterator:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return self

    def __next__(self):
        if self.loader.place == len(self.loader):
            raise StopIteration
        self.loader.place += 1
        return self.loader.batches[self.loader.place - 1]


def data(seed: int, n: int) -> TensorDataset:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x[:, :3].argmax(1))


def train_loader(batches: int = 8) -> DataLoader:
    return DataLoader(data(0, 12 * batches), 12)


def valid_loader(*, shuffle: bool = False) -> DataLoader:
    return DataLoader(data(1, 36), 12, shuffle=shuffle)


def tuned(cls=Net, seed=0, init=None):
    torch.manual_seed(seed)
    module = cls()
    space, bind = stn.dropouts(module)
    hyper = stn.Hyper(space, init=init) if init else stn.Hyper(space)
    return stn.self_tune(module, hyper, bind=bind), hyper


def made(cls=Net, seed=0, init=None, **options):
    """A module, and its callback."""
    module, hyper = tuned(cls, seed, init)
    options = {"valid_dataloader": valid_loader(), "hyper_lr": 0.05} | options
    if issubclass(cls, ManualNet):
        options.setdefault("loss", loss_fn)
    return module, SelfTuning(hyper, **options)


def fit(module, callback, *others, train=None, val=None, ckpt_path=None, kind=L, **options):
    options = {"max_epochs": 2} | options
    trainer = kind.Trainer(**{**QUIET, **options}, callbacks=[callback, *others])
    trainer.fit(module, train or train_loader(), val, ckpt_path=ckpt_path)
    return trainer


def tensors(module):
    return {k: v.detach().clone() for k, v in module.state_dict().items() if isinstance(v, torch.Tensor)}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for key, value in a.items():
        assert torch.equal(value, b[key]), key


class Start(L.Callback):  # type: ignore[misc]
    """Notes the generators that a fit starts with."""

    def __init__(self, callback):
        self.callback = callback

    def on_train_start(self, trainer, module):
        self.state = copy.deepcopy(self.callback._draws.passes.state_dict())


@pytest.mark.parametrize(("cls", "kind"), [(Net, L), (OldNet, pytorch_lightning)])
def test_both_package_names(cls, kind):
    module, callback = made(cls)
    assert isinstance(callback, kind.Callback)
    trainer = fit(module, callback, kind=kind)
    assert callback.tuner.weight_steps == trainer.global_step == 16
    assert len(callback.tuner.schedule) == 1 + 16 // 4
    assert module.net[3].p == callback.hyper.values_now()["net_3"] != pytest.approx(0.1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("cls", [Net, ManualNet])
def test_it_is_the_loop_of_ones_own_bit_for_bit(algorithm, clip, cls):
    if clip and (algorithm == "delta" or cls is ManualNet):
        pytest.skip("Lightning clips weights and responses together; with manual optimisation, not at all")
    module, callback = made(cls, algorithm=algorithm, train_steps=3, valid_steps=2, warmup_steps=4)
    twin = copy.deepcopy(module)
    start = Start(callback)
    fit(module, callback, start, gradient_clip_val=clip)
    hyper = next(m for m in twin.modules() if isinstance(m, stn.Hyper))
    options = {"hyper_lr": 0.05, "train_steps": 3, "valid_steps": 2, "warmup_steps": 4}
    tuner = stn.SelfTuner(twin, hyper, twin.configure_optimizers(), algorithm=algorithm, clip=clip, **options)
    private = rng.Private(0)
    private.load_state_dict(start.state)
    train, valid = list(train_loader()), list(valid_loader())
    with private.lent():
        for _ in range(2):
            if algorithm == "stn":
                tuner.epoch(loss_fn, train, valid)
            else:
                delta_epoch(tuner, train, valid)
    assert_same(tensors(twin), tensors(module))
    assert tuner.schedule == callback.tuner.schedule


def delta_epoch(tuner, train, valid):
    """Δ-STN in pieces: the pass that trains the responses comes second, as Lightning zeroes gradients before."""
    o = tuner.options
    for batch in train:
        tuner.optimizer.zero_grad()
        with tuner.training(batch) as hp:
            loss_fn(tuner.model, batch, hp).backward()
        if tuner.weight_steps % o.response_every == 0:
            with tuner.responding(batch) as hp:
                loss_fn(tuner.model, batch, hp).backward()
        tuner.optimizer.step()
        if tuner.weight_steps % o.train_steps == 0 and tuner.weight_steps >= o.warmup_steps:
            for _ in range(o.valid_steps):
                tuner.valid_step(loss_fn, tuner._valid_batches.next_of(valid))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_accumulated_gradients(algorithm):
    module, callback = made(algorithm=algorithm, train_steps=2)
    twin = copy.deepcopy(module)
    start = Start(callback)
    trainer = fit(module, callback, start, accumulate_grad_batches=2)
    assert trainer.global_step == callback.tuner.weight_steps == 8
    hyper = next(m for m in twin.modules() if isinstance(m, stn.Hyper))
    tuner = stn.SelfTuner(twin, hyper, twin.configure_optimizers(), algorithm=algorithm, hyper_lr=0.05)
    private = rng.Private(0)
    private.load_state_dict(start.state)
    train, valid = [*train_loader(), *train_loader()], [*valid_loader(), *valid_loader()]
    with private.lent():
        for k, batch in enumerate(train):
            with tuner.training(batch) as hp:
                (loss_fn(twin, batch, hp) / 2).backward()
            if algorithm == "delta" and tuner.weight_steps % 2 == 0:
                with tuner.responding(batch) as hp:
                    (loss_fn(twin, batch, hp) / 2).backward()
            if k % 2:
                tuner.optimizer.step()
                tuner.optimizer.zero_grad()
                if tuner.weight_steps % 2 == 0:
                    tuner.valid_step(loss_fn, valid.pop(0))
    assert_same(tensors(twin), tensors(module))


class TestManual:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_raw_optimizers(self, algorithm, monkeypatch):
        monkeypatch.setattr(ManualNet, "raw", True)
        module, callback = made(ManualNet, algorithm=algorithm)
        fit(module, callback)
        assert callback.tuner.weight_steps == 16
        automatic, other = made(algorithm=algorithm)
        fit(automatic, other)
        assert_same(tensors(automatic), tensors(module))

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_several_optimizers(self, algorithm):
        class Two(ManualNet):
            def configure_optimizers(self):
                own = [p for name, p in self.named_parameters() if "net.4" in name or "net/4" in name]
                rest = [p for name, p in self.named_parameters() if not any(p is q for q in own)]
                return torch.optim.SGD(rest, lr=0.1), torch.optim.Adam(own, lr=0.01)

            def training_step(self, batch, batch_idx):
                for optimizer in self.optimizers():
                    self.toggle_optimizer(optimizer)
                    self.manual_backward(loss_fn(self, batch))
                    optimizer.step()
                    optimizer.zero_grad()
                    self.untoggle_optimizer(optimizer)

        module, callback = made(Two, algorithm=algorithm)
        before = tensors(module)
        trainer = fit(module, callback)
        assert (callback.tuner.weight_steps, trainer.global_step) == (16, 32)
        assert len(callback.tuner.schedule) == 5
        for key, value in tensors(module).items():
            if "weight" in key and "running" not in key:
                assert not torch.equal(value, before[key]), key

    def test_steps_that_the_module_leaves_out(self):
        class Seldom(ManualNet):
            def training_step(self, batch, batch_idx):
                self.manual_backward(loss_fn(self, batch) / 2)
                if batch_idx % 2:
                    self.optimizers().step()
                    self.optimizers().zero_grad()

        module, callback = made(Seldom, train_steps=2)
        fit(module, callback)
        assert callback.tuner.weight_steps == 8
        assert callback.tuner.schedule.steps == [0, 2, 4, 6, 8]

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_several_backward_passes_and_clipped_parameters(self, algorithm):
        class Parts(ManualNet):
            limit = 1e-9

            def training_step(self, batch, batch_idx):
                optimizer = self.optimizers()
                optimizer.zero_grad()
                for half in zip(*(part.split(6) for part in batch), strict=True):
                    self.manual_backward(loss_fn(self, half) / 2)
                nn.utils.clip_grad_norm_(self.parameters(), self.limit)
                optimizer.step()

        module, callback = made(Parts, algorithm=algorithm, hyper_lr=1e-9)
        before = {name: p.detach().clone() for name, p in module.named_parameters()}
        fit(module, callback)
        for name, p in module.named_parameters():
            torch.testing.assert_close(p, before[name], atol=1e-6, rtol=0, msg=name)
        module.limit = 1.0
        fit(module, callback)
        still = [name for name, p in module.named_parameters() if torch.equal(p, before[name])]
        assert not [name for name in still if "bias" not in name], "a bias in front of a norm has no effect"

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_closures(self, algorithm):
        class Closing(ManualNet):
            def training_step(self, batch, batch_idx):
                def closure():
                    self.optimizers().zero_grad()
                    self.manual_backward(loss_fn(self, batch))

                self.optimizers().step(closure=closure)

        module, callback = made(Closing, algorithm=algorithm)
        fit(module, callback)
        automatic, other = made(algorithm=algorithm)
        fit(automatic, other)
        assert_same(tensors(automatic), tensors(module))

    def test_a_backward_pass_that_lightning_does_not_see(self):
        class Raw(ManualNet):
            def training_step(self, batch, batch_idx):
                self.optimizers().zero_grad()
                loss_fn(self, batch).backward()
                self.optimizers().step()

        module, callback = made(Raw)
        fit(module, callback)
        automatic, other = made()
        fit(automatic, other)
        assert_same(tensors(automatic), tensors(module))
        with pytest.raises(RuntimeError, match=r"without self.manual_backward\(loss\), after which algorithm 'delta'"):
            fit(*made(Raw, algorithm="delta"))

    def test_without_a_loss(self):
        module, callback = made(ManualNet, loss=None)
        with pytest.raises(ValueError, match=r"ManualNet optimises manually: give SelfTuning\(loss="):
            fit(module, callback)


class TestCheckpoints:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize(
        "when",
        [
            {"every_n_epochs": 1, "save_on_train_epoch_end": True},
            {"every_n_epochs": 1, "save_on_train_epoch_end": False},
            {"every_n_train_steps": 11},
            {"every_n_train_steps": 8},
        ],
        ids=["epoch", "validation", "mid-epoch", "last-batch"],
    )
    def test_a_resumed_run_is_the_undisturbed_one(self, tmp_path, algorithm, when):
        def saving():
            return ModelCheckpoint(tmp_path, filename="{step}", save_top_k=-1, enable_version_counter=False, **when)

        def run(seed, *others, **options):
            module, callback = made(
                seed=seed, algorithm=algorithm, train_steps=3, valid_dataloader=valid_loader(shuffle=True)
            )
            loader = Positioned(list(train_loader()))
            checkpointing = bool(others)
            fit(module, callback, *others, train=loader, val=valid_loader(), num_sanity_val_steps=0,
                enable_checkpointing=checkpointing, **options)  # fmt: skip
            return module, callback

        module, callback = run(0, saving(), max_epochs=4)
        path = min(tmp_path.glob("*.ckpt"), key=lambda path: int(path.stem.split("=")[1]))
        assert int(path.stem.split("=")[1]) in (8, 11)
        torch.load(path, weights_only=True)
        again, other = run(9, max_epochs=4, ckpt_path=path)
        assert_same(tensors(module), tensors(again))
        assert callback.tuner.schedule == other.tuner.schedule
        for name in ("optimizer", "hyper_optimizer", "scale_optimizer"):
            one, two = (getattr(c.tuner, name).state_dict()["state"] for c in (callback, other))
            for key, value in one.items():
                assert_same({k: v for k, v in value.items() if isinstance(v, torch.Tensor)},
                            {k: v for k, v in two[key].items() if isinstance(v, torch.Tensor)})  # fmt: skip

    def test_the_saved_lambda_wins(self, tmp_path):
        module, callback = made()
        trainer = fit(module, callback)
        trainer.save_checkpoint(tmp_path / "a.ckpt")
        found = callback.hyper.values_now()["net_3"]
        again, other = made(init={"net_3": 0.6})
        fit(again, other, max_epochs=3, ckpt_path=tmp_path / "a.ckpt", limit_train_batches=1)
        assert other.tuner.schedule.values["net_3"][:5] == callback.tuner.schedule.values["net_3"]
        assert other.hyper.values_now()["net_3"] == pytest.approx(found, abs=0.05)

    def test_a_space_in_another_order(self, tmp_path):
        class Penalised(Net):
            def training_step(self, batch, batch_idx):
                hp = hyperparameters(self)
                return loss_fn(self, batch) + (stn.nn.l2(self, hp["decay"]) if self.training else 0)

        class Columns(L.Callback):
            """What the optimizers hold for each name, when training starts and when it has ended."""

            def note(self, trainer, module):
                tuner, names = self.callback.tuner, self.callback.hyper.space.names
                v = module.get_submodule("_stn.responses").get_submodule("net/0/weight").V
                columns = tuner.optimizer.state.get(v, {}).get("momentum_buffer")
                means = tuner.hyper_optimizer.state.get(tuner.hyper.lam, {}).get("exp_avg")
                if means is None:
                    return {}
                return {n: (columns[:, k].tolist(), means[k].item()) for k, n in enumerate(names)}

            def on_train_start(self, trainer, module):
                self.first = self.note(trainer, module)

            def on_train_end(self, trainer, module):
                self.last = self.note(trainer, module)

        def run(names, **options):
            torch.manual_seed(0)
            module, columns = Penalised(), Columns()
            domains = {"drop": tune.uniform(0, 0.9), "decay": tune.loguniform(1e-4, 1)}
            hyper = stn.Hyper({name: domains[name] for name in names}, init={"drop": 0.2})
            stn.self_tune(module, hyper, bind={"net.3": "drop"})
            columns.callback = SelfTuning(hyper, valid_dataloader=valid_loader(), hyper_lr=0.05)
            return fit(module, columns.callback, columns, **options), columns

        trainer, saved = run(["drop", "decay"])
        trainer.save_checkpoint(tmp_path / "a.ckpt")
        _, again = run(["decay", "drop"], max_epochs=3, ckpt_path=tmp_path / "a.ckpt")
        assert list(again.first) == ["decay", "drop"]
        assert again.first == saved.last
        before, after = (columns.callback.tuner.schedule.values["drop"] for columns in (saved, again))
        assert after[: len(before)] == before

    def test_the_same_trainer_goes_on(self):
        module, callback = made()
        trainer = fit(module, callback)
        first = callback.tuner
        trainer.fit_loop.max_epochs = 3
        trainer.fit(module, train_loader())
        assert callback.tuner is not first
        assert callback.tuner.weight_steps == trainer.global_step == 24
        assert len(callback.tuner.schedule) == 7
        assert first.schedule.values["net_3"] == callback.tuner.schedule.values["net_3"][:5]

    def test_a_new_trainer_starts_anew_from_the_current_lambda(self):
        module, callback = made()
        fit(module, callback)
        found = callback.hyper.values_now()["net_3"]
        fit(module, callback)
        assert callback.tuner.weight_steps == 16
        assert callback.tuner.schedule.values["net_3"][0] == pytest.approx(found)

    def test_testing_a_checkpoint_leaves_the_callback_alone(self, tmp_path):
        module, callback = made()
        trainer = fit(module, callback)
        trainer.save_checkpoint(tmp_path / "a.ckpt")
        trainer.test(module, valid_loader(), ckpt_path=tmp_path / "a.ckpt", verbose=False)
        fit(module, callback)
        assert callback.tuner.weight_steps == 16, "a new Trainer starts anew"


class TestOutsideOfSteps:
    def test_the_module_is_the_plain_one(self, tmp_path):
        module, callback = made()
        trainer = fit(module, callback, val=valid_loader())
        plain = Net().eval()
        plain.load_state_dict(stn.plain_state_dict(module))
        batches = list(valid_loader())
        expected = sum(loss_fn(plain, batch).item() for batch in batches) / len(batches)
        assert trainer.validate(module, valid_loader(), verbose=False)[0]["val_loss"] == pytest.approx(expected)
        assert trainer.test(module, valid_loader(), verbose=False)[0]["val_loss"] == pytest.approx(expected)
        predicted = trainer.predict(module, DataLoader(batches[0][0], 12))
        assert torch.equal(predicted[0], plain(batches[0][0]))
        assert "training_step" not in vars(trainer.strategy)

    def test_what_hooks_see(self):
        seen = {}

        class Hooks(L.Callback):
            pass

        def hook(name):
            def note(self, trainer, module, *_):
                seen.setdefault(name, set()).add(module.net[0].weight.is_leaf)

            return note

        names = ("on_train_batch_start", "on_train_batch_end", "on_after_backward", "on_before_optimizer_step")
        for name in (*names, "on_before_zero_grad"):
            setattr(Hooks, name, hook(name))
        module, callback = made()
        fit(module, callback, Hooks())
        assert seen == {name: {True} for name in names} | {"on_before_zero_grad": {False}}

    @pytest.mark.parametrize("where", ["training_step", "on_before_zero_grad"])
    def test_after_an_error(self, where):
        class Failing(Net):
            def training_step(self, batch, batch_idx):
                if where == "training_step" and batch_idx == 3:
                    raise RuntimeError("here")
                return super().training_step(batch, batch_idx)

            def on_before_zero_grad(self, optimizer):
                if where == "on_before_zero_grad" and self.trainer.global_step == 3:
                    raise RuntimeError("here")

        module, callback = made(Failing)
        with pytest.raises(RuntimeError, match="here"):
            fit(module, callback)
        assert module.net[0].weight.is_leaf
        assert isinstance(module.net[3].p, float)
        where = "nowhere"
        fit(module, callback)

    def test_averages_and_summaries(self, tmp_path, capsys):
        module, callback = made()
        if not hasattr(callbacks, "EMAWeightAveraging"):
            pytest.skip("Lightning has it since 2.6")
        average = callbacks.EMAWeightAveraging(decay=0.5)
        trainer = fit(module, average, callback, val=valid_loader(), enable_model_summary=True)
        trainer.save_checkpoint(tmp_path / "a.ckpt")
        plain = Net().eval()
        plain.load_state_dict(stn.plain_state_dict(module))
        x, _ = next(iter(valid_loader()))
        assert torch.equal(module.eval()(x), plain(x))
        assert module.net[3].p == callback.hyper.values_now()["net_3"]

    @pytest.mark.parametrize("first", [True, False])
    def test_stochastic_weight_averaging(self, first):
        module, callback = made()
        averaging = StochasticWeightAveraging(swa_lrs=0.05, swa_epoch_start=2)
        fit(module, *([averaging, callback] if first else [callback, averaging]), max_epochs=4)
        plain = Net().eval()
        plain.load_state_dict(stn.plain_state_dict(module))
        x, _ = next(iter(valid_loader()))
        assert torch.equal(module.eval()(x), plain(x))
        assert len(callback.tuner.schedule) == 9

    @pytest.mark.filterwarnings("ignore:Found keys that are not in the model state dict but in the checkpoint")
    def test_a_checkpoint_without_self_tuning(self, tmp_path):
        module, callback = made()
        fit(module, callback).save_checkpoint(tmp_path / "a.ckpt")
        plain = Net.load_from_checkpoint(tmp_path / "a.ckpt", strict=False).eval()
        x, _ = next(iter(valid_loader()))
        assert torch.equal(module.eval()(x), plain(x))


class TestLosses:
    def test_nothing_is_logged_by_hyperparameter_steps(self):
        stages = []

        class Noisy(Net):
            def __init__(self):
                super().__init__()
                self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)

            def training_step(self, batch, batch_idx):
                stages.append((self.training, self.trainer.training, self.trainer.validating))
                outputs = self(batch[0])
                self.accuracy(outputs, batch[1])
                self.log("rows", float(len(batch[0])), on_step=False, on_epoch=True, reduce_fx="sum")
                self.log_dict({"accuracy": self.accuracy, "loss": F.cross_entropy(outputs, batch[1])}, on_epoch=True)
                return {"loss": F.cross_entropy(outputs, batch[1])}

        counts = []

        class Count(L.Callback):
            def on_train_batch_end(self, trainer, module, *_):
                state = module.accuracy.metric_state
                counts.append((module.accuracy.update_count, int((state["tp"] + state["fn"]).sum())))

        module, callback = made(Noisy)
        trainer = fit(module, callback, Count(), max_epochs=1)
        assert trainer.callback_metrics["rows"] == 96
        assert counts == [(k, 12 * k) for k in range(1, 9)]
        assert stages.count((True, True, False)) == 8
        assert stages.count((False, False, True)) == 2

    @pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
    def test_batches_that_training_step_skips(self):
        class Skipping(Net):
            def training_step(self, batch, batch_idx):
                return None if self.training and batch_idx % 3 == 2 else loss_fn(self, batch)

        module, callback = made(Skipping)
        trainer = fit(module, callback)
        assert callback.tuner.weight_steps == trainer.global_step == 16
        assert callback.tuner.schedule.steps == [0, 4, 8, 12, 16]
        assert module.net[0].weight.is_leaf

    def test_one_draw_per_example(self):
        module, callback = made(draw="example")
        fit(module, callback, max_epochs=1)
        assert len(callback.tuner.schedule) == 3

    def test_a_loss_of_ones_own(self):
        calls = []

        def own(module, batch, hp):
            calls.append((module.training, sorted(hp)))
            return loss_fn(module, batch)

        module, callback = made(loss=own)
        fit(module, callback, max_epochs=1)
        assert calls == [(False, ["net_3"])] * 2

    def test_batches_are_prepared_as_validation_batches(self):
        prepared = []

        class Preparing(Net):
            def on_before_batch_transfer(self, batch, dataloader_idx):
                prepared.append(("before", self.trainer.training))
                return batch

            def on_after_batch_transfer(self, batch, dataloader_idx):
                prepared.append(("after", self.trainer.training))
                return batch

        module, callback = made(Preparing)
        fit(module, callback, max_epochs=1)
        assert prepared.count(("before", True)) == prepared.count(("after", True)) == 8
        assert prepared.count(("before", False)) == prepared.count(("after", False)) == 2

    @pytest.mark.parametrize("valid", ["val", valid_loader], ids=["val", "function"])
    def test_where_batches_come_from(self, valid):
        seen = []
        module, callback = made(valid_dataloader=valid, loss=lambda m, b, _: seen.append(b) or loss_fn(m, b))
        fit(module, callback, val=valid_loader() if valid == "val" else None, check_val_every_n_epoch=2)
        expected = list(valid_loader())
        assert len(seen) == 4
        for k, batch in enumerate(seen):
            assert torch.equal(batch[0], expected[k % 3][0])

    def test_a_named_regulariser_and_a_penalty(self):
        class Named(Net):
            def __init__(self):
                super().__init__()
                self.net[3] = stn.nn.Dropout("rate")

            def training_step(self, batch, batch_idx):
                loss = loss_fn(self, batch)
                return loss + stn.nn.l2(self, hyperparameters(self)["decay"]) if self.training else loss

        torch.manual_seed(0)
        module = Named()
        hyper = stn.Hyper({"rate": tune.uniform(0, 0.9), "decay": tune.loguniform(1e-4, 1.0)})
        stn.self_tune(module, hyper)
        before = hyper.values_now()
        fit(module, SelfTuning(hyper, valid_dataloader=valid_loader(), hyper_lr=0.1))
        assert all(value != before[name] for name, value in hyper.values_now().items())


class TestLoggers:
    def test_csv(self, tmp_path):
        module, callback = made()
        fit(module, callback, logger=CSVLogger(tmp_path), log_every_n_steps=2)
        with Path(tmp_path, "lightning_logs/version_0/metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
        found = [
            (float(row["step"]), float(row["hp/net_3"]), float(row["scale/net_3"])) for row in rows if row["hp/net_3"]
        ]
        schedule = callback.tuner.schedule
        assert [step for step, *_ in found] == list(range(2, 17, 2))
        for step, value, scale in found:
            k = max(i for i, s in enumerate(schedule.steps) if s <= step)
            assert value == pytest.approx(schedule.values["net_3"][k])
            assert scale == pytest.approx(schedule.scales["net_3"][k])

    def test_tensorboard(self, tmp_path):
        module, callback = made()
        fit(module, callback, logger=TensorBoardLogger(tmp_path), log_every_n_steps=4)
        found = dict(scalars(next(Path(tmp_path).rglob("events*")), "hp/net_3"))
        schedule = callback.tuner.schedule
        assert found == pytest.approx(dict(zip(schedule.steps[1:], schedule.values["net_3"][1:], strict=True)))

    def test_checkpoints_and_the_progress_bar(self, tmp_path):
        module, callback = made(prog_bar=True)
        saving = ModelCheckpoint(tmp_path, monitor="hp/net_3", mode="max", filename="{hp/net_3:.3f}", auto_insert_metric_name=False)  # fmt: skip  # noqa: E501
        trainer = fit(module, callback, saving, enable_checkpointing=True)
        assert float(saving.best_model_score) == pytest.approx(callback.hyper.values_now()["net_3"])
        assert "hp/net_3" in trainer.progress_bar_metrics
        assert "scale/net_3" not in trainer.progress_bar_metrics

    def test_other_callbacks_find_the_current_values_after_every_batch(self, tmp_path):
        seen = []

        class Compare(L.Callback):
            def on_train_batch_end(self, trainer, *_):
                now = callback.tuner.metrics()
                found = {name: float(trainer.callback_metrics[name]) for name in now}
                assert found == pytest.approx(now)
                seen.append(int(found["step"]))

        module, callback = made(prog_bar=True, train_steps=3)
        saving = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=3, save_top_k=-1)
        fit(module, callback, Compare(), saving, enable_checkpointing=True)
        assert seen == list(range(1, 17))
        assert {path.stem for path in tmp_path.iterdir()} == {f"step={k}" for k in range(3, 17, 3)}


def scalars(path, tag):
    """(step, value) of a tag, from an event file of TensorBoard."""
    from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-untyped]

    content = path.read_bytes()
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        event, content = Event.FromString(content[12 : 12 + length]), content[16 + length :]
        for value in event.summary.value:
            if value.tag == tag:
                yield event.step, value.simple_value


def half(dtype: str) -> bool:
    """Whether this CPU multiplies matrices of the type: on some it ends the process."""
    code = f"import torch; a = torch.ones(8, 8, dtype=torch.{dtype}); (a @ a).sum().item()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


class TestPrecision:
    def test_bfloat16(self):
        if not half("bfloat16"):
            pytest.skip("no bfloat16 on this CPU")
        for algorithm in ALGORITHMS:
            module, callback = made(algorithm=algorithm)
            fit(module, callback, precision="bf16-mixed")
            assert len(callback.tuner.schedule) == 5
            assert module.net[0].weight.dtype == torch.float32

    def test_a_scaler(self):
        if not half("float16"):
            pytest.skip("no float16 on this CPU")
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=100)  # the first steps overflow
        module, callback = made()
        trainer = fit(module, callback, plugins=[MixedPrecision("16-mixed", "cpu", scaler)], max_epochs=5)
        assert trainer.global_step == 40
        assert 0 < callback.tuner.weight_steps < 40
        assert callback.tuner.schedule.steps == list(range(0, callback.tuner.weight_steps + 1, 4))
        assert torch.isfinite(callback.hyper.lam).all()

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_the_scale_changes_nothing(self, algorithm):
        states = []
        for scale in (1.0, 2.0**6):
            scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1000)
            plugin = MixedPrecision("16-mixed", "cpu", scaler)
            plugin.forward_context = nullcontext  # in full precision, a scale that is a power of 2 leaves no trace
            module, callback = made(algorithm=algorithm)
            fit(module, callback, plugins=[plugin])
            states.append(tensors(module))
        assert_same(*states)


class TestMisuse:
    @pytest.mark.parametrize("given", [None, "valid"])
    def test_no_batches(self, given):
        _, hyper = tuned()
        with pytest.raises(
            ValueError, match=f"valid_dataloader is {given!r}; hyperparameters are tuned on its batches"
        ):
            SelfTuning(hyper, valid_dataloader=given)

    def test_an_empty_loader(self):
        module, callback = made(valid_dataloader=[])
        with pytest.raises(ValueError, match="there are no batches in a pass over the data"):
            fit(module, callback)

    def test_pairs_have_no_place_in_lightnings_hooks(self):
        with pytest.raises(ValueError, match="paired is True, but in Lightning's hooks a response pass comes after"):
            made(algorithm="delta", paired=True)

    def test_no_validation_loader(self):
        module, callback = made(valid_dataloader="val")
        with pytest.raises(ValueError, match="valid_dataloader is 'val', but the Trainer has 0 validation loaders"):
            fit(module, callback)

    def test_not_self_tuned(self):
        callback = made()[1]
        with pytest.raises(ValueError, match=r"Net is not self-tuned: pass it through self_tune\(model, hyper\)"):
            fit(Net(), callback)

    def test_another_hyper(self):
        module, _ = made()
        with pytest.raises(ValueError, match="was self-tuned with another Hyper"):
            fit(module, made()[1])

    def test_an_optimizer_of_before(self):
        class Early(Net):
            def __init__(self):
                super().__init__()
                self.early = [torch.optim.SGD(self.parameters(), lr=0.1)]

            def configure_optimizers(self):
                return self.early[0]

        with pytest.raises(ValueError, match=r"does not move the response of .*: build it after self_tune"):
            fit(*made(Early))

    def test_another_module(self):
        module, callback = made()
        fit(module, callback)
        with pytest.raises(ValueError, match="Net was self-tuned with another Hyper than the one given here"):
            fit(tuned()[0], callback)

    def test_two_callbacks(self):
        module, callback = made()
        again = SelfTuning(callback.hyper, valid_dataloader=valid_loader())
        with pytest.raises(RuntimeError, match="more than one stateful callback of type `SelfTuning`"):
            fit(module, callback, again)

    @pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
    def test_no_loss_for_a_hyperparameter_step(self):
        class Lossless(Net):
            def training_step(self, batch, batch_idx):
                return loss_fn(self, batch) if self.training else None

        with pytest.raises(TypeError, match="the loss function returned None: it must return the loss"):
            fit(*made(Lossless))

    def test_iterators_instead_of_batches(self):
        class Iterating(Net):
            def training_step(self, dataloader_iter):
                return loss_fn(self, next(dataloader_iter)[0])

        with pytest.raises(ValueError, match="takes dataloader_iter; it must take a batch"):
            fit(*made(Iterating))

    def test_clip_and_unknown_options(self):
        with pytest.raises(TypeError, match=r"use Trainer\(gradient_clip_val"):
            made(clip=1.0)
        with pytest.raises(TypeError, match="hyper_rl"):
            fit(*made(hyper_rl=1.0))

    def test_strategies(self):
        from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, SingleDeviceStrategy

        class DeepSpeedStrategy(DDPStrategy):
            pass

        for refused in (FSDPStrategy, DeepSpeedStrategy):
            with pytest.raises(ValueError, match=f"{refused.__name__} exchanges or shards weights.*use strategy='ddp'"):
                check_strategy(refused())
        check_strategy(DDPStrategy())
        check_strategy(SingleDeviceStrategy())


@pytest.mark.filterwarnings("ignore:Starting from v1.9.0, `tensorboardX` has been removed")
def test_the_example(capsys):
    from examples import lightning_module as after
    from tests.examples import plain_lightning_module as before

    for script in (before, after):
        assert script.main(epochs=2)[0]["test_loss"] < 2.3


@pytest.mark.slow
def test_several_processes_and_resuming_them(tmp_path):
    job = Path(__file__).with_name("lightning_job.py")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, job, tmp_path], check=True, env=environment, timeout=240)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    assert len(first) == 6
    for case, state in first.items():
        assert_same(state, second[case])
    for case in ("stn", "delta", "manual"):
        assert_same(first[case], first[f"{case}, resumed"])
