"""The command line: ``python -m benchmarks COMMAND``."""

from __future__ import annotations

import argparse
import sys


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Self-Tuning Networks against hyperparameter search."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="a self-tuning network on scikit-learn's digits (half a minute)")
    demo.add_argument("--seconds", type=float, default=30.0, help="how long to train (default 30)")
    demo.set_defaults(
        run=run_train,
        task="digits",
        preset="small",
        self_tuned=True,
        value=[],
        set=[],
        seed=0,
        data_dir=None,
        json=False,
        every=10,
    )

    data = commands.add_parser("data", help="download the benchmark's data, once per machine")
    data.add_argument("name", choices=["ptb", "cifar10"], help="which data set")
    data.add_argument("--data-dir", help="where to keep it (default $STN_TUNE_DATA, else the user's cache directory)")
    data.add_argument("--no-verify", action="store_true", help="accept files whose checksum is not the official one")
    data.set_defaults(run=run_data)

    train = commands.add_parser("train", help="train one network, at fixed values or self-tuned, and watch it")
    train.add_argument("task", help="ptb, cifar10, pydoc or digits")
    train.add_argument("--preset", default="small", help="smoke, small (default) or paper")
    train.add_argument("--self-tuned", action="store_true", help="let the network tune its hyperparameters")
    train.add_argument(
        "--value", action="append", default=[], metavar="NAME=X", help="a hyperparameter's (initial) value; repeatable"
    )
    train.add_argument("--set", action="append", default=[], metavar="KEY=X", help="override a setting; repeatable")
    train.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--data-dir", help="where the data is (default $STN_TUNE_DATA, else the user's cache directory)")
    train.add_argument("--every", type=positive, default=1, metavar="N", help="print every N-th epoch (default 1)")
    train.add_argument("--json", action="store_true", help="one JSON object per epoch, and the best at the end")
    train.set_defaults(run=run_train)

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


def positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return number


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

    arguments = build_parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except (DataError, SettingsError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
