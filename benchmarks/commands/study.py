"""A command for every study: ``run``, ``schedules``, … Runs the study's experiments and makes a report."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from baselines import METHODS
from benchmarks.arguments import add_data_dir, add_task_size, amount, positive, seconds
from benchmarks.studies import Study

EXAMPLES = """examples:
  python -m benchmarks run digits --budget 60s
  python -m benchmarks run ptb --methods stn random tpe --seeds 5 --budget 20m \\
      --out results/mine
  python -m benchmarks run ptb --methods stn random tpe --seeds 5 --budget 20m \\
      --out results/mine --resume
  python -m benchmarks run cifar10 --preset paper --gpus 0.5 --address auto \\
      --storage s3://bucket/stn
"""


def command_of(
    study: Study,
) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]:
    """A study's ``add_arguments`` and ``execute``."""
    return partial(_add_arguments, study), partial(_execute, study)


def _add_arguments(study: Study, parser: argparse.ArgumentParser) -> None:
    study.arguments(parser)
    add_task_size(parser)
    parser.add_argument(
        "--budget",
        type=seconds,
        default=study.budget,
        metavar="TIME",
        help="compute-seconds per experiment, including start-up and evaluation: 90s, 20m, 6h "
        f"(default {study.budget})",
    )
    parser.add_argument("--out", metavar="DIR", help="folder of the results (default results/[STUDY-]TASK-PRESET)")
    parser.add_argument(
        "--resume", action="store_true", help="resume the run in --out; finished experiments are skipped"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list what would run and how long it takes; runs and writes nothing"
    )
    parser.add_argument("--workers", type=positive, default=1, metavar="N", help="concurrent trials (default 1)")
    parser.add_argument(
        "--cpus", type=amount, default=1, metavar="N", help="CPUs per trial, may be a fraction (default 1)"
    )
    parser.add_argument(
        "--gpus", type=amount, default=0, metavar="N", help="GPUs per trial, may be a fraction (default 0)"
    )
    parser.add_argument("--address", help="a running Ray cluster: auto or HOST:6379 (default: this machine)")
    parser.add_argument(
        "--storage",
        metavar="PATH",
        help="where Tune keeps trials and checkpoints: a folder that all nodes share, or a URI such as s3://bucket "
        "(default ~/ray_results)",
    )
    add_data_dir(parser)
    if parser.get_default("methods") and not parser.epilog:
        methods = "\n".join(f"  {name:10}{method.info.summary}" for name, method in METHODS.items())
        parser.epilog = f"methods:\n{methods}\n\nEvery search tries the STN's initial values first.\n\n{EXAMPLES}"


def _execute(study: Study, arguments: argparse.Namespace) -> int:
    """Checks everything that can be checked without torch and Ray, then runs the experiments."""
    from benchmarks.data.download import data_dir
    from benchmarks.runner.dry_run import dry_run
    from benchmarks.runner.lock import FolderLock
    from benchmarks.runner.options import Options, check_experiments
    from benchmarks.runner.store import Store

    parts = dict.fromkeys([study.name, arguments.task, arguments.preset])
    parts.pop("run", None)
    tuned = tuple(getattr(arguments, "tune", None) or ())
    options = Options(
        task=arguments.task,
        out=Path(arguments.out or f"results/{'-'.join(parts)}"),
        budget_s=arguments.budget,
        preset=arguments.preset,
        overrides=tuple(arguments.set),
        tuned=tuned,
        workers=arguments.workers,
        cpus=arguments.cpus,
        gpus=arguments.gpus,
        address=arguments.address,
        storage=arguments.storage,
        data=data_dir(arguments.data_dir),
        resume=arguments.resume,
        schedule=getattr(arguments, "schedule", None),
        study=study.name,
        published=None if tuned else study.published(arguments.task),  # the paper tunes everything
    )
    options.check_names()
    options.check_fits()
    experiments = study.experiments(arguments)
    check_experiments(options, experiments, Store(options.out).finished)
    if arguments.dry_run:
        print("\n".join(dry_run(options, experiments)))
        return 0
    with FolderLock(options.out):
        from benchmarks.commands.report import write_report
        from benchmarks.runner.runner import run_experiments

        if not run_experiments(options, experiments):
            return 1
        write_report([options.out])
    return 0
