"""STNTrainable with refine=True: an STN, then a plain network along its schedule, in one trial."""

from __future__ import annotations

import math
from itertools import pairwise

import pandas as pd
import pytest
import torch
from ray import tune

import stn_tune as stn
from stn_tune.hyper import HyperSample
from tests.digits_task import CONFIG, ONLINE, SPACE, Digits
from tests.test_schedule import function_trial
from tests.test_trainable import AUTOMATIC, exact

TUNED, REFINED = 3, 2
"""Iterations of the two phases."""


class Short(Digits):
    """Ends after three iterations self-tuned, and after two as a plain network."""

    def evaluate(self, trainer, batches):
        self.limit = TUNED if isinstance(trainer, stn.SelfTuner) else REFINED
        return super().evaluate(trainer, batches)

    def stop(self, val_losses, optimizer, config):
        return len(val_losses) == self.limit


def make(task=Short, config=CONFIG, refine=True, **options):
    trainable = stn.STNTrainable.of(task, space=ONLINE, hyper_lr=0.05, refine=refine, **options)
    return trainable(config={**config, "seed": 5})


def to_the_end(trainable, most=10):
    rows = []
    while not rows or not rows[-1]["done"]:
        rows.append(trainable.train())
        assert len(rows) < most
    return rows


def saved_schedule(trainable, folder):
    folder.mkdir(exist_ok=True)
    trainable.save_checkpoint(str(folder))
    result = function_trial(folder)
    result.checkpoint = tune.Checkpoint.from_directory(folder)
    return stn.Schedule.from_result(result)


def test_a_plain_network_follows_the_schedule_as_a_replay_would(tmp_path):
    trainable = make()
    rows = to_the_end(trainable)
    schedule = saved_schedule(trainable, tmp_path)
    assert [row["phase"] for row in rows] == ["tuning"] * TUNED + ["refining"] * REFINED
    assert [row["training_iteration"] for row in rows] == [1, 2, 3, 4, 5]
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 10), (2, 20), (3, 30), (1, 10), (2, 20)]
    alone = stn.STNTrainable.of(Short, space=ONLINE, hyper_lr=0.05)(config={**CONFIG, "seed": 5})
    extra = {"phase": "tuning", "network": 0}
    assert [exact(row) | extra for row in to_the_end(alone)] == [exact(row) for row in rows[:TUNED]]
    replay = stn.FixedTrainable.of(Short, schedule=schedule)(config={**CONFIG, "seed": 5})
    for row, replayed in zip(rows[TUNED:], to_the_end(replay), strict=True):
        same = set(exact(replayed)) - {"best_val_loss", "test_loss", "test_error"}
        assert {key: row[key] for key in same} == {key: replayed[key] for key in same}
    for (name, weight), other in zip(
        stn.plain_state_dict(trainable.model).items(), replay.model.state_dict().values(), strict=True
    ):
        assert torch.equal(weight, other), name


def test_rows_have_the_same_keys_in_both_phases_and_the_clocks_go_on(tmp_path):
    trainable = make()
    rows = to_the_end(trainable)
    schedule = saved_schedule(trainable, tmp_path)
    keys = [{key for key in row if key not in AUTOMATIC} for row in rows]
    assert all(own == keys[0] for own in keys)
    for before, after in pairwise(rows):
        assert after["trial_compute_s"] > before["trial_compute_s"]
        assert after["trial_compute_s"] >= after["train_s"] + after["eval_s"] + after["setup_s"]
    assert rows[TUNED]["setup_s"] > rows[TUNED - 1]["setup_s"], "the second network is paid for, too"
    for row in rows[TUNED:]:
        assert {name: row[f"hp/{name}"] for name in ONLINE} == schedule.at(row["step"] - 1)
        assert {name: row[f"scale/{name}"] for name in ONLINE} == schedule.scales_at(row["step"] - 1)


def test_without_the_option_no_row_has_a_phase():
    trainable = stn.STNTrainable.of(Short, space=ONLINE)(config=dict(CONFIG))
    rows = to_the_end(trainable)
    assert len(rows) == TUNED
    assert not any("phase" in row for row in rows)


@pytest.mark.parametrize(("tuned", "refined", "best"), [((3.0, 2.0), (2.5, 1.0), 1.0), ((3.0, 2.0), (2.5, 2.1), 2.0)])
def test_the_better_of_the_two_is_the_result(tuned, refined, best):
    values, said = iter([3.0, *tuned, *refined]), [0.0]

    class Rigged(Short):
        def loaders(self, config):
            loaders = super().loaders(config)
            loaders.test = [None]
            return loaders

        def evaluate(self, trainer, batches):
            self.limit = TUNED if isinstance(trainer, stn.SelfTuner) else REFINED
            said.append(said[-1] + 10 if next(iter(batches)) is None else next(values))
            return {"loss": said[-1]}

    rows = to_the_end(make(Rigged))
    assert (rows[-1]["best_val_loss"], rows[-1]["test_loss"]) == (best, best + 10)
    assert [row["val_loss"] for row in rows] == [3.0, *tuned, *refined], "val_loss goes on"


@pytest.mark.parametrize("options", [{}, {"steps_per_iteration": 7}], ids=["passes", "steps"])
def test_a_trial_resumes_bit_for_bit_from_either_phase(options, tmp_path):
    whole = make(**options)
    expected, schedules = [], []
    for k in range(TUNED + REFINED):
        expected.append(exact(whole.train()))
        schedules.append(saved_schedule(whole, tmp_path / str(k)))
    assert schedules[TUNED - 1] == schedules[TUNED] == schedules[-1], "that of the STN"
    again = make(**options)
    for k in (0, TUNED - 1, TUNED, 1):  # the last on a trainable that was refining
        torch.manual_seed(99)
        again.load_checkpoint(str(tmp_path / str(k)))
        assert [exact(again.train()) for _ in range(TUNED + REFINED - k - 1)] == expected[k + 1 :], k
        assert saved_schedule(again, tmp_path / "again") == schedules[-1]


def test_several_plain_networks_each_with_a_seed_of_its_own(tmp_path):
    whole = make(refine=3)
    rows = []
    for k in range(TUNED + 3 * REFINED):
        rows.append(whole.train())
        saved_schedule(whole, tmp_path / str(k))
    assert [row["network"] for row in rows] == [0] * TUNED + [1] * REFINED + [2] * REFINED + [3] * REFINED
    assert [row["done"] for row in rows] == [False] * (len(rows) - 1) + [True]
    assert [exact(row) for row in rows[: TUNED + REFINED]] == [exact(row) for row in to_the_end(make())]
    assert rows[-1]["best_val_loss"] == min(row["val_loss"] for row in rows)
    for before, after in pairwise(rows):
        assert after["best_val_loss"] <= before["best_val_loss"]
    assert len({row["val_loss"] for row in rows}) == len(rows)
    for network in (1, 2, 3):
        own = [row for row in rows if row["network"] == network]
        assert [row["hp/dropout"] for row in own] == [row["hp/dropout"] for row in rows[TUNED : TUNED + REFINED]]
    again = make(refine=3)
    for k in (TUNED + REFINED - 1, TUNED + REFINED, 1):
        again.load_checkpoint(str(tmp_path / str(k)))
        assert [exact(again.train()) for _ in rows[k + 1 :]] == [exact(row) for row in rows[k + 1 :]], k


def test_a_reused_process_starts_with_an_stn():
    trainable = make()
    first = [exact(row) for row in to_the_end(trainable)]
    assert trainable.reset({**CONFIG, "seed": 5})
    assert [exact(row) for row in to_the_end(trainable)] == first


class Breaking(Short):
    """Its training loss is not finite from a step on, in the phase that ``config`` names."""

    def loaders(self, config):
        self.breaks, self.steps = config["breaks"], 0
        return super().loaders(config)

    def loss(self, model, batch, hp):
        loss = super().loss(model, batch, hp)
        phase = "tuning" if isinstance(hp, HyperSample) else "refining"
        self.steps += model.training
        return loss * math.nan if model.training and self.steps == 15 and phase == self.breaks else loss


def test_a_diverged_plain_network_leaves_the_best_of_the_stn():
    rows = to_the_end(make(Breaking, {**CONFIG, "breaks": "refining"}))
    assert [row["phase"] for row in rows] == ["tuning"] * TUNED + ["refining"] * 2
    assert "training loss is nan" in rows[-1]["diverged"]
    assert rows[-1]["val_loss"] == math.inf
    assert rows[-1]["best_val_loss"] == min(row["val_loss"] for row in rows)
    assert math.isfinite(rows[-1]["test_loss"])


def test_a_diverged_stn_is_refined_along_what_it_had_found(tmp_path):
    trainable = make(Breaking, {**CONFIG, "breaks": "tuning"})
    rows = to_the_end(trainable)
    assert [row["phase"] for row in rows] == ["tuning"] * 2 + ["refining"] * REFINED
    assert "training loss is nan" in rows[1]["diverged"]
    assert not rows[1]["done"]
    assert rows[-1]["diverged"] == ""
    assert rows[-1]["best_val_loss"] == min(row["val_loss"] for row in rows)
    assert saved_schedule(trainable, tmp_path).total_steps == 14


def test_rows_alone_give_the_schedule_of_the_first_phase(tmp_path):
    rows = to_the_end(make())
    schedule = stn.Schedule.from_result(function_trial(tmp_path, pd.DataFrame(rows)))
    assert schedule.steps == [10, 20, 30]
    assert schedule.values["dropout"] == [row["hp/dropout"] for row in rows[:TUNED]]


def test_the_search_takes_the_option():
    search = stn.STNSearch(online=["dropout", "cutout"], refine=True)
    search.set_search_properties("val_loss", "min", dict(SPACE))
    config = search.suggest("a")
    rows = to_the_end(stn.STNTrainable.of(Short)(config=config))
    assert [row["phase"] for row in rows] == ["tuning"] * TUNED + ["refining"] * REFINED
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="refine is True, but only STNTrainable trains a second time"):
        stn.tuner_from_config(config, model, stn.Hyper(ONLINE), torch.optim.SGD(model.parameters(), lr=0.1))


def test_the_option_is_checked():
    for wrong in (-1, 0.5, "yes", None):
        with pytest.raises(ValueError, match=f"refine is {wrong!r}; it must be true, false or a number of networks"):
            stn.STNSearch(online=["dropout"], refine=wrong)
    with pytest.raises(TypeError, match="refine"):
        stn.FixedTrainable.of(Short, refine=True)
