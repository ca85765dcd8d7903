"""sensitivity: step ratios and perturbation scales of the STN (appendix H of the paper)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.arguments import seed_list, step_ratio
from benchmarks.studies.base import Study
from stn_tune.record import ExperimentInfo, value_text

if TYPE_CHECKING:
    from stn_tune.analysis import Figure

STEPS = ((1, 1), (2, 1), (5, 1), (10, 1), (1, 5), (5, 5))
"""T_train and T_valid."""
SCALES = (0.1, 0.5, 1.0, 2.0)
"""Initial perturbation scales σ."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Task, seeds, ratios and scales."""
    parser.add_argument("task", help="ptb, cifar10, pydoc or digits")
    parser.add_argument(
        "--seeds", type=seed_list, default="1", help="a count (5: seeds 0 to 4) or a list (0,3,7); default 1"
    )
    parser.add_argument(
        "--steps",
        type=step_ratio,
        nargs="+",
        default=list(STEPS),
        metavar="T:V",
        help=f"training steps to validation steps (default {' '.join(f'{t}:{v}' for t, v in STEPS)})",
    )
    parser.add_argument(
        "--scales",
        type=float,
        nargs="+",
        default=list(SCALES),
        metavar="S",
        help=f"perturbation scales (default {' '.join(f'{scale:g}' for scale in SCALES)})",
    )


def experiments(options: argparse.Namespace) -> list[ExperimentInfo]:
    """The STN with other numbers of training and validation steps, and with other scales, fixed and tuned."""
    variants = [{"train_steps": train, "valid_steps": valid} for train, valid in options.steps]
    variants += [{"scale": scale, "tune_scale": tuned} for scale in options.scales for tuned in (False, True)]
    return [
        ExperimentInfo("stn", seed, variant, overrides=tuple(f"stn.{k}={value_text(v)}" for k, v in variant.items()))
        for seed in options.seeds
        for variant in variants
    ]


def figures() -> Sequence[Figure]:
    """Step ratios and scales."""
    from benchmarks.studies.sensitivity.figures import FIGURES

    return FIGURES


STUDY = Study(
    "sensitivity",
    "appendix H: step ratios and perturbation scales of the STN",
    arguments,
    experiments,
    figures=figures,
)
