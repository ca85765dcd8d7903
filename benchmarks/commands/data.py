"""``python -m benchmarks data NAME``: fetch, and say what is going on."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from benchmarks.data.download import data_dir, fetch


def run(name: str, folder: str | None, *, verify: bool) -> None:
    """A bar on a terminal, a line per step elsewhere."""
    console = Console()
    if not console.is_terminal:
        said: set[str] = set()

        def report(step: str, done: int, total: int | None) -> None:
            if step not in said:
                said.add(step)
                console.print(step, soft_wrap=True, highlight=False)

        fetch(name, data_dir(folder), verify=verify, report=report)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        tasks: dict[str, object] = {}

        def advance(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=total)
            progress.update(tasks[step], completed=done, total=total)  # type: ignore[arg-type]
            if total is None:
                console.print(step, soft_wrap=True, highlight=False)

        fetch(name, data_dir(folder), verify=verify, report=advance)
