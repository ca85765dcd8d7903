"""From raw trial logs to curves, tables, figures and reports.

Imports neither torch nor Ray, and matplotlib only when a figure is drawn.
"""

from stn_tune.analysis.across_tasks import profiles
from stn_tune.analysis.comparison import ranks_over_time
from stn_tune.analysis.curves import Curves, curves, incumbent
from stn_tune.analysis.figures import FIGURES, Figure
from stn_tune.analysis.reporting.overview import Overview, overview
from stn_tune.analysis.reporting.page import report
from stn_tune.analysis.results import Results, load
from stn_tune.analysis.tables import Table, table
from stn_tune.errors import AnalysisError, MissingData

__all__ = [
    "FIGURES",
    "AnalysisError",
    "Curves",
    "Figure",
    "MissingData",
    "Overview",
    "Results",
    "Table",
    "curves",
    "incumbent",
    "load",
    "overview",
    "profiles",
    "ranks_over_time",
    "report",
    "table",
]
