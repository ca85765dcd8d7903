"""From raw trial logs to curves, tables, figures and reports."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from stn_tune.analysis.curves import Curves, curves, incumbent
from stn_tune.analysis.frame import load
from stn_tune.analysis.tables import Table, table
from stn_tune.errors import AnalysisError

if TYPE_CHECKING:
    from stn_tune.analysis.overview import overview
    from stn_tune.analysis.plots import FIGURES
    from stn_tune.analysis.report import report

__all__ = ["FIGURES", "AnalysisError", "Curves", "Table", "curves", "incumbent", "load", "overview", "report", "table"]

DRAWN = {"FIGURES": "plots", "overview": "overview", "report": "report"}
"""What needs matplotlib, imported when it is asked for, and its module."""


def __getattr__(name: str) -> Any:
    if name not in DRAWN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{DRAWN[name]}"), name)


class _Package(ModuleType):
    """``analysis.report`` is the function, also after the module of that name has been imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in DRAWN or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
