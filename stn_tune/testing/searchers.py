"""What every Tune searcher must do.

class TestMine(SearcherSuite):
    def make(self, **options):
        return MySearch(seed=3, **options)
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.search import ConcurrencyLimiter, Repeater, Searcher

SPACE = {
    "rate": tune.uniform(0, 1),
    "lr": tune.loguniform(1e-4, 1),
    "units": tune.randint(1, 100),
    "nested": {"momentum": tune.quniform(0, 0.9, 0.1)},
    "constant": "text",
}


class SearcherSuite:
    """Tests of what Tune and its users rely on: of one searcher, without Ray running."""

    def make(self, **options: Any) -> Searcher:
        """A fresh searcher with a fixed seed."""
        raise NotImplementedError

    def result(self, value: float) -> dict[str, Any]:
        """What a trial would report."""
        return {"loss": value, "training_iteration": 1}

    def space(self) -> dict[str, Any]:
        """The search space; one of your own must have the names of ``SPACE``."""
        return dict(SPACE)

    def ready(self, mode: str = "min", **options: Any) -> Searcher:
        """A searcher that has its space."""
        searcher = self.make(**options)
        assert searcher.set_search_properties("loss", mode, self.space(), num_samples=100)
        return searcher

    def searched(self, config: dict[str, Any]) -> str:
        """What the searcher chose, without what Tune adds."""
        return json.dumps({k: config[k] for k in ("rate", "lr", "units", "nested")}, sort_keys=True)

    def test_suggests_native_python_values_inside_the_domains(self) -> None:
        """Configs are written as JSON, and compared."""
        searcher = self.ready()
        for i in range(15):
            config = searcher.suggest(f"t{i}")
            json.dumps(config)
            flat = {**config, **config["nested"]}
            assert [type(flat[name]) for name in ("rate", "lr", "units", "momentum")] == [float, float, int, float]
            assert 0 <= flat["rate"] <= 1
            assert 1e-4 <= flat["lr"] <= 1
            assert 1 <= flat["units"] < 100
            assert round(flat["momentum"] * 10) == pytest.approx(flat["momentum"] * 10)
            searcher.on_trial_complete(f"t{i}", self.result(float(i)))

    def test_suggestions_in_flight_differ(self) -> None:
        """Workers that run at the same time must not run the same."""
        searcher = self.ready()
        for i in range(6):
            searcher.suggest(f"done{i}")
            searcher.on_trial_complete(f"done{i}", self.result(float(i)))
        pending = [self.searched(searcher.suggest(f"t{i}")) for i in range(6)]
        assert len(set(pending)) == 6

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None])
    def test_survives_bad_results(self, bad: float | None) -> None:
        """Trials diverge, and fail without a result."""
        searcher = self.ready()
        for i in range(12):
            searcher.suggest(f"t{i}")
            result = None if bad is None else self.result(bad if i % 2 else float(i))
            searcher.on_trial_complete(f"t{i}", result, error=bad is None)
        assert searcher.suggest("next") is not None

    def test_ignores_trials_that_it_did_not_suggest(self) -> None:
        """After a restore Tune may report trials that the saved state does not know."""
        searcher, other = self.ready(), self.ready()
        searcher.on_trial_result("unknown", self.result(1.0))
        searcher.on_trial_complete("unknown", self.result(1.0))
        searcher.on_trial_complete("failed", error=True)
        assert self.searched(searcher.suggest("t")) == self.searched(other.suggest("t"))

    @pytest.mark.parametrize("mode", ["min", "max"])
    def test_takes_both_modes(self, mode: str) -> None:
        """Tune passes the mode on as it is."""
        searcher = self.ready(mode)
        for i in range(3):
            config = searcher.suggest(f"t{i}")
            searcher.on_trial_result(f"t{i}", self.result(config["rate"]))
            searcher.on_trial_complete(f"t{i}", self.result(config["rate"]))

    def test_goes_on_after_a_restore_as_if_nothing_had_happened(self, tmp_path: Path) -> None:
        """Tune tells a restored search nothing of the space: it is part of what is saved."""
        searcher = self.ready()
        for i in range(7):
            config = searcher.suggest(f"t{i}")
            if i < 5:
                searcher.on_trial_complete(f"t{i}", self.result(config["rate"]))
        searcher.save(str(tmp_path / "state"))
        expected = [self.searched(searcher.suggest(f"n{i}")) for i in range(3)]
        other = self.make()
        other.restore(str(tmp_path / "state"))
        assert [self.searched(other.suggest(f"n{i}")) for i in range(3)] == expected
        assert len(set(expected)) == 3

    def test_works_behind_a_limiter(self) -> None:
        """As with ``TuneConfig(max_concurrent_trials=2)``."""
        limiter = ConcurrencyLimiter(self.ready(), max_concurrent=2)
        assert limiter.suggest("a")
        assert limiter.suggest("b")
        assert limiter.suggest("c") is None
        limiter.on_trial_complete("a", self.result(1.0))
        assert limiter.suggest("c")

    def test_works_behind_a_repeater(self) -> None:
        """It is told the mean of the repeats, by keyword, and nothing but the metric."""
        repeater = Repeater(self.make(), repeat=2)
        assert repeater.set_search_properties("loss", "min", self.space(), num_samples=100)
        found = []
        for i in range(8):
            found.append(self.searched(repeater.suggest(f"t{i}")))
            repeater.on_trial_complete(trial_id=f"t{i}", result=self.result(float(i)), error=False)
        assert found[::2] == found[1::2]
        assert len(set(found)) == 4

    def test_the_same_seed_gives_the_same_search(self) -> None:
        """Experiments are repeated."""
        first, second = self.ready(), self.ready()
        assert [self.searched(first.suggest(f"t{i}")) for i in range(4)] == [
            self.searched(second.suggest(f"t{i}")) for i in range(4)
        ]
