"""``python -m benchmarks report PATH``: tables, figures and one page, from the logs alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stn_tune.analysis.frame import load
from stn_tune.analysis.render import Section
from stn_tune.analysis.report import compose, destination
from stn_tune.analysis.style import FORMATS


def run(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    figures: Sequence[str] = (),
    formats: Sequence[str] = FORMATS,
) -> Path:
    """Writes the report, and prints its first table, what is wrong with the logs, and where the page is."""
    places = [os.fspath(path) for path in paths]
    folder = destination(places, out)
    made = compose(load(*places), figures or None, formats)
    page = made.write(folder)
    console = Console()
    show(made.table.sections[0], console)
    for line in made.warnings:
        console.print(f"[yellow]warning:[/] {escape(line)}", highlight=False)
    console.print(f"{len(made.figures)} figures: {', '.join(made.figures) or 'no data for any'}", highlight=False)
    console.print(str(page), highlight=False, markup=False, soft_wrap=True)
    return page


def show(section: Section, console: Console) -> None:
    """A table of the report; columns that do not fit the terminal follow below, beside the methods again."""
    console.print(section.title, style="bold", highlight=False, markup=False)
    for columns in blocks(section, console.width):
        table = Table(box=None, header_style="bold", pad_edge=False)
        for k in columns:
            table.add_column(escape(heading(section.columns[k])), justify="right" if k else "left", no_wrap=True)
        for row in section.rows:
            table.add_row(*(escape(row[k]) for k in columns))
        console.print(table)
        console.print()
    for note in section.notes:
        console.print(note, style="dim", highlight=False, markup=False)


def heading(name: str) -> str:
    return name.replace(" ", "\n")


def blocks(section: Section, width: int) -> list[list[int]]:
    """The columns in groups that fit ``width``, each with the first column."""
    cells = zip(section.columns, zip(*section.rows, strict=True), strict=True)
    widths = [max(len(part) for part in (*name.split(), *column)) + 2 for name, column in cells]
    result, used = [[0]], widths[0]
    for k in range(1, len(widths)):
        if used + widths[k] > width and len(result[-1]) > 1:
            result.append([0])
            used = widths[0]
        result[-1].append(k)
        used += widths[k]
    return result
