"""``python -m benchmarks demo``: four methods on two problems that need no download, and their reports."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.arguments import seconds
from benchmarks.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.runner.store import Store

SUMMARY = "compare stn, grid, random and bayes on two small tasks (4 minutes)"

DEMO_METHODS = ("stn", "grid", "random", "bayes")


@dataclass(frozen=True)
class DemoTask:
    """A problem of the demo."""

    title: str
    """What it is."""
    overrides: tuple[str, ...]
    """What makes a training short."""
    budget_s: float
    """Compute-seconds per method, unless ``--budget`` is given."""


DEMO_TASKS = {
    "digits": DemoTask(
        "a small CNN on 400 of scikit-learn's digits, 9 hyperparameters", ("examples=400", "valid_fraction=0.5"), 25.0
    ),
    "pydoc": DemoTask(
        "an LSTM on the text of Python's documentation, 7 hyperparameters",
        (
            *("tokens=12_000", "valid_tokens=4_000", "test_tokens=6_000", "vocabulary=1_000"),
            *("hidden=48", "lr_patience=4", "stn.hyper_lr=0.03"),
        ),
        60.0,
    ),
}
"""Sizes and budgets at which the STN ends by itself, and a search tries several configurations: a search that tries
dozens, where a training takes seconds, needs no STN. Tried on seeds 100 to 102 (results/presets.md)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How long, and where to."""
    budgets = ", ".join(f"{task.budget_s:.0f}s for {name}" for name, task in DEMO_TASKS.items())
    parser.add_argument(
        "--budget",
        type=seconds,
        metavar="TIME",
        help=f"compute-seconds per method and problem (default {budgets})",
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
    from benchmarks.runner import lock

    out = arguments.out
    if out.exists() and any(path.name not in (*DEMO_TASKS, lock.FILE_NAME) for path in out.iterdir()):
        raise SettingsError(f"--out {out} contains files that are not from a demo; choose another folder")
    with lock.FolderLock(out):
        print("starting Ray …", flush=True)  # the imports below take seconds
        return run_demo(out, arguments.budget)


def run_demo(out: Path, budget_s: float | None) -> int:
    """Runs all experiments, then reports on each problem."""
    from rich.console import Console

    from benchmarks.commands.report import write_report
    from benchmarks.runner.options import Options
    from benchmarks.runner.runner import run_experiments
    from benchmarks.runner.session import Session
    from benchmarks.runner.store import Store
    from stn_tune.record import ExperimentInfo

    console = Console()
    experiments = [ExperimentInfo(name, seed=0) for name in DEMO_METHODS]
    with tempfile.TemporaryDirectory(prefix="stn_tune_demo_") as storage:
        runs = [
            Options(
                name, out / name, budget_s or task.budget_s, overrides=task.overrides, storage=storage, resumable=False
            )
            for name, task in DEMO_TASKS.items()
        ]
        with Session(runs[0]):
            for options in runs:
                shutil.rmtree(options.out, ignore_errors=True)
                console.print(f"\n[bold]{options.task}[/]: {DEMO_TASKS[options.task].title}", highlight=False)
                if not run_experiments(options, experiments, console):
                    return 1
    for options in runs:
        console.print(f"\n[bold]{options.task}[/]: {DEMO_TASKS[options.task].title}", highlight=False)
        line = verdict(Store(options.out), [e.name for e in experiments])
        console.print(line, style="bold", highlight=False, markup=False, soft_wrap=True)
        write_report([options.out])
    return 0


def verdict(store: Store, names: Sequence[str]) -> str:
    """Who has the lowest test loss at the validation-selected best, and where the method that tunes online stands.

    Experiments that the budget ended before a training had ended are marked as unfinished.
    """
    from benchmarks.runner.caveats import is_unfinished
    from benchmarks.runner.log import unpack_log
    from stn_tune.record import LogHeader

    record = store.record()
    assert record is not None
    losses: dict[str, float] = {}
    online = ""
    for name in names:
        data, rows = unpack_log(store.read_log(name))
        head = LogHeader.from_json(data, name)
        mark = " (unfinished)" if is_unfinished(head) else ""
        title = record.method(head.experiment.method).title + mark
        losses[title] = min(rows, key=lambda row: row["best_val_loss"])["test_loss"]
        online = title if head.experiment.online else online
    ranked = sorted(losses, key=lambda title: losses[title])
    best = ranked[0]
    if best == online:
        gap = losses[ranked[1]] - losses[best]
        rest = f", {gap:.3f} below the next, {ranked[1]}"
    else:
        gap = losses[online] - losses[best]
        rest = f"; {online} is number {ranked.index(online) + 1} of {len(ranked)}, {gap:.3f} above"
    return f"Lowest test loss: {best}, {losses[best]:.3f}{rest} (one seed)"
