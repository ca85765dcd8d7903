"""The trainables and STNSearch inside real Ray Tune runs."""

from __future__ import annotations

import gc
import json
import logging
import re
from types import SimpleNamespace

import pandas as pd
import pytest
from ray import tune
from ray.tune import CheckpointConfig, FailureConfig, RunConfig, TuneConfig
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.optuna import OptunaSearch
from ray.tune.utils import validate_save_restore

import stn_tune as stn
from tests.digits_task import CONFIG, ONLINE, SPACE, Digits, Diverging, Killed
from tests.test_trainable import exact

pytestmark = pytest.mark.usefixtures("ray_session")
logging.getLogger("optuna").setLevel(logging.WARNING)


def run_config(folder, iterations=2, **options) -> RunConfig:
    return RunConfig(
        storage_path=str(folder), name="run", stop={"training_iteration": iterations}, verbose=0, **options
    )


def tune_config(**options) -> TuneConfig:
    return TuneConfig(metric="val_loss", mode="min", **options)


@pytest.mark.slow
def test_black_box_and_self_tuned_share_one_pipeline(tmp_path):
    """The snippet of the README: the same task and the same param_space, twice."""
    fixed = tune.Tuner(
        stn.FixedTrainable.of(Digits),
        param_space=SPACE,
        tune_config=tune_config(num_samples=2, reuse_actors=True),
        run_config=run_config(tmp_path / "fixed"),
    ).fit()
    assert not fixed.errors
    assert len({result.config["dropout"] for result in fixed}) == 2
    online = tune.Tuner(
        stn.STNTrainable.of(Digits),
        param_space=SPACE,
        tune_config=tune_config(
            num_samples=2, search_alg=stn.STNSearch(online=["dropout", "cutout"], outer=None, init={"dropout": 0.05})
        ),
        run_config=run_config(tmp_path / "online", checkpoint_config=CheckpointConfig(checkpoint_at_end=True)),
    ).fit()
    assert not online.errors
    assert len({result.config["lr"] for result in online}) == 2
    for result in online:
        assert result.config["dropout"] == 0.05
        assert result.metrics["hp/dropout"] != pytest.approx(0.05, rel=1e-3)
        json.dumps(result.config)
    schedule = stn.Schedule.from_result(online.get_best_result())
    assert schedule.at(step=0)["dropout"] == pytest.approx(0.05)
    assert len(schedule) > 5
    assert schedule.at(step=20)["dropout"] == pytest.approx(online.get_best_result().metrics["hp/dropout"])
    with pytest.raises(stn.ScheduleError, match="no schedule"):
        stn.Schedule.from_result(fixed.get_best_result())


def test_tunes_loggers_show_the_schedules(tmp_path):
    results = tune.Tuner(
        stn.STNTrainable.of(Digits, space=ONLINE),
        param_space={**CONFIG, "dropout": tune.grid_search([0.1, 0.5])},
        tune_config=tune_config(),
        run_config=run_config(tmp_path, 3),
    ).fit()
    assert sorted(result.config["dropout"] for result in results) == [0.1, 0.5]
    for result in results:
        folder = tmp_path / "run" / result.path.split("/")[-1]
        progress = pd.read_csv(folder / "progress.csv")
        rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
        for key in ("hp/dropout", "scale/cutout", "val_loss", "test_loss", "wall_s"):
            assert progress[key].notna().all()
            assert len(progress[key]) == len(rows) == 3
            assert progress[key].tolist() == pytest.approx([row[key] for row in rows])
        assert list(folder.glob("events.out.tfevents.*"))
        assert stn.Schedule.from_result(result).steps == list(range(0, 31, 4))
        reported_only = SimpleNamespace(checkpoint=None, metrics_dataframe=result.metrics_dataframe, path=result.path)
        by_iteration = stn.Schedule.from_result(reported_only)
        assert by_iteration.steps == [10, 20, 30]
        assert by_iteration.at(step=30)["dropout"] == result.metrics["hp/dropout"]


@pytest.mark.parametrize("trainable", [stn.FixedTrainable.of(Digits), stn.STNTrainable.of(Digits, space=ONLINE)])
def test_rays_own_check_of_save_and_restore(trainable):
    assert validate_save_restore(trainable, config=dict(CONFIG))


@pytest.mark.parametrize("kind", ["fixed", "stn"])
def test_a_killed_trial_goes_on_as_if_nothing_had_happened(tmp_path, kind):
    make = stn.FixedTrainable.of if kind == "fixed" else lambda task: stn.STNTrainable.of(task, space=ONLINE)
    results = tune.Tuner(
        make(Killed),
        param_space={**CONFIG, "marks": str(tmp_path)},
        tune_config=tune_config(),
        run_config=run_config(
            tmp_path,
            4,
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(checkpoint_frequency=1, num_to_keep=2),
        ),
    ).fit()
    assert not results.errors
    assert (tmp_path / "killed-0.02").exists()
    undisturbed = make(Digits)(config=dict(CONFIG))
    expected = [exact(undisturbed.train()) for _ in range(4)]
    found = results[0].metrics_dataframe.to_dict("records")
    for row, reference in zip(found, expected, strict=True):
        for key, value in reference.items():
            if isinstance(value, float):
                assert row[key] == value, key
    assert results[0].metrics_dataframe["wall_s"].is_monotonic_increasing


def test_a_damaged_checkpoint_is_said(tmp_path):
    """The trial's only checkpoint is cut in half on disk: resuming must not start over in silence."""
    run = {"checkpoint_config": CheckpointConfig(checkpoint_frequency=1, num_to_keep=1)}
    param_space = {**CONFIG, "marks": str(tmp_path)}
    first = tune.Tuner(
        stn.FixedTrainable.of(Killed),
        param_space=param_space,
        tune_config=tune_config(),
        run_config=run_config(tmp_path, 4, **run),
    ).fit()
    assert first.errors, "the trial dies in its third iteration and nobody restarts it"
    path = next((tmp_path / "run").glob("*/checkpoint_*/state.pt"))
    path.write_bytes(path.read_bytes()[:1000])
    again = tune.Tuner.restore(str(tmp_path / "run"), stn.FixedTrainable.of(Killed), resume_errored=True).fit()
    assert again.errors
    assert re.search(r"state\.pt is damaged .*; restore from an earlier checkpoint", str(again.errors[0]))
    assert again[0].metrics["training_iteration"] == 2, "what was reported before is still there"


@pytest.mark.slow
def test_a_diverging_configuration_ends_alone(tmp_path):
    search = OptunaSearch(points_to_evaluate=[{"lr": 0.09}, {"lr": 0.01}], seed=1)
    results = tune.Tuner(
        stn.STNTrainable.of(Diverging),
        param_space=SPACE,
        tune_config=tune_config(
            num_samples=3, search_alg=stn.STNSearch(online=["dropout", "cut*"], outer=search), max_concurrent_trials=1
        ),
        run_config=run_config(tmp_path),
    ).fit()
    assert not results.errors
    assert len(results) == 3
    by_lr = {result.config["lr"]: result.metrics for result in results}
    assert by_lr[0.09]["diverged"].startswith("the training loss is nan")
    assert by_lr[0.09]["training_iteration"] == 1
    assert by_lr[0.01]["diverged"] == ""
    assert results.get_best_result().config["lr"] != 0.09
    assert search._ot_study.trials[0].state.is_finished(), "the searcher has heard of it"


@pytest.mark.slow
def test_pbt_clones_trials_mid_way(tmp_path):
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=1,
        hyperparam_mutations={"lr": tune.loguniform(1e-4, 1e-1), "dropout": tune.uniform(0, 0.75)},
        quantile_fraction=0.5,
    )
    results = tune.Tuner(
        stn.FixedTrainable.of(Digits),
        param_space={**CONFIG, "lr": tune.grid_search([1e-4, 0.05])},
        tune_config=tune_config(scheduler=scheduler, reuse_actors=True),
        run_config=run_config(tmp_path, 5, checkpoint_config=CheckpointConfig(checkpoint_frequency=1)),
    ).fit()
    assert not results.errors
    assert list((tmp_path / "run").glob("pbt_policy_*.txt")), "a trial was cloned"
    cloned = max(results, key=lambda result: result.metrics_dataframe["hp/lr"].nunique()).metrics_dataframe
    assert cloned["hp/lr"].nunique() > 1
    assert cloned["val_loss"].iloc[-1] < 1.0, "a trial that could not learn goes on from one that could"
    assert cloned["wall_s"].is_monotonic_increasing
    winner = results.get_best_result(scope="last")
    found = stn.Schedule.from_pbt(tmp_path / "run", SPACE)
    assert found.algorithm == "pbt"
    assert found.total_steps == winner.metrics["step"] == 50
    assert found.at(fraction=1.0)["lr"] == pytest.approx(winner.config["lr"])
    assert found.at(step=0)["lr"] in (1e-4, 0.05)
    assert set(found.steps) <= {0, 10, 20, 30, 40, 50}
    assert set(stn.Schedule.from_pbt(tmp_path / "run").space) == {"lr", "dropout"}, "what PBT has changed"


@pytest.mark.slow
def test_pbt_perturbs_what_the_stn_leaves_to_it(tmp_path):
    """PBT takes no search algorithm, so the online space is given to the trainable."""
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=1,
        hyperparam_mutations={"lr": tune.loguniform(1e-4, 1e-1)},
        quantile_fraction=0.5,
    )
    results = tune.Tuner(
        stn.STNTrainable.of(Digits, space=ONLINE),
        param_space={"lr": tune.grid_search([1e-4, 0.05])},
        tune_config=tune_config(scheduler=scheduler, reuse_actors=True),
        run_config=run_config(tmp_path, 4, checkpoint_config=CheckpointConfig(checkpoint_frequency=1)),
    ).fit()
    assert not results.errors
    for result in results:
        assert result.metrics_dataframe["scale/dropout"].notna().all()
    assert any(result.metrics_dataframe["hp/lr"].nunique() > 1 for result in results)


@pytest.mark.slow
def test_online_and_outer_with_asha_and_a_limiter_in_a_nested_space(tmp_path):
    space = {
        "lr": tune.loguniform(1e-3, 1e-1),
        "cutout": 1,
        "dropout": tune.uniform(0, 0.75),
        "other": {"x": tune.choice([1, 2])},
    }
    search = ConcurrencyLimiter(stn.STNSearch(online=["dropout"], hyper_lr=0.03), max_concurrent=2)
    results = tune.Tuner(
        stn.STNTrainable.of(Digits),
        param_space=space,
        tune_config=tune_config(num_samples=3, search_alg=search, scheduler=ASHAScheduler(max_t=3, grace_period=1)),
        run_config=run_config(tmp_path, 3),
    ).fit()
    assert not results.errors
    assert len(results) == 3
    assert all(result.config["stn"]["options"] == {"hyper_lr": 0.03} for result in results)
    assert all(result.config["other"]["x"] in (1, 2) for result in results)
    assert sorted(result.config["stn"]["seed"] for result in results) == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_trainable_that_is_no_stn_is_refused(tmp_path):
    def plain(config):
        tune.report({"val_loss": config["dropout"]})

    tuner = tune.Tuner(
        plain,
        param_space=SPACE,
        tune_config=tune_config(search_alg=stn.STNSearch(online=["dropout"])),
        run_config=run_config(tmp_path),
    )
    with pytest.raises(Exception, match="the trainable does not tune dropout") as error:
        tuner.fit()
    assert "STNTrainable.of" in str(error.value)
    del tuner, error
    gc.collect()  # Tune leaves the trial's log open when a searcher raises
