from __future__ import annotations

import logging

import pytest
import torch
from ray import tune
from ray.tune.search import ConcurrencyLimiter, Repeater, Searcher
from ray.tune.search.optuna import OptunaSearch
from torch import nn

import stn_tune as stn
from stn_tune.raytune.trial_config import seed_of
from stn_tune.testing.searchers import SPACE as SUITE_SPACE
from stn_tune.testing.searchers import SearcherSuite

logging.getLogger("optuna").setLevel(logging.WARNING)


class TestRandomOuter(SearcherSuite):
    def make(self, **options):
        return stn.STNSearch(online=["drop"], **options)

    def space(self):
        return {**SUITE_SPACE, "drop": tune.uniform(0, 0.9)}

    def result(self, value):
        return {**super().result(value), "scale/drop": 0.5, "hp/drop": 0.1}


class TestOptunaOuter(TestRandomOuter):
    def make(self, **options):
        return stn.STNSearch(online=["drop"], outer=OptunaSearch(seed=3), **options)


class TestSkOptOuter(TestRandomOuter):
    def make(self, **options):
        return stn.STNSearch(online=["drop"], outer=stn.SkOptSearch(seed=3, n_initial_points=4), **options)


class TestWrappedOuter(TestRandomOuter):
    def make(self, **options):
        outer = ConcurrencyLimiter(stn.SkOptSearch(seed=3, n_initial_points=4), max_concurrent=100)
        return stn.STNSearch(online=["drop"], outer=outer, **options)


SPACE = {
    "drop": tune.uniform(0, 0.9),
    "augment": {"holes": tune.randint(0, 5), "hue": tune.uniform(0, 0.5)},
    "lr": tune.loguniform(1e-4, 1),
    "name": "text",
}


def ready(search, space=None, num_samples=4):
    search.set_search_properties("val_loss", "min", space or SPACE, num_samples=num_samples)
    return search


def test_the_config_is_plain_and_complete():
    config = ready(stn.STNSearch(online=["drop", "augment/*"], init={"drop": 0.05}, warmup=2)).suggest("a")
    assert config["drop"] == 0.05
    assert config["augment"] == {"holes": 2, "hue": pytest.approx(0.25)}
    assert 1e-4 <= config["lr"] <= 1
    assert config["stn"]["options"] == {"warmup": 2}
    assert list(config["stn"]["space"]) == ["drop", "augment/holes", "augment/hue"]
    hyper = stn.hyper_from_config(config)
    assert hyper.values_now() == {"drop": pytest.approx(0.05), "augment/holes": 2, "augment/hue": pytest.approx(0.25)}
    assert hyper.constants["lr"] == config["lr"]


def test_everything_online_needs_one_trial_and_num_samples_gives_seeds():
    space = {key: SPACE[key] for key in ("drop", "augment", "name")}
    search = ready(stn.STNSearch(online=["*"], seed=7), space)
    configs = [search.suggest(str(i)) for i in range(3)]
    assert [config["stn"]["seed"] for config in configs] == [7, 8, 9]
    assert len({config["drop"] for config in configs}) == 1


def test_grid_search_in_what_is_not_online():
    space = {**SPACE, "lr": tune.grid_search([0.1, 0.2]), "depth": tune.grid_search([1, 2, 3])}
    search = ready(stn.STNSearch(online=["drop", "augment/*"]), space, num_samples=12)
    configs = [search.suggest(str(i)) for i in range(12)]
    assert sorted((c["lr"], c["depth"]) for c in configs) == sorted(
        [(lr, depth) for lr in (0.1, 0.2) for depth in (1, 2, 3)] * 2
    )
    with pytest.raises(ValueError, match=r"lr, depth: grid_search has 6 points.* must be a multiple of 6"):
        ready(stn.STNSearch(online=["drop", "augment/*"]), space, num_samples=4)
    with pytest.raises(ValueError, match="lr, depth: grid_search cannot be combined with outer=OptunaSearch"):
        ready(stn.STNSearch(online=["drop", "augment/*"], outer=OptunaSearch()), space, num_samples=6)


def test_points_of_the_outer_searcher_are_evaluated_first():
    outer = OptunaSearch(points_to_evaluate=[{"lr": 0.123}])
    assert ready(stn.STNSearch(online=["drop", "augment/*"], outer=outer)).suggest("a")["lr"] == 0.123


def test_an_outer_searcher_that_has_finished_ends_the_search():
    class Done(Searcher):
        def set_search_properties(self, metric, mode, config, **spec):
            return True

        def suggest(self, trial_id):
            return Searcher.FINISHED if trial_id == "last" else None

    search = ready(stn.STNSearch(online=["drop"], outer=Done()))
    assert search.suggest("first") is None
    assert search.suggest("last") == Searcher.FINISHED


@pytest.mark.parametrize(
    ("options", "space", "message"),
    [
        ({"online": ["drp"]}, SPACE, r"online: unknown hyperparameter 'drp'.*did you mean 'drop'\?"),
        ({"online": ["augment"]}, SPACE, "online: unknown hyperparameter 'augment'.*augment/holes"),
        ({"online": ["name"]}, SPACE, "name: .text. is not a Tune domain"),
        ({"online": ["x"]}, {"x": tune.choice(["a", "b"])}, "x: "),
        ({"online": ["x"]}, {"x": tune.sample_from(lambda spec: 1)}, "x: .*sample_from"),
        ({"online": ["x"]}, {"x": tune.grid_search([1, 2])}, "x: .*grid_search"),
        ({"online": ["drop"], "init": {"lr": 0.1}}, SPACE, "init: unknown hyperparameter 'lr'"),
        ({"online": ["drop"], "init": {"drop": 1.5}}, SPACE, "drop: .*1.5"),
        ({"online": ["drop"]}, {**SPACE, "stn": 1}, "stn: this name is reserved"),
    ],
)
def test_mistakes_are_named(options, space, message):
    with pytest.raises(stn.SpaceError, match=message):
        ready(stn.STNSearch(**options), space)


def test_more_mistakes_are_named():
    with pytest.raises(TypeError, match=r"online is 'drop'; it must be a list"):
        stn.STNSearch(online="drop")
    with pytest.raises(TypeError, match=r"unknown stn option 'warmups'; .* did you mean 'warmup'\?"):
        stn.STNSearch(online=["drop"], warmups=3)
    with pytest.raises(RuntimeError, match="needs the param_space"):
        stn.STNSearch(online=["drop"]).suggest("a")
    outer = OptunaSearch({"lr": tune.uniform(0, 1)}, metric="val_loss", mode="min")
    with pytest.raises(ValueError, match="OptunaSearch has a search space of its own, but the param_space leaves lr"):
        ready(stn.STNSearch(online=["drop", "augment/*"], outer=outer))


def test_keys_of_any_kind_keep_their_place():
    space = {"a/b": tune.uniform(0, 1), "nested": {1: tune.uniform(0, 1), 2: 3}, "lr": tune.uniform(0, 1)}
    config = ready(stn.STNSearch(online=["a/b", "nested/1"]), space).suggest("x")
    assert config["a/b"] == 0.5
    assert config["nested"] == {1: 0.5, 2: 3}


def test_an_outer_searcher_with_nothing_to_search_is_an_error():
    with pytest.raises(ValueError, match="everything in the param_space is online: OptunaSearch has nothing"):
        ready(stn.STNSearch(online=["*"], outer=OptunaSearch()))


def test_a_restore_needs_the_same_kind_of_searcher(tmp_path):
    ready(stn.STNSearch(online=["drop"])).save(str(tmp_path / "state"))
    with pytest.raises(ValueError, match="the saved search had no outer searcher"):
        stn.STNSearch(online=["drop"], outer=OptunaSearch()).restore(str(tmp_path / "state"))


def test_a_space_with_functions_is_saved_and_restored(tmp_path):
    """Tune saves the search at every checkpoint of the experiment: what cannot be saved ends it."""
    space = {**SPACE, "width": tune.sample_from(lambda spec: 8 * spec.config.depth), "depth": tune.randint(1, 4)}
    search = ready(stn.STNSearch(online=["drop", "augment/*"]), space)
    first = search.suggest("a")
    assert first["width"] == 8 * first["depth"]
    search.save(str(tmp_path / "state"))
    restored = stn.STNSearch(online=["drop", "augment/*"])
    restored.restore(str(tmp_path / "state"))
    assert restored.suggest("b") == search.suggest("b")


def test_a_refused_space_can_be_corrected():
    search = stn.STNSearch(online=["drop", "augment/*"])
    space = {**SPACE, "lr": tune.grid_search([0.1, 0.2])}
    with pytest.raises(ValueError, match="must be a multiple of 2"):
        ready(search, space, num_samples=3)
    assert ready(search, space, num_samples=2).suggest("a")["lr"] == 0.1


class OldStyle(Searcher):  # type: ignore[misc]  # ray has no types
    """As BOHB is: without ``**spec``, and told of pauses."""

    def __init__(self):
        super().__init__()
        self.paused = []

    def set_search_properties(self, metric, mode, config):
        self.space = config
        return True

    def suggest(self, trial_id):
        return {"lr": 0.5, "name": "text"}

    def on_pause(self, trial_id):
        self.paused.append(trial_id)

    def on_unpause(self, trial_id):
        self.paused.remove(trial_id)


def test_outer_searchers_of_an_older_kind():
    outer = OldStyle()
    search = ready(stn.STNSearch(online=["drop", "augment/*"], outer=outer))
    assert list(outer.space) == ["augment", "lr", "name"]
    assert search.suggest("a")["lr"] == 0.5
    search.on_pause("a")
    assert outer.paused == ["a"]
    search.on_unpause("a")
    assert outer.paused == []
    stn.STNSearch().on_pause("a")


def test_every_option_reaches_a_loop_of_ones_own():
    options = {
        "scale": 0.9,
        "hyper_lr": 0.3,
        "scale_lr": 0.2,
        "train_steps": 5,
        "valid_steps": 3,
        "warmup_steps": 7,
        "entropy_weight": 0.5,
        "draw": "batch",
        "valid_draw": "batch",
    }
    config = ready(stn.STNSearch(online=["drop", "augment/*"], **options)).suggest("a")
    hyper = stn.hyper_from_config(config)
    model = stn.self_tune(nn.Linear(3, 2), hyper)
    tuner = stn.tuner_from_config(config, model, hyper, torch.optim.SGD(model.parameters(), lr=0.1), clip=0.25)
    found = {name: getattr(tuner.options, name) for name in options}
    found |= {"scale": pytest.approx(hyper.scales_now()["drop"])}
    found |= {"hyper_lr": tuner.hyper_optimizer.param_groups[0]["lr"]}
    found |= {"scale_lr": tuner.scale_optimizer.param_groups[0]["lr"]}
    assert found == options
    assert tuner.clip == 0.25
    config["stn"]["options"]["warmup"] = 2
    with pytest.raises(ValueError, match=r"warmup is 2, but only STNTrainable counts iterations: .* warmup_steps"):
        stn.tuner_from_config(config, model, hyper, torch.optim.SGD(model.parameters(), lr=0.1))


def test_repeats_of_the_outer_searcher_have_seeds_of_their_own():
    outer = Repeater(stn.SkOptSearch(n_initial_points=2, seed=0), repeat=2)
    search = ready(stn.STNSearch(online=["drop", "augment/*"], outer=outer), num_samples=6)
    configs = []
    for i in range(6):
        configs.append(search.suggest(f"t{i}"))
        search.on_trial_complete(f"t{i}", {"val_loss": float(i), "scale/drop": 1, **SCALES})
    assert [config["lr"] for config in configs[::2]] == [config["lr"] for config in configs[1::2]]
    assert len({config["lr"] for config in configs}) == 3
    assert len({seed_of(config) for config in configs}) == 6
    assert [value for _, value in outer.searcher._observed] == [0.5, 2.5, 4.5], "the mean of each pair"


SCALES = {"scale/augment/holes": 1, "scale/augment/hue": 1}


def test_repeats_around_the_search_have_seeds_of_their_own():
    inner = stn.STNSearch(online=["drop", "augment/*"], outer=stn.SkOptSearch(n_initial_points=2, seed=0), seed=7)
    search = Repeater(inner, repeat=3)
    ready(search, num_samples=6)
    configs = [search.suggest(f"t{i}") for i in range(3)]
    assert [seed_of(config) for config in configs] == [7, 8, 9]
    assert len({config["lr"] for config in configs}) == 1
    for i in range(3):
        search.on_trial_complete(f"t{i}", result={"val_loss": float(i)}, error=False)
    assert [value for _, value in inner.outer._observed] == [1.0]
    assert "__trial_index__" not in stn.hyper_from_config(configs[1]).constants


def test_states_of_searchers_around_the_outer_one_are_restored(tmp_path):
    """Without them a ConcurrencyLimiter would ignore the results of trials that ran when the driver was killed."""

    def make():
        outer = ConcurrencyLimiter(stn.SkOptSearch(n_initial_points=1, seed=0), max_concurrent=2)
        return stn.STNSearch(online=["drop", "augment/*"], outer=outer)

    search, restored = ready(make()), make()
    search.suggest("a")
    search.save(str(tmp_path / "state"))
    restored.restore(str(tmp_path / "state"))
    result = {"val_loss": 3.0, "scale/drop": 1, **SCALES}
    for each in (search, restored):
        each.on_trial_complete("a", result)
    assert [value for _, value in restored.outer.searcher._observed] == [3.0]
    assert restored.suggest("b") == search.suggest("b")
    with pytest.raises(ValueError, match="an outer searcher of ConcurrencyLimiter around a searcher; make this one"):
        stn.STNSearch(online=["drop"], outer=stn.SkOptSearch()).restore(str(tmp_path / "state"))


def outer_searcher(kind, points):
    if kind == "optuna":
        return OptunaSearch(points_to_evaluate=points, seed=0)
    outer = stn.SkOptSearch(points_to_evaluate=points, n_initial_points=1, seed=0)
    return outer if kind == "skopt" else ConcurrencyLimiter(outer, max_concurrent=9)


@pytest.mark.parametrize("kind", ["optuna", "skopt", "limited"])
def test_a_trial_starts_from_the_online_values_of_its_point(kind):
    points = [{"lr": 0.1, "drop": 0.3}, {"lr": 0.2}, {"lr": 0.1, "drop": 0.6, "augment/holes": 3}]
    search = ready(stn.STNSearch(online=["drop", "augment/*"], outer=outer_searcher(kind, points), init={"drop": 0.05}))
    configs = [search.suggest(str(i)) for i in range(4)]
    assert [config["lr"] for config in configs[:3]] == [0.1, 0.2, 0.1]
    assert [config["drop"] for config in configs] == [0.3, 0.05, 0.6, 0.05]
    assert [config["augment"]["holes"] for config in configs] == [2, 2, 3, 2]
    assert stn.hyper_from_config(configs[2]).values_now()["drop"] == pytest.approx(0.6)


def test_an_online_value_outside_its_domain_is_named():
    outer = stn.SkOptSearch(points_to_evaluate=[{"lr": 0.1, "drop": 2.0}])
    with pytest.raises(stn.SpaceError, match=r"drop: .*2\.0"):
        ready(stn.STNSearch(online=["drop", "augment/*"], outer=outer))


@pytest.mark.parametrize("outer", [None, "skopt"])
def test_nested_spaces(outer):
    space = {
        "model": {
            "drop": tune.uniform(0, 0.9),
            "layers": [tune.randint(8, 64), 7],
            "head": {"drop": tune.uniform(0, 1)},
        },
        "name": "text",
    }
    search = stn.STNSearch(
        online=["model/drop", "model/head/*"], outer=stn.SkOptSearch(seed=0, n_initial_points=2) if outer else None
    )
    ready(search, space)
    for i in range(4):
        model = search.suggest(str(i))["model"]
        assert model["drop"] == pytest.approx(0.45)
        assert model["head"] == {"drop": 0.5}
        assert model["layers"][0] in range(8, 64)
        assert model["layers"][1] == 7
        scales = {"scale/model/drop": 1, "scale/model/head/drop": 1}
        search.on_trial_complete(str(i), {"val_loss": model["layers"][0], **scales})


def test_results_of_unknown_trials_do_not_reach_the_outer_searcher():
    search = ready(stn.STNSearch(online=["drop"], outer=OptunaSearch(seed=0)))
    search.on_trial_result("unknown", {"val_loss": 1.0})
    search.on_trial_complete("unknown", {"val_loss": 1.0})
    assert search.suggest("a")


def test_names_of_trials_and_folders_are_readable(ray_session, tmp_path):
    def train(config):
        tune.report({"val_loss": config["lr"], "scale/drop": 0.5, "scale/augment/hue": 0.5})

    results = tune.Tuner(
        train,
        param_space={"drop": tune.uniform(0, 0.9), "augment": {"hue": tune.uniform(0, 0.5)}, "lr": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            metric="val_loss", mode="min", num_samples=1, search_alg=stn.STNSearch(online=["drop", "augment/*"])
        ),
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()
    (result,) = results
    assert set(result.config["stn"]) == {"space", "options", "seed"}
    lr = result.config["lr"]
    assert f"_1_hue=0.2500,drop=0.4500,lr={lr:.4f}_" in result.path
    (trial,) = results._experiment_analysis.trials
    assert trial.experiment_tag == f"1_hue=0.2500,drop=0.4500,lr={lr:.4f}"
    assert set(trial.evaluated_params) == {"drop", "augment/hue", "lr"}
