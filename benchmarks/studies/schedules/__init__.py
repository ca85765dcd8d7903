"""schedules: output dropout alone, as a schedule and as fixed values (Section 4.1 of the paper)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.arguments import not_negative, positive, seed_list
from benchmarks.errors import SettingsError
from benchmarks.studies.base import Study
from benchmarks.studies.run import NOTE, SOURCE
from stn_tune.record import ExperimentInfo, Published

if TYPE_CHECKING:
    from stn_tune.analysis import Figure

TASKS = ("ptb", "pydoc")
STARTS = (0.3, 0.5, 0.7, 0.9)
TUNED = "output_dropout"
OTHER = "input_dropout"
HEATMAP = {"view": "heatmap"}
"""The variant of the grid over two hyperparameters, which is drawn and not compared."""

TABLE_1 = {
    "ptb": Published(
        SOURCE,
        "perplexity",
        {
            "stn": {"val": "82.58", "test": "79.02"},
            "grid": {"val": "85.83", "test": "83.19"},
            "gaussian": {"val": "85.87", "test": "82.29"},
            "sinusoid": {"val": "85.29", "test": "82.15"},
            "final": {"val": "89.65", "test": "86.90"},
            "replay": {"val": "82.87", "test": "79.93"},
        },
        NOTE,
    )
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Task, seeds, the grids and the starts."""
    parser.add_argument("task", help="ptb or pydoc")
    parser.add_argument(
        "--seeds", type=seed_list, default="3", help="a count (5: seeds 0 to 4) or a list (0,3,7); default 3"
    )
    parser.add_argument("--levels", type=positive, default=10, help="values of the fine grid (default 10)")
    parser.add_argument(
        "--heatmap", type=not_negative, default=5, help="values per side of the heat map (default 5; 0: none)"
    )
    parser.add_argument(
        "--starts",
        type=float,
        nargs="+",
        default=list(STARTS),
        metavar="X",
        help=f"initial output dropouts, beside the preset's (default {' '.join(map(str, STARTS))})",
    )


def experiments(options: argparse.Namespace) -> list[ExperimentInfo]:
    """Output dropout alone: self-tuned, fixed, replayed, perturbed, and from several starts; and against input dropout.

    Both grids are complete and in their own order; the heat map takes the first seed only.
    """
    if options.task not in TASKS:
        raise SettingsError(
            f"schedules tune the output dropout of a language model: {options.task!r} is not ptb or pydoc"
        )
    complete = "grid_order=tune"
    alone = (TUNED,)
    grid = (f"space.{TUNED}.levels={spaced(options.levels)}", complete)
    chosen = []
    for seed in options.seeds:
        chosen.append(ExperimentInfo("stn", seed, tuned=alone))
        chosen.append(ExperimentInfo("grid", seed, tuned=alone, overrides=grid))
        chosen += [ExperimentInfo(name, seed, tuned=alone) for name in ("replay", "final", "gaussian", "sinusoid")]
        chosen.append(ExperimentInfo("greedy", seed, tuned=alone))
        for start in options.starts:
            override = f"space.{TUNED}.init={start:g}"
            chosen.append(ExperimentInfo("stn", seed, {"start": start}, tuned=alone, overrides=(override,)))
    if options.heatmap:
        levels = spaced(options.heatmap)
        heat = (f"space.{TUNED}.levels={levels}", f"space.{OTHER}.levels={levels}", complete)
        both = (OTHER, TUNED)
        seed = options.seeds[0]
        chosen.append(ExperimentInfo("grid", seed, HEATMAP, compared=False, tuned=both, overrides=heat))
    return chosen


def spaced(count: int) -> list[float]:
    """Evenly spaced rates from 0 to 0.9."""
    return [round(0.9 * k / max(count - 1, 1), 3) for k in range(count)]


def figures() -> Sequence[Figure]:
    """Schedules by start, perturbed schedules, heat maps, the greedy schedule."""
    from benchmarks.studies.schedules.figures import FIGURES

    return FIGURES


STUDY = Study(
    "schedules",
    "Section 4.1: schedules of output dropout, and fixed values",
    arguments,
    experiments,
    budget="2h",
    figures=figures,
    published=TABLE_1.get,
)
