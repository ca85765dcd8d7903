"""``python -m benchmarks hypergradient TASK``: hypergradients compared with finite differences of training itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.arguments import add_data_dir, add_task_size, positive, positive_number, seed_list
from benchmarks.errors import SettingsError
from benchmarks.tasks.settings import read_settings

SUMMARY = "how right the hypergradients are that an algorithm follows"
EPILOG = """The truth is a central difference: the plain network is trained on from a
checkpoint, at λ + STEP and at λ - STEP, for PASSES passes over the same
batches with the same random numbers. For the task theory it is a closed form.

Finished checkpoints in --out are not measured again.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to measure, where in training, and how exactly."""
    parser.epilog = EPILOG
    parser.add_argument("task", metavar="TASK", help="ptb, cifar10, pydoc, digits or theory")
    parser.add_argument(
        "--algorithms", nargs="+", default=["stn", "delta"], metavar="NAME", help="default: stn and delta"
    )
    parser.add_argument("--seeds", type=seed_list, default="1", help="a count (2: 0 and 1) or a list (0,3); default 1")
    parser.add_argument(
        "--epochs", nargs="+", type=positive, metavar="N", help="checkpoints (default 10 20 30; theory: 3 6 18)"
    )
    parser.add_argument(
        "--step", type=positive_number, default=0.7, metavar="H", help="of the differences, in λ (default 0.7)"
    )
    parser.add_argument("--passes", type=positive, default=3, metavar="N", help="of continued training (default 3)")
    parser.add_argument(
        "--repeats", type=positive, default=3, metavar="N", help="of the truth, with other batches (default 3)"
    )
    add_task_size(parser)
    add_data_dir(parser)
    parser.add_argument("--out", metavar="DIR", help="of the results (default results/hypergradient-TASK-PRESET)")
    parser.add_argument("--draw-only", action="store_true", help="table and figures of what is in --out; no training")


def execute(arguments: argparse.Namespace) -> None:
    """Measures what --out lacks, prints a table and draws the figures."""
    read_settings(arguments.task, arguments.preset, arguments.set)
    if arguments.repeats < 2:
        raise SettingsError(f"--repeats is {arguments.repeats}; it must be at least 2, for a standard error")
    out = Path(arguments.out or f"results/hypergradient-{arguments.task}-{arguments.preset}")

    from benchmarks.microbenchmarks.hypergradient import measure_all, report

    if not arguments.draw_only:
        measure_all(
            arguments.task,
            out,
            algorithms=arguments.algorithms,
            seeds=arguments.seeds,
            epochs=arguments.epochs,
            step=arguments.step,
            passes=arguments.passes,
            repeats=arguments.repeats,
            preset=arguments.preset,
            overrides=arguments.set,
            data=arguments.data_dir,
        )
    report(out)
