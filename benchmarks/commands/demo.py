"""``make demo``: four methods on two problems that need no download, and their reports."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks import run as runner
from benchmarks.options import Options, choose
from benchmarks.session import Session
from benchmarks.settings import SettingsError

METHODS = ("stn", "grid", "random", "bayes")
TASKS = {
    "digits": ("a small CNN on scikit-learn's digits, 9 hyperparameters", ()),
    "pydoc": (
        "an LSTM on the text of Python's documentation, 7 hyperparameters",
        ("tokens=12000", "valid_tokens=3000", "test_tokens=3000", "vocabulary=500"),
    ),
}
"""What each problem is, and what makes it small enough for minutes."""


def run(budget_s: float, out: Path) -> int:
    """Both problems in one Ray session; Tune's own folders are thrown away."""
    console = Console()
    if out.exists() and any(path.name not in TASKS for path in out.iterdir()):
        raise SettingsError(f"--out {out} holds other things than a demo; choose another folder")
    with tempfile.TemporaryDirectory(prefix="stn_tune_demo_") as storage:
        options = [
            Options(task=task, out=out / task, budget_s=budget_s, overrides=changes, storage=storage, command="demo")
            for task, (_, changes) in TASKS.items()
        ]
        with Session(options[0]):
            for o in options:
                shutil.rmtree(o.out, ignore_errors=True)
                console.print(f"\n[bold]{o.task}[/]: {TASKS[o.task][0]}", highlight=False)
                if not runner.run(o, choose(METHODS, [0]), console):
                    return 1
    for o in options:
        console.print(f"\n[bold]{o.task}[/]: {TASKS[o.task][0]}", highlight=False)
        report.run([o.out])
    return 0
