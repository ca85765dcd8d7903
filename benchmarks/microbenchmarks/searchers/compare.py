"""Searches on tables compared: ranks, tests over tasks, and a performance profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.microbenchmarks.searchers.loops import LOOPS
from benchmarks.microbenchmarks.searchers.measure import Search
from stn_tune.analysis.stats import Summary, paired, summary
from stn_tune.errors import AnalysisError

OURS, REFERENCE, BASELINE = "SkOptSearch", "gp_minimize", "random"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Compared:
    """Searches of all searchers on the same tasks with the same seeds."""

    searchers: tuple[str, ...]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    regrets: Floats
    """Of shape (searchers, tasks, seeds, evaluations)."""
    targets: Floats
    """The regret that counts as success, by task."""
    cpu_s: Floats
    """Seconds of CPU time for each suggestion, of the shape of ``regrets``."""

    def ranks(self) -> Floats:
        """Means over seeds, of shape (searchers, tasks, evaluations); rank 1 is the lowest regret, ties share."""
        return np.asarray(rankdata(self.regrets, axis=0).mean(axis=2))

    def mean_ranks(self) -> Summary:
        """Means over tasks with t-intervals, each of shape (searchers, evaluations)."""
        return summary(self.ranks().swapaxes(0, 1))

    def evaluations_to_target(self) -> Floats:
        """Shape (searchers, tasks × seeds): evaluations until the choice is among the best 1 %; infinite if never."""
        hit = self.regrets <= self.targets[:, None, None]
        first = np.where(hit.any(axis=-1), hit.argmax(axis=-1) + 1.0, np.inf)
        return first.reshape(len(self.searchers), -1)

    def profile(self, ratios: Floats) -> Floats:
        """Dolan and Moré's performance profile, of shape (searchers, ratios).

        The part of all searches that reach the target within ``ratio`` times the evaluations of the fastest searcher.
        """
        needed = self.evaluations_to_target()
        fastest = needed.min(axis=0)
        with np.errstate(invalid="ignore"):
            slower = np.where(np.isfinite(needed), needed / fastest, np.inf)
        return np.array([[(row <= ratio).mean() for ratio in ratios] for row in slower])

    def final(self, searcher: str) -> Floats:
        """Mean over seeds of the regret at the end, by task."""
        return np.asarray(self.regrets[self.searchers.index(searcher), :, :, -1].mean(axis=1))

    def ahead(self, searcher: str, other: str) -> int:
        """On how many tasks the regret at the end is lower, in the mean over seeds."""
        return int((self.final(searcher) < self.final(other)).sum())

    def p_value(self, searcher: str, other: str) -> float:
        """Wilcoxon's two-sided test of the ranks at the end over tasks; NaN for less than six tasks."""
        ranks = self.ranks()[:, :, -1]
        return paired(ranks[self.searchers.index(searcher)], ranks[self.searchers.index(other)]).wilcoxon_p


def whole_comparison(searches: Sequence[Search], searchers: Sequence[str] = tuple(LOOPS)) -> Compared:
    """The tasks that every searcher has finished with some seed, and the seeds with which it has finished all these."""
    found = {search.key: search for search in searches if search.searcher in searchers}
    every_seed = sorted({search.seed for search in found.values()})
    tasks = tuple(
        task
        for task in dict.fromkeys(search.task for search in found.values())
        if any(all((seed, task, name) in found for name in searchers) for seed in every_seed)
    )
    seeds = tuple(
        seed
        for seed in every_seed
        if tasks and all((seed, task, name) in found for task, name in product(tasks, searchers))
    )
    if not seeds:
        raise AnalysisError(
            f"{len(found)} searches, but no seed with which all of {', '.join(searchers)} have run on the same "
            f"task; continue the measurement"
        )
    each = [[[found[seed, task, name] for seed in seeds] for task in tasks] for name in searchers]
    shortest = min(len(search.regret) for search in found.values())
    regrets = np.array([[[s.regret[:shortest] for s in row] for row in block] for block in each])
    cpu_s = np.array([[[s.cpu_s[:shortest] for s in row] for row in block] for block in each])
    targets = np.array([row[0].target for row in each[0]])
    return Compared(tuple(searchers), tasks, seeds, regrets, targets, cpu_s)
