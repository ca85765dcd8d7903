"""What people see while a run goes on: one live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import ray
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchmarks.experiment import Experiment

PLAIN_EVERY_S = 30.0


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Board:
    """Where the experiments' drivers, on whichever nodes, leave word of how far they are."""

    def __init__(self) -> None:
        self._state: dict[str, dict[str, Any]] = {}

    def tell(self, name: str, state: dict[str, Any]) -> None:
        self._state[name] = state

    def read(self) -> dict[str, dict[str, Any]]:
        return self._state


@dataclass
class Line:
    """One experiment's row."""

    experiment: Experiment
    budget_s: float
    status: str = "waiting"
    spent: float = 0.0
    trials: int = 0
    best: float = math.inf
    started: float | None = None
    note: str = ""

    def update(self, state: Mapping[str, Any]) -> None:
        self.spent, self.trials, self.best = state["spent"], state["trials"], state["best"]

    def left(self) -> float | None:
        """Seconds until the budget is used up at the present pace."""
        if self.status != "running" or self.started is None or self.spent <= 0:
            return None
        pace = self.spent / max(time.monotonic() - self.started, 1e-3)
        return max(0.0, self.budget_s - self.spent) / pace


@dataclass
class Progress:
    """The table of a run; use it in a ``with`` statement."""

    title: str
    lines: Mapping[str, Line]
    console: Console = field(default_factory=Console)
    _live: Live | None = None
    _printed: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Progress:
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
            for line in self._with("running"):
                self.say(line)

    def say(self, line: Line) -> None:
        """A plain line of one experiment; a terminal has the table."""
        if self._live is None:
            left = line.left()
            parts = [
                f"{line.experiment.title} seed {line.experiment.seed}: {line.status}",
                f"{line.spent:.0f} of {line.budget_s:.0f} s" if line.spent else "",
                f"{line.trials} trials done" if line.spent else "",
                f"best {line.best:.4f}" if math.isfinite(line.best) else "",
                f"{duration(left)} left" if left is not None else "",
                line.note,
            ]
            self.console.print(", ".join(part for part in parts if part), highlight=False, soft_wrap=True)

    def _with(self, *statuses: str) -> list[Line]:
        return [line for line in self.lines.values() if line.status in statuses]

    def _table(self, final: bool = False) -> Group:
        table = Table(box=None, padding=(0, 2, 0, 0), title=self.title, title_justify="left", title_style="bold")
        for name, side in [("method", "left"), ("seed", "right"), ("compute budget", "left"), ("trials", "right")]:
            table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
        table.add_column("best valid loss", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        shown = list(self.lines.values())
        folded: list[str] = []
        if not final and len(shown) > self.console.height - 5:
            shown = self._with("running", "failed")
            folded = [f"{len(self._with(s))} {s}" for s in ("finished", "waiting") if self._with(s)]
        best = min((line.best for line in shown), default=math.inf)
        for line in shown:
            table.add_row(*self._row(line, best))
        return Group(table, Text(f"… and {', '.join(folded)}" if folded else "", style="dim"))

    def _row(self, line: Line, best: float) -> Sequence[Any]:
        bar = Table.grid(padding=(0, 1))
        style = {"finished": "green", "failed": "red"}.get(line.status, "cyan")
        share = 1.0 if line.status == "finished" else min(1.0, line.spent / line.budget_s)
        bar.add_row(
            ProgressBar(total=1.0, completed=share, width=20, complete_style=style, finished_style=style),
            f"{line.spent:.0f}/{line.budget_s:.0f} s",
        )
        value = Text(f"{line.best:.4f}" if math.isfinite(line.best) else "–")
        if math.isfinite(line.best) and line.best == best:
            value.stylize("bold green")
        left = line.left()
        state = f"{duration(left)} left" if left is not None else line.status
        return line.experiment.title, str(line.experiment.seed), bar, str(line.trials), value, Text(state, style="dim")


def duration(seconds: float) -> str:
    """``75`` -> ``1m15s``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
