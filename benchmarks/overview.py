"""``python -m benchmarks overview DIR… --out DIR``: several tasks in one picture and one table, from the logs alone."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from benchmarks.version1 import upgrade
from stn_tune.analysis.reporting.overview import load_tasks, overview


def run(paths: Sequence[str], out: str) -> None:
    """Writes the overview, and prints where its files are."""
    console = Console()
    tasks = load_tasks(paths, upgrade)
    for title, results in tasks.items():
        for problem in results.frame.attrs["problems"]:
            console.print(f"{title}: {problem}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    for path in overview(tasks).write(out):
        console.print(str(path), highlight=False, markup=False, soft_wrap=True)
