"""Steps timed against a plain step, in turn, with the memory that each needs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

Step = Callable[[], Any]


@dataclass
class SpeedRow:
    """One measured ratio. ``limit`` and ``traffic`` are what counting operations or bytes alone would give."""

    name: str
    ratio: float
    limit: float | None
    traffic: float | None
    target: float
    ms: float
    plain_ms: float
    rss_mib: float


@dataclass
class SpeedCase:
    """A step to be measured against the plain one of its comparison."""

    name: str
    step: Step
    target: float
    limit: float | None = None
    traffic: float | None = None


@dataclass
class Epoch:
    """An epoch in units of a plain one: weight steps, each with its share T_valid / T_train of a hyperparameter step.

    ``weight`` and ``hyper`` are the names of the two measured steps.
    """

    name: str
    weight: str
    hyper: str
    share: float
    target: float

    def row(self, rows: dict[str, SpeedRow]) -> SpeedRow:
        """The ratio and the milliseconds per weight step, from the measured steps' medians."""
        weight, hyper, share = rows[self.weight], rows[self.hyper], self.share
        limit = None if weight.limit is None or hyper.limit is None else weight.limit + share * hyper.limit
        ratio, ms = weight.ratio + share * hyper.ratio, weight.ms + share * hyper.ms
        peak = max(weight.rss_mib, hyper.rss_mib)
        return SpeedRow(self.name, ratio, limit, None, self.target, ms, weight.plain_ms, peak)


@dataclass
class Comparison:
    """Steps and the plain one that they are measured against; ``repeats`` is how often in each round."""

    name: str
    plain: Step
    cases: list[SpeedCase]
    epochs: list[Epoch] = field(default_factory=list)
    repeats: int = 1

    def ticks(self, rounds: int) -> int:
        """How many steps are run."""
        return (len(self.cases) + 1) * (rounds * self.repeats + 1)

    def measure(self, rounds: int, tick: Callable[[], Any] = lambda: None) -> list[SpeedRow]:
        """Every step in turn; medians over all turns after one to warm up.

        With one thread CPU time is taken, which a busy neighbour disturbs less than the wall-clock.
        """
        clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        steps = [self.plain, *(case.step for case in self.cases)]
        seconds: list[list[float]] = [[] for _ in steps]
        peaks = [0.0] * len(steps)
        for turn in range(rounds * self.repeats + 1):
            for k, step in enumerate(steps):
                reset_peak_memory()
                start = clock()
                step()
                elapsed = clock() - start
                if turn:
                    seconds[k].append(elapsed)
                    peaks[k] = max(peaks[k], peak_memory_mib())
                tick()
        plain_ms = statistics.median(seconds[0]) * 1e3
        rows = []
        for case, taken, peak in zip(self.cases, seconds[1:], peaks[1:], strict=True):
            ratio = statistics.median(t / p for t, p in zip(taken, seconds[0], strict=True))
            ms = statistics.median(taken) * 1e3
            rows.append(SpeedRow(case.name, ratio, case.limit, case.traffic, case.target, ms, plain_ms, peak))
        return rows + [epoch.row({row.name: row for row in rows}) for epoch in self.epochs]


def reset_peak_memory() -> None:
    """Lets the kernel's high-water mark of resident memory start anew (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory_mib() -> float:
    """The high-water mark; NaN where the system has none."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return float("nan")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Any, batch: Any, clip: float | None) -> Step:
    """An ordinary training step: what everybody's loop does."""

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model, batch, {}).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()

    return step


def forward_step(model: nn.Module, x: torch.Tensor) -> Step:
    """What everybody's inference does: eval mode, no gradients."""
    model.eval()

    def step() -> None:
        with torch.no_grad():
            model(x)

    return step
