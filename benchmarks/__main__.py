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
    demo.add_argument("--epochs", type=positive, default=20, help="passes over the training data (default 20)")
    demo.add_argument("--seed", type=int, default=0)

    speed = commands.add_parser("speed", help="what a self-tuning step costs, against the plain training step")
    speed.add_argument("--only", choices=["lstm", "cnn"], action="append", help="one group of rows; repeatable")
    speed.add_argument("--size", choices=["paper", "smoke"], default="paper", help="model size (default paper)")
    speed.add_argument("--rounds", type=positive, default=7, help="timed rounds, at least 5 for a figure to quote")
    speed.add_argument("--threads", type=positive, default=1)
    speed.add_argument("--json", action="store_true", help="one JSON object per row instead of a table")
    return parser


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number


def main(argv: list[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    if arguments.command == "speed":
        from benchmarks import speed

        rows = speed.run(arguments.size, arguments.only, arguments.rounds, arguments.threads)
        if arguments.json:
            speed.print_json(rows)
        else:
            speed.show(rows, arguments.size, arguments.rounds, arguments.threads)
    else:
        from benchmarks import demo

        demo.run(arguments.epochs, arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
