"""RandomSearch and GridSearch: searchers whose n-th suggestion depends on nothing but n and the seed."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray.cloudpickle as pickle
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import assign_value, parse_spec_vars

from stn_tune.nested import name_of, value_at

ROUNDS = 6


class PointSearch(Searcher):  # type: ignore[misc]  # ray has no types
    """Counts its suggestions, so that a resumed search continues exactly where it was.

    Args:
        seed: of everything random.
        points_to_evaluate: configs to try first, each with a value for every hyperparameter that is searched.
    """

    def __init__(self, seed: int | None = 0, points_to_evaluate: Sequence[Mapping[str, Any]] = ()):
        super().__init__()
        self.seed = seed
        self.points_to_evaluate = list(points_to_evaluate)
        self._count = 0
        self._config: dict[str, Any] | None = None
        self._leaves: list[tuple[tuple[Any, ...], Any]] = []

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Takes the param_space of the tuner, once."""
        if self._config is not None:
            return False
        self._metric, self._mode = metric, mode
        self._config = copy.deepcopy(config)
        _, domains, grids = parse_spec_vars(self._config)
        self._leaves = self.leaves(domains, grids)
        self._forced = [
            [value_at(point, path, "points_to_evaluate") for path, _ in self._leaves]
            for point in self.points_to_evaluate
        ]
        return True

    def leaves(self, domains: Sequence[Any], grids: Sequence[Any]) -> list[tuple[tuple[Any, ...], Any]]:
        """The places of the config that this search fills, each with what it fills them from."""
        raise NotImplementedError

    def point(self, index: int) -> Sequence[Any] | None:
        """One value for each of the leaves; None after the last point."""
        raise NotImplementedError

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The next config."""
        if self._config is None:
            raise RuntimeError(f"{type(self).__name__} has no search space yet: pass it to a Tuner with a param_space")
        own = self._count - len(self._forced)
        values = self._forced[self._count] if own < 0 else self.point(own)
        if values is None:
            return str(Searcher.FINISHED)
        self._count += 1
        config = copy.deepcopy(self._config)
        for (path, _), value in zip(self._leaves, values, strict=True):
            assign_value(config, path, value)
        return config

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """Does nothing: these searches do not use results."""

    def save(self, checkpoint_path: str) -> None:
        """Saves the whole state."""
        Path(checkpoint_path).write_bytes(pickle.dumps(self.__dict__))

    def restore(self, checkpoint_path: str) -> None:
        """Continues from a saved state."""
        self.__dict__.update(pickle.loads(Path(checkpoint_path).read_bytes()))


class RandomSearch(PointSearch):
    """Independent draws from the param_space's own domains."""

    def leaves(self, domains: Sequence[Any], grids: Sequence[Any]) -> list[tuple[tuple[Any, ...], Any]]:
        """The domains."""
        if grids:
            raise ValueError(f"{name_of(grids[0][0])} is a grid_search; RandomSearch draws from domains")
        return list(domains)

    def point(self, index: int) -> Sequence[Any]:
        """A draw from every domain, by seed and index."""
        random = np.random.RandomState([self.seed or 0, index])
        return [_native(domain.sample(random_state=random)) for _, domain in self._leaves]


class GridSearch(PointSearch):
    """The product of the param_space's ``tune.grid_search`` lists, never listed: the n-th point is computed.

    Args:
        seed: of the order in which points are tried; None for Tune's own order, in which the first hyperparameters
            change fastest, so that a budget that ends early has seen a corner of the grid only.
        points_to_evaluate: configs to try first; they need not be on the grid.
    """

    def leaves(self, domains: Sequence[Any], grids: Sequence[Any]) -> list[tuple[tuple[Any, ...], Any]]:
        """The grids."""
        if domains:
            raise ValueError(
                f"{name_of(domains[0][0])} is a {type(domains[0][1]).__name__} domain; GridSearch needs "
                f"tune.grid_search([...]) for each hyperparameter"
            )
        return list(grids)

    def __len__(self) -> int:
        return math.prod(len(levels) for _, levels in self._leaves)

    def point(self, index: int) -> Sequence[Any] | None:
        """One level of every grid; None after the last combination."""
        size = len(self)
        if index >= size:
            return None
        rest = index if self.seed is None else shuffled(index, size, self.seed)
        values = []
        for _, levels in self._leaves:
            rest, digit = divmod(rest, len(levels))
            values.append(levels[digit])
        return values


def shuffled(index: int, size: int, seed: int) -> int:
    """Where ``index`` goes in a pseudo-random permutation of ``range(size)``, without listing it.

    A Feistel network permutes the smallest power of four that holds them all; what falls outside walks on.
    """
    half = max(1, (size - 1).bit_length() + 1 >> 1)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for turn in range(ROUNDS):
            digest = hashlib.blake2b(f"{seed}/{turn}/{right}".encode(), digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(digest, "big") & mask)
        index = left << half | right
        if index < size:
            return index


def _native(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
