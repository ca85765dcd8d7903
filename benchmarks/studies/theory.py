"""Theorems 1 and 2: learned and exact best responses."""

from __future__ import annotations

import argparse

from benchmarks.arguments import seed_list
from benchmarks.studies import Study
from benchmarks.studies.run import SEEDS
from stn_tune.record import ExperimentInfo

NETWORKS = ("ridge", "gated")
SCALES = (0.01, 0.2, 2.0)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Seeds; the task is always the same."""
    parser.add_argument("--seeds", type=seed_list, default="3", help=f"{SEEDS} (default 3)")
    parser.set_defaults(task="theory")


def experiments(given: argparse.Namespace) -> list[ExperimentInfo]:
    """Every network in every neighbourhood, seed by seed."""
    return [
        ExperimentInfo("stn", seed, {"network": n, "scale": s}, overrides=(f"network={n}", f"stn.scale={s:g}"))
        for seed in given.seeds
        for n in NETWORKS
        for s in SCALES
    ]


STUDY = Study("theory", "Theorems 1 and 2: exact and learned best responses", arguments, experiments, "2m")
