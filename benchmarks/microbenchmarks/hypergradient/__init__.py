"""How right are hypergradients? Compares what an algorithm says with finite differences of continued training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from benchmarks.data.download import data_dir
from benchmarks.errors import SettingsError
from benchmarks.microbenchmarks.hypergradient.checkpoints import Log, read_folder
from benchmarks.microbenchmarks.hypergradient.figures import save_figures
from benchmarks.microbenchmarks.hypergradient.measure import Measurement, Variant, measure_run
from benchmarks.microbenchmarks.hypergradient.tables import print_tables
from benchmarks.tasks import Problem, problem
from stn_tune.algorithms.registry import options_of

__all__ = ["measure_all", "report", "variants_of"]

EPOCHS = (10, 20, 30)
THEORY_EPOCHS = (3, 6, 18)
SWITCHES = ("separate", "centred", "linearised")
"""Δ-STN's differences to the STN that ``theory`` turns on and off."""
THEORY_HYPER_LR = 0.001
"""Of a λ that moves: slow enough to stay away from the minimum, where the truth is 0 and has no relative error."""


def variants_of(p: Problem, algorithms: Sequence[str]) -> list[Variant]:
    """The algorithms; for ``theory`` with λ held and moving, and Δ-STN with every combination of its switches."""
    if p.name != "theory":
        found = [Variant(name, {"algorithm": name}) for name in algorithms]
    else:
        lam: dict[str, dict[str, Any]] = {
            "held": {"valid_steps": 0},
            "moving": {"valid_steps": 1, "hyper_lr": THEORY_HYPER_LR},
        }
        found = [
            Variant("-".join([*own.name.split(), how]), {**own.options, **options})
            for how, options in lam.items()
            for own in _theory_variants(algorithms)
        ]
    for variant in found:
        try:
            options = options_of({**p.stn_options, **variant.options})
        except (TypeError, ValueError) as error:
            raise SettingsError(f"{variant.name}: {error}") from None
        if options.direct:
            raise SettingsError("stn.direct is set: score-function gradients need draws, and are not measured here")
    return found


def _theory_variants(algorithms: Sequence[str]) -> Iterator[Variant]:
    for name in algorithms:
        for switches in product((True, False), repeat=len(SWITCHES)) if name == "delta" else [()]:
            options = dict(zip(SWITCHES, switches, strict=False))
            yield Variant(" ".join([name, *(key for key in options if options[key])]), {"algorithm": name, **options})


def measure_all(
    task: str,
    out: Path,
    *,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    epochs: Sequence[int] | None = None,
    step: float = 0.7,
    passes: int = 3,
    repeats: int = 3,
    preset: str = "small",
    overrides: Sequence[str] = (),
    data: str | None = None,
) -> None:
    """Trains every algorithm from every seed and measures at every epoch, but what ``out`` has already."""
    torch.set_num_threads(1)
    p = problem(task, preset, overrides, data_dir(data))
    variants = variants_of(p, list(dict.fromkeys(algorithms)))
    at = sorted(set(epochs or (THEORY_EPOCHS if task == "theory" else EPOCHS)))
    measurement = Measurement(step, passes, repeats)
    settings = {"task": task, "preset": preset, "overrides": list(overrides), **measurement.settings()}
    logs = {(v, seed): Log(out / f"{v.name}-{seed}.jsonl", settings) for v in variants for seed in seeds}
    console = Console(stderr=True)
    with Progress(console=console, transient=True) as progress:
        for (variant, seed), log in logs.items():
            missing = [epoch for epoch in at if epoch not in log.epochs]
            if not missing:
                continue
            bar = progress.add_task(f"{variant.name}, seed {seed}", total=measurement.ticks(p, missing))
            ended = measure_run(p, variant, seed, missing, measurement, log, partial(progress.advance, bar))
            if ended is not None:
                console.print(
                    f"{variant.name}, seed {seed}: training ended after {ended} epochs; later checkpoints do not exist",
                    highlight=False,
                    soft_wrap=True,
                )
            progress.remove_task(bar)


def report(out: Path) -> None:
    """Prints the table of a folder's results and draws its figures, from the files alone."""
    checkpoints = read_folder(out)
    print_tables(checkpoints)
    for path in save_figures(checkpoints, out):
        Console().print(str(path), highlight=False, markup=False, soft_wrap=True)
