"""From raw trial logs to curves, tables, figures and reports."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from stn_tune.analysis.curves import Curves, curves, incumbent
from stn_tune.analysis.errors import AnalysisError
from stn_tune.analysis.frame import load
from stn_tune.analysis.tables import Table, table

if TYPE_CHECKING:
    from stn_tune.analysis.plots import FIGURES
    from stn_tune.analysis.report import report

__all__ = ["FIGURES", "AnalysisError", "Curves", "Table", "curves", "incumbent", "load", "report", "table"]


def __getattr__(name: str) -> Any:
    """What needs matplotlib, imported when it is asked for."""
    if name == "FIGURES":
        from stn_tune.analysis.plots import FIGURES

        return FIGURES
    if name == "report":
        from stn_tune.analysis.report import report

        return report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Package(ModuleType):
    """``analysis.report`` is the function, also after the module of that name has been imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "report" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
