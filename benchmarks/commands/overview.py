"""``python -m benchmarks overview DIR… --out DIR``: several tasks in one figure and one table, from the logs alone."""

from __future__ import annotations

import argparse

SUMMARY = "the results of several tasks in one figure and one table"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which results, and where to."""
    parser.add_argument("paths", nargs="+", metavar="DIR", help="folders of results, one per task")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="where to write overview.md, overview.png and overview.svg"
    )


def execute(arguments: argparse.Namespace) -> None:
    """Writes the overview, and prints where its files are."""
    from rich.console import Console

    from benchmarks.version1 import upgrade
    from stn_tune.analysis.reporting.overview import load_tasks, overview

    console = Console()
    tasks = load_tasks(arguments.paths, upgrade)
    for title, results in tasks.items():
        for problem in results.frame.attrs["problems"]:
            console.print(f"{title}: {problem}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    for path in overview(tasks).write(arguments.out):
        console.print(str(path), highlight=False, markup=False, soft_wrap=True)
