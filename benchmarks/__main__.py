"""The command line: ``python -m benchmarks COMMAND``."""

from __future__ import annotations

import argparse
import sys


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Self-Tuning Networks against hyperparameter search."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="train a self-tuning network on scikit-learn's digits (a minute)")
    demo.add_argument("--epochs", type=positive, default=60, help="passes over the training data (default 60)")
    demo.add_argument("--seed", type=int, default=0)
    demo.set_defaults(run=run_demo)

    data = commands.add_parser("data", help="download the benchmark's data, once per machine")
    data.add_argument("name", choices=["ptb", "cifar10"], help="which data set")
    data.add_argument("--data-dir", help="where to keep it (default $STN_TUNE_DATA, else the user's cache directory)")
    data.add_argument("--no-verify", action="store_true", help="accept files whose checksum is not the official one")
    data.set_defaults(run=run_data)

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


def run_demo(arguments: argparse.Namespace) -> None:
    from benchmarks import demo

    demo.run(arguments.epochs, arguments.seed)


def run_data(arguments: argparse.Namespace) -> None:
    from benchmarks.data.command import run

    run(arguments.name, arguments.data_dir, verify=not arguments.no_verify)


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
