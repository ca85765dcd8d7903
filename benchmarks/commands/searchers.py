"""``python -m benchmarks searchers``: SkOptSearch against random search and scikit-optimize's own loop."""

from __future__ import annotations

import argparse

from benchmarks.arguments import positive

SUMMARY = "compare SkOptSearch, random search and gp_minimize"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many searches, and how long."""
    parser.add_argument("--seeds", type=positive, default=10, metavar="N", help="seeds 0 to N-1 (default 10)")
    parser.add_argument(
        "--evaluations",
        type=positive,
        action="append",
        metavar="N",
        help="evaluations per search (default 30 and 60); repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per row instead of a table")


def execute(arguments: argparse.Namespace) -> None:
    """Prints a table, or JSON."""
    from benchmarks.microbenchmarks.searchers import print_comparison

    print_comparison(arguments.seeds, arguments.evaluations, arguments.json)
