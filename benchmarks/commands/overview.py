"""``python -m benchmarks overview DIR… --out DIR``: several tasks in one figure and one table, from the logs alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from stn_tune.analysis.overview import Overview

SUMMARY = "the results of several tasks in one figure and one table"

TITLES = {"ptb": "Penn Treebank", "cifar10": "CIFAR-10"}
"""Of tasks in logs that do not have their title."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which results, and where to."""
    parser.add_argument("paths", nargs="+", metavar="DIR", help="folders of results, one per task")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="where to write overview.md, overview.png and overview.svg"
    )


def execute(arguments: argparse.Namespace) -> None:
    """Writes the overview, and prints where its files are."""
    from rich.console import Console

    from stn_tune.analysis.overview import overview

    console = Console()
    frames = load_runs(arguments.paths)
    for title, frame in frames.items():
        for problem in frame.attrs["problems"]:
            console.print(f"{title}: {problem}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    for path in overview(frames).write(arguments.out):
        console.print(str(path), highlight=False, markup=False, soft_wrap=True)


def compose_overview(paths: Sequence[str | Path]) -> Overview:
    """The overview of one folder of results per task."""
    from stn_tune.analysis.overview import overview

    return overview(load_runs(paths))


def load_runs(paths: Sequence[str | Path]) -> dict[str, pd.DataFrame]:
    """One folder of results per task, by the task's title."""
    from benchmarks.commands.version2 import readable
    from stn_tune.analysis import AnalysisError, load

    frames = {}
    with readable([str(path) for path in paths]) as places:
        for path, place in zip(paths, places, strict=True):
            frame = load(place)
            task = next((config["task"] for config in frame.attrs["configs"]), Path(path).name)
            title = TITLES.get(task, task)
            if title in frames:
                raise AnalysisError(f"{path}: a second folder of {title}; an overview takes one per task")
            frames[title] = frame
    return frames
