"""``python -m benchmarks overview DIR… --out DIR``: several tasks in one picture and one table, from the logs alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from stn_tune.analysis import AnalysisError, load
from stn_tune.analysis.overview import Overview, overview

TITLES = {"ptb": "Penn Treebank", "cifar10": "CIFAR-10"}
"""Tasks that people know by another name than ours."""


def run(paths: Sequence[str], out: str) -> None:
    """Writes the overview, and prints where its files are."""
    console = Console()
    frames = load_all(paths)
    for title, frame in frames.items():
        for problem in frame.attrs["problems"]:
            console.print(f"{title}: {problem}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    for path in overview(frames).write(out):
        console.print(str(path), highlight=False, markup=False, soft_wrap=True)


def compose(paths: Sequence[str | Path]) -> Overview:
    """The overview of a folder of results for each task."""
    return overview(load_all(paths))


def load_all(paths: Sequence[str | Path]) -> dict[str, pd.DataFrame]:
    """A folder of results for each task, by the task's title."""
    frames = {}
    for path in paths:
        frame = load(path)
        task = next((config["task"] for config in frame.attrs["configs"]), Path(path).name)
        title = TITLES.get(task, task)
        if title in frames:
            raise AnalysisError(f"{path}: there is a folder of {title} already; an overview has one for each task")
        frames[title] = frame
    return frames
