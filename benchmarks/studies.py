"""The paper's other experiments, as lists for the runner: schedules (Section 4.1), sensitivity (appendix H)."""

from __future__ import annotations

from collections.abc import Sequence

from baselines import METHODS
from benchmarks.experiment import Experiment
from benchmarks.settings import SettingsError

STARTS = (0.3, 0.5, 0.7, 0.9)
STEPS = ((1, 1), (2, 1), (5, 1), (10, 1), (1, 5), (5, 5))
"""T_train and T_valid."""
SCALES = (0.1, 0.5, 1.0, 2.0)
"""Initial perturbation scales σ."""

TUNED = "output_dropout"
OTHER = "input_dropout"


def schedules(
    task: str, seeds: Sequence[int], levels: int, heatmap: int, starts: Sequence[float] = STARTS
) -> list[Experiment]:
    """Output dropout alone: fixed, perturbed, self-tuned, replayed; from several starts; and against input dropout.

    ``levels`` is the number of values of the fine grid, ``heatmap`` that along each side of the heat map (0: none),
    which takes the first seed only (both are the whole grid, in its own order); ``starts`` are initial output dropouts
    beside the preset's own.
    """
    if task not in ("ptb", "pydoc"):
        raise SettingsError(f"schedules are those of the language model's output dropout: {task!r} is not ptb or pydoc")
    whole = "grid_order=tune"
    grid = (f"space.{TUNED}.levels={spaced(levels)}", whole)
    alone = (TUNED,)
    heat = (f"space.{TUNED}.levels={spaced(heatmap)}", f"space.{OTHER}.levels={spaced(heatmap)}", whole)
    chosen = []
    for seed in seeds:
        chosen.append(Experiment("stn", seed, tuned=alone))
        chosen.append(Experiment("grid", seed, changes=grid, tuned=alone))
        for name in ("replay", "final", "gaussian", "sinusoid", "greedy"):
            chosen.append(Experiment(name, seed, tuned=alone, needs=METHODS[name].info.builds_on))
        for start in starts:
            chosen.append(
                Experiment("stn", seed, f"stn start={start:g}", (f"space.{TUNED}.init={start:g}",), tuned=alone)
            )
    if heatmap:
        chosen.append(Experiment("grid", seeds[0], "heatmap", heat, tuned=(OTHER, TUNED)))
    return chosen


def spaced(count: int) -> list[float]:
    """Rates from 0 to 0.9."""
    return [round(0.9 * k / max(count - 1, 1), 3) for k in range(count)]


def sensitivity(
    seeds: Sequence[int], steps: Sequence[tuple[int, int]] = STEPS, scales: Sequence[float] = SCALES
) -> list[Experiment]:
    """The STN with other numbers of training and validation steps, and with other scales, fixed and tuned."""
    chosen = []
    for seed in seeds:
        for train, valid in steps:
            changes = (f"stn.train_steps={train}", f"stn.valid_steps={valid}")
            chosen.append(Experiment("stn", seed, f"stn train={train} valid={valid}", changes))
        for scale in scales:
            for flag, tuned in (("fixed", "false"), ("tuned", "true")):
                changes = (f"stn.scale={scale}", f"stn.tune_scale={tuned}")
                chosen.append(Experiment("stn", seed, f"stn scale={scale:g} {flag}", changes))
    return chosen
