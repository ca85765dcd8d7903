"""Nested configs and their paths: ``{"model": {"rate": 0.1}}`` has the leaf ``"model/rate"``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Path = tuple[Any, ...]


def leaves(
    config: Mapping[str, Any], is_leaf: Callable[[Any], bool] = lambda value: False, path: Path = ()
) -> Iterator[tuple[Path, Any]]:
    """Every value that is not itself a nested mapping (or for which ``is_leaf`` holds), with its path."""
    for key, value in config.items():
        if isinstance(value, Mapping) and not is_leaf(value):
            yield from leaves(value, is_leaf, (*path, key))
        else:
            yield (*path, key), value


def name_of(path: Path) -> str:
    """``("model", "rate")`` -> ``"model/rate"``."""
    return "/".join(map(str, path))


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nested configs by path.

    >>> flatten({"model": {"rate": 0.1}, "lr": 1})
    {'model/rate': 0.1, 'lr': 1}
    """
    return {name_of(path): value for path, value in leaves(config)}


def put(config: dict[str, Any], path: Path, value: Any) -> None:
    """Sets the value at a path, and creates the mappings on the way there."""
    for key in path[:-1]:
        config = config.setdefault(key, {})
    config[path[-1]] = value


def remove(config: dict[str, Any], path: Path) -> None:
    """Deletes the value at a path."""
    for key in path[:-1]:
        config = config[key]
    del config[path[-1]]


def value_at(config: Any, path: Path, what: str) -> Any:
    """The value at a path, or by its name ``"model/rate"``; a ValueError that begins with ``what`` if there is none."""
    if name_of(path) in config:
        return config[name_of(path)]
    found = config
    for key in path:
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"{what}: {config!r} has no value for {name_of(path)}; add one") from None
    return found
