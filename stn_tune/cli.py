"""The console script ``stn-tune``: report, overview, schedule.

It imports neither torch nor Ray, and pandas and matplotlib only when a command runs. ``python -m benchmarks report``
and ``overview`` are the same code, with the figures of the benchmark's studies.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, NoReturn

import stn_tune
from stn_tune.errors import AnalysisError, RecordError, ScheduleError, did_you_mean

if TYPE_CHECKING:
    from stn_tune.analysis.figures.base import Figure
    from stn_tune.analysis.logs import Upgrade

FORMATS = ("png", "svg", "pdf")
NARROWEST = 40
"""Columns of a terminal below which tables are not fitted."""

REPORT = "tables, figures and a page from results or Tune experiments"
OVERVIEW = "the results of several tasks in one figure and one table"
SCHEDULE = "a saved schedule as a figure or as CSV"


class CommandParser(argparse.ArgumentParser):
    """A parser that reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        """Ends with exit code 2."""
        choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        if choice:
            names = [name.strip("' ") for name in choice.group(2).split(",")]
            message += did_you_mean(choice.group(1), names)
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def add_command(
    commands: argparse._SubParsersAction[CommandParser],
    name: str,
    summary: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    execute: Callable[[argparse.Namespace], int | None],
) -> None:
    """A command of a command line; ``execute`` gives its exit code, None for 0."""
    own = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(own)
    own.set_defaults(execute=execute)


def _add_objective(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--metric", metavar="NAME", help="what selects (default: as the logs say)")
    parser.add_argument("--mode", choices=("min", "max"), help="whether a low or a high metric is better")
    parser.add_argument("--reference", metavar="NAME", help="what the others are compared with")
    parser.add_argument(
        "--seed",
        metavar="WHERE",
        help="a config entry or column with the seed, or a regular expression for it in the experiment's name, "
        r"such as '_s(\d+)' (default: config['seed'])",
    )


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Which results, and where to."""
    parser.add_argument("paths", nargs="+", metavar="DIR", help="folders of results or of Tune experiments; URIs too")
    parser.add_argument("--out", metavar="DIR", help="folder of the report (default: report in the only DIR)")
    _add_objective(parser)
    parser.add_argument("--figure", action="append", default=[], metavar="NAME", help="only this figure; repeatable")
    parser.add_argument(
        "--format", action="append", choices=FORMATS, help="of the figures (default: all three); repeatable"
    )


def run_report(
    arguments: argparse.Namespace,
    extra_figures: Sequence[Figure] = (),
    upgrade: Upgrade | None = None,
    program: Sequence[str] = ("stn-tune", "report"),
) -> Path:
    """Writes the report, and prints its tables, what is wrong with the logs, and where the page is."""
    from stn_tune.analysis import load
    from stn_tune.analysis.reporting.page import compose, destination

    places = [os.fspath(path) for path in arguments.paths]
    folder = destination(places, arguments.out)
    options = {name: getattr(arguments, name) for name in ("metric", "mode", "reference", "seed")}
    given = [f"--{name}={value}" for name, value in options.items() if value is not None]
    given += [f"--figure={name}" for name in arguments.figure]
    given += [f"--format={kind}" for kind in arguments.format or ()]
    given += [f"--out={arguments.out}"] if arguments.out is not None else []
    frame = load(*places, upgrade=upgrade, **options)
    made = compose(
        frame,
        arguments.figure or None,
        arguments.format or FORMATS,
        extra_figures=extra_figures,
        rebuild=shlex.join([*program, *places, *given]),
    )
    page = made.write(folder)
    _print_tables(made.table.sections[:2])
    _print_lines("warning: ", made.warnings)
    _print_lines("figures: ", [", ".join(made.figures) or "none; the logs lack the needed data"])
    print(page)
    return page


def _width() -> int:
    return max(shutil.get_terminal_size().columns, NARROWEST)


def _print_tables(sections: Sequence[object]) -> None:
    from stn_tune.analysis import render

    print(render.text(sections, _width()))  # type: ignore[arg-type]
    print()


def _print_lines(head: str, lines: Sequence[str]) -> None:
    for line in lines:
        print("\n".join(wrap(head + line, _width(), subsequent_indent="  ", break_on_hyphens=False)))


def add_overview_arguments(parser: argparse.ArgumentParser) -> None:
    """Which results, and where to."""
    parser.add_argument("paths", nargs="+", metavar="DIR", help="folders of results, one per task")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="where to write overview.md, overview.png, profiles.png and so on"
    )
    _add_objective(parser)


def run_overview(arguments: argparse.Namespace, upgrade: Upgrade | None = None) -> None:
    """Writes the overview; prints what is wrong with the logs, the table, and where the files are."""
    from stn_tune.analysis.reporting.overview import load_tasks, overview
    from stn_tune.analysis.storage import check_folder

    check_folder(Path(arguments.out), "the overview")
    tasks = load_tasks(arguments.paths, upgrade, metric=arguments.metric, mode=arguments.mode, seed=arguments.seed)
    for title, results in tasks.items():
        _print_lines(f"{title}: ", results.frame.attrs["problems"])
    made = overview(tasks, arguments.reference)
    _print_tables([made.section, *([made.across] if made.across else [])])
    for path in made.write(arguments.out):
        print(path)


def add_schedule_arguments(parser: argparse.ArgumentParser) -> None:
    """Which schedule, and where to."""
    parser.add_argument("file", metavar="FILE", help="what Schedule.save wrote")
    parser.add_argument(
        "--out",
        action="append",
        metavar="FILE",
        help="a figure (.png, .svg, .pdf) or a table (.csv); repeatable (default: FILE with .png)",
    )


def run_schedule(arguments: argparse.Namespace) -> None:
    """Writes figures and tables of a schedule, and prints its first and last values."""
    from stn_tune.schedule_file import ScheduleFile

    given = arguments.out or [str(Path(arguments.file).with_suffix(".png"))]
    targets = [Path(path) for path in given]
    for path in targets:
        if path.suffix.lower() not in (".csv", *(f".{kind}" for kind in FORMATS)):
            raise ScheduleError(f"--out {path}: give a name that ends in .png, .svg, .pdf or .csv")
        if path.resolve() == Path(arguments.file).resolve():
            raise ScheduleError(f"--out {path}: this is the schedule itself")
    schedule = ScheduleFile.read(arguments.file)
    contents = {path: _drawn(schedule, path.suffix.lower()) for path in targets}
    by = f" by {schedule.algorithm}" if schedule.algorithm else ""
    print(f"{len(schedule.steps)} updates{by} over {schedule.total_steps} steps; first -> last value")
    longest = max(map(len, schedule.values))
    for name, column in schedule.values.items():
        print(f"  {name:{longest}}  {column[0]:.4g} -> {column[-1]:.4g}")
    for path, data in contents.items():
        _write(path, data)
        print(path)


def _drawn(schedule: stn_tune.schedule_file.ScheduleFile, suffix: str) -> bytes:
    if suffix == ".csv":
        return schedule.to_csv().encode()
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    from stn_tune.analysis.figures.style import render

    figure = schedule.plot().figure
    try:
        return render(figure, suffix[1:])  # type: ignore[arg-type]
    finally:
        plt.close(figure)  # type: ignore[arg-type]


def _write(path: Path, data: bytes) -> None:
    from stn_tune.atomic import write_atomic

    try:
        write_atomic(path, data)
    except OSError as error:
        raise ScheduleError(f"{path}: cannot write: {error.strerror or error}") from None


def _report(arguments: argparse.Namespace) -> None:
    run_report(arguments)


def build_parser() -> CommandParser:
    """The whole command line."""
    parser = CommandParser(
        prog="stn-tune",
        description="Compares Ray Tune experiments: best-so-far curves, tables, intervals, one page.",
        formatter_class=partial(argparse.HelpFormatter, max_help_position=16),
    )
    parser.add_argument("--version", action="version", version=f"stn-tune {stn_tune.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_command(commands, "report", REPORT, add_report_arguments, _report)
    add_command(commands, "overview", OVERVIEW, add_overview_arguments, run_overview)
    add_command(commands, "schedule", SCHEDULE, add_schedule_arguments, run_schedule)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the arguments and runs a command; gives its exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        return arguments.execute(arguments) or 0
    except (AnalysisError, RecordError, ScheduleError) as error:
        print(f"stn-tune: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output, such as head, has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
