"""The metric and mode that a Tune experiment was run with, from the files that Tune leaves.

``experiment_state-*.json`` names the metric; the mode is in ``tuner.pkl`` alone, a pickle that also holds the searcher
and whatever the user's objects refer to. It is read by an unpickler that finds no class and no function: every name in
the pickle stands for an inert object, so nothing is imported, and nothing but these objects is called.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Collection, Mapping
from typing import Any

from stn_tune.analysis.storage import Storage

LARGEST = 2**26
"""Bytes; a larger ``tuner.pkl`` holds data sets, and is not read."""


class _Inertness(type):
    """The type of inert objects: they take whatever they are given, and keep their state.

    They are classes themselves, as the name of a class in a pickle may be the result of a call.
    """

    state: Any = None

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        return _Inertness("Inert", (Inert,), {})

    def __setstate__(cls, state: Any) -> None:
        cls.state = state

    def __setitem__(cls, key: Any, value: Any) -> None:
        pass

    def append(cls, item: Any) -> None:
        """As a list would."""

    def extend(cls, items: Any) -> None:
        """As a list would."""

    def add(cls, item: Any) -> None:
        """As a set would."""

    def entry(cls, name: str) -> Any:
        """An attribute of the pickled object."""
        parts = cls.state if isinstance(cls.state, tuple) else (cls.state,)
        return next((part[name] for part in parts if isinstance(part, Mapping) and name in part), None)


class Inert(metaclass=_Inertness):
    """Stands for anything that a pickle names or makes."""

    def __new__(cls, *arguments: Any, **keywords: Any) -> Any:
        return _Inertness("Inert", (Inert,), {})


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return Inert()

    def persistent_load(self, id: Any) -> Any:
        return Inert()


def read_inert(data: bytes) -> Any:
    """A pickle's contents with :class:`Inert` objects; None if it cannot be read."""
    try:
        return _InertUnpickler(io.BytesIO(data)).load()
    except Exception:  # a damaged pickle can raise anything
        return None


def recorded_objective(
    storage: Storage, root: str, names: Collection[str], state: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    """Metric and mode of ``TuneConfig``, else of its searcher or scheduler; None where they are not recorded."""
    runner = state.get("runner_data")
    metric = runner.get("_metric") if isinstance(runner, Mapping) else None
    metric = metric if isinstance(metric, str) and not metric.startswith("_") else None
    if "tuner.pkl" not in names:
        return metric, None
    data = storage.read_if_possible(f"{root}/tuner.pkl")
    tuner = read_inert(data) if data is not None and len(data) <= LARGEST else None
    config = tuner.get("_tune_config") if isinstance(tuner, Mapping) else None
    if not isinstance(config, _Inertness):
        return metric, None
    found = [(config.entry("metric"), config.entry("mode"))]
    for part in (config.entry("search_alg"), config.entry("scheduler")):
        while isinstance(part, _Inertness):
            found.append((part.entry("_metric"), part.entry("_mode")))
            part = part.entry("searcher")
    for name, mode in found:
        if isinstance(name, str) and mode in ("min", "max"):
            return name, mode
    return metric, None
