"""Section 4.1: schedules of output dropout."""

from __future__ import annotations

import argparse

from benchmarks.arguments import not_negative, positive, seed_list
from benchmarks.errors import SettingsError
from benchmarks.studies import Study
from benchmarks.studies.run import SEEDS
from stn_tune.record import ExperimentInfo

STARTS = (0.3, 0.5, 0.7, 0.9)
TUNED, OTHER = "output_dropout", "input_dropout"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Task, seeds and sizes of the grids."""
    parser.add_argument("task", metavar="TASK", help="ptb or pydoc")
    parser.add_argument("--seeds", type=seed_list, default="3", help=f"{SEEDS} (default 3)")
    parser.add_argument("--levels", type=positive, default=10, metavar="N", help="values of the grid (default 10)")
    parser.add_argument(
        "--heatmap",
        type=not_negative,
        default=5,
        metavar="N",
        help="values per side of the heat map (default 5; 0: none)",
    )
    parser.add_argument("--starts", type=float, nargs="+", default=STARTS, metavar="X", help="initial output dropouts")


def experiments(given: argparse.Namespace) -> list[ExperimentInfo]:
    """Output dropout alone: fixed, perturbed, self-tuned, replayed; and against input dropout."""
    if given.task not in ("ptb", "pydoc"):
        raise SettingsError(f"task is {given.task!r}; schedules need a language model: ptb or pydoc")
    alone, whole = (TUNED,), "grid_order=tune"
    grid = (f"space.{TUNED}.levels={spaced(given.levels)}", whole)
    heat = (f"space.{TUNED}.levels={spaced(given.heatmap)}", f"space.{OTHER}.levels={spaced(given.heatmap)}", whole)
    chosen = []
    for seed in given.seeds:
        chosen.append(ExperimentInfo("stn", seed, tuned=alone))
        chosen.append(ExperimentInfo("grid", seed, tuned=alone, overrides=grid))
        chosen += [
            ExperimentInfo(name, seed, tuned=alone) for name in ("replay", "final", "gaussian", "sinusoid", "greedy")
        ]
        chosen += [
            ExperimentInfo("stn", seed, {"start": x}, tuned=alone, overrides=(f"space.{TUNED}.init={x:g}",))
            for x in given.starts
        ]
    if given.heatmap:
        first = given.seeds[0]
        chosen.append(
            ExperimentInfo("grid", first, {"heatmap": True}, compared=False, tuned=(OTHER, TUNED), overrides=heat)
        )
    return chosen


def spaced(count: int) -> list[float]:
    """Rates from 0 to 0.9."""
    return [round(0.9 * k / max(count - 1, 1), 3) for k in range(count)]


STUDY = Study("schedules", "Section 4.1: schedules of output dropout, and fixed values", arguments, experiments, "2h")
