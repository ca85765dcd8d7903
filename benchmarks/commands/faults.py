"""``python -m benchmarks faults``: processes, nodes, disks and files that fail, and what that costs."""

from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path

from benchmarks.arguments import not_negative, positive

SUMMARY = "kill processes and nodes, damage files and disks, and resume"

KINDS = ("trial", "driver", "command", "torn", "clock", "disk", "readonly", "node")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which faults, and how many."""
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=KINDS,
        default=KINDS,
        metavar="KIND",
        help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]} (default: all; disk and readonly need root)",
    )
    parser.add_argument("--cases", type=positive, default=20, metavar="N", help="of each kind (default 20)")
    parser.add_argument("--seed", type=not_negative, default=0, metavar="N", help="of the faults (default 0)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/faults"),
        metavar="DIR",
        help="folder of cases.jsonl and the table; cases that are there are not run again (default results/faults)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Runs the cases that are missing, and prints the table; 1 if one did not survive."""
    from benchmarks.runner.lock import FolderLock

    with FolderLock(arguments.out):
        print("starting Ray …", flush=True)
        # Before Ray is imported, which reads it: nodes and commands that the suite starts connect with this token.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        # Ray's default of 15 makes a start of seconds one of minutes where other work is running.
        os.environ.setdefault("RAY_worker_niceness", "0")

        from rich.console import Console

        from benchmarks.faults.suite import Suite, page

        console = Console()
        suite = Suite(arguments.out, arguments.seed, console)
        survived = suite.run(arguments.kinds, arguments.cases)
        console.print(page(suite.results(), arguments.seed), highlight=False, markup=False, soft_wrap=True)
    return 0 if survived else 1
