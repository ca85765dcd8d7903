"""METHOD_ORDER: the one order and the one set of titles that figures, tables and reports use."""

from __future__ import annotations

from collections.abc import Iterable

TITLES = {
    "stn": "STN",
    "grid": "grid search",
    "random": "random search",
    "bayes": "Bayesian optimisation",
    "tpe": "TPE",
    "gp": "GP (Optuna)",
    "asha": "ASHA",
    "pbt": "PBT",
    "pb2": "PB2",
    "hybrid": "STN + search",
    "fixed": "initial values (fixed)",
    "final": "final STN values (fixed)",
    "replay": "STN schedule replayed",
    "greedy": "greedy schedule of the grid",
    "gaussian": "Gaussian noise",
    "sinusoid": "sinusoid noise",
}
METHOD_ORDER = tuple(TITLES)
BUILT_ON = frozenset({"final", "replay", "greedy", "gaussian", "sinusoid"})
"""Methods that take over what another has found: their compute-seconds leave out what finding it cost."""

EARLY_STOPPERS = frozenset({"asha"})
"""Methods that stop most of their trials long before these have ended."""

HEATMAP = "heatmap"
"""The label of a grid over two hyperparameters that is drawn as a picture, and compared with nothing."""


def position(label: str) -> tuple[int, str]:
    """The sorting key of a method's label; a variant (``"stn start=0.3"``) follows its method."""
    method = label.split(" ", 1)[0]
    return (METHOD_ORDER.index(method) if method in TITLES else len(METHOD_ORDER), label)


def in_order(labels: Iterable[str]) -> list[str]:
    """The distinct labels: those of :data:`METHOD_ORDER` first, then by the alphabet."""
    return sorted(set(labels), key=position)


def title(label: str) -> str:
    """The label as people read it: ``"bayes"`` is "Bayesian optimisation"."""
    method, *variant = label.split(" ", 1)
    return " ".join([TITLES.get(method, method), *variant])
