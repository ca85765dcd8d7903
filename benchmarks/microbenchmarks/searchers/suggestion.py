"""What a suggestion costs: CPU time after 100 observations."""

from __future__ import annotations

import contextlib
import statistics
import time
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks.microbenchmarks.searchers.loops import gp_minimize, skopt_search
from benchmarks.microbenchmarks.searchers.tables import TableAxis

OBSERVATIONS, SUGGESTIONS = 100, 5
SPACES = {
    "6 integers": tuple(TableAxis(f"x{i}", 1000, True) for i in range(6)),
    "5 integers, 4 choices of 2": (
        *(TableAxis(f"x{i}", 6, True) for i in range(5)),
        *(TableAxis(f"c{i}", 2, False) for i in range(4)),
    ),
    "6 choices of 5": tuple(TableAxis(f"c{i}", 5, False) for i in range(6)),
}


class _Enough(Exception):
    pass


def suggestion_times(loop: Callable[..., None], axes: Sequence[TableAxis], observations: int) -> list[float]:
    """Seconds of CPU time of the suggestions after so many observations of a smooth function, on one thread."""
    centers = np.random.default_rng(0).random(len(axes))
    times: list[float] = []
    since = time.process_time()
    count = 0

    def evaluate(point: Sequence[int]) -> float:
        nonlocal since, count
        if count >= observations:
            times.append(time.process_time() - since)
        if len(times) == SUGGESTIONS:
            raise _Enough
        count += 1
        places = np.array([x / axis.size for x, axis in zip(point, axes, strict=True)])
        value = float(((places - centers) ** 2).sum())
        since = time.process_time()
        return value

    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        with contextlib.suppress(_Enough):
            loop(axes, evaluate, observations + SUGGESTIONS, 0, initial_points=observations - 1)
    return times


def print_suggestion_times(observations: int = OBSERVATIONS) -> None:
    """A row for each space, as Markdown: medians of five suggestions."""
    print(f"| CPU per suggestion after {observations} observations (ms) | SkOptSearch | gp_minimize |")
    print("| --- | ---: | ---: |")
    for name, axes in SPACES.items():
        medians = [
            statistics.median(suggestion_times(loop, axes, observations)) for loop in (skopt_search, gp_minimize)
        ]
        print(f"| {name} | {' | '.join(f'{1000 * seconds:.0f}' for seconds in medians)} |", flush=True)
