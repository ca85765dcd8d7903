"""theory: learned against exact best responses in three neighbourhoods (Figure 2 of the paper)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.arguments import seed_list
from benchmarks.studies.base import Study
from stn_tune.record import ExperimentInfo

if TYPE_CHECKING:
    from stn_tune.analysis import Figure

NETWORKS = ("ridge", "gated")
SCALES = (0.01, 0.2, 2.0)
"""σ too small to learn the slope in the same number of steps, right, and too wide for an affine response."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Seeds; the task is the study's own."""
    parser.add_argument(
        "--seeds", type=seed_list, default="3", help="a count (5: seeds 0 to 4) or a list (0,3,7); default 3"
    )
    parser.set_defaults(task="theory")


def experiments(options: argparse.Namespace) -> list[ExperimentInfo]:
    """Every network in every neighbourhood, seed by seed."""
    return [
        ExperimentInfo(
            "stn",
            seed,
            {"network": network, "scale": scale},
            compared=False,  # λ is held: the losses compare nothing
            overrides=(f"network={network}", f"stn.scale={scale:g}"),
        )
        for seed in options.seeds
        for network in NETWORKS
        for scale in SCALES
    ]


def figures() -> Sequence[Figure]:
    """The neighbourhoods."""
    from benchmarks.studies.theory.figures import FIGURES

    return FIGURES


STUDY = Study(
    "theory",
    "Theorems 1 and 2, drawn and checked: exact and learned best responses",
    arguments,
    experiments,
    budget="2m",
    figures=figures,
)
