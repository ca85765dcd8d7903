"""The commands of ``python -m benchmarks``: one module each, and one command for every study.

A module has ``SUMMARY``, one line of help, ``add_arguments(parser)``, and ``execute(arguments)``, which gives an exit
code or None for 0. Only ``execute`` may import torch, Ray or pandas: help and bad arguments are answered at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import stn_tune
from stn_tune.cli import CommandParser, add_command

MODULES = ("demo", "data", "train", "report", "overview", "searchers", "speed", "hypergradient", "faults")


@dataclass(frozen=True)
class Command:
    """A command of the command line."""

    name: str
    summary: str
    """One line of help."""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], int | None]
    """Gives an exit code; None is 0."""


def all_commands() -> list[Command]:
    """In the order of the help: what a newcomer needs first."""
    from benchmarks.commands import study
    from benchmarks.studies import STUDIES

    modules = {name: import_module(f"benchmarks.commands.{name}") for name in MODULES}
    found = {name: Command(name, m.SUMMARY, m.add_arguments, m.execute) for name, m in modules.items()}
    found |= {s.name: Command(s.name, s.summary, *study.command_of(s)) for s in STUDIES.values()}
    first = [name for name in ("demo", "data", "train", "run", "report", "overview") if name in found]
    return [found[name] for name in [*first, *(name for name in found if name not in first)]]


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = CommandParser(
        prog="python -m benchmarks",
        description="Self-Tuning Networks compared with hyperparameter search, at equal compute budgets.",
        formatter_class=partial(argparse.HelpFormatter, max_help_position=16),
    )
    parser.add_argument("--version", action="version", version=f"stn_tune {stn_tune.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in all_commands():
        add_command(commands, command.name, command.summary, command.add_arguments, command.execute)
    return parser
