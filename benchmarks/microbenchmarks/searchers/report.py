"""Table and figure of searches on tables, from the file of searches alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from rich.console import Console
from rich.progress import Progress

from benchmarks.errors import SettingsError
from benchmarks.microbenchmarks.searchers.compare import BASELINE, OURS, REFERENCE, Compared, whole_comparison
from benchmarks.microbenchmarks.searchers.loops import INITIAL_POINTS, LOOPS
from benchmarks.microbenchmarks.searchers.measure import Search, load_searches, measure_tables
from benchmarks.microbenchmarks.searchers.tables import TASKS, read_table
from stn_tune.analysis.figures.style import save
from stn_tune.atomic import write_atomic
from stn_tune.errors import unknown
from stn_tune.plotting import PALETTE, RC, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FAST = ("random", "SkOptSearch", "Optuna TPE")
HALF = 30
"""The number of evaluations of the table's first column of ranks."""


def measure_and_report(
    folder: Path, seeds: int, evaluations: int, searchers: Sequence[str] | None = None, draw_only: bool = False
) -> None:
    """Measures what the folder lacks of these searchers, with a bar; prints the table and draws the figure."""
    names = tuple(searchers or LOOPS)
    for name in names:
        if name not in LOOPS:
            raise SettingsError(f"--searchers {name}: {unknown('searcher', name, LOOPS)}")
    if evaluations <= INITIAL_POINTS:
        raise SettingsError(f"--evaluations is {evaluations}; it must be above {INITIAL_POINTS}, the initial design")
    if not draw_only:
        read_table(TASKS[0])  # before anything is written
        with Progress(console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task("searching", total=seeds * len(TASKS) * len(names))
            measure_tables(folder, range(seeds), evaluations, TASKS, names, lambda: progress.advance(bar))
    print(write_report(folder))


def write_report(folder: Path, formats: Sequence[str] = ("png", "svg")) -> str:
    """Writes ``table.md`` and the figure ``searchers``; returns the table."""
    searches = load_searches(folder)
    text = tables(searches)
    write_atomic(folder / "table.md", text.encode())
    save(draw(whole_comparison(searches)), folder, "searchers", formats)
    return text


def tables(searches: Sequence[Search]) -> str:
    """Of all searchers; then of the fast ones, while they have more searches than the slow ones."""
    every, fast = whole_comparison(searches), whole_comparison(searches, FAST)
    if fast.regrets[0].size <= every.regrets[0].size:
        return table(every)
    return f"{table(every)}\nThe fast searchers alone:\n\n{table(fast)}"


def table(c: Compared) -> str:
    """A row for each searcher, then one for each task."""
    others = [name for name in (BASELINE, REFERENCE) if name in c.searchers]
    last = c.regrets.shape[-1]
    middle = min(HALF, last)
    ranks = c.mean_ranks()
    reached = np.isfinite(c.evaluations_to_target()).mean(axis=1)
    lines = [
        f"| searcher | mean rank after {middle} | mean rank after {last} | best 1 % reached | "
        f"{' | '.join(f'ahead of {name}, p' for name in others)} | CPU per suggestion (ms) |",
        f"| --- | ---: | ---: | ---: |{' ---: |' * len(others)} ---: |",
    ]
    for k, name in enumerate(c.searchers):
        cells = [_interval(ranks.center[k, n - 1], ranks.low[k, n - 1]) for n in (middle, last)]
        cells.append(f"{reached[k]:.0%}")
        for other in others:
            wins = f"{c.ahead(name, other)} of {len(c.tasks)}, {c.p_value(name, other):.2g}"
            cells.append("" if name == other else wins)
        cells.append(f"{1000 * np.median(c.cpu_s[k, ..., INITIAL_POINTS:]):.3g}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    seeds = f"{len(c.seeds)} seed{'s' * (len(c.seeds) > 1)} ({', '.join(map(str, c.seeds))})"
    lines += [
        "",
        f"{len(c.tasks)} tasks, {seeds}, {last} evaluations each.",
        "",
        f"| regret after {last} | {' | '.join(c.searchers)} |",
        f"| --- |{' ---: |' * len(c.searchers)}",
    ]
    for j, task in enumerate(c.tasks):
        values = [c.final(name)[j] for name in c.searchers]
        best = min(values)
        cells = [f"**{value:.3g}**" if value == best else f"{value:.3g}" for value in values]
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _interval(center: float, low: float) -> str:
    return f"{center:.2f}" if np.isnan(low) else f"{center:.2f} ± {center - low:.2f}"


def draw(c: Compared) -> Picture:
    """Ranks over evaluations with intervals over tasks, and the performance profile."""
    from matplotlib import rc_context

    with rc_context(cast(Any, RC)):
        return _draw(c)


def _draw(c: Compared) -> Picture:
    figure, (left, right) = panels(2, height=3.4)
    ranks = c.mean_ranks()
    evaluations = np.arange(1, c.regrets.shape[-1] + 1)
    ratios = np.geomspace(1, 16, 200)
    profile = c.profile(ratios)
    for k, name in enumerate(c.searchers):
        look = {"color": PALETTE[k % len(PALETTE)], "linewidth": 2.2 if name == OURS else 1.4}
        left.plot(evaluations, ranks.center[k], label=name, **look)
        left.fill_between(evaluations, ranks.low[k], ranks.high[k], color=look["color"], alpha=0.12, linewidth=0)
        right.step(ratios, profile[k], where="post", label=name, **look)
    left.set_xlabel("evaluations")
    left.set_ylabel("mean rank (1: best)")
    right.set_xscale("log", base=2)
    right.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
    right.set_xlabel("evaluations / those of the fastest searcher")
    right.set_ylabel("searches that reached the best 1 %")
    right.set_ylim(0, 1)
    left.legend(frameon=False, fontsize=8)
    count = f"{len(c.tasks)} tasks, seeds: {len(c.seeds)}"
    left.set_title(f"Ranks, 95 % t-intervals over tasks ({count})", fontsize=9)
    right.set_title("Performance profile", fontsize=9)
    return figure
