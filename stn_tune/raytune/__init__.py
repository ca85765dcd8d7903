"""Ray Tune's side: trainables, STNSearch, and what they leave in configs, checkpoints and results."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stn_tune.raytune.search import STNSearch as STNSearch
    from stn_tune.raytune.skopt_search import SkOptSearch as SkOptSearch
    from stn_tune.raytune.trainables import FixedTrainable as FixedTrainable
    from stn_tune.raytune.trainables import STNTrainable as STNTrainable

__all__ = ["FixedTrainable", "STNSearch", "STNTrainable", "SkOptSearch"]


def __getattr__(name: str) -> Any:
    """The same objects as in ``stn_tune``, when they are first asked for: Ray takes seconds to import."""
    if name in __all__:
        return getattr(import_module("stn_tune"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
