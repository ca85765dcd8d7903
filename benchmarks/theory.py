"""``python -m benchmarks theory``: learned against exact best responses in three neighbourhoods (Figure 2)."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.experiment import Experiment

NETWORKS = ("ridge", "gated")
SCALES = (0.01, 0.2, 2.0)
"""σ too small to learn the slope in the same number of steps, right, and too wide for an affine response."""


def experiments(seeds: Sequence[int]) -> list[Experiment]:
    """Every network in every neighbourhood, seed by seed."""
    return [
        Experiment("stn", seed, f"{network} scale={scale:g}", (f"network={network}", f"stn.scale={scale:g}"))
        for seed in seeds
        for network in NETWORKS
        for scale in SCALES
    ]
