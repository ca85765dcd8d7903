"""``python -m benchmarks speed``: what a self-tuning step costs."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from benchmarks.arguments import positive

SUMMARY = "the cost of a self-tuning step relative to a plain one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to time, and how often."""
    parser.add_argument(
        "--only",
        choices=["lstm", "cnn", "forward", "growth", "tasks", "compile", "integrations", "tune", "driver"],
        action="append",
        metavar="GROUP",
        help="only lstm, cnn, forward, growth, tasks, compile, integrations, tune or driver; repeatable",
    )
    parser.add_argument("--size", choices=["paper", "smoke"], default="paper", help="model size (default paper)")
    parser.add_argument(
        "--rounds", type=positive, default=7, metavar="N", help="timed rounds (default 7; use at least 5 to quote)"
    )
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="of torch (default 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per row instead of a table")


def execute(arguments: argparse.Namespace) -> None:
    """Prints a table, or JSON."""
    from benchmarks.microbenchmarks.speed import print_speed_table, time_steps

    rows = time_steps(arguments.size, arguments.only, arguments.rounds, arguments.threads)
    if arguments.json:
        for row in rows:
            print(json.dumps(asdict(row)))
    else:
        print_speed_table(rows, arguments.size, arguments.rounds, arguments.threads)
