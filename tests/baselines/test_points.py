"""Random and grid search whose n-th point is computed: complete, lazy, resumable."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray import tune
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import generate_variants

from baselines import GridSearch, RandomSearch
from baselines.points import shuffled
from stn_tune.testing.searchers import SearcherSuite

LEVELS: dict[str, Any] = {"a": [0.0, 0.5, 1.0], "b": [1, 2], "nested": {"c": ["x", "y", "z", "w"]}}
GRID = {
    "a": tune.grid_search(LEVELS["a"]),
    "b": tune.grid_search(LEVELS["b"]),
    "nested": {"c": tune.grid_search(LEVELS["nested"]["c"])},
    "seed": 3,
}


class TestRandomSearch(SearcherSuite):
    def make(self, **options):
        return RandomSearch(seed=5, **options)

    def test_draws_do_not_depend_on_what_was_drawn_before(self):
        first, second = self.ready(), self.ready()
        draws = [self.searched(first.suggest(f"t{i}")) for i in range(6)]
        second._count = 5
        assert self.searched(second.suggest("t")) == draws[5]

    def test_seeds_differ(self):
        other = RandomSearch(seed=6)
        other.set_search_properties("loss", "min", {"rate": tune.uniform(0, 1)})
        mine = RandomSearch(seed=5)
        mine.set_search_properties("loss", "min", {"rate": tune.uniform(0, 1)})
        assert other.suggest("t") != mine.suggest("t")

    def test_covers_the_domain_evenly(self):
        search = RandomSearch(seed=0)
        search.set_search_properties("loss", "min", {"rate": tune.uniform(0, 1), "n": tune.randint(0, 4)})
        draws = [search.suggest(str(i)) for i in range(2000)]
        assert sum(d["rate"] for d in draws) / 2000 == pytest.approx(0.5, abs=0.03)
        for n in range(4):
            assert sum(d["n"] == n for d in draws) / 2000 == pytest.approx(0.25, abs=0.04)


def grid(seed: int | None, space=GRID) -> GridSearch:
    search = GridSearch(seed)
    assert search.set_search_properties("loss", "min", space)
    return search


def everything(search: GridSearch) -> list[dict[str, Any]]:
    points = [cast(dict[str, Any], search.suggest(str(i))) for i in range(len(search))]
    assert search.suggest("one more") == Searcher.FINISHED
    return points


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_a_grid_tries_every_point_once(seed):
    found = {(p["a"], p["b"], p["nested"]["c"]) for p in everything(grid(seed))}
    assert found == set(itertools.product(LEVELS["a"], LEVELS["b"], LEVELS["nested"]["c"]))
    assert all(p["seed"] == 3 for p in everything(grid(seed)))


def test_tunes_own_order_on_request():
    expected = [config for _, config in generate_variants(GRID)]
    assert everything(grid(None)) == expected
    assert everything(grid(0)) != expected


def test_orders_differ_between_seeds_and_repeat_with_a_seed():
    assert everything(grid(1)) == everything(grid(1))
    assert everything(grid(1)) != everything(grid(2))


def test_an_early_end_has_seen_more_than_a_corner():
    space = {f"h{i}": tune.grid_search([0, 1, 2, 3]) for i in range(15)}
    seen = [grid(0, space).point(i) for i in range(40)]
    assert all(len({point[axis] for point in seen}) == 4 for axis in range(15))


def test_fifteen_dimensions_are_not_listed_in_memory():
    tracemalloc.start()
    search = grid(0, {f"h{i}": tune.grid_search([0.0, 0.25, 0.5, 0.75, 1.0]) for i in range(15)})
    points = [tuple(search.suggest(str(i)).values()) for i in range(100)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(search) == 5**15
    assert len(set(points)) == 100
    assert peak < 5e6


def test_a_grid_goes_on_after_a_restore(tmp_path):
    search = grid(4)
    for i in range(7):
        search.suggest(str(i))
    search.save(str(tmp_path / "state"))
    other = GridSearch()
    other.restore(str(tmp_path / "state"))
    assert other.suggest("next") == search.suggest("next")


@pytest.mark.parametrize("kind", [GridSearch, RandomSearch])
def test_given_points_come_first_and_displace_none(kind, tmp_path):
    space = {"a": tune.grid_search([1, 2, 3]) if kind is GridSearch else tune.uniform(0, 1), "seed": 3}
    plain, given = kind(4), kind(4, [{"a": 0.25}, {"a": 0.5}])
    for search in (plain, given):
        search.set_search_properties("loss", "min", space)
    assert [given.suggest(str(i)) for i in range(2)] == [{"a": 0.25, "seed": 3}, {"a": 0.5, "seed": 3}]
    given.save(str(tmp_path / "state"))
    other = kind()
    other.restore(str(tmp_path / "state"))
    assert [other.suggest(str(i)) for i in range(3)] == [plain.suggest(str(i)) for i in range(3)]


@given(size=st.integers(1, 300), seed=st.integers(0, 10**6))
def test_shuffled_is_a_permutation(size, seed):
    assert sorted(shuffled(i, size, seed) for i in range(size)) == list(range(size))


def test_what_a_search_cannot_do_is_said():
    with pytest.raises(ValueError, match=r"a is a Float domain; GridSearch needs tune\.grid_search"):
        grid(0, {"a": tune.uniform(0, 1)})
    with pytest.raises(ValueError, match="a is a grid_search; RandomSearch draws from domains"):
        RandomSearch().set_search_properties("loss", "min", {"a": tune.grid_search([1])})
    with pytest.raises(ValueError, match="has no value for a; add one"):
        RandomSearch(0, [{"b": 1}]).set_search_properties("loss", "min", {"a": tune.uniform(0, 1)})
    with pytest.raises(RuntimeError, match="GridSearch has no search space yet"):
        GridSearch().suggest("t")
