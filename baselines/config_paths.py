"""Values in nested configs, by the path of keys that leads to them. Imports neither torch nor Ray."""

from __future__ import annotations

from typing import Any

Path = tuple[Any, ...]
"""The keys that lead to a hyperparameter in a nested config."""


def path_text(path: Path) -> str:
    """As in error messages: ``model/dropout``."""
    return "/".join(map(str, path))


def value_at(config: Any, path: Path) -> Any:
    """The value at a path of a config in points_to_evaluate."""
    found = config
    for key in path:
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"points_to_evaluate: {config!r} has no value for {path_text(path)}; add one") from None
    return found
