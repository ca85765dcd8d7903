"""The studies: what to run, and the figures and published values that belong to it.

A study is one module of this package with a ``STUDY``. Importing this package imports nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.studies.base import Study, discover

if TYPE_CHECKING:
    from stn_tune.analysis import Figure

STUDIES = discover(__name__, __path__)
"""Every study by name; the plain comparison, ``run``, comes first."""


def all_figures() -> list[Figure]:
    """The figures of all studies, for reports: those that the logs lack the data for are left out."""
    return [figure for study in STUDIES.values() for figure in study.figures()]


__all__ = ["STUDIES", "Study", "all_figures"]
