"""``python -m benchmarks overview DIR… --out DIR``: ``stn-tune overview``, and runs of version 1."""

from __future__ import annotations

import argparse

from stn_tune.cli import OVERVIEW, add_overview_arguments, run_overview

SUMMARY = OVERVIEW
add_arguments = add_overview_arguments


def execute(arguments: argparse.Namespace) -> None:
    """Writes the overview, and prints where its files are."""
    from benchmarks.version1 import upgrade

    run_overview(arguments, upgrade)
