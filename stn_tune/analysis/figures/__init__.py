"""The figures. Each has one file: ``select`` takes what is drawn from the results, ``draw`` draws that."""

from stn_tune.analysis.figures.base import Figure
from stn_tune.analysis.figures.configurations import CONFIGURATIONS
from stn_tune.analysis.figures.importance import IMPORTANCE
from stn_tune.analysis.figures.improvement import IMPROVEMENT
from stn_tune.analysis.figures.landscape import LANDSCAPE
from stn_tune.analysis.figures.ranks import RANKS
from stn_tune.analysis.figures.schedules import SCHEDULES
from stn_tune.analysis.figures.sigma import SIGMA
from stn_tune.analysis.figures.time import TIME, TIME_ELAPSED, TIME_EPOCHS

_ORDER = (
    TIME, IMPROVEMENT, RANKS, SCHEDULES, SIGMA, LANDSCAPE, CONFIGURATIONS, IMPORTANCE, TIME_ELAPSED, TIME_EPOCHS,
)  # fmt: skip
FIGURES = {figure.name: figure for figure in _ORDER}
"""Name -> figure, in the order of the report."""

__all__ = ["FIGURES", "Figure"]
