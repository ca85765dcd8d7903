"""Appendix H: step ratios and perturbation scales."""

from __future__ import annotations

import argparse

from benchmarks.arguments import seed_list, step_ratio
from benchmarks.studies import Study
from benchmarks.studies.run import SEEDS
from stn_tune.record import ExperimentInfo

STEPS = ((1, 1), (2, 1), (5, 1), (10, 1), (1, 5), (5, 5))
SCALES = (0.1, 0.5, 1.0, 2.0)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Task, seeds, steps and scales."""
    parser.add_argument("task", metavar="TASK", help="ptb, cifar10, pydoc or digits")
    parser.add_argument("--seeds", type=seed_list, default="1", help=f"{SEEDS} (default 1)")
    parser.add_argument(
        "--steps", type=step_ratio, nargs="+", default=STEPS, metavar="T:V", help="training steps to validation steps"
    )
    parser.add_argument("--scales", type=float, nargs="+", default=SCALES, metavar="S", help="perturbation scales")


def experiments(given: argparse.Namespace) -> list[ExperimentInfo]:
    """The STN with other numbers of steps, and with other scales, fixed and tuned."""
    chosen = []
    for seed in given.seeds:
        for train, valid in given.steps:
            changes = (f"stn.train_steps={train}", f"stn.valid_steps={valid}")
            chosen.append(ExperimentInfo("stn", seed, {"train": train, "valid": valid}, overrides=changes))
        for scale in given.scales:
            for tuned in (False, True):
                changes = (f"stn.scale={scale}", f"stn.tune_scale={str(tuned).lower()}")
                chosen.append(ExperimentInfo("stn", seed, {"scale": scale, "tune_scale": tuned}, overrides=changes))
    return chosen


STUDY = Study("sensitivity", "appendix H: step ratios and perturbation scales of the STN", arguments, experiments)
