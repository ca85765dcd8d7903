"""Figure: what a figure is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from stn_tune.analysis.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


@dataclass(frozen=True)
class Figure:
    """A figure of the report: the choice of its data, and the drawing of it."""

    name: str
    """Of its files, and on the command line."""
    caption: str
    """One sentence, for the page."""
    select: Callable[[Results], pd.DataFrame]
    """Takes what is drawn from the results; raises :class:`~stn_tune.errors.MissingData` if they lack it."""
    draw: Callable[[pd.DataFrame], Picture]
    """Draws what ``select`` returned, and needs nothing else."""
    paper: str = ""
    """What it is in the paper: "Figures 3a and 4"; said of the benchmark's own runs, which have a record."""

    def full_caption(self, results: Results) -> str:
        """The caption for a page about these results."""
        if self.paper and results.record is not None:
            return f"{self.caption.removesuffix('.')} ({self.paper} of the paper)."
        return self.caption
