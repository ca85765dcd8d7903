"""Searches on tables, one line of JSON each, in a file that a later call continues."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks.microbenchmarks.searchers.loops import LOOPS, Loop
from benchmarks.microbenchmarks.searchers.tables import TASKS, HpoTable, read_table
from stn_tune.errors import AnalysisError
from stn_tune.plain_json import parse_json

FILE = "searches.jsonl"


@dataclass(frozen=True)
class Search:
    """One search: what it would have chosen after each evaluation."""

    task: str
    searcher: str
    seed: int
    regret: list[float]
    """Of the configuration with the lowest loss observed so far: its mean over the table's repeats."""
    target: float
    """The regret that counts as success: that of the best 1 % of the table."""
    cpu_s: list[float]
    """What choosing each point took, in seconds of CPU time."""

    @property
    def key(self) -> tuple[int, str, str]:
        """What tells it from other searches."""
        return self.seed, self.task, self.searcher


@dataclass
class Recorder:
    """Evaluates points of a table, and keeps what was seen. Each evaluation draws one of the table's repeats.

    The n-th evaluations of all searchers with one seed draw the same repeat.
    """

    table: HpoTable
    seed: int
    observed: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    since: float = field(default_factory=time.process_time)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def __call__(self, point: Sequence[int]) -> float:
        self.cpu_s.append(time.process_time() - self.since)
        self.rows.append(self.table.row([int(index) for index in point]))
        repeats = self.table.values[self.rows[-1]]
        repeats = repeats[np.isfinite(repeats)]
        self.observed.append(float(repeats[int(self.random.random() * len(repeats))]))
        self.since = time.process_time()
        return self.observed[-1]

    def chosen(self) -> list[float]:
        """After each evaluation: the regret of the configuration whose observed loss is the lowest so far."""
        best = [int(np.argmin(self.observed[: n + 1])) for n in range(len(self.observed))]
        return [float(self.table.regrets[self.rows[i]]) for i in best]


def run_search(table: HpoTable, searcher: str, loop: Loop, evaluations: int, seed: int) -> Search:
    """One search on one thread."""
    recorder = Recorder(table, seed)
    with threadpool_limits(1):
        loop(table.axes, recorder, evaluations, seed)
    regret = [round(value, 6) for value in recorder.chosen()]
    return Search(table.name, searcher, seed, regret, round(table.target, 6), [round(s, 4) for s in recorder.cpu_s])


def load_searches(folder: Path) -> list[Search]:
    """All finished searches of a folder; a line that an interrupted write left in pieces is not one."""
    file = folder / FILE
    found = []
    for line in file.read_bytes().splitlines() if file.exists() else []:
        try:
            search = Search(**parse_json(line))
            hash(search.key)
            found.append(search)
        except ValueError:
            continue
        except TypeError as error:
            raise AnalysisError(f"{file}: a line is not a search of this version: {error}") from None
    return list({search.key: search for search in found}.values())


def measure_tables(
    folder: Path,
    seeds: Iterable[int],
    evaluations: int,
    tasks: Sequence[str] = TASKS,
    searchers: Sequence[str] = tuple(LOOPS),
    tick: Callable[[], None] = lambda: None,
) -> None:
    """Adds the searches that the folder lacks, seed by seed, so that what is there is a whole comparison."""
    folder.mkdir(parents=True, exist_ok=True)
    done = {search.key for search in load_searches(folder) if len(search.regret) >= evaluations}
    read = cache(read_table)
    path = folder / FILE
    torn = path.exists() and not path.read_bytes().endswith(b"\n")
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n" * torn)
        for seed, task, name in product(seeds, tasks, searchers):
            if (seed, task, name) not in done:
                search = run_search(read(task), name, LOOPS[name], evaluations, seed)
                file.write(f"{json.dumps(asdict(search))}\n")
                file.flush()
            tick()
