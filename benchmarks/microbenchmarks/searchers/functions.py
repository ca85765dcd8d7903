"""SkOptSearch against random search and scikit-optimize's own loop, on functions of known minima."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import skopt
from ray import tune
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks.errors import SettingsError
from stn_tune import SkOptSearch

EVALUATIONS = (30, 60)
INITIAL_POINTS = 10
TWICE = 2.0
"""How much worse than gp_minimize's a median regret may be."""


@dataclass(frozen=True)
class Function:
    """A test function on a box, with its least value there."""

    name: str
    value: Callable[[Sequence[float]], float]
    bounds: tuple[tuple[float, float], ...]
    minimum: float

    def space(self) -> dict[str, Any]:
        """The box as a Tune search space."""
        return {f"x{i}": tune.uniform(*bounds) for i, bounds in enumerate(self.bounds, 1)}


def branin(x: Sequence[float]) -> float:
    """Three equal minima, at (-π, 12.275), (π, 2.275) and (3π, 2.475)."""
    ridge = x[1] - 5.1 / (4 * math.pi**2) * x[0] ** 2 + 5 / math.pi * x[0] - 6
    return ridge**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x[0]) + 10


HARTMANN_DEPTHS = np.array([1.0, 1.2, 3.0, 3.2])
HARTMANN_WIDTHS = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
HARTMANN_CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann6(x: Sequence[float]) -> float:
    """Six minima, the least at (0.20169, 0.15001, 0.47687, 0.27533, 0.31165, 0.65730)."""
    distances = (HARTMANN_WIDTHS * (np.asarray(x) - HARTMANN_CENTRES) ** 2).sum(axis=1)
    return float(-HARTMANN_DEPTHS @ np.exp(-distances))


FUNCTIONS = (
    Function("Branin", branin, ((-5.0, 10.0), (0.0, 15.0)), 5 / (4 * math.pi)),
    Function("Hartmann6", hartmann6, ((0.0, 1.0),) * 6, -3.3223680114155147),
)


@dataclass
class Trace:
    """A function that keeps the regret of each evaluation, and the seconds that choosing its point took."""

    function: Function
    regrets: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    since: float = field(default_factory=time.perf_counter)

    def __call__(self, x: Sequence[float]) -> float:
        self.seconds.append(time.perf_counter() - self.since)
        value = self.function.value(x)
        self.regrets.append(value - self.function.minimum)
        self.since = time.perf_counter()
        return value


def random_search(trace: Trace, evaluations: int, seed: int) -> None:
    """Tune's own sampling of the space."""
    random = np.random.default_rng(seed)
    for _ in range(evaluations):
        trace([domain.sample(random_state=random) for domain in trace.function.space().values()])


def skopt_search(trace: Trace, evaluations: int, seed: int) -> None:
    """One trial after the other, without Ray."""
    searcher = SkOptSearch(trace.function.space(), "value", "min", n_initial_points=INITIAL_POINTS, seed=seed)
    for i in range(evaluations):
        value = trace(list(searcher.suggest(f"{i}").values()))
        searcher.on_trial_complete(f"{i}", {"value": value})


def gp_minimize(trace: Trace, evaluations: int, seed: int) -> None:
    """scikit-optimize's own loop: the same kind of design and acquisition function, all else at its defaults."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The objective has been evaluated at point", UserWarning)
        warnings.filterwarnings("ignore", "Predicted variances smaller than 0", UserWarning)
        skopt.gp_minimize(
            trace,
            list(trace.function.bounds),
            n_calls=evaluations,
            n_initial_points=INITIAL_POINTS,
            initial_point_generator="lhs",
            acq_func="EI",
            random_state=seed,
        )


SEARCHERS: dict[str, Callable[[Trace, int, int], None]] = {
    "random": random_search,
    "SkOptSearch": skopt_search,
    "gp_minimize": gp_minimize,
}


@dataclass(frozen=True)
class SearcherRow:
    """The best regret after a number of evaluations, over seeds. The last two fields are for SkOptSearch only."""

    function: str
    evaluations: int
    searcher: str
    median: float
    lower_quartile: float
    upper_quartile: float
    ratio: float
    seconds: float
    below_random: bool | None = None
    within_twice: bool | None = None


def measure_searchers(
    seeds: int = 10,
    evaluations: Iterable[int] = EVALUATIONS,
    functions: Iterable[Function] = FUNCTIONS,
    tick: Callable[[], None] = lambda: None,
) -> list[SearcherRow]:
    """A row for each function, number of evaluations and searcher.

    No searcher knows its budget, so that a long run holds the shorter ones.
    """
    counts = sorted(set(evaluations))
    if seeds < 1:
        raise SettingsError(f"seeds is {seeds}; it must be at least 1")
    if not counts or counts[0] < INITIAL_POINTS:
        raise SettingsError(f"evaluations is {counts}; each must be at least {INITIAL_POINTS}, the initial design")
    rows = []
    for function in functions:
        traces: dict[str, list[Trace]] = {name: [] for name in SEARCHERS}
        for seed in range(seeds):
            for name, search in SEARCHERS.items():
                traces[name].append(Trace(function))
                with threadpool_limits(1):
                    search(traces[name][-1], counts[-1], seed)
                tick()
        for count in counts:
            rows += compare_traces(function.name, count, traces)
    return rows


def compare_traces(function: str, evaluations: int, traces: dict[str, list[Trace]]) -> list[SearcherRow]:
    """The searchers' rows, judged by their first ``evaluations`` evaluations."""
    best = {name: [min(trace.regrets[:evaluations]) for trace in found] for name, found in traces.items()}
    median = {name: float(np.median(regrets)) for name, regrets in best.items()}
    rows = []
    for name, regrets in best.items():
        lower, upper = np.quantile(regrets, [0.25, 0.75]).tolist()
        seconds = float(np.median([np.mean(trace.seconds[:evaluations]) for trace in traces[name]]))
        ratio = median[name] / median["gp_minimize"]
        asked = name == "SkOptSearch"
        below = median[name] < median["random"] if asked else None
        within = ratio <= TWICE if asked else None
        rows.append(SearcherRow(function, evaluations, name, median[name], lower, upper, ratio, seconds, below, within))
    return rows


def print_comparison(seeds: int = 10, evaluations: Sequence[int] | None = None, as_json: bool = False) -> None:
    """Prints the comparison as a table, or as one JSON object per row."""
    total = seeds * len(FUNCTIONS) * len(SEARCHERS)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("searching", total=total)
        rows = measure_searchers(seeds, evaluations or EVALUATIONS, FUNCTIONS, lambda: progress.advance(task))
    if as_json:
        for row in rows:
            print(json.dumps(asdict(row)))
    else:
        print_searcher_table(rows, seeds)


def print_searcher_table(rows: Sequence[SearcherRow], seeds: int) -> None:
    """A row for each function, number of evaluations and searcher."""
    table = Table(
        title="The regret of searchers on functions of known minima",
        caption=f"medians and quartiles of {seeds} seed{'s' * (seeds > 1)}, one thread, "
        f"scikit-optimize {skopt.__version__}",
    )
    for column in ("function", "evaluations", "searcher"):
        table.add_column(column)
    for column in ("median\nregret", "quartiles", "ratio to\ngp_minimize", "seconds per\nsuggestion"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("below\nrandom")
    table.add_column(f"at most {TWICE:g} ×\ngp_minimize")
    for row in rows:
        table.add_row(
            row.function,
            str(row.evaluations),
            row.searcher,
            f"{row.median:.3g}",
            f"{row.lower_quartile:.3g} – {row.upper_quartile:.3g}",
            f"{row.ratio:.2f}",
            f"{row.seconds:.3f}",
            _verdict(row.below_random),
            _verdict(row.within_twice),
            end_section=row.searcher == list(SEARCHERS)[-1],
        )
    Console().print(table)


def _verdict(holds: bool | None) -> str:
    return "" if holds is None else "[green]yes[/]" if holds else "[red]no[/]"
