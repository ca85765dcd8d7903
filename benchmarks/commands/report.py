"""``python -m benchmarks report DIR``: tables, figures and one page, from the logs alone."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

SUMMARY = "tables, figures and a page from results or Tune experiments"
FORMATS = ("png", "svg", "pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which results, and where to."""
    parser.add_argument("paths", nargs="+", metavar="DIR", help="folders of results or of Tune experiments; URIs too")
    parser.add_argument("--out", metavar="DIR", help="folder of the report (default: report in the first DIR)")
    parser.add_argument("--figure", action="append", default=[], metavar="NAME", help="only this figure; repeatable")
    parser.add_argument(
        "--format", action="append", choices=FORMATS, help="of the figures (default: all three); repeatable"
    )


def execute(arguments: argparse.Namespace) -> None:
    """Writes and prints a report."""
    write_report(arguments.paths, arguments.out, arguments.figure, arguments.format or FORMATS)


def write_report(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    figures: Sequence[str] = (),
    formats: Sequence[str] = FORMATS,
) -> Path:
    """Writes the report, and prints its first table, what is wrong with the logs, and where the page is."""
    from rich.console import Console
    from rich.markup import escape

    from benchmarks.studies import all_figures
    from benchmarks.version1 import upgrade
    from stn_tune.analysis import load
    from stn_tune.analysis.reporting.page import compose, destination

    places = [os.fspath(path) for path in paths]
    folder = destination(places, out)
    rebuild = shlex.join(["python", "-m", "benchmarks", "report", *places, *(f"--figure={name}" for name in figures)])
    frame = load(*places, upgrade=upgrade)
    made = compose(frame, figures or None, formats, extra_figures=all_figures(), rebuild=rebuild)
    page = made.write(folder)
    console = Console()
    print_table(made.table.sections[0], console)
    for line in made.warnings:
        console.print(f"[yellow]warning:[/] {escape(line)}", highlight=False)
    drawn = ", ".join(made.figures) or "none; the logs lack the needed data"
    console.print(f"figures: {drawn}", highlight=False)
    console.print(str(page), highlight=False, markup=False, soft_wrap=True)
    return page


def print_table(section: Any, console: Console) -> None:
    """A table of the report; columns that do not fit the terminal follow below, beside the methods again."""
    from rich.markup import escape
    from rich.table import Table

    console.print(section.title, style="bold", highlight=False, markup=False)
    for columns in fitting_columns(section.columns, section.rows, console.width):
        table = Table(box=None, header_style="bold", pad_edge=False)
        for k in columns:
            heading = section.columns[k].replace(" ", "\n")
            table.add_column(escape(heading), justify="right" if k else "left", no_wrap=True)
        for row in section.rows:
            table.add_row(*(escape(row[k]) for k in columns))
        console.print(table)
        console.print()
    for note in section.notes:
        console.print(note, style="dim", highlight=False, markup=False)


def fitting_columns(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """The columns in groups that fit ``width``, each with the first column."""
    cells = zip(names, zip(*rows, strict=True), strict=True)
    widths = [max(len(part) for part in (*name.split(), *column)) + 2 for name, column in cells]
    result, used = [[0]], widths[0]
    for k in range(1, len(widths)):
        if used + widths[k] > width and len(result[-1]) > 1:
            result.append([0])
            used = widths[0]
        result[-1].append(k)
        used += widths[k]
    return result
