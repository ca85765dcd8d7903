"""The tuners that an STN is compared with, and the STN itself, each as one entry of METHODS.

METHODS needs neither torch nor Ray; the searchers are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from baselines.methods import METHODS
from baselines.plan import EarlierResult, Method, Plan, Setting

if TYPE_CHECKING:
    from baselines.points import GridSearch as GridSearch
    from baselines.points import RandomSearch as RandomSearch

__all__ = ["METHODS", "EarlierResult", "GridSearch", "Method", "Plan", "RandomSearch", "Setting"]

_MODULE_OF = {"GridSearch": "points", "RandomSearch": "points"}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'baselines' has no attribute {name!r}")
    return getattr(import_module(f"baselines.{_MODULE_OF[name]}"), name)
