"""What was measured, as tables for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.microbenchmarks.hypergradient.agreement import CONCLUSIVE, agreement
from benchmarks.microbenchmarks.hypergradient.checkpoints import Checkpoint
from stn_tune.analysis.render import NONE, number

NAMES = {"stn": "Algorithm 1", "delta": "Δ-STN"}


def print_tables(checkpoints: Sequence[Checkpoint]) -> None:
    """For the theory task a row per variant, for others a row per checkpoint."""
    theory = checkpoints[0].settings["task"] == "theory"
    Console().print((theory_table if theory else checkpoint_table)(checkpoints))


def checkpoint_table(checkpoints: Sequence[Checkpoint]) -> Table:
    """How the gradients agree at each checkpoint; where the truth itself is not certain, the row is dim and marked."""
    s = checkpoints[0].settings
    results = [agreement(c) for c in checkpoints]
    doubt = (
        f"\n? truth with itself is below {CONCLUSIVE:g}: nothing can be concluded from this row; use more --repeats, "
        "or other --passes and --step."
    )
    table = _table(
        f"Hypergradients of {s['task']} ({s['preset']}) against finite differences",
        f"Truth: continued training, passes: {s['passes']}, at λ ± {s['step']:g}, repeats: {s['repeats']}. In "
        "brackets: 95 % bootstrap interval over repeats and validation batches. Signs: of hyperparameters whose true "
        "gradient is more than 2 standard errors from 0. Size: |estimate| / |truth|. Truth with itself: cosine between "
        f"halves of the repeats.{'' if all(r.conclusive for r in results) else doubt}",
    )
    table.add_column("algorithm", no_wrap=True)
    for column in ("seed", "epoch", "val.\nloss", "cosine", "interval", "signs", "size", "truth\nwith\nitself"):
        table.add_column(column, justify="right", no_wrap=True)
    for c, r in zip(checkpoints, results, strict=True):
        table.add_row(
            c.variant,
            str(c.seed),
            str(c.epoch),
            f"{c.val_loss:.3f}",
            number(r.cosine, 2),
            f"[{number(r.low, 2)}, {number(r.high, 2)}]",
            f"{r.right_signs} of {r.certain}",
            number(r.size, 2),
            f"{number(r.itself, 2)} {' ' if r.conclusive else '?'}",
            style="" if r.conclusive else "dim",
        )
    return table


def theory_table(checkpoints: Sequence[Checkpoint]) -> Table:
    """Estimate / truth by variant and epoch, λ held and moving."""
    s = checkpoints[0].settings
    seeds, epochs = sorted({c.seed for c in checkpoints}), sorted({c.epoch for c in checkpoints})
    table = _table(
        f"Hypergradients of theory ({s['preset']}) against the closed form",
        f"Estimate / truth: 1 is exact, below 0 the sign is wrong. Median of {len(seeds)} seed{'s' * (len(seeds) > 1)}."
        " Moving: λ takes small steps, the weights follow; truth is at the λ of that epoch.",
    )
    for column in ("algorithm", "sepa-\nrate", "cen-\ntred", "linear-\nised"):
        table.add_column(column, no_wrap=True)
    ratios = theory_ratios(checkpoints)
    moving = sorted({how for found in ratios.values() for how, _ in found})
    for how in moving:
        for epoch in epochs:
            table.add_column(f"{'moving' if how else 'held'}\n{epoch}", justify="right", no_wrap=True)
    for (algorithm, *switches), found in ratios.items():
        cells = [found.get((how, epoch)) for how in moving for epoch in epochs]
        numbers = [NONE if cell is None else number(float(np.median(cell)), 2) for cell in cells]
        table.add_row(NAMES.get(algorithm, algorithm), *map(_switch, switches), *numbers)
    return table


def theory_ratios(checkpoints: Sequence[Checkpoint]) -> dict[tuple[Any, ...], dict[tuple[bool, int], list[float]]]:
    """(algorithm, separate, centred, linearised) -> (whether λ moves, epoch) -> estimate / truth, seed by seed."""
    ratios: dict[tuple[Any, ...], dict[tuple[bool, int], list[float]]] = {}
    for c in checkpoints:
        row = (c.options["algorithm"], *(c.options.get(name) for name in ("separate", "centred", "linearised")))
        at = bool(c.options["valid_steps"]), c.epoch
        ratios.setdefault(row, {}).setdefault(at, []).append(c.estimate[0][0] / c.truth[0][0])
    return ratios


def _table(title: str, caption: str) -> Table:
    return Table(title=title, caption=caption, caption_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))


def _switch(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "no"
