"""STNSearch: an existing Tune pipeline, with part of its search space tuned inside every trial."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import numpy as np
from ray import cloudpickle  # a param_space may hold lambdas: tune.sample_from
from ray.tune.search import Searcher
from ray.tune.search.sample import Domain
from ray.tune.search.variant_generator import generate_variants

from stn_tune.algorithms.registry import AlgorithmKeywords, options_of
from stn_tune.checkpoint import plain
from stn_tune.errors import SpaceError, unknown_hyperparameter
from stn_tune.hyper import Hyper
from stn_tune.nested import Path, leaves, name_of, put, remove
from stn_tune.raytune.internals import set_search_properties
from stn_tune.record import RESERVED
from stn_tune.space import HyperSpace

if TYPE_CHECKING:
    from typing_extensions import Unpack


class STNSearch(Searcher):  # type: ignore[misc]  # ray has no types
    """Takes the user's unchanged ``param_space``: what is online is tuned inside each trial, the rest is searched.

    A trial's config stays plain JSON: the online hyperparameters' initial values under their own names, and under one
    reserved key, ``"stn"``, the online space, the options and a seed that counts the trials.

    Args:
        online: names or globs of the hyperparameters that the STN tunes; nested ones as ``"model/dropout"``.
        outer: any Tune searcher for everything else; random search when None.
        seed: of the random search, and of the first trial; later trials count on from it.
        stn_options: ``algorithm`` and its options, see :class:`stn_tune.STNOptions`; ``init`` has the initial values of
            online hyperparameters.

    >>> from ray import tune
    >>> search = STNSearch(online=["dropout", "augment/*"], outer=None, init={"dropout": 0.05})
    """

    def __init__(
        self,
        online: Sequence[str] = ("*",),
        outer: Searcher | None = None,
        *,
        seed: int = 0,
        **stn_options: Unpack[AlgorithmKeywords],
    ):
        super().__init__()
        options_of(stn_options)
        if isinstance(online, str) or not online:
            raise TypeError(f"online is {online!r}; it must be a list of names or globs, such as ['dropout']")
        self.online = tuple(online)
        self.outer = outer
        self.init = dict(stn_options.get("init", {}))
        self.seed = seed
        self.options = {name: value for name, value in stn_options.items() if name != "init"}
        self._count = 0
        self._random = np.random.default_rng(seed)
        self._space: HyperSpace | None = None
        self._rest: dict[str, Any] = {}
        self._grid: dict[Path, Sequence[Any]] = {}
        self._initial: dict[str, float | int] = {}
        self._paths: dict[str, Path] = {}

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        if self._space is not None:
            return False
        self._metric, self._mode = metric, mode
        if RESERVED in config:
            raise SpaceError(f"{RESERVED}: this name is reserved for what STNSearch tells the trial; rename it")
        found = dict(leaves(config, _is_grid))
        online = self._choose(found)
        space = HyperSpace([(name_of(path), found[path]) for path in online])
        self._paths = {name_of(path): path for path in online}
        self._initial = Hyper(space, self.init).values_now()
        self._initial.update(self.init)
        self._rest = copy.deepcopy(config)
        for path in online:
            remove(self._rest, path)
        self._grid = {path: leaf["grid_search"] for path, leaf in leaves(self._rest, _is_grid) if _is_grid(leaf)}
        self._check_grid(spec.get("num_samples", 1))
        if self.outer is not None:
            left = [name_of(path) for path, leaf in leaves(self._rest, _is_grid) if isinstance(leaf, Domain)]
            if not left:
                raise ValueError(
                    f"everything in the param_space is online: {type(self.outer).__name__} has nothing to search; "
                    f"use outer=None"
                )
            search = self.outer.set_search_properties
            if not set_search_properties(search, metric, mode, self._rest, **spec):
                raise ValueError(
                    f"{type(self.outer).__name__} has a search space of its own, but the param_space leaves "
                    f"{', '.join(left)} to search; give the space in one place"
                )
        self._space = space
        return True

    def _choose(self, found: Mapping[Path, Any]) -> list[Path]:
        """The paths of the online hyperparameters, in the order of the param_space."""
        names = {path: name_of(path) for path in found}
        chosen: set[Path] = set()
        for pattern in self.online:
            exact = [path for path, name in names.items() if name == pattern]
            globbed = [p for p, name in names.items() if fnmatchcase(name, pattern) and isinstance(found[p], Domain)]
            if not exact and not globbed:
                raise SpaceError(f"online: {unknown_hyperparameter(pattern, names.values())}")
            chosen.update(exact or globbed)
        for name in self.init:
            if name not in {names[path] for path in chosen}:
                raise SpaceError(f"init: {unknown_hyperparameter(name, [names[path] for path in chosen])}")
        return [path for path in found if path in chosen]

    def _check_grid(self, num_samples: int) -> None:
        points = _size(self._grid)
        if not self._grid:
            return
        names = ", ".join(name_of(path) for path in self._grid)
        if self.outer is not None:
            raise ValueError(f"{names}: grid_search cannot be combined with outer={type(self.outer).__name__}")
        if num_samples > 0 and num_samples % points:
            raise ValueError(
                f"{names}: grid_search has {points} points, and with a search algorithm num_samples counts trials: it "
                f"is {num_samples}, and must be a multiple of {points}"
            )

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._space is None:
            raise RuntimeError("STNSearch needs the param_space of a tune.Tuner; pass it there, unchanged")
        found = self.outer.suggest(trial_id) if self.outer is not None else self._random_variant()
        if found is None or found == Searcher.FINISHED:
            return found
        config: dict[str, Any] = copy.deepcopy(found)
        for name, value in self._initial.items():
            put(config, self._paths[name], value)
        config[RESERVED] = {
            "space": self._space.to_json(),
            "options": copy.deepcopy(self.options),
            "seed": self.seed + self._count,
        }
        self._count += 1
        return config

    def _random_variant(self) -> dict[str, Any]:
        config = copy.deepcopy(self._rest)
        index = self._count % _size(self._grid)
        combination = next(c for i, c in enumerate(product(*self._grid.values())) if i == index)
        for path, value in zip(self._grid, combination, strict=True):
            put(config, path, value)
        _, spec = next(iter(generate_variants({"config": config}, random_state=self._random)))
        return plain(spec["config"])  # type: ignore[no-any-return]

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self._check_trainable(result)
        if self.outer is not None:
            self.outer.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if result is not None and not error:
            self._check_trainable(result)
        if self.outer is not None:
            self.outer.on_trial_complete(trial_id, result, error)

    def on_pause(self, trial_id: str) -> None:
        """For HyperBandForBOHB, which tells its searcher."""
        if self.outer is not None and hasattr(self.outer, "on_pause"):
            self.outer.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        if self.outer is not None and hasattr(self.outer, "on_unpause"):
            self.outer.on_unpause(trial_id)

    def _check_trainable(self, result: Mapping[str, Any]) -> None:
        assert self._space is not None
        missing = [name for name in self._space.names if f"scale/{name}" not in result]
        if missing:
            raise TypeError(
                f"the trainable does not tune {', '.join(missing)}: it reports no scale/{missing[0]}, so the trial "
                f"would stay at the initial values; use STNTrainable.of(YourTask), or report **SelfTuner.metrics()"
            )

    def save(self, checkpoint_path: str) -> None:
        state = {key: value for key, value in self.__dict__.items() if key != "outer"}
        state["outer"] = None if self.outer is None else _outer_bytes(self.outer)
        with open(checkpoint_path, "wb") as file:
            cloudpickle.dump(state, file)

    def restore(self, checkpoint_path: str) -> None:
        with open(checkpoint_path, "rb") as file:
            state = cloudpickle.load(file)
        outer = state.pop("outer")
        if (outer is None) != (self.outer is None):
            raise ValueError(
                f"the saved search had {'no' if outer is None else 'an'} outer searcher; make this one the same way"
            )
        self.__dict__.update(state)
        if self.outer is not None:
            with tempfile.TemporaryDirectory() as folder:
                path = FilePath(folder, "outer")
                path.write_bytes(outer)
                self.outer.restore(str(path))


def _outer_bytes(outer: Searcher) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = FilePath(folder, "outer")
        outer.save(str(path))
        return path.read_bytes()


def _is_grid(leaf: Any) -> bool:
    return isinstance(leaf, Mapping) and set(leaf) == {"grid_search"}


def _size(grid: Mapping[Path, Sequence[Any]]) -> int:
    return math.prod(len(values) for values in grid.values())
