"""What each method hands to Tune, and the noise and the values that some of them add."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from ray import tune
from ray.tune.experiment import Experiment

import stn_tune as stn
from baselines import METHODS, EarlierResult, Setting
from baselines.methods import gaussian_noise, perturbed, sinusoid_noise
from benchmarks.tasks import problem

NAMES = ("fc1_dropout", "cutout_length")


@pytest.fixture(scope="module")
def setting() -> Setting:
    p = problem("digits", "smoke", tuned=NAMES)
    schedule = stn.Schedule(p.space, [0, 10], {"fc1_dropout": [0.05, 0.3], "cutout_length": [1, 2]})
    values = {"fc1_dropout": 0.4, "cutout_length": 2}
    found = EarlierResult(
        best=values, final={"fc1_dropout": 0.6, "cutout_length": 3}, schedule=schedule, greedy=schedule
    )
    return Setting(p, seed=3, workers=2, earlier={"stn": found, "grid": found})


@pytest.mark.parametrize("name", METHODS)
def test_every_method_searches_the_problems_space_and_no_other(name, setting):
    plan = METHODS[name].plan(setting)
    searched = {key for key, value in plan.config.items() if not isinstance(value, (int, float))}
    assert searched <= {*NAMES, "lr"}
    assert ("lr" in searched) == (name == "hybrid")
    kind = stn.STNTrainable if name in ("stn", "hybrid", "delta", "refined") else stn.FixedTrainable
    assert issubclass(plan.trainable, kind)
    assert METHODS[name].info.summary


def test_the_domains_are_the_same_for_every_search(setting):
    for name in ("random", "bayes", "tpe", "gp", "asha", "pbt", "pb2"):
        config = METHODS[name].plan(setting).config
        assert {k: stn.HyperSpace({k: v}) for k, v in config.items()} == {
            k: stn.HyperSpace({k: v}) for k, v in setting.problem.space.items()
        }


def test_the_grid_has_the_presets_levels(setting):
    config = METHODS["grid"].plan(setting).config
    assert config["cutout_length"] == tune.grid_search([0, 2, 4])


@pytest.mark.parametrize("name", ["grid", "random", "bayes", "tpe", "gp", "asha"])
def test_every_search_first_tries_what_the_stn_starts_from(name, setting):
    plan = METHODS[name].plan(setting)
    plan.search.set_search_properties("best_val_loss", "min", dict(plan.config))
    first, second = plan.search.suggest("a"), plan.search.suggest("b")
    assert {key: first[key] for key in NAMES} == {"fc1_dropout": 0.05, "cutout_length": 1}
    assert {key: second[key] for key in NAMES} != {key: first[key] for key in NAMES}


@pytest.mark.parametrize("name", ["bayes", "tpe", "gp"])
def test_a_model_is_asked_after_the_start_and_two_draws(name, setting):
    found = []
    for sign in (1, -1):
        plan = METHODS[name].plan(setting)
        plan.search.set_search_properties("best_val_loss", "min", dict(plan.config))
        found.append([])
        for trial in "abcdefgh":
            config = plan.search.suggest(trial)
            found[-1].append({key: config[key] for key in NAMES})
            loss = sign * config["fc1_dropout"]
            plan.search.on_trial_complete(trial, {"best_val_loss": loss, "training_iteration": 1})
    assert found[0][:3] == found[1][:3]
    assert found[0][3:] != found[1][3:]
    proposed = [np.mean([config["fc1_dropout"] for config in run[3:]]) for run in found]
    assert proposed[0] < proposed[1]


def test_members_of_a_population_never_leave_the_space():
    p = problem("cifar10", "small")
    scheduler = METHODS["pbt"].plan(Setting(p, seed=0, workers=1)).scheduler
    config = {name: stn.HyperSpace(p.space).transform(name).native(1e9) for name in p.space} | {"seed": 0}
    for _ in range(200):
        config, _ = scheduler._get_new_config(None, SimpleNamespace(config=config))
        assert config["seed"] == 0
        for name, domain in p.space.items():
            assert domain.is_valid(config[name]), f"{name} is {config[name]}"


@pytest.mark.parametrize("name", ["pbt", "pb2"])
def test_a_population_has_one_member_that_starts_where_the_stn_does(name, setting):
    plan = METHODS[name].plan(setting)
    plan.search.add_configurations(Experiment("e", plan.trainable, config=dict(plan.config), num_samples=plan.samples))
    members = []
    while (trial := plan.search.next_trial()) is not None:
        members.append({key: trial.config[key] for key in NAMES})
    assert members[0] == {"fc1_dropout": 0.05, "cutout_length": 1}
    assert len(members) == plan.samples == setting.problem.searches.population
    assert members[1] != members[0]


def test_a_whole_grid_has_no_other_points(setting):
    p = problem("digits", "smoke", ["grid_order=tune"], tuned=NAMES)
    plan = METHODS["grid"].plan(Setting(p, 3, 1))
    plan.search.set_search_properties("best_val_loss", "min", dict(plan.config))
    assert plan.search.suggest("a")["fc1_dropout"] == 0.0


def test_methods_that_build_on_others_use_what_these_found(setting):
    assert METHODS["final"].plan(setting).config == {"fc1_dropout": 0.6, "cutout_length": 3}
    assert METHODS["replay"].plan(setting).trainable.schedule(10) == {"fc1_dropout": 0.3, "cutout_length": 2}
    noisy = METHODS["gaussian"].plan(setting).trainable.schedule
    assert noisy(1)["fc1_dropout"] != noisy(2)["fc1_dropout"]
    assert noisy(1)["cutout_length"] == 2
    assert {name for name, method in METHODS.items() if method.info.builds_on} == {
        "final", "replay", "greedy", "gaussian", "sinusoid"
    }  # fmt: skip


def test_gaussian_noise_has_the_papers_spread_and_repeats():
    draws = np.array([gaussian_noise(step, std=0.05, seed=1) for step in range(4000)])
    assert draws.std() == pytest.approx(0.05, rel=0.05)
    assert draws.mean() == pytest.approx(0.0, abs=0.003)
    assert gaussian_noise(7, std=0.05, seed=1) == draws[7]
    assert gaussian_noise(7, std=0.05, seed=2) != draws[7]


def test_sinusoid_noise_has_amplitude_and_period():
    values = [sinusoid_noise(step, amplitude=0.1, period=1200) for step in range(2400)]
    assert max(values) == pytest.approx(0.1)
    assert values[300] == pytest.approx(0.1)
    assert values[:1200] == pytest.approx(values[1200:], abs=1e-12)


def test_perturbed_values_stay_in_their_domain():
    space = stn.HyperSpace({"rate": tune.uniform(0, 0.75), "holes": tune.randint(0, 5)})
    assert perturbed(0, centre={"rate": 0.7, "holes": 3}, space=space, noise=lambda step: 0.2) == {
        "rate": 0.75,
        "holes": 3,
    }
    assert perturbed(0, centre={"rate": 0.1, "holes": 3}, space=space, noise=lambda step: -0.2)["rate"] == 0.0


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("pbt", {"population": 6, "perturbation_interval": 2, "quantile_fraction": 0.5}),
        ("pb2", {"population": 6, "perturbation_interval": 2, "quantile_fraction": 0.5}),
        ("asha", {"grace_period": 2, "reduction_factor": 4}),
        ("bayes", {"random_draws": 4}),
        ("tpe", {"random_draws": 4}),
        ("gp", {"random_draws": 4}),
    ],
)
def test_what_a_rival_is_run_with_can_be_set_and_is_in_the_record(name, changes):
    plain = problem("digits", "smoke", tuned=NAMES)
    changed = problem("digits", "smoke", [f"{key}={value}" for key, value in changes.items()], tuned=NAMES)
    before, after = (METHODS[name].settings(p, 1) for p in (plain, changed))
    assert after == changes
    assert set(before) == set(changes)
    assert before != after
    default, plan = (METHODS[name].plan(Setting(p, seed=0, workers=1)) for p in (plain, changed))
    if name in ("pbt", "pb2"):
        assert plan.samples == 6
        assert plan.scheduler._perturbation_interval == 2
        assert plan.scheduler._quantile_fraction == 0.5
    elif name == "asha":
        milestones = [[rung for rung, _ in p.scheduler._brackets[0]._rungs][::-1] for p in (default, plan)]
        assert [found[:2] for found in milestones] == [[4, 12], [2, 8]]
    else:
        assert draws_before_the_model(plan) == 2 + draws_before_the_model(default)


def draws_before_the_model(plan) -> int:
    if isinstance(plan.search, stn.SkOptSearch):
        return plan.search.n_initial_points
    return plan.search._sampler._n_startup_trials


def test_a_population_has_as_many_members_as_workers_at_least():
    assert METHODS["pb2"].settings(problem("digits", "smoke"), 9)["population"] == 9
