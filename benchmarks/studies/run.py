"""Methods compared at equal budgets."""

from __future__ import annotations

import argparse
from pathlib import Path

from baselines import METHODS
from benchmarks.arguments import seed_list
from benchmarks.errors import SettingsError
from benchmarks.studies import Study
from stn_tune.errors import unknown
from stn_tune.record import ExperimentInfo

SEEDS = "a count (5: seeds 0 to 4) or a list (0,3,7)"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Task, methods, seeds and what is tuned."""
    parser.add_argument("task", metavar="TASK", help="ptb, cifar10, pydoc or digits")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["stn", "grid", "random", "bayes"],
        metavar="METHOD",
        help="which to compare (default stn grid random bayes; listed below)",
    )
    parser.add_argument("--seeds", type=seed_list, default="3", help=f"{SEEDS} (default 3)")
    parser.add_argument(
        "--tune", nargs="+", default=[], metavar="NAME", help="tune only these; the others keep their initial values"
    )
    parser.add_argument(
        "--schedule", type=Path, metavar="FILE", help="the schedule for replay (default: what stn finds in this run)"
    )


def experiments(given: argparse.Namespace) -> list[ExperimentInfo]:
    """One per method and seed, seed by seed: an early end leaves complete comparisons."""
    methods = [name for part in given.methods for name in part.split(",") if name]
    for name in methods:
        if name not in METHODS:
            raise SettingsError(unknown("method", name, METHODS))
    return [ExperimentInfo(name, seed) for seed in given.seeds for name in methods]


STUDY = Study("run", "compare methods at equal budgets, on this machine or a cluster", arguments, experiments)
