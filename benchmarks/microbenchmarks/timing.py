"""Steps timed against a plain step, in turn, with the memory that each needs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

Step = Callable[[], Any]


@dataclass
class SpeedRow:
    """One measured ratio. ``limit`` is what counting floating-point operations alone would give."""

    name: str
    ratio: float
    limit: float | None
    target: float
    ms: float
    plain_ms: float
    rss_mib: float


@dataclass
class SpeedCase:
    """A step to be measured against ``plain``."""

    name: str
    step: Step
    limit: float | None
    target: float


def measure_steps(
    plain: Step, cases: list[SpeedCase], rounds: int, tick: Callable[[], None] = lambda: None
) -> list[SpeedRow]:
    """Every step once per round, in turn; medians over the rounds after one to warm up."""
    steps = [plain, *(case.step for case in cases)]
    seconds: list[list[float]] = [[] for _ in steps]
    peaks = [0.0] * len(steps)
    for r in range(rounds + 1):
        for k, step in enumerate(steps):
            reset_peak_memory()
            start = time.perf_counter()
            step()
            elapsed = time.perf_counter() - start
            if r:
                seconds[k].append(elapsed)
                peaks[k] = max(peaks[k], peak_memory_mib())
            tick()
    plain_ms = statistics.median(seconds[0]) * 1e3
    rows = []
    for case, taken, peak in zip(cases, seconds[1:], peaks[1:], strict=True):
        ratio = statistics.median(t / p for t, p in zip(taken, seconds[0], strict=True))
        ms = statistics.median(taken) * 1e3
        rows.append(SpeedRow(case.name, ratio, case.limit, case.target, ms, plain_ms, peak))
    return rows


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
