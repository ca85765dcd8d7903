"""``python -m benchmarks demo``: four methods on two problems that need no download, and their reports."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from benchmarks.arguments import seconds
from benchmarks.errors import SettingsError

SUMMARY = "compare stn, grid, random and bayes on two small tasks (4 minutes)"

DEMO_METHODS = ("stn", "grid", "random", "bayes")
DEMO_TASKS = {
    "digits": ("a small CNN on scikit-learn's digits, 9 hyperparameters", ()),
    "pydoc": (
        "an LSTM on the text of Python's documentation, 7 hyperparameters",
        ("tokens=12000", "valid_tokens=3000", "test_tokens=3000", "vocabulary=500"),
    ),
}
"""What each problem is, and what makes it small enough for minutes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How long, and where to."""
    parser.add_argument(
        "--budget",
        type=seconds,
        default="40s",
        metavar="TIME",
        help="compute-seconds per method and problem (default 40s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default="results/demo",
        metavar="DIR",
        help="folder of the results; overwritten (default results/demo)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Both problems in one Ray session; Tune's own folders are deleted at the end."""
    out = arguments.out
    if out.exists() and any(path.name not in DEMO_TASKS for path in out.iterdir()):
        raise SettingsError(f"--out {out} contains files that are not from a demo; choose another folder")

    from rich.console import Console

    from benchmarks.commands.report import write_report
    from benchmarks.runner.options import Options
    from benchmarks.runner.runner import run_experiments
    from benchmarks.runner.session import Session
    from stn_tune.record import ExperimentInfo

    console = Console()
    experiments = [ExperimentInfo(name, seed=0) for name in DEMO_METHODS]
    with tempfile.TemporaryDirectory(prefix="stn_tune_demo_") as storage:
        runs = [
            Options(task, out / task, arguments.budget, overrides=changes, storage=storage)
            for task, (_, changes) in DEMO_TASKS.items()
        ]
        with Session(runs[0]):
            for options in runs:
                shutil.rmtree(options.out, ignore_errors=True)
                console.print(f"\n[bold]{options.task}[/]: {DEMO_TASKS[options.task][0]}", highlight=False)
                if not run_experiments(options, experiments, console):
                    return 1
    for options in runs:
        console.print(f"\n[bold]{options.task}[/]: {DEMO_TASKS[options.task][0]}", highlight=False)
        write_report([options.out])
    return 0
