"""run: methods × seeds at equal budgets, the paper's Table 2."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.arguments import seed_list
from benchmarks.errors import SettingsError
from benchmarks.studies.base import Study
from stn_tune.errors import unknown
from stn_tune.record import ExperimentInfo, Published

DEFAULT = ("stn", "grid", "random", "bayes")
SOURCE = "paper (full size)"
NOTE = "Paper (full size): the paper's own values, with larger models and budgets; not measured here."

TABLE_2 = {
    "ptb": Published(
        SOURCE,
        "perplexity",
        {
            "stn": {"val": "70.30", "test": "67.68"},
            "grid": {"val": "97.32", "test": "94.58"},
            "random": {"val": "84.81", "test": "81.46"},
            "bayes": {"val": "72.13", "test": "69.29"},
        },
        NOTE,
    ),
    "cifar10": Published(
        SOURCE,
        "loss",
        {
            "stn": {"val": "0.575", "test": "0.576"},
            "grid": {"val": "0.794", "test": "0.809"},
            "random": {"val": "0.921", "test": "0.752"},
            "bayes": {"val": "0.636", "test": "0.651"},
        },
        NOTE,
    ),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Task, methods, seeds, and what is tuned."""
    parser.add_argument("task", help="ptb, cifar10, pydoc or digits")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(DEFAULT),
        metavar="METHOD",
        help=f"which to compare (default {' '.join(DEFAULT)}; all are listed below)",
    )
    parser.add_argument(
        "--seeds", type=seed_list, default="3", help="a count (5: seeds 0 to 4) or a list (0,3,7); default 3"
    )
    parser.add_argument(
        "--tune",
        nargs="+",
        default=[],
        metavar="NAME",
        help="tune only these hyperparameters; the others keep their initial values",
    )
    parser.add_argument(
        "--schedule",
        type=Path,
        metavar="FILE",
        help="the schedule that replay follows (default: the one that stn finds in the same run)",
    )


def experiments(options: argparse.Namespace) -> list[ExperimentInfo]:
    """One experiment per method and seed, seed by seed: a run that is cut short leaves complete comparisons."""
    from baselines import METHODS

    methods = [name for part in options.methods for name in part.split(",") if name]
    for name in methods:
        if name not in METHODS:
            raise SettingsError(unknown("method", name, METHODS))
    if options.schedule is not None and "replay" not in methods:
        raise SettingsError("--schedule is what replay follows: add replay to --methods")
    if len(set(methods)) < len(methods):
        raise SettingsError(f"--methods names one twice: {' '.join(methods)}")
    tuned = tuple(options.tune)
    return [ExperimentInfo(name, seed, tuned=tuned) for seed in options.seeds for name in methods]


STUDY = Study(
    "run",
    "compare methods at equal budgets, on this machine or a cluster",
    arguments,
    experiments,
    published=TABLE_2.get,
)
