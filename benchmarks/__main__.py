"""The command line: ``python -m benchmarks COMMAND``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from benchmarks.experiment import Experiment
    from benchmarks.options import Options


class CommandParser(argparse.ArgumentParser):
    """One that says what is wrong in one line, and whose last words, which take seconds to import, wait for --help."""

    late_epilog: Callable[[], str] | None = None

    def format_help(self) -> str:
        if self.late_epilog is not None:
            self.epilog = self.late_epilog()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (--help lists what there is)\n")


def build_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m benchmarks", description="Self-Tuning Networks against hyperparameter search."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="stn, grid, random and bayes on two small problems (about 4 minutes)")
    demo.add_argument("--budget", default="40s", help="compute-seconds per method and problem (default 40s)")
    demo.add_argument("--out", default="results/demo", help="folder of the results, made anew (default results/demo)")
    demo.set_defaults(run=run_demo)

    data = commands.add_parser("data", help="download the benchmark's data, once per machine")
    data.add_argument("name", choices=["ptb", "cifar10"], help="which data set")
    data.add_argument("--data-dir", help="where to keep it (default $STN_TUNE_DATA, else the user's cache directory)")
    data.add_argument("--no-verify", action="store_true", help="accept files whose checksum is not the official one")
    data.set_defaults(run=run_data)

    train = commands.add_parser("train", help="train one network on one core, fixed or self-tuned, and watch it")
    train.add_argument("task", help="ptb, cifar10, pydoc or digits")
    train.add_argument("--preset", default="small", help="smoke, small (default) or paper")
    train.add_argument("--self-tuned", action="store_true", help="let the network tune its hyperparameters")
    train.add_argument(
        "--value", action="append", default=[], metavar="NAME=X", help="a hyperparameter's (initial) value; repeatable"
    )
    train.add_argument("--set", action="append", default=[], metavar="KEY=X", help="override a setting; repeatable")
    train.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    train.add_argument("--seed", type=seed, default=0)
    train.add_argument("--data-dir", help="where the data is (default $STN_TUNE_DATA, else the user's cache directory)")
    train.add_argument("--every", type=positive, default=1, metavar="N", help="print every N-th epoch (default 1)")
    train.add_argument("--json", action="store_true", help="one JSON object per epoch, and the best at the end")
    train.set_defaults(run=run_train)

    run = commands.add_parser(
        "run",
        help="compare methods at equal budgets, on this machine or a cluster",
        description="Runs every method with every seed on the same task, model, space, data split and compute budget.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.late_epilog = run_epilog
    run.add_argument("task", help="ptb, cifar10, pydoc or digits")
    run.add_argument(
        "--methods",
        nargs="+",
        default=["stn", "grid", "random", "bayes"],
        metavar="METHOD",
        help="which to compare (default stn grid random bayes; all are listed below)",
    )
    run.add_argument("--seeds", default="3", help="a count (5: seeds 0 to 4) or a list (0,3,7); default 3")
    run.add_argument(
        "--tune",
        nargs="+",
        default=[],
        metavar="NAME",
        help="tune only these hyperparameters; the others keep their initial values",
    )
    run.add_argument(
        "--schedule", type=Path, metavar="FILE", help="what replay follows (default: what stn finds in the same run)"
    )
    add_run_options(run, budget="10m")
    run.set_defaults(run=run_run)

    report = commands.add_parser(
        "report", help="tables, figures and a page, from the results of run or any Tune experiment"
    )
    report.add_argument("paths", nargs="+", metavar="DIR", help="folders of results, or of Tune experiments; URIs too")
    report.add_argument("--out", help="where to write it (default DIR/report)")
    report.add_argument("--figure", action="append", default=[], metavar="NAME", help="only this figure; repeatable")
    report.add_argument(
        "--format",
        action="append",
        choices=["png", "svg", "pdf"],
        help="of the figures (default: all); repeatable",
    )
    report.set_defaults(run=run_report)

    overview = commands.add_parser(
        "overview", help="the results of several tasks in one picture and one table: the README's first screen"
    )
    overview.add_argument("paths", nargs="+", metavar="DIR", help="folders of results, one for each task")
    overview.add_argument("--out", required=True, help="where to write overview.md, overview.png and overview.svg")
    overview.set_defaults(run=run_overview)

    schedules = commands.add_parser("schedules", help="Section 4.1: schedules of output dropout, and fixed values")
    schedules.add_argument("task", help="ptb or pydoc")
    schedules.add_argument("--seeds", default="3", help="a count (5: seeds 0 to 4) or a list (0,3,7); default 3")
    schedules.add_argument("--levels", type=positive, default=10, help="values of the fine grid (default 10)")
    schedules.add_argument(
        "--heatmap", type=not_negative, default=5, help="values per side of the heat map (default 5; 0: none)"
    )
    schedules.add_argument(
        "--starts",
        type=float,
        nargs="+",
        metavar="X",
        help="output dropouts to start from, beside the preset's (default 0.3 0.5 0.7 0.9)",
    )
    add_run_options(schedules, budget="2h")
    schedules.set_defaults(run=run_schedules)

    sensitivity = commands.add_parser("sensitivity", help="appendix H: step ratios and perturbation scales of the STN")
    sensitivity.add_argument("task", help="ptb, cifar10, pydoc or digits")
    sensitivity.add_argument("--seeds", default="1", help="a count (5: seeds 0 to 4) or a list (0,3,7); default 1")
    sensitivity.add_argument(
        "--steps",
        type=step_ratio,
        nargs="+",
        metavar="T:V",
        help="training steps to validation steps (default 1:1 2:1 5:1 10:1 1:5 5:5)",
    )
    sensitivity.add_argument(
        "--scales", type=float, nargs="+", metavar="S", help="perturbation scales (default 0.1 0.5 1 2)"
    )
    add_run_options(sensitivity, budget="10m")
    sensitivity.set_defaults(run=run_sensitivity)

    theory = commands.add_parser("theory", help="Theorems 1 and 2, drawn and checked: exact and learned best responses")
    theory.add_argument("--seeds", default="3", help="a count (5: seeds 0 to 4) or a list (0,3,7); default 3")
    add_run_options(theory, budget="2m")
    theory.set_defaults(run=run_theory, task="theory")

    searchers = commands.add_parser(
        "searchers", help="SkOptSearch against random search and gp_minimize on Branin and Hartmann6"
    )
    searchers.add_argument("--seeds", type=positive, default=10, help="seeds 0 to N-1 (default 10)")
    searchers.add_argument(
        "--evaluations", type=positive, action="append", help="evaluations per search (default 30 and 60); repeatable"
    )
    searchers.add_argument("--json", action="store_true", help="one JSON object per row instead of a table")
    searchers.set_defaults(run=run_searchers)

    speed = commands.add_parser("speed", help="what a self-tuning step costs, against the plain training step")
    speed.add_argument(
        "--only", choices=["lstm", "cnn", "tasks", "tune"], action="append", help="one group of rows; repeatable"
    )
    speed.add_argument("--size", choices=["paper", "smoke"], default="paper", help="model size (default paper)")
    speed.add_argument("--rounds", type=positive, default=7, help="timed rounds, at least 5 for a figure to quote")
    speed.add_argument("--threads", type=positive, default=1)
    speed.add_argument("--json", action="store_true", help="one JSON object per row instead of a table")
    speed.set_defaults(run=run_speed)
    return parser


def add_run_options(parser: argparse.ArgumentParser, budget: str) -> None:
    """What all commands that run experiments take."""
    parser.add_argument("--preset", default="small", help="smoke, small (default) or paper")
    parser.add_argument(
        "--budget",
        default=budget,
        help=f"compute-seconds per method and seed, set-up and evaluation included: 90s, 20m, 6h (default {budget})",
    )
    parser.add_argument("--out", help="folder of the results (default results/[COMMAND-]TASK-PRESET)")
    parser.add_argument("--resume", action="store_true", help="carry on the run in --out; what is finished is kept")
    parser.add_argument("--workers", type=positive, default=1, help="trials of a method at a time (default 1)")
    parser.add_argument("--cpus", type=amount, default=1, help="CPUs per trial, fractions allowed (default 1)")
    parser.add_argument("--gpus", type=amount, default=0, help="GPUs per trial, fractions allowed (default 0)")
    parser.add_argument("--address", help="a running Ray cluster (auto, HOST:6379); default: this machine alone")
    parser.add_argument(
        "--storage",
        metavar="PATH",
        help="where Tune keeps trials and checkpoints: a folder all nodes share, or s3://… (default ~/ray_results)",
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=X", help="override a setting; repeatable")
    parser.add_argument(
        "--data-dir", help="where the data is (default $STN_TUNE_DATA, else the user's cache directory)"
    )


def run_epilog() -> str:
    from baselines import METHODS

    methods = "\n".join(f"  {name:10}{method.info.summary}" for name, method in METHODS.items())
    return f"""methods:
{methods}

Every search tries the preset's initial values first, which are those that the STN starts from.

examples:
  python -m benchmarks run digits --budget 60s
  python -m benchmarks run ptb --methods stn random tpe --seeds 5 --budget 20m --out results/mine
  python -m benchmarks run ptb --seeds 5 --budget 20m --out results/mine --resume
  python -m benchmarks run cifar10 --preset paper --gpus 0.5 --address auto --storage s3://bucket/stn
"""


def positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return number


def not_negative(text: str) -> int:
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def seed(text: str) -> int:
    """What torch and numpy both take."""
    number = not_negative(text)
    if number >= 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is not below 2**32")
    return number


def amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return number


def step_ratio(text: str) -> tuple[int, int]:
    train, colon, valid = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form T:V, such as 2:1")
    return positive(train), positive(valid)


def run_data(arguments: argparse.Namespace) -> None:
    from benchmarks.data.command import run

    run(arguments.name, arguments.data_dir, verify=not arguments.no_verify)


def run_train(arguments: argparse.Namespace) -> None:
    from benchmarks import train
    from benchmarks.data import data_dir

    train.run(
        arguments.task,
        arguments.preset,
        arguments.set,
        arguments.value,
        self_tuned=arguments.self_tuned,
        seed=arguments.seed,
        seconds=arguments.seconds,
        data=data_dir(arguments.data_dir),
        as_json=arguments.json,
        every=arguments.every,
    )


def run_options(arguments: argparse.Namespace) -> Options:
    from benchmarks.data import data_dir
    from benchmarks.options import Options, seconds

    parts = dict.fromkeys([arguments.command, arguments.task, arguments.preset])
    parts.pop("run", None)
    return Options(
        task=arguments.task,
        out=Path(arguments.out or f"results/{'-'.join(parts)}"),
        budget_s=seconds(arguments.budget),
        preset=arguments.preset,
        overrides=tuple(arguments.set),
        workers=arguments.workers,
        cpus=arguments.cpus,
        gpus=arguments.gpus,
        address=arguments.address,
        storage=arguments.storage,
        data=data_dir(arguments.data_dir),
        resume=arguments.resume,
        command=arguments.command,
    )


def run_run(arguments: argparse.Namespace) -> int:
    from dataclasses import replace

    from benchmarks.options import choose, seed_list

    methods = [name for part in arguments.methods for name in part.split(",") if name]
    options = replace(run_options(arguments), tuned=tuple(arguments.tune), schedule=arguments.schedule)
    chosen = choose(methods, seed_list(arguments.seeds), schedule=arguments.schedule is not None)
    return conduct(options, chosen)


def run_schedules(arguments: argparse.Namespace) -> int:
    from benchmarks.options import seed_list
    from benchmarks.studies import STARTS, schedules

    starts = STARTS if arguments.starts is None else arguments.starts
    seeds = seed_list(arguments.seeds)
    chosen = schedules(arguments.task, seeds, arguments.levels, arguments.heatmap, starts)
    return conduct(run_options(arguments), chosen)


def run_sensitivity(arguments: argparse.Namespace) -> int:
    from benchmarks.options import seed_list
    from benchmarks.studies import SCALES, STEPS, sensitivity

    chosen = sensitivity(seed_list(arguments.seeds), arguments.steps or STEPS, arguments.scales or SCALES)
    return conduct(run_options(arguments), chosen)


def run_theory(arguments: argparse.Namespace) -> int:
    from benchmarks.options import seed_list
    from benchmarks.theory import experiments

    return conduct(run_options(arguments), experiments(seed_list(arguments.seeds)))


def run_searchers(arguments: argparse.Namespace) -> None:
    from benchmarks import searchers

    searchers.run(arguments.seeds, arguments.evaluations, arguments.json)


def conduct(options: Options, experiments: Sequence[Experiment]) -> int:
    """A run and, once all of it is finished, its report."""
    from benchmarks import report
    from benchmarks.run import run

    if not run(options, experiments):
        return 1
    report.run([options.out])
    return 0


def run_report(arguments: argparse.Namespace) -> None:
    from benchmarks import report

    report.run(arguments.paths, arguments.out, arguments.figure, arguments.format or ("png", "svg", "pdf"))


def run_overview(arguments: argparse.Namespace) -> None:
    from benchmarks import overview

    overview.run(arguments.paths, arguments.out)


def run_demo(arguments: argparse.Namespace) -> int:
    from benchmarks.demo import run
    from benchmarks.options import seconds

    return run(seconds(arguments.budget), Path(arguments.out))


def run_speed(arguments: argparse.Namespace) -> None:
    from benchmarks import speed

    rows = speed.run(arguments.size, arguments.only, arguments.rounds, arguments.threads)
    if arguments.json:
        speed.print_json(rows)
    else:
        speed.show(rows, arguments.size, arguments.rounds, arguments.threads)


def main(argv: list[str] | None = None) -> int:
    from benchmarks.data import DataError
    from benchmarks.settings import SettingsError
    from stn_tune.analysis import AnalysisError

    arguments = build_parser().parse_args(argv)
    try:
        return arguments.run(arguments) or 0
    except (AnalysisError, DataError, SettingsError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
