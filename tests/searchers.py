"""One conformance suite for every searcher: subclass it, and say how to make one."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from ray import tune
from ray.tune.search import ConcurrencyLimiter, Searcher

SPACE = {
    "rate": tune.uniform(0, 1),
    "lr": tune.loguniform(1e-4, 1),
    "units": tune.randint(1, 100),
    "nested": {"momentum": tune.quniform(0, 0.9, 0.1)},
    "constant": "text",
}


class SearcherConformance:
    """What Tune and its users rely on. ``make`` gives a fresh searcher, ``result`` what a trial would report."""

    def make(self, **options: Any) -> Searcher:
        raise NotImplementedError

    def result(self, value: float) -> dict[str, Any]:
        return {"loss": value, "training_iteration": 1}

    def ready(self, mode: str = "min", **options: Any) -> Searcher:
        searcher = self.make(**options)
        assert searcher.set_search_properties("loss", mode, SPACE, num_samples=100)
        return searcher

    def searched(self, config: dict[str, Any]) -> str:
        """What the searcher chose, without what Tune adds."""
        return json.dumps({k: config[k] for k in ("rate", "lr", "units", "nested")}, sort_keys=True)

    def test_suggests_native_python_values_inside_the_domains(self):
        searcher = self.ready()
        for i in range(15):
            config = searcher.suggest(f"t{i}")
            json.dumps(config)
            flat = {**config, **config["nested"]}
            assert type(flat["rate"]) is float
            assert type(flat["lr"]) is float
            assert type(flat["units"]) is int
            assert type(flat["momentum"]) is float
            assert 0 <= flat["rate"] <= 1
            assert 1e-4 <= flat["lr"] <= 1
            assert 1 <= flat["units"] < 100
            assert round(flat["momentum"] * 10) == pytest.approx(flat["momentum"] * 10)
            searcher.on_trial_complete(f"t{i}", self.result(float(i)))

    def test_suggestions_in_flight_differ(self):
        searcher = self.ready()
        for i in range(6):
            searcher.suggest(f"done{i}")
            searcher.on_trial_complete(f"done{i}", self.result(float(i)))
        pending = [self.searched(searcher.suggest(f"t{i}")) for i in range(6)]
        assert len(set(pending)) == 6

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None])
    def test_survives_bad_results(self, bad):
        searcher = self.ready()
        for i in range(12):
            searcher.suggest(f"t{i}")
            result = None if bad is None else self.result(bad if i % 2 else float(i))
            searcher.on_trial_complete(f"t{i}", result, error=bad is None)
        assert searcher.suggest("next") is not None

    @pytest.mark.parametrize("mode", ["min", "max"])
    def test_takes_both_modes(self, mode):
        searcher = self.ready(mode)
        for i in range(3):
            config = searcher.suggest(f"t{i}")
            searcher.on_trial_result(f"t{i}", self.result(config["rate"]))
            searcher.on_trial_complete(f"t{i}", self.result(config["rate"]))

    def test_goes_on_after_a_restore_as_if_nothing_had_happened(self, tmp_path):
        searcher = self.ready()
        for i in range(7):
            config = searcher.suggest(f"t{i}")
            if i < 5:
                searcher.on_trial_complete(f"t{i}", self.result(config["rate"]))
        searcher.save(str(tmp_path / "state"))
        expected = [self.searched(searcher.suggest(f"n{i}")) for i in range(3)]
        other = self.make()  # Tune tells a restored search nothing of the space
        other.restore(str(tmp_path / "state"))
        assert [self.searched(other.suggest(f"n{i}")) for i in range(3)] == expected
        assert len(set(expected)) == 3

    def test_works_behind_a_limiter(self):
        limiter = ConcurrencyLimiter(self.ready(), max_concurrent=2)
        assert limiter.suggest("a")
        assert limiter.suggest("b")
        assert limiter.suggest("c") is None
        limiter.on_trial_complete("a", self.result(1.0))
        assert limiter.suggest("c")

    def test_the_same_seed_gives_the_same_search(self):
        first, second = self.ready(), self.ready()
        assert [self.searched(first.suggest(f"t{i}")) for i in range(4)] == [
            self.searched(second.suggest(f"t{i}")) for i in range(4)
        ]
