"""The trainables without a cluster: what they report, save, restore and refuse."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from ray import tune
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset

import stn_tune as stn
from stn_tune.stream import Stream
from tests.digits_task import CONFIG, ONLINE, Digits, Diverging

CLOCKS = {"trial_compute_s", "wall_s", "train_s", "eval_s", "setup_s", "start_s"}
KEYS = CLOCKS | {
    "clock",
    "val_loss",
    "best_val_loss",
    "test_loss",
    "train_loss",
    "epoch",
    "step",
    "val_error",
    "test_error",
}
KEYS |= {"hp/dropout", "hp/cutout", "hp/lr", "diverged", "lr"}
AUTOMATIC = set(tune.Trainable(config={}).get_auto_filled_metrics()) | {"done", "training_iteration"}


def fixed(**options):
    return stn.FixedTrainable.of(Digits, **options)


def self_tuned(**options):
    return stn.STNTrainable.of(Digits, space=ONLINE, **{"hyper_lr": 0.05, **options})


def exact(result):
    """What must be equal bit for bit: everything but the clocks."""
    return {k: v for k, v in result.items() if k not in CLOCKS | AUTOMATIC and "time" not in k}


@pytest.mark.parametrize("make", [fixed, self_tuned])
def test_reports_the_same_keys_from_the_first_report_on(make):
    trainable = make()(config=dict(CONFIG))
    results = [trainable.train() for _ in range(3)]
    scales = {"scale/dropout", "scale/cutout"} if make is self_tuned else set()
    for result in results:
        own = {key for key in result if key not in AUTOMATIC and key not in ("config", "trial_id")}
        assert own >= KEYS | scales
        assert own == {key for key in results[0] if key not in AUTOMATIC and key not in ("config", "trial_id")}
    assert [result["step"] for result in results] == [10, 20, 30]
    assert [result["epoch"] for result in results] == [1, 2, 3]
    assert results[2]["val_loss"] < results[0]["val_loss"]
    trainable.stop()


def test_test_loss_is_that_of_the_best_validation_loss():
    class Rigged(Digits):
        values = iter([3.0, 30.0, 2.0, 20.0, 5.0, 1.0, 10.0])

        def evaluate(self, trainer, batches):
            return {"loss": next(self.values)}

    trainable = stn.FixedTrainable.of(Rigged)(config=dict(CONFIG))
    rows = [trainable.train() for _ in range(4)]
    assert [(r["val_loss"], r["best_val_loss"], r["test_loss"]) for r in rows] == [
        (3.0, 3.0, 30.0),
        (2.0, 2.0, 20.0),
        (5.0, 2.0, 20.0),
        (1.0, 1.0, 10.0),
    ]


def test_sigma_may_have_a_learning_rate_of_its_own():
    results = [self_tuned(**options)(config=dict(CONFIG)).train() for options in ({}, {"scale_lr": 0.5})]
    default, faster = (abs(result["scale/dropout"] - 0.5) for result in results)
    assert 0 < default < faster / 5


def test_clocks_add_up_and_go_on_after_a_restore(tmp_path):
    trainable = fixed()(config=dict(CONFIG))
    first, second = trainable.train(), trainable.train()
    for key in CLOCKS - {"start_s"}:
        assert second[key] >= first[key] > 0
    assert second["trial_compute_s"] >= second["train_s"] + second["eval_s"] + second["setup_s"]
    trainable.save_checkpoint(str(tmp_path))
    other = fixed()(config=dict(CONFIG))
    other.load_checkpoint(str(tmp_path))
    third = other.train()
    for key in CLOCKS - {"start_s"}:
        assert third[key] > second[key] or key == "eval_s"


@pytest.mark.parametrize("make", [fixed, self_tuned])
@pytest.mark.parametrize("options", [{}, {"steps_per_iteration": 7}], ids=["passes", "steps"])
def test_a_restored_trial_goes_on_bit_for_bit(make, options, tmp_path):
    whole = make(**options)(config=dict(CONFIG))
    results = [exact(whole.train()) for _ in range(5)]
    first = make(**options)(config=dict(CONFIG))
    for _ in range(2):
        first.train()
    first.save_checkpoint(str(tmp_path))
    torch.manual_seed(99)
    second = make(**options)(config=dict(CONFIG))
    second.load_checkpoint(str(tmp_path))
    assert [exact(second.train()) for _ in range(3)] == results[2:]
    assert len({json.dumps(r, sort_keys=True) for r in results}) == 5


def test_a_plain_network_from_a_trials_checkpoint(tmp_path):
    trained = self_tuned()(config=dict(CONFIG))
    for _ in range(2):
        last = trained.train()
    trained.save(str(tmp_path))
    trial = self_tuned()(config=dict(CONFIG))
    trial.restore(str(tmp_path))
    task = Digits()
    plain = task.model(CONFIG)
    plain.load_state_dict(stn.plain_state_dict(trial.model))
    with torch.no_grad():
        losses = [(float(task.loss(plain.eval(), batch, {})), len(batch[1])) for batch in task.loaders(CONFIG).valid]
    mean = sum(loss * n for loss, n in losses) / sum(n for _, n in losses)
    assert mean == pytest.approx(last["val_loss"], rel=1e-5)


def test_reset_config_is_a_fresh_trial():
    trainable = fixed()(config=dict(CONFIG))
    reference = exact(trainable.train())
    trainable.train()
    assert trainable.reset({**CONFIG, "dropout": 0.5})
    changed = trainable.train()
    assert changed["hp/dropout"] == 0.5
    assert trainable.reset(dict(CONFIG))
    assert exact(trainable.train()) == reference


def test_a_clone_keeps_the_weights_and_takes_the_new_values(tmp_path):
    """What PBT does: another trial's checkpoint under a changed config."""
    donor = fixed()(config=dict(CONFIG))
    donor.train()
    donor.save_checkpoint(str(tmp_path))
    clone = fixed()(config={**CONFIG, "dropout": 0.6, "lr": 0.01})
    clone.load_checkpoint(str(tmp_path))
    for (name, a), (_, b) in zip(
        donor._trainer.model.named_parameters(), clone._trainer.model.named_parameters(), strict=True
    ):
        assert torch.equal(a, b), name
    result = clone.train()
    assert result["hp/dropout"] == 0.6
    assert clone._trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


def test_a_clone_takes_over_everything_that_is_new_in_its_optimizer(tmp_path):
    class Tuned(Digits):
        def optimizer(self, model, config):
            return torch.optim.SGD(model.parameters(), config["lr"], config["momentum"], weight_decay=config["decay"])

        def scheduler(self, optimizer, config):
            return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)

    def make(**config):
        return stn.FixedTrainable.of(Tuned)(config={**CONFIG, **config})

    donor = make(lr=0.04, momentum=0.9, decay=0.0)
    for _ in range(2):
        donor.train()
    donor.save_checkpoint(str(tmp_path))
    expected = exact(donor.train())
    clone = make(lr=0.08, momentum=0.5, decay=0.1)
    clone.load_checkpoint(str(tmp_path))
    group = clone._trainer.optimizer.param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (pytest.approx(0.02), 0.5, 0.1)
    clone.train()
    assert group["lr"] == pytest.approx(0.01), "the schedule goes on from the new learning rate"
    same = make(lr=0.04, momentum=0.9, decay=0.0)
    same.load_checkpoint(str(tmp_path))
    assert exact(same.train()) == expected


@pytest.mark.parametrize("kind", ["OneCycleLR", "CyclicLR"])
def test_a_clones_new_learning_rate_holds_where_the_scheduler_has_a_peak_of_its_own(kind, tmp_path):
    class Peaked(Digits):
        def scheduler(self, optimizer, config):
            if kind == "OneCycleLR":
                return torch.optim.lr_scheduler.OneCycleLR(optimizer, config["lr"], total_steps=20)
            return torch.optim.lr_scheduler.CyclicLR(optimizer, config["lr"] / 10, config["lr"], step_size_up=4)

    def rates(trainable):
        return [trainable.train()["lr"] for _ in range(3)]

    def make(lr):
        return stn.FixedTrainable.of(Peaked, steps_per_iteration=1)(config={**CONFIG, "lr": lr})

    donor = make(0.04)
    rates(donor)
    donor.save_checkpoint(str(tmp_path))
    clone = make(0.08)
    clone.load_checkpoint(str(tmp_path))
    assert rates(clone) == pytest.approx([2 * lr for lr in rates(donor)])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", [stn.FixedTrainable, stn.STNTrainable])
def test_resume_is_exact_for_loaders_with_generators_of_their_own(kind, shared, tmp_path):
    class Own(Digits):
        def loaders(self, config):
            loaders = super().loaders(config)
            train, valid = torch.Generator().manual_seed(5), torch.Generator().manual_seed(6)
            loaders.train = DataLoader(loaders.train.dataset, 40, shuffle=True, generator=train)
            loaders.valid = DataLoader(loaders.valid.dataset, 40, shuffle=True, generator=train if shared else valid)
            return loaders

    options = {"space": ONLINE, "hyper_lr": 0.05} if kind is stn.STNTrainable else {}
    make = kind.of(Own, steps_per_iteration=7, **options)
    whole = make(config=dict(CONFIG))
    expected = [exact(whole.train()) for _ in range(4)]
    first = make(config=dict(CONFIG))
    for _ in range(2):
        first.train()
    first.save_checkpoint(str(tmp_path))
    second = make(config=dict(CONFIG))
    second.load_checkpoint(str(tmp_path))
    assert [exact(second.train()) for _ in range(2)] == expected[2:]


def test_numpy_metrics_do_not_spoil_the_checkpoint(tmp_path):
    class Numpy(Digits):
        def evaluate(self, trainer, batches):
            return {name: np.float64(value) for name, value in super().evaluate(trainer, batches).items()}

        def state_dict(self):
            return {"seen": [np.int64(3)]}

    trainable = stn.FixedTrainable.of(Numpy)(config={**CONFIG, "lr": np.float64(0.02)})
    assert type(trainable.train()["val_error"]) is float
    trainable.save_checkpoint(str(tmp_path))
    stn.FixedTrainable.of(Numpy)(config=dict(CONFIG)).load_checkpoint(str(tmp_path))


def test_epochs_are_counted_when_iterations_are_counted_in_steps():
    trainable = fixed(steps_per_iteration=10)(config=dict(CONFIG))
    assert [trainable.train()["epoch"] for _ in range(3)] == [1, 2, 3]
    trainable = fixed(steps_per_iteration=4)(config=dict(CONFIG))
    assert [trainable.train()["epoch"] for _ in range(5)] == [0, 0, 1, 1, 2]


def test_a_stream_without_a_length_is_trained_on():
    class Endless(IterableDataset):
        def __iter__(self):
            return iter([(torch.ones(1, 8, 8), 1)] * 100)

    class Streamed(Digits):
        def loaders(self, config):
            loaders = super().loaders(config)
            loaders.train = DataLoader(Endless(), 10)
            return loaders

    self_tuned = stn.STNTrainable.of(Streamed, space=ONLINE, steps_per_iteration=4)
    for make in (stn.FixedTrainable.of(Streamed, steps_per_iteration=4), self_tuned):
        assert [make(config=dict(CONFIG)).train()["step"]] == [4]


def test_a_restored_stream_goes_on_with_the_batches_of_any_sampler():
    def stream():
        sampler = RandomSampler(range(20), generator=torch.Generator().manual_seed(4))
        return Stream(DataLoader(range(20), batch_sampler=BatchSampler(sampler, 4, drop_last=False)), seed=0)

    first = stream()
    for _ in range(7):
        next(first)
    second = stream()
    second.load_state_dict(first.state_dict())
    for _ in range(9):
        assert torch.equal(next(first), next(second))
    fresh = stream()
    second.load_state_dict(fresh.state_dict())
    assert second.state_dict()["position"] == 0, "a used stream, put back to the start"


class Unnamed(Digits):
    """The same network with an ordinary ``nn.Dropout``, which the task gives its name."""

    bind: Mapping[str, str] = {"drop": "dropout"}

    def model(self, config):
        model = super().model(config)
        model.drop = nn.Dropout(0.5)
        return model


@pytest.mark.parametrize("make", [stn.FixedTrainable.of, lambda task: stn.STNTrainable.of(task, space=ONLINE)])
def test_a_bound_dropout_is_the_named_one_for_every_tuner(make):
    named, bound = (exact(make(task)(config=dict(CONFIG)).train()) for task in (Digits, Unnamed))
    assert bound == named


def test_a_value_in_the_config_is_where_the_stn_starts():
    trainable = self_tuned(init={"dropout": 0.6, "cutout": 3}, hyper_lr=1e-9)(config={"lr": 0.02, "dropout": 0.4})
    result = trainable.train()
    assert result["hp/dropout"] == pytest.approx(0.4, rel=1e-4)
    assert result["hp/cutout"] == 3


def test_warm_up_counts_iterations():
    trainable = self_tuned(warmup=2)(config=dict(CONFIG))
    values = [trainable.train()["hp/dropout"] for _ in range(3)]
    assert values[0] == values[1] == pytest.approx(0.1, rel=1e-5)
    assert values[2] != values[1]


def test_a_schedule_of_what_nothing_reads_is_an_error():
    trainable = fixed(schedule=lambda step: {"dropuot": 0.3})(config=dict(CONFIG))
    with pytest.raises(stn.UnusedError, match="dropuot: scheduled, but read by neither the model nor the loss"):
        trainable.train()


def test_a_schedule_overrides_the_config_and_is_reported():
    space = {"dropout": tune.uniform(0, 0.75)}
    schedule = stn.Schedule(space, [0, 10, 20], {"dropout": [0.1, 0.3, 0.7]})
    trainable = fixed(schedule=schedule)(config=dict(CONFIG))
    assert [trainable.train()["hp/dropout"] for _ in range(3)] == [0.1, 0.3, 0.7]
    trainable = fixed(schedule=lambda step: {"dropout": 0.5 + 0.01 * step})(config=dict(CONFIG))
    assert trainable.train()["hp/dropout"] == pytest.approx(0.59)


def test_learning_rate_rule_and_stopping_rule(tmp_path):
    class Ruled(Digits):
        def scheduler(self, optimizer, config):
            return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

        def stop(self, val_losses, optimizer, config):
            return optimizer.param_groups[0]["lr"] < 0.01

        def evaluate(self, trainer, batches):
            return {"loss": 1.0}

    trainable = stn.FixedTrainable.of(Ruled)(config=dict(CONFIG))
    assert [trainable.train()["lr"] for _ in range(2)] == [0.02, 0.01]
    trainable.save_checkpoint(str(tmp_path))
    other = stn.FixedTrainable.of(Ruled)(config=dict(CONFIG))
    other.load_checkpoint(str(tmp_path))
    last = other.train()
    assert last["lr"] == 0.005
    assert last["done"]


def waiting(travelling, losses, **options):
    """A self-tuned trial of these validation losses, whose λ travels in the iterations said, with a patience of two."""

    class Patient(Digits):
        def scheduler(self, optimizer, config):
            return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

        def stop(self, val_losses, optimizer, config):
            seen.append(list(val_losses))
            return len(val_losses) - 1 - val_losses.index(min(val_losses)) >= 2

        def evaluate(self, trainer, batches):
            return {"loss": losses[len(seen)]}

    seen = []
    trainable = stn.STNTrainable.of(Patient, space=ONLINE, **options)(config=dict(CONFIG))
    trainable._trainer.settled = lambda: len(seen) not in travelling
    return trainable, seen


LOSSES = [3.0, 2.0, 2.5, 2.6, 1.9, 2.1, 2.2, 2.3]
TRAVELLING = {2, 3, 4, 5}


def test_rules_that_watch_the_loss_wait_while_lambda_travels():
    trainable, seen = waiting(TRAVELLING, LOSSES)
    rows = [trainable.train() for _ in range(8)]
    assert [r["lr"] for r in rows] == [0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.01, 0.005]
    assert [r["done"] for r in rows] == [False] * 7 + [True]
    assert seen[3] == [3.0, 3.0, 3.0, 2.0], "as long as training, the stalled iterations long ago"
    assert seen[7] == [3.0, 3.0, 3.0, 3.0, 2.0, 1.9, 2.2, 2.3], "a better loss counts, whether λ travels or not"


def test_waiting_is_part_of_the_checkpoint(tmp_path):
    trainable, _ = waiting(TRAVELLING, LOSSES)
    for _ in range(5):
        trainable.train()
    trainable.save_checkpoint(str(tmp_path))
    other, seen = waiting(TRAVELLING, LOSSES)
    other.load_checkpoint(str(tmp_path))
    seen += [[]] * 5
    rows = [other.train() for _ in range(3)]
    assert seen[7] == [3.0, 3.0, 3.0, 3.0, 2.0, 1.9, 2.2, 2.3]
    assert rows[-1]["done"]


def test_a_lambda_that_never_settles_does_not_train_for_ever():
    """The best loss came in the second iteration: two more are waited for, then the patience of two begins."""
    trainable, seen = waiting(set(range(20)), [3.0, 2.0, *[2.5] * 18])
    rows = [trainable.train() for _ in range(6)]
    assert [r["done"] for r in rows] == [False] * 5 + [True]
    assert seen[5] == [3.0, 3.0, 3.0, 2.0, 2.5, 2.5]


def test_without_wait_every_iteration_counts():
    trainable, _ = waiting(TRAVELLING, LOSSES, wait=False)
    rows = [trainable.train() for _ in range(4)]
    assert [r["lr"] for r in rows] == [0.02, 0.02, 0.01, 0.005]
    assert rows[-1]["done"]


@pytest.mark.parametrize("make", [stn.FixedTrainable.of, lambda task: stn.STNTrainable.of(task, space=ONLINE)])
def test_divergence_ends_the_trial_with_a_reason(make):
    trainable = make(Diverging)(config={**CONFIG, "lr": 0.06})
    result = trainable.train()
    assert result["done"]
    assert result["diverged"] == "the training loss is nan at step 0; the step was not applied"
    assert result["val_loss"] == math.inf
    assert set(result) >= KEYS
    assert result["train_s"] > 0


class TestCheckpoints:
    def test_are_read_without_running_code(self, tmp_path):
        trainable = self_tuned()(config=dict(CONFIG))
        trainable.train()
        trainable.save_checkpoint(str(tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]
        assert torch.load(tmp_path / "state.pt", weights_only=True)["trainer"]["step"] == 10

    @pytest.mark.parametrize("damage", ["truncated", "empty", "foreign", "missing", "hostile"])
    def test_damage_is_said(self, tmp_path, damage):
        trainable = self_tuned()(config=dict(CONFIG))
        trainable.train()
        trainable.save_checkpoint(str(tmp_path))
        path = tmp_path / "state.pt"
        content = path.read_bytes()
        if damage == "truncated":
            path.write_bytes(content[: len(content) // 2])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "foreign":
            torch.save({"weights": torch.zeros(3)}, path)
        elif damage == "hostile":
            path.write_bytes(pickle.dumps(print, protocol=2))
        else:
            path.unlink()
        with pytest.raises(stn.CheckpointError, match=r"state\.pt (is damaged|does not exist|was not written)"):
            trainable.load_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: stn.STNTrainable.of(Digits, hyperlr=1),  # type: ignore[call-arg]
            TypeError,
            "'hyperlr'; .* mean 'hyper_lr'",
        ),
        (lambda: self_tuned(hyper_lr=-1.0), ValueError, "hyper_lr is -1.0; it must be a positive number"),
        (lambda: self_tuned(draw="x"), ValueError, "draw is 'x'; it must be 'batch'"),
        (lambda: self_tuned(per_batch=["x"]), stn.SpaceError, "per_batch: unknown hyperparameter 'x'"),
        (
            lambda: stn.Loaders([], DataLoader(TensorDataset(torch.ones(1)), num_workers=1, persistent_workers=True)),
            TypeError,
            "persistent_workers=True",
        ),
        (lambda: stn.STNTrainable.of(Digits)(config=dict(CONFIG)), TypeError, "nothing is tuned online"),
        (
            lambda: self_tuned(init={"dropout": 0.2})(config={**CONFIG, "stn": {"space": {}}}),
            TypeError,
            "initial values come from STNSearch: give init to it",
        ),
        (
            lambda: stn.FixedTrainable.of(3),  # type: ignore[arg-type]
            TypeError,
            "takes a Task class or object, not 3",
        ),
        (lambda: fixed(steps_per_iteration=0), ValueError, "steps_per_iteration is 0"),
        (
            lambda: fixed()(config={**CONFIG, "stn": {"space": {}}}),
            TypeError,
            r"comes from STNSearch .* use STNTrainable.of\(Digits\)",
        ),
        (
            lambda: self_tuned()(config={**CONFIG, "dropout": 0.9}),
            stn.SpaceError,
            "dropout: .*0.9",
        ),
        (lambda: stn.Loaders(train=iter([]), valid=[]), TypeError, r"Loaders\(train=...\) is an iterator"),
        (
            lambda: fixed()(config={"lr": 0.1, "cutout": 1}),
            stn.ConversionError,
            "drop: unknown hyperparameter 'dropout'",
        ),
    ],
)
def test_mistakes_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_hyperparameter_that_nobody_reads_is_an_error():
    trainable = stn.STNTrainable.of(Digits, space={**ONLINE, "lr": tune.loguniform(1e-3, 1)})(config=dict(CONFIG))
    with pytest.raises(stn.UnusedError, match="lr: read by neither the model nor the loss"):
        trainable.train()


class TestStream:
    @staticmethod
    def loader():
        """Shuffles, and draws from every generator while it is being read."""
        import random

        import numpy as np

        class Loader:
            def __iter__(self):
                for row in torch.randperm(4).tolist():
                    yield row, random.random(), np.random.rand(), torch.rand(()).item()  # noqa: NPY002

        return Loader()

    def test_order_does_not_depend_on_what_others_draw(self):
        quiet = Stream(self.loader(), seed=3)
        expected = [next(quiet) for _ in range(10)]
        noisy = Stream(self.loader(), seed=3)
        found = []
        for _ in range(10):
            torch.rand(5)
            found.append(next(noisy))
        assert found == expected
        before = torch.get_rng_state()
        next(noisy)
        assert torch.equal(torch.get_rng_state(), before)

    @pytest.mark.parametrize("taken", [0, 3, 4, 6])
    def test_position_survives(self, taken):
        stream = Stream(self.loader(), seed=3)
        for _ in range(taken):
            next(stream)
        state = pickle.loads(pickle.dumps(stream.state_dict()))
        other = Stream(self.loader(), seed=0)
        other.load_state_dict(state)
        assert [next(other) for _ in range(9)] == [next(stream) for _ in range(9)]
        assert other.passes == stream.passes

    def test_passes_end_and_empty_data_is_an_error(self):
        stream = Stream([1, 2, 3], seed=0)
        assert list(stream.one_pass()) == [1, 2, 3]
        assert next(stream) == 1
        assert list(stream.one_pass()) == [2, 3]
        with pytest.raises(ValueError, match="no batches in a pass"):
            next(Stream([], seed=0))


def test_batches_of_any_shape_move_to_the_device():
    from collections import namedtuple

    from stn_tune.raytune.task_trainable import move

    Point = namedtuple("Point", "x y")
    x = torch.zeros(2)
    batch = {"a": [x, (x, 1)], "b": Point(x, "text")}
    moved = move(batch, torch.device("meta"))
    assert moved["a"][1][0].is_meta
    assert isinstance(moved["b"], Point)
    assert moved["b"].y == "text"


def test_threads_and_device_follow_the_trials_resources():
    class Granted(stn.FixedTrainable.of(Digits)):
        granted = tune.PlacementGroupFactory([{"CPU": 2.0, "GPU": 0.5}])
        trial_resources = property(lambda self: self.granted)

    before = torch.get_num_threads()
    try:
        trainable = Granted(config=dict(CONFIG))
        assert torch.get_num_threads() == 2
        assert trainable._device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    finally:
        torch.set_num_threads(before)


def test_task_defaults_are_enough():
    class Least(stn.Task):
        def model(self, config):
            return nn.Sequential(nn.Linear(2, 2), stn.nn.Dropout("rate"))

        def optimizer(self, model, config):
            return torch.optim.SGD(model.parameters(), lr=0.1)

        def loaders(self, config):
            batch = (torch.randn(4, 2), torch.randint(0, 2, (4,)))
            return stn.Loaders(train=[batch] * 4, valid=[batch])

        def loss(self, model, batch, hp):
            return nn.functional.cross_entropy(model(batch[0]), batch[1])

    space = {"rate": tune.uniform(0, 0.9)}
    result = stn.STNTrainable.of(Least, space=space)(config={}).train()
    assert math.isnan(result["test_loss"])
    assert result["best_val_loss"] == result["val_loss"]
