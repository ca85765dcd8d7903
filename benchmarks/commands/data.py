"""``python -m benchmarks data NAME``: downloads a data set and shows progress."""

from __future__ import annotations

import argparse

from benchmarks.arguments import add_data_dir

SUMMARY = "download a data set, once per machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which data set, and where to."""
    parser.add_argument("name", choices=["ptb", "cifar10"], help="which data set")
    add_data_dir(parser)
    parser.add_argument("--no-verify", action="store_true", help="accept files whose checksum is not the official one")


def execute(arguments: argparse.Namespace) -> None:
    """A bar on a terminal, a line per step elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    from benchmarks.data.download import data_dir, fetch

    console, folder, verify = Console(), data_dir(arguments.data_dir), not arguments.no_verify
    if not console.is_terminal:
        said: set[str] = set()

        def report(step: str, done: int, total: int | None) -> None:
            if step not in said:
                said.add(step)
                console.print(step, soft_wrap=True, highlight=False)

        fetch(arguments.name, folder, verify=verify, report=report)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def advance(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=total)
            progress.update(tasks[step], completed=done, total=total)
            if total is None:
                console.print(step, soft_wrap=True, highlight=False)

        fetch(arguments.name, folder, verify=verify, report=advance)
