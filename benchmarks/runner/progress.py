"""Progress of a run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

import ray
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchmarks.durations import count, duration
from stn_tune.record import ExperimentInfo

PLAIN_EVERY_S = 30.0
"""Off a terminal, progress is printed this often."""

GAP = 2
"""Spaces between columns."""

NARROW = 100
"""Terminals with fewer columns get short bars."""

COLUMNS: Sequence[tuple[str, Literal["left", "right"], int]] = (
    ("seed", "right", 4),
    ("compute budget", "left", 18),
    ("trials", "right", 6),
    ("best val.", "right", 9),
    ("", "left", 11),
)
"""Heading, side and least width of all columns but the first, which gives way where the terminal is narrow."""


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Board:
    """Collects progress from the experiments' drivers, on whichever nodes they run."""

    def __init__(self) -> None:
        self._state: dict[str, dict[str, Any]] = {}

    def tell(self, name: str, state: dict[str, Any]) -> None:
        """Keeps the latest state of an experiment."""
        self._state[name] = state

    def read(self) -> dict[str, dict[str, Any]]:
        """The latest states, by name of the experiment."""
        return self._state


@dataclass
class ProgressRow:
    """One experiment's row."""

    experiment: ExperimentInfo
    budget_s: float
    status: str = "waiting"
    spent: float = 0.0
    trials: int = 0
    best: float = math.inf
    started: float | None = None
    note: str = ""

    def update(self, state: Mapping[str, Any]) -> None:
        """Takes what the experiment's driver has told."""
        self.spent, self.trials, self.best = state["spent"], state["trials"], state["best"]

    @property
    def state(self) -> str:
        """Its status in words: "starting" until there is a first result."""
        return "starting" if self.status == "running" and self.spent <= 0 else self.status

    def left(self) -> float | None:
        """Seconds until the budget is used up at the present pace."""
        if self.status != "running" or self.started is None or self.spent <= 0:
            return None
        pace = self.spent / max(time.monotonic() - self.started, 1e-3)
        return max(0.0, self.budget_s - self.spent) / pace


@dataclass
class ProgressTable:
    """The table of a run; use it in a ``with`` statement."""

    title: str
    rows: Mapping[str, ProgressRow]
    console: Console = field(default_factory=Console)
    _live: Live | None = None
    _printed: float = field(default_factory=time.monotonic)

    def __enter__(self) -> ProgressTable:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=False)
            self._live.start()
        else:
            self.console.print(self.title, highlight=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self._table(final=True), refresh=True)
            self._live.stop()

    def update(self) -> None:
        """Redraws, or, off a terminal, prints a line per running experiment now and then."""
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
        elif time.monotonic() - self._printed > PLAIN_EVERY_S:
            self._printed = time.monotonic()
            for row in self._with("running"):
                self.say(row)

    def say(self, row: ProgressRow) -> None:
        """A plain line of one experiment; a terminal has the table."""
        if self._live is None:
            left = row.left()
            parts = [
                f"{row.experiment.label} seed {row.experiment.seed}: {row.state}",
                f"{row.spent:.0f} of {row.budget_s:.0f} s" if row.spent else "",
                f"{count(row.trials, 'trial')} done" if row.spent else "",
                f"best {row.best:.4f}" if math.isfinite(row.best) else "",
                f"{duration(left)} left" if left is not None else "",
                row.note,
            ]
            self.console.print(", ".join(part for part in parts if part), highlight=False, soft_wrap=True)

    def _with(self, *statuses: str) -> list[ProgressRow]:
        return [row for row in self.rows.values() if row.status in statuses]

    def _table(self, final: bool = False) -> Group:
        table = Table(box=None, padding=(0, GAP, 0, 0))
        others = sum(least + GAP for _, _, least in COLUMNS) + GAP
        table.add_column("method", no_wrap=True, max_width=max(8, self.console.width - others))
        for name, side, least in COLUMNS:
            table.add_column(name, justify=side, no_wrap=True, min_width=least)
        shown = list(self.rows.values())
        folded: list[str] = []
        if not final and len(shown) > self.console.height - 5:
            shown = self._with("running", "failed")
            folded = [f"{len(self._with(s))} {s}" for s in ("finished", "waiting") if self._with(s)]
        best = min((row.best for row in shown), default=math.inf)
        for row in shown:
            table.add_row(*self._row(row, best))
        rest = Text(f"… and {', '.join(folded)}" if folded else "", style="dim")
        return Group(Text(self.title, style="bold"), table, rest)

    def _row(self, row: ProgressRow, best: float) -> Sequence[Any]:
        bar = Table.grid(padding=(0, 1))
        style = {"finished": "green", "failed": "red"}.get(row.status, "cyan")
        width = 8 if self.console.width < NARROW else 20
        share = 1.0 if row.status == "finished" else min(1.0, row.spent / row.budget_s)
        bar.add_row(
            ProgressBar(total=1.0, completed=share, width=width, complete_style=style, finished_style=style),
            f"{row.spent:.0f}/{row.budget_s:.0f} s",
        )
        value = Text(f"{row.best:.4f}" if math.isfinite(row.best) else "–")
        if math.isfinite(row.best) and row.best == best:
            value.stylize("bold green")
        left = row.left()
        state = f"{duration(left)} left" if left is not None else row.state
        return row.experiment.label, str(row.experiment.seed), bar, str(row.trials), value, Text(state, style="dim")
