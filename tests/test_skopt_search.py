from __future__ import annotations

import json
import math
import pickle
import statistics
import subprocess
import sys

import numpy as np
import pytest
from ray import tune
from ray.tune.search import ConcurrencyLimiter
from skopt import space as skopt_space

import stn_tune as stn
from stn_tune.raytune import skopt_search
from stn_tune.raytune.skopt_axis import Axis
from stn_tune.raytune.skopt_search import DESIGNS, SkOptSearch
from stn_tune.testing.searchers import SPACE, SearcherSuite

LINE = {"x": tune.uniform(0, 1)}


class TestSkOptSearch(SearcherSuite):
    def make(self, **options):
        return SkOptSearch(**{"n_initial_points": 6, "seed": 3, **options})


def run(searcher, objective, trials):
    """The objective's values, one trial after the other."""
    values = []
    for i in range(trials):
        values.append(objective(searcher.suggest(f"t{i}")))
        searcher.on_trial_complete(f"t{i}", {"loss": values[-1]})
    return values


def told(monkeypatch):
    """What reaches the model: one (points, values) for each suggestion of the model."""
    calls = []

    def spy(axes, points, values, *arguments):
        calls.append((points, values))
        return best_improvement(axes, points, values, *arguments)

    best_improvement = skopt_search.best_improvement
    monkeypatch.setattr(skopt_search, "best_improvement", spy)
    return calls


KINDS = {
    "uniform": (tune.uniform(-2, 3), float, -2, 3, None),
    "loguniform": (tune.loguniform(1e-4, 10), float, 1e-4, 10, None),
    "quniform": (tune.quniform(0, 0.3, 0.1), float, 0, 0.3, 0.1),
    "qloguniform": (tune.qloguniform(0.5, 4, 0.5), float, 0.5, 4, 0.5),
    "randint": (tune.randint(-1, 4), int, -1, 3, 1),
    "lograndint": (tune.lograndint(1, 9), int, 1, 8, 1),
    "qrandint": (tune.qrandint(3, 20, 5), int, 5, 20, 5),
    "qrandint of 1": (tune.qrandint(0, 4, 1), int, 0, 3, 1),
    "qlograndint": (tune.qlograndint(2, 16, 2), int, 2, 16, 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_stays_in_its_domain_and_reaches_both_ends(kind):
    domain, number, lower, upper, step = KINDS[kind]
    axis = Axis.of(("x",), domain)
    values = [axis.decode(axis.native(x)) for x in axis.dimension().rvs(300, random_state=0)]
    assert {type(value) for value in values} == {number}
    assert min(values) >= lower
    assert max(values) <= upper
    assert [axis.decode(axis.native(end)) for end in axis.ends] == pytest.approx([lower, upper])
    if step is not None:
        assert all(value / step == pytest.approx(round(value / step)) for value in values)
        assert {min(values), max(values)} == {lower, upper}
    for value in values[:20]:
        assert axis.decode(axis.encode(value)) == value


@pytest.mark.parametrize("kind", ["loguniform", "quniform", "randint", "qlograndint"])
def test_the_model_finds_the_end_that_is_best(kind):
    domain, _, lower, upper, _ = KINDS[kind]
    searcher = SkOptSearch({"x": domain}, "loss", "max", n_initial_points=2, seed=0)
    values = run(searcher, lambda config: float(config["x"]), 6)
    assert max(values) == pytest.approx(upper, abs=0.02 * (upper - lower))


def test_half_of_a_log_uniform_sample_lies_below_the_geometric_mean():
    dimension = Axis.of(("x",), tune.loguniform(1e-4, 1)).dimension()
    assert np.median(dimension.rvs(2000, random_state=0)) == pytest.approx(1e-2, rel=0.3)


def test_choices_may_be_anything_and_the_model_learns_them():
    choices = [None, [1, 2], {"width": 3}, math.sqrt, "text"]
    searcher = SkOptSearch(
        {"c": tune.choice(choices), "x": tune.uniform(0, 1)}, "loss", "min", n_initial_points=6, seed=0
    )
    values = run(searcher, lambda config: config["x"] + 2 * (config["c"] != {"width": 3}), 12)
    assert min(values) == pytest.approx(0, abs=0.05)
    assert choices[2] == {"width": 3}


def test_a_choice_is_handed_out_as_a_copy():
    searcher = SkOptSearch({"c": tune.choice([[1], [1, 1]])}, "loss", "min", n_initial_points=1)
    searcher.suggest("a")["c"].append("changed by the trial")
    assert "changed by the trial" not in searcher.suggest("a")["c"]


def test_spaces_nest_and_constants_stay():
    space = {
        "model": {"layers": [tune.randint(1, 5), 7], "a/b": tune.uniform(0, 1)},
        "pair": (1, tune.choice("xy")),
        "one": tune.randint(3, 4),
        "constant": {"kept": None},
    }
    config = SkOptSearch(space, "loss", "min", seed=0).suggest("t")
    assert config["model"]["layers"][0] in range(1, 5)
    assert config["model"]["layers"][1] == 7
    assert 0 <= config["model"]["a/b"] <= 1
    assert config["pair"][1] in "xy"
    assert config["one"] == 3
    assert config["constant"] == {"kept": None}
    assert list(config) == list(space)


@pytest.mark.parametrize("design", DESIGNS)
def test_designs_fill_the_space_without_repeats(design):
    searcher = SkOptSearch(
        {**LINE, "k": tune.randint(0, 4)}, "loss", "min", n_initial_points=8, initial_design=design, seed=0
    )
    points = [searcher.suggest(f"t{i}") for i in range(8)]
    assert len({json.dumps(point) for point in points}) == 8
    assert min(point["x"] for point in points) < 0.5 < max(point["x"] for point in points)


def test_a_finite_space_is_covered_before_anything_repeats():
    space = {"a": tune.randint(0, 3), "b": tune.choice("xyz")}
    searcher = SkOptSearch(space, "loss", "min", n_initial_points=2, seed=0)
    points = []
    run(searcher, lambda config: points.append(json.dumps(config)) or 1.0, 11)
    assert len(set(points[:9])) == 9
    assert set(points[9:]) <= set(points[:9])


def test_points_to_evaluate_come_first_then_the_whole_design():
    space = {"x": tune.uniform(0, 1), "n": {"q": tune.quniform(0, 1, 0.25)}, "c": tune.choice(["a", "b"])}
    points = [{"x": 0.5, "n": {"q": 0.3}, "c": "b"}, {"x": 1, "n": {"q": 1}, "c": "a", "ignored": 1}]
    searcher = SkOptSearch(space, "loss", "min", points, n_initial_points=3, seed=0)
    plain = SkOptSearch(space, "loss", "min", n_initial_points=3, seed=0)
    assert searcher.suggest("0") == {"x": 0.5, "n": {"q": 0.25}, "c": "b"}
    assert searcher.suggest("1") == {"x": 1.0, "n": {"q": 1.0}, "c": "a"}
    assert [searcher.suggest(f"d{i}") for i in range(3)] == [plain.suggest(f"d{i}") for i in range(3)]


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"x": 0.5}, "has no value for n/k"),
        ({"x": 2.0, "n": {"k": 1}}, "x: 2.0 is not a number from 0 to 1"),
        ({"x": "high", "n": {"k": 1}}, "x: 'high' is not a number"),
        ({"x": 0.5, "n": {"k": "c"}}, "n/k: 'c' is not one of the choices"),
    ],
)
def test_wrong_points_to_evaluate_are_named(point, message):
    with pytest.raises(ValueError, match=message):
        SkOptSearch({**LINE, "n": {"k": tune.choice([1, 2])}}, points_to_evaluate=[point])


@pytest.mark.parametrize("mode", ["min", "max"])
def test_evaluated_rewards_are_told_and_not_run(monkeypatch, mode):
    calls = told(monkeypatch)
    points = [{"x": 0.25}, {"x": 0.5}, {"x": 0.75}]
    searcher = SkOptSearch(LINE, "loss", mode, points, [1.0, 2.0, math.nan], n_initial_points=1, seed=0)
    plain = SkOptSearch(LINE, "loss", mode, n_initial_points=1, seed=0)
    assert searcher.suggest("design") == plain.suggest("design")
    searcher.on_trial_complete("design", error=True)
    assert searcher.suggest("model")["x"] not in (0.25, 0.5, 0.75)
    assert [x for (x,) in calls[0][0][:3]] == [0.25, 0.5, 0.75]
    best = {"min": 0, "max": 1}[mode]
    assert int(np.argmin(calls[0][1])) == best
    assert calls[0][1][2] == max(calls[0][1])


def test_points_evaluated_elsewhere_are_told(monkeypatch):
    calls = told(monkeypatch)
    searcher = SkOptSearch({"n": LINE}, "loss", "min", n_initial_points=1, seed=0)
    searcher.suggest("design")
    searcher.add_evaluated_point({"n": {"x": 0.1}, "ignored": 1}, 1.0)
    searcher.add_evaluated_point({"n/x": 0.2}, 0.0, error=True)
    searcher.add_evaluated_point({"n/x": 0.3}, 3.0, pruned=True)
    searcher.add_evaluated_point({"n/x": 0.4}, None, pruned=True, intermediate_values=[9.0, 2.0])
    searcher.suggest("model")
    points, values = calls[0]
    assert points[:4] == [(0.1,), (0.2,), (0.3,), (0.4,)]
    assert np.argsort(values[:4]).tolist()[0] == 0
    assert values[1] == values[2] == max(values), "a failed one counts as the worst"
    assert values[0] < values[3] < values[2]
    with pytest.raises(ValueError, match=r"add_evaluated_point: .* has no value for n/x"):
        searcher.add_evaluated_point({"y": 1}, 1.0)
    with pytest.raises(RuntimeError, match="has no space"):
        SkOptSearch().add_evaluated_point({"x": 0.5}, 1.0)


def test_takes_the_spaces_that_rays_own_took():
    converted = SkOptSearch.convert_search_space(
        {"model": {"width": tune.randint(2, 9), "act": tune.choice(["relu", "tanh"])}, "lr": tune.loguniform(1e-4, 1)}
    )
    assert converted == {
        "model/width": skopt_space.Integer(2, 8),
        "model/act": skopt_space.Categorical(["relu", "tanh"]),
        "lr": skopt_space.Real(1e-4, 1, prior="log-uniform"),
    }
    config = SkOptSearch(space=converted, metric="loss", mode="min").suggest("a")
    assert config["model"]["width"] in range(2, 9)
    assert config["model"]["act"] in ("relu", "tanh")
    assert 1e-4 <= config["lr"] <= 1
    ranges = SkOptSearch(space={"width": (0, 20), "height": (-1.0, 1.0), "act": ["a", "b"]}, metric="loss", mode="min")
    config = ranges.suggest("a")
    assert config["width"] in range(21)
    assert -1 <= config["height"] <= 1
    assert config["act"] in "ab"


def test_evaluated_trials_of_an_experiment_are_told(ray_session, tmp_path):
    def train(config):
        tune.report({"loss": config["x"]})

    results = tune.Tuner(
        train,
        param_space=LINE,
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=2),
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()
    searcher = SkOptSearch(LINE, "loss", "min", n_initial_points=1)
    searcher.add_evaluated_trials(results._experiment_analysis, "loss")
    assert [value for _, value in searcher._observed] == [result.metrics["loss"] for result in results]


def test_without_scikit_optimize_the_error_is_one_line():
    code = "import sys; sys.modules['skopt'] = None; import stn_tune; stn_tune.SkOptSearch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().splitlines()[-1] == (
        "ImportError: SkOptSearch needs scikit-optimize: pip install 'stn-tune[skopt]'"
    )


def test_running_trials_are_told_as_the_best_value_and_forgotten_when_done(monkeypatch):
    calls = told(monkeypatch)
    searcher = SkOptSearch(LINE, "loss", "max", n_initial_points=3, seed=0)
    for i in range(3):
        searcher.suggest(f"t{i}")
    searcher.on_trial_complete("t0", {"loss": 1.0})
    searcher.on_trial_complete("t1", {"loss": 5.0})
    searcher.suggest("a")
    searcher.suggest("b")
    assert calls[0][1] == pytest.approx([math.sqrt(2), -math.sqrt(0.5), -math.sqrt(0.5)])
    assert [len(values) for _, values in calls] == [3, 4]
    assert calls[1][1][1] == calls[1][1][2] == calls[1][1][3] == min(calls[1][1])
    for trial in ("t2", "a", "b"):
        searcher.on_trial_complete(trial, {"loss": 2.0})
    searcher.suggest("c")
    assert len(calls[2][1]) == 5
    assert len({round(value, 9) for value in calls[2][1]}) == 3


@pytest.mark.parametrize(
    ("bad", "mode"),
    [
        (math.nan, "min"),
        (math.inf, "max"),
        (-math.inf, "min"),
        (1e300, "max"),
        (None, "min"),
        ("missing", "max"),
        ("error", "min"),
    ],
)
def test_failures_are_told_as_the_worst_value_whenever_they_came(monkeypatch, bad, mode):
    calls = told(monkeypatch)
    searcher = SkOptSearch(LINE, "loss", mode, n_initial_points=3, seed=0)
    results = {None: None, "missing": {"other": 1.0}, "error": {"loss": 0.0}}
    for i, value in enumerate([bad, 2.0, 4.0]):
        searcher.suggest(f"t{i}")
        result = results.get(value, {"loss": value})
        searcher.on_trial_complete(f"t{i}", result, error=value == "error")
    searcher.suggest("next")
    values = calls[0][1]
    assert np.isfinite(values).all()
    assert values[0] == max(values) == values[{"min": 2, "max": 1}[mode]]
    assert np.mean(values) == pytest.approx(0)
    assert np.std(values) == pytest.approx(1)


def test_without_any_success_it_goes_on_at_random(monkeypatch):
    calls = told(monkeypatch)
    searcher = SkOptSearch(LINE, "loss", "min", n_initial_points=2, seed=0)
    points = []
    run(searcher, lambda config: points.append(config["x"]) or math.nan, 6)
    assert len(set(points)) == 6
    assert not calls


def test_equal_results_are_no_problem():
    searcher = SkOptSearch(LINE, "loss", "min", n_initial_points=2, seed=0)
    assert run(searcher, lambda config: 7.0, 6) == [7.0] * 6


def test_the_units_of_the_metric_do_not_matter():
    points = []
    for unit in (1.0, 2.0**-20):
        searcher = SkOptSearch(LINE, "loss", "min", n_initial_points=3, seed=0)
        points.append(run(searcher, lambda config, unit=unit: unit * (config["x"] - 0.3) ** 2, 6))
    assert [value * 2.0**-20 for value in points[0]] == pytest.approx(points[1], rel=1e-2, abs=1e-12)


def test_a_trial_unknown_or_done_is_ignored_and_a_running_one_keeps_its_point():
    searcher = SkOptSearch(LINE, "loss", "min", seed=0)
    searcher.on_trial_complete("never suggested", {"loss": 1.0})
    assert searcher.suggest("a") == searcher.suggest("a")
    searcher.on_trial_complete("a", {"loss": 1.0})
    searcher.on_trial_complete("a", {"loss": 2.0})
    assert [value for _, value in searcher._observed] == [1.0]


def test_restores_a_model_with_trials_running_into_a_searcher_of_other_options(tmp_path):
    space = {**LINE, "f": tune.choice([lambda x: x, math.sin])}
    searcher = SkOptSearch(space, "loss", "max", n_initial_points=3)
    run(searcher, lambda config: config["x"], 5)
    searcher.suggest("running")
    searcher.save(str(tmp_path / "state"))
    expected = [searcher.suggest(f"n{i}")["x"] for i in range(2)]
    other = SkOptSearch(seed=9)
    other.restore(str(tmp_path / "state"))
    assert [other.suggest(f"n{i}")["x"] for i in range(2)] == expected
    other.on_trial_complete("running", {"loss": 0.5})
    assert "running" not in other._pending


def test_restores_what_the_first_version_saved(tmp_path):
    """It pickled its attributes: axes of a module that has moved, and results with the sign of the mode."""
    space = {**LINE, "k": tune.randint(0, 3)}
    searcher = SkOptSearch(space, "loss", "max", n_initial_points=3, seed=0)
    run(searcher, lambda config: config["x"], 4)
    searcher.suggest("running")
    attributes = dict(searcher.__dict__)
    for new in ("_theta", "evaluated_rewards"):
        del attributes[new]
    attributes["_observed"] = [(point, -value) for point, value in searcher._observed]
    data = pickle.dumps(attributes, protocol=0).replace(b"stn_tune.raytune.skopt_axis", b"baselines.skopt_axis")
    (tmp_path / "state").write_bytes(data)
    other = SkOptSearch()
    other.restore(str(tmp_path / "state"))
    assert other._observed == searcher._observed
    assert other._axes == searcher._axes
    assert other.suggest("running") == searcher.suggest("running")
    assert set(other.suggest("next")) == {"x", "k"}


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (pickle.dumps({"version": 99, "state": {}}), r"saved by a newer stn_tune \(state version 99"),
        (pickle.dumps([1, 2]), "not a saved state of SkOptSearch"),
        (b"nothing", "not a saved state of SkOptSearch"),
    ],
)
def test_what_cannot_be_restored_is_named(tmp_path, saved, message):
    (tmp_path / "state").write_bytes(saved)
    with pytest.raises(stn.CheckpointError, match=message):
        SkOptSearch().restore(str(tmp_path / "state"))


def test_restores_points_to_evaluate_and_design_that_are_still_to_come(tmp_path):
    space = {**LINE, "lr": tune.loguniform(1e-4, 1), "k": tune.randint(0, 9)}
    points = [{"x": 0.25, "lr": 0.1, "k": k} for k in (3, 7)]
    searcher = SkOptSearch(space, "loss", "min", points, n_initial_points=3, seed=0)
    searcher.suggest("running")
    searcher.save(str(tmp_path / "state"))
    other = SkOptSearch()
    other.restore(str(tmp_path / "state"))
    expected, found = [], []
    for each, configs in ((searcher, expected), (other, found)):
        run(each, lambda config, configs=configs: configs.append(config) or config["x"], 3)
        each.on_trial_complete("running", {"loss": 0.25})
        run(each, lambda config, configs=configs: configs.append(config) or config["x"], 3)
    assert found == expected
    assert found[0] == points[1]


def test_another_seed_gives_another_search():
    first, second = (SkOptSearch(LINE, "loss", "min", seed=seed).suggest("t") for seed in (0, 1))
    assert first != second


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (
            tune.sample_from(lambda spec: 1),
            r"a/b: tune.sample_from\(.*\) has no counterpart in scikit-optimize; use tune.uniform",
        ),
        (tune.randn(0, 1), r"a/b: tune.randn\(0, 1\) has no counterpart"),
        (tune.qrandn(0, 1, 0.5), r"a/b: tune.qrandn\(0, 1, 0.5\) has no counterpart"),
        (tune.grid_search([1, 2]), "a/b: grid_search .* use tune.choice"),
        (tune.choice([{"c": tune.uniform(0, 1)}, 2]), "a/b: the choice .* is itself a search space"),
        (tune.choice([]), "a/b: .* at least one value"),
        (tune.uniform(1, 0), r"a/b: tune.uniform\(1, 0\) is empty"),
        (tune.qrandint(6, 9, 5), "a/b: .* is empty: no multiple of 5 lies in it"),
    ],
)
def test_what_cannot_be_searched_is_named(domain, message):
    with pytest.raises(ValueError, match=message):
        SkOptSearch().set_search_properties("loss", "min", {**LINE, "a": {"b": domain}})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_initial_points": 0}, "n_initial_points is 0"),
        ({"initial_design": "spiral"}, "'spiral'; it must be one of lhs"),
        ({"points_to_evaluate": [{"x": 1}], "evaluated_rewards": [1.0, 2.0]}, "has 2 values for 1 points_to_evaluate"),
        ({"mode": "best"}, "mode is 'best'"),
        ({"space": {"a": 1, "b": tune.randint(2, 3)}}, "'a', 'b' has nothing to search"),
        ({"space": {}}, "nothing to search"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        SkOptSearch(**options)


def test_a_space_of_its_own_takes_the_metric_of_tune_but_not_its_space():
    searcher = SkOptSearch(LINE, seed=0)
    with pytest.raises(RuntimeError, match="metric None and mode None"):
        searcher.suggest("t")
    assert not searcher.set_search_properties("loss", "max", SPACE)
    assert (searcher.metric, searcher.mode) == ("loss", "max")
    assert set(searcher.suggest("t")) == {"x"}
    with pytest.raises(RuntimeError, match="has no space"):
        SkOptSearch(metric="loss", mode="min").suggest("t")


def test_searches_what_an_stn_search_leaves_to_it():
    searcher = stn.STNSearch(online=["rate"], outer=SkOptSearch(n_initial_points=2, seed=0))
    searcher.set_search_properties("loss", "min", SPACE, num_samples=3)
    for i in range(3):
        config = searcher.suggest(f"t{i}")
        assert 1e-4 <= config["lr"] <= 1
        searcher.on_trial_complete(f"t{i}", {"loss": config["lr"], "scale/rate": 0.5})


@pytest.mark.parametrize("own_space", [False, True])
def test_runs_in_a_tuner(ray_session, tmp_path, own_space):
    def train(config):
        tune.report({"loss": config["x"] + config["n"]["k"], "text": config["text"]})

    space = {**LINE, "n": {"k": tune.randint(0, 3)}, "text": "constant"}
    goal = {"metric": "loss", "mode": "min"}
    options = {"space": space, **goal} if own_space else {}
    searcher = SkOptSearch(n_initial_points=2, seed=0, **options)
    tuner = tune.Tuner(
        train,
        param_space={} if own_space else space,
        tune_config=tune.TuneConfig(
            search_alg=ConcurrencyLimiter(searcher, max_concurrent=1),
            num_samples=3,
            reuse_actors=True,
            **({} if own_space else goal),
        ),
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    )
    results = tuner.fit()
    assert len(results) == 3
    assert not results.errors
    assert all(result.metrics["text"] == "constant" for result in results)
    assert [value for _, value in searcher._observed] == [result.metrics["loss"] for result in results]


def branin(config):
    x, y = config["x"], config["y"]
    bowl = y - 5.1 * x**2 / (4 * math.pi**2) + 5 * x / math.pi - 6
    return bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.397887


@pytest.mark.slow
def test_beats_random_search_on_branin():
    space = {"x": tune.uniform(-5, 10), "y": tune.uniform(0, 15)}
    guided, blind = [], []
    for seed in range(3):
        guided.append(min(run(SkOptSearch(space, "loss", "min", seed=seed), branin, 30)))
        random = np.random.default_rng(seed)
        blind.append(min(branin({"x": random.uniform(-5, 10), "y": random.uniform(0, 15)}) for _ in range(30)))
    assert statistics.median(guided) < 0.2 * statistics.median(blind)
