"""``python -m benchmarks train TASK``: one network, trained here and now, at fixed values or self-tuned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import stn_tune as stn
from benchmarks.settings import SettingsError, read_assignment
from benchmarks.tasks import Problem, problem
from stn_tune import HyperSpace, SpaceError

COLUMNS = {
    "epoch": "epoch",
    "train_loss": "train loss",
    "val_loss": "valid loss",
    "best_val_loss": "best valid",
    "test_loss": "test there",
    "wall_s": "seconds",
}


def run(
    task: str,
    preset: str,
    overrides: Sequence[str],
    values: Sequence[str],
    *,
    self_tuned: bool,
    seed: int,
    seconds: float,
    data: Path | None,
    as_json: bool,
    every: int = 1,
) -> None:
    """Prints a line per epoch, and the best last; ends by the task's own rule or when the time is up."""
    torch.set_num_threads(1)
    p = problem(task, preset, overrides, data)
    config = {**initial(p, values), "seed": seed}
    trainable = (p.self_tuned() if self_tuned else p.fixed())(config=config)
    console = Console()
    if self_tuned and not as_json:
        console.print(stn.describe(trainable._trainer.model), highlight=False)
        console.print()
    rows: list[dict[str, Any]] = []
    if not as_json:
        console.print(
            f"[bold]{task}[/], preset {preset}, {'self-tuned' if self_tuned else 'fixed values'}, seed {seed}"
        )
        console.print("".join(f"{title:>13}" for title in COLUMNS.values()), highlight=False)
    while not rows or not (rows[-1]["done"] or rows[-1]["wall_s"] >= seconds):
        rows.append(trainable.train())
        if as_json:
            print(json.dumps({key: rows[-1][key] for key in rows[-1] if key in COLUMNS or key.startswith("hp/")}))
        elif rows[-1]["epoch"] % every == 0 or rows[-1]["done"]:
            console.print("".join(f"{_format(rows[-1][key]):>13}" for key in COLUMNS), highlight=False)
    best = min(rows, key=lambda row: row["val_loss"])
    extra = {key: best[key] for key in best if key.startswith("val_") and key != "val_loss"}
    report = {"best_val_loss": best["val_loss"], **extra, "test_loss": best["test_loss"], "epoch": best["epoch"]}
    report |= {"epochs": rows[-1]["epoch"], "seconds": rows[-1]["wall_s"], "diverged": rows[-1]["diverged"]}
    if as_json:
        print(json.dumps(report))
        return
    console.print("best: " + ", ".join(f"{k} {_format(v)}" for k, v in report.items() if v != ""), highlight=False)
    if self_tuned:
        console.print("\nwhat it did to its hyperparameters, in one training run and without any search:")
        for name, column in trainable._trainer.schedule.values.items():
            console.print(f"  {name:18} {_format(column[0]):>6} → {_format(column[-1])}", highlight=False)


def initial(p: Problem, values: Sequence[str]) -> dict[str, float]:
    """The preset's initial values, with those given on the command line; each must lie in its domain."""
    config = p.settings.initial()
    space = HyperSpace(p.space)
    for text in values:
        name, value = read_assignment(text, "--value")
        try:
            config[name] = space.check(name, value)
        except (SpaceError, KeyError) as error:
            raise SettingsError(f"--value {text}: {error}") from None
    return config


def _format(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
