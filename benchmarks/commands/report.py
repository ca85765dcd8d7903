"""``python -m benchmarks report DIR``: ``stn-tune report`` with the figures of the studies, and runs of version 1."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from stn_tune.cli import REPORT, add_report_arguments, run_report

SUMMARY = REPORT
add_arguments = add_report_arguments


def execute(arguments: argparse.Namespace) -> None:
    """Writes and prints a report."""
    from benchmarks.studies import all_figures
    from benchmarks.version1 import upgrade

    run_report(arguments, all_figures(), upgrade, ("python", "-m", "benchmarks", "report"))


def write_report(paths: Sequence[str | os.PathLike[str]]) -> None:
    """What the command does with these folders."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    execute(parser.parse_args([str(Path(path)) for path in paths]))
