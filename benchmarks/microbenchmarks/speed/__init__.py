"""How much a self-tuning step costs, as a ratio to the same plain model's training step on torch's own kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.microbenchmarks.speed import cnn, compiled, hf_trainer, lightning_trainer, lstm, tasks
from benchmarks.microbenchmarks.speed.counts import limits, traffic
from benchmarks.microbenchmarks.speed.overhead import tune_overhead
from benchmarks.microbenchmarks.speed.timing import Comparison, SpeedRow

__all__ = ["GROUPS", "limits", "print_speed_table", "time_steps", "traffic"]

GROUPS: dict[str, list[Callable[[str], Iterator[Comparison]]]] = {
    "lstm": [lstm.steps],
    "cnn": [cnn.steps],
    "forward": [lstm.forward, cnn.forward],
    "growth": [lstm.growth],
    "tasks": [tasks.augmentation, tasks.evaluation, tasks.language_evaluation],
    "compile": [compiled.steps],
    "integrations": [lightning_trainer.epochs, hf_trainer.epochs],
    "tune": [],
    "driver": [],
}
"""What ``--only`` takes; Tune and its driver time themselves."""


def time_steps(size: str = "paper", only: list[str] | None = None, rounds: int = 7, threads: int = 1) -> list[SpeedRow]:
    """All rows, one group of models after the other."""
    torch.set_num_threads(threads)
    rows: list[SpeedRow] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for name in only or GROUPS:
            for group in GROUPS[name]:
                torch.manual_seed(0)
                for comparison in group(size):
                    bar = progress.add_task(f"timing {comparison.name}", total=comparison.ticks(rounds))
                    rows += comparison.measure(rounds, partial(progress.advance, bar))
            if name == "tune":
                progress.add_task("timing Tune", total=None)
                rows.append(tune_overhead(size))
            if name == "driver":
                from benchmarks.microbenchmarks.speed.driver import driver_growth  # Ray: no other group needs it

                progress.add_task("timing Tune's driver", total=None)
                rows += driver_growth(size)
    return rows


def print_speed_table(rows: list[SpeedRow], size: str, rounds: int, threads: int) -> None:
    """The ratios, beside what counting operations or bytes would give and what is to be reached."""
    table = Table(
        title=f"Cost of self-tuning relative to the plain model ({size} size)",
        caption=f"Medians of {rounds} interleaved rounds, {threads} thread{'s' * (threads > 1)}, torch "
        f"{torch.__version__}. Steps against a plain training step, forward against forward, n hyperparameters "
        f"against 7; epochs T_train:T_valid, per weight step; driver: CPU time per trial, the last quarter "
        f"against the first. By FLOPs, by bytes: what counting operations, or bytes "
        f"of weights moved, gives.",
        box=box.SIMPLE,
        padding=0,
    )
    table.add_column("step", no_wrap=True)
    for column in ("ratio", "target", " by\nFLOPs", " by\nbytes", "ms", "plain\nms", "peak\nMiB"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        reached = "green" if row.ratio <= row.target else "red"
        table.add_row(
            row.name,
            f"[{reached}]{row.ratio:.2f}[/]",
            f"≤{row.target:.2f}",
            *("" if count is None else f"{count:.2f}" for count in (row.limit, row.traffic)),
            *(f"{ms:,.{1 if ms < 100 else 0}f}" for ms in (row.ms, row.plain_ms)),
            f"{row.rss_mib:,.0f}",
        )
    Console().print(table)
