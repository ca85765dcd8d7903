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
from ray.tune.search.variant_generator import generate_variants, parse_spec_vars

from stn_tune.algorithms.registry import AlgorithmKeywords, options_of
from stn_tune.checkpoint import one_line, plain
from stn_tune.errors import CheckpointError, SpaceError, unknown_hyperparameter
from stn_tune.hyper import Hyper
from stn_tune.nested import Path, flatten, leaves, name_of, put, remove
from stn_tune.raytune.internals import (
    initial_points,
    leave_out_of_trial_names,
    replace_initial_points,
    set_search_properties,
)
from stn_tune.record import REPEAT, RESERVED
from stn_tune.space import HyperSpace

if TYPE_CHECKING:
    from typing_extensions import Unpack


class STNSearch(Searcher):  # type: ignore[misc]  # ray has no types
    """Takes the user's unchanged ``param_space``: what is online is tuned inside each trial, the rest is searched.

    A trial's config stays plain JSON: the online hyperparameters' initial values under their own names, and under one
    reserved key, ``"stn"``, the online space, the options and a seed that counts the trials. The names of trials and of
    their folders leave that key out. Repeats of ``ray.tune.search.Repeater`` have seeds of their own.

    Args:
        online: names or globs of the hyperparameters that the STN tunes; nested ones as ``"model/dropout"``.
        outer: any Tune searcher for everything else; random search when None. Where its ``points_to_evaluate`` have
            values of online hyperparameters, these trials start from them.
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
        self._starts: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._trials: set[str] | None = set()

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
            self._set_up_outer(self.outer, space, metric, mode, spec)
        self._space = space
        return True

    def _set_up_outer(
        self, outer: Searcher, space: HyperSpace, metric: str | None, mode: str | None, spec: Mapping[str, Any]
    ) -> None:
        left = [name_of(path) for path, _ in parse_spec_vars(self._rest)[1]]
        if not left:
            raise ValueError(
                f"everything in the param_space is online: {type(outer).__name__} has nothing to search; use outer=None"
            )
        self._starts = self._split_points(_innermost(outer), space)
        if not set_search_properties(outer.set_search_properties, metric, mode, self._rest, **spec):
            raise ValueError(
                f"{type(outer).__name__} has a search space of its own, but the param_space leaves "
                f"{', '.join(left)} to search; give the space in one place"
            )

    def _split_points(self, outer: Searcher, space: HyperSpace) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Takes online values out of the searcher's ``points_to_evaluate``.

        Returns for each point that has some: its other values by name, and the initial values of the trial.
        """
        split = []
        for point in map(flatten, initial_points(outer)):
            online = {name: value for name, value in point.items() if name in self._paths}
            Hyper(space, {**self.init, **online})
            split.append(({name: value for name, value in point.items() if name not in online}, online))
        if any(online for _, online in split):
            replace_initial_points(outer, [other for other, _ in split])
        return [(other, online) for other, online in split if online]

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
        leave_out_of_trial_names(RESERVED)
        if self._trials is not None:
            self._trials.add(trial_id)
        config: dict[str, Any] = copy.deepcopy(found)
        for name, value in {**self._initial, **self._start_of(found)}.items():
            put(config, self._paths[name], value)
        config[RESERVED] = {
            "space": self._space.to_json(),
            "options": copy.deepcopy(self.options),
            "seed": self.seed + self._count - found.get(REPEAT, 0),  # repeats add their number to it
        }
        self._count += 1
        return config

    def _start_of(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """The online values of the first of the ``points_to_evaluate`` still to come that ``found`` is; else none."""
        values = flatten(found)
        for index, (other, online) in enumerate(self._starts):
            if all(name in values and values[name] == value for name, value in other.items()):
                del self._starts[index]
                return online
        return {}

    def _random_variant(self) -> dict[str, Any]:
        config = copy.deepcopy(self._rest)
        index = self._count % _size(self._grid)
        combination = next(c for i, c in enumerate(product(*self._grid.values())) if i == index)
        for path, value in zip(self._grid, combination, strict=True):
            put(config, path, value)
        _, spec = next(iter(generate_variants({"config": config}, random_state=self._random)))
        return plain(spec["config"])  # type: ignore[no-any-return]

    def _knows(self, trial_id: str) -> bool:
        """Whether a running trial is one of this search; outer searchers fail on others."""
        return self._trials is None or trial_id in self._trials

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if not self._knows(trial_id):
            return
        self._check_trainable(result)
        if self.outer is not None:
            self.outer.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if not self._knows(trial_id):
            return
        if result is not None and not error and set(result) != {self._metric}:  # a Repeater reports means of that only
            self._check_trainable(result)
        if self.outer is not None:
            self.outer.on_trial_complete(trial_id, result=result, error=error)
        if self._trials is not None:
            self._trials.discard(trial_id)

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
                f"would stay at the initial values; use STNTrainable.of(YourTask); in a function trainable, train with "
                f"hyper_from_config, self_tune and tuner_from_config, and report **tuner.metrics()"
            )

    def save(self, checkpoint_path: str) -> None:
        state = {key: value for key, value in self.__dict__.items() if key != "outer"}
        state["outer"] = None if self.outer is None else _outer_state(self.outer)
        with open(checkpoint_path, "wb") as file:
            cloudpickle.dump(state, file)

    def restore(self, checkpoint_path: str) -> None:
        with open(checkpoint_path, "rb") as file:
            try:
                state = cloudpickle.load(file)
                outer = state.pop("outer")
            except Exception as error:  # of damaged bytes pickle may say anything
                reason = one_line(repr(error))
                raise CheckpointError(f"{checkpoint_path}: not a saved state of STNSearch: {reason}") from None
        if (outer is None) != (self.outer is None):
            raise ValueError(
                f"the saved search had {'no' if outer is None else 'an'} outer searcher; make this one the same way"
            )
        self.__dict__.update({"_trials": None, **state})  # stn_tune 0.1.0 did not save which trials are running
        if self.outer is not None:
            _restore_outer(self.outer, outer)


def _wrappers(searcher: Searcher) -> list[Searcher]:
    """A searcher and those inside it: ConcurrencyLimiter and Repeater hold another one."""
    return [searcher, *_wrappers(searcher.searcher)] if hasattr(searcher, "searcher") else [searcher]


def _innermost(searcher: Searcher) -> Searcher:
    return _wrappers(searcher)[-1]


def _outer_state(outer: Searcher) -> dict[str, Any]:
    """What the innermost searcher saves, and the states of those around it, which do not save their own."""
    *around, inner = _wrappers(outer)
    with tempfile.TemporaryDirectory() as folder:
        path = FilePath(folder, "outer")
        inner.save(str(path))
        return {"around": [(type(each).__name__, each.get_state()) for each in around], "inner": path.read_bytes()}


def _restore_outer(outer: Searcher, state: dict[str, Any] | bytes) -> None:
    *around, inner = _wrappers(outer)
    if isinstance(state, bytes):  # stn_tune 0.1.0: the innermost searcher alone
        state = {"around": [], "inner": state}
    elif [name for name, _ in state["around"]] != [type(each).__name__ for each in around]:
        saved = " around ".join([*(name for name, _ in state["around"]), "a searcher"])
        raise ValueError(f"the saved search had an outer searcher of {saved}; make this one the same way")
    for each, (_, own) in zip(around, state["around"], strict=False):
        each.set_state(own)
    with tempfile.TemporaryDirectory() as folder:
        path = FilePath(folder, "outer")
        path.write_bytes(state["inner"])
        inner.restore(str(path))


def _is_grid(leaf: Any) -> bool:
    return isinstance(leaf, Mapping) and set(leaf) == {"grid_search"}


def _size(grid: Mapping[Path, Sequence[Any]]) -> int:
    return math.prod(len(values) for values in grid.values())
