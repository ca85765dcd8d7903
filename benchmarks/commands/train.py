"""``python -m benchmarks train TASK``: one network, trained in this process, at fixed values or self-tuned."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.arguments import add_data_dir, add_task_size, amount, positive, seed_number
from benchmarks.errors import SettingsError
from benchmarks.tasks.settings import read_assignment, read_settings
from stn_tune.errors import SpaceError, unknown_hyperparameter

if TYPE_CHECKING:
    from benchmarks.tasks import Problem

SUMMARY = "train one network on one core, fixed or self-tuned, and watch it"

COLUMNS = {
    "epoch": "epoch",
    "train_loss": "train loss",
    "val_loss": "val. loss",
    "best_val_loss": "best val.",
    "test_loss": "test at best",
    "wall_s": "seconds",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to train, how, and for how long."""
    parser.add_argument("task", metavar="TASK", help="ptb, cifar10, pydoc or digits")
    add_task_size(parser)
    parser.add_argument("--self-tuned", action="store_true", help="tune the hyperparameters while training")
    parser.add_argument(
        "--value", action="append", default=[], metavar="NAME=X", help="a hyperparameter's (initial) value; repeatable"
    )
    parser.add_argument(
        "--seconds", type=amount, default=math.inf, metavar="N", help="stop after this many seconds (default: no limit)"
    )
    parser.add_argument("--seed", type=seed_number, default=0, metavar="N", help="of everything random (default 0)")
    add_data_dir(parser)
    parser.add_argument("--every", type=positive, default=1, metavar="N", help="print every N-th epoch (default 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per epoch, then the best")


def execute(arguments: argparse.Namespace) -> None:
    """Prints a line per epoch and the best last; ends by the task's own rule or when the time is up."""
    check_values(arguments.value, read_settings(arguments.task, arguments.preset, arguments.set)["space"])

    import torch
    from rich.console import Console

    import stn_tune as stn
    from benchmarks.data.download import data_dir
    from benchmarks.tasks import problem

    torch.set_num_threads(1)
    p = problem(arguments.task, arguments.preset, arguments.set, data_dir(arguments.data_dir))
    config = {**initial_values(p, arguments.value), "seed": arguments.seed}
    trainable = (p.self_tuned() if arguments.self_tuned else p.fixed())(config=config)
    console = Console()
    if not arguments.json:
        if arguments.self_tuned:
            console.print(stn.describe(trainable.model), highlight=False)
            console.print()
        how = "self-tuned" if arguments.self_tuned else "fixed hyperparameters"
        console.print(f"[bold]{p.name}[/], preset {p.preset}, {how}, seed {arguments.seed}", highlight=False)
        console.print("".join(f"{title:>13}" for title in COLUMNS.values()), highlight=False)
    rows: list[dict[str, Any]] = []
    while not rows or not (rows[-1]["done"] or rows[-1]["wall_s"] >= arguments.seconds):
        rows.append(trainable.train())
        if arguments.json:
            print(json.dumps({key: rows[-1][key] for key in rows[-1] if key in COLUMNS or key.startswith("hp/")}))
        elif rows[-1]["epoch"] % arguments.every == 0 or rows[-1]["done"]:
            console.print("".join(f"{_shown(rows[-1][key]):>13}" for key in COLUMNS), highlight=False)
    best = summary(rows)
    if arguments.json:
        print(json.dumps(best))
        return
    console.print("\nbest: " + ", ".join(f"{k} {_shown(v)}" for k, v in best.items() if v != ""), highlight=False)
    if arguments.self_tuned:
        console.print("\nhyperparameters, initial -> final:")
        for name in p.space:
            first, last = _shown(config[name]), _shown(rows[-1][f"hp/{name}"])
            console.print(f"  {name:18} {first:>6} -> {last}", highlight=False)


def check_values(values: Sequence[str], space: Mapping[str, Any]) -> None:
    """Raises SettingsError for a ``--value`` of an unknown hyperparameter."""
    for text in values:
        name, _ = read_assignment(text, "--value")
        if name not in space:
            raise SettingsError(f"--value {text}: {unknown_hyperparameter(name, space)}")


def initial_values(p: Problem, values: Sequence[str]) -> dict[str, float]:
    """The preset's initial values, with those of ``--value``; each must lie in its domain."""
    import stn_tune as stn

    config = p.settings.initial()
    space = stn.HyperSpace(p.space)
    for text in values:
        name, value = read_assignment(text, "--value")
        try:
            config[name] = space.check(name, value)
        except SpaceError as error:
            raise SettingsError(f"--value {text}: {error}") from None
    return config


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The best epoch, and how long training took."""
    best = min(rows, key=lambda row: row["val_loss"])
    return {
        "best_val_loss": best["val_loss"],
        **{key: best[key] for key in best if key.startswith("val_") and key != "val_loss"},
        "test_loss": best["test_loss"],
        "epoch": best["epoch"],
        "epochs": rows[-1]["epoch"],
        "seconds": rows[-1]["wall_s"],
        "diverged": rows[-1]["diverged"],
    }


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
