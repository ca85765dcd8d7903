"""Types of command-line arguments, and arguments that several commands share. Imports the standard library only."""

from __future__ import annotations

import argparse
import re

LARGEST_SEED = 2**32 - 1
"""What torch and NumPy both accept."""


def positive(text: str) -> int:
    """1, 2, …"""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return number


def not_negative(text: str) -> int:
    """0, 1, …"""
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a non-negative whole number")
    return int(text)


def amount(text: str) -> float:
    """A number that is not negative, such as 0.5 GPUs."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a non-negative number")
    return number


def positive_number(text: str) -> float:
    """A number above 0, such as 0.7."""
    number = amount(text)
    if not number:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number


def step_ratio(text: str) -> tuple[int, int]:
    """``2:1``: training steps to validation steps."""
    train, colon, valid = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form T:V, such as 2:1")
    return positive(train), positive(valid)


def seed_number(text: str) -> int:
    """A seed that torch and NumPy both accept."""
    number = not_negative(text)
    if number > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"{text!r} is too large; seeds must be below 2**32")
    return number


def seed_list(text: str) -> list[int]:
    """``5`` is a count: 0 to 4; ``0,3,7`` is a list; ``7,`` a list of one."""
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if "," not in text and numbers and numbers[0] <= LARGEST_SEED:
        numbers = list(range(numbers[0]))
    if not numbers or min(numbers) < 0 or max(numbers) > LARGEST_SEED or len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a count (5) nor a list of different seeds (0,3,7) below 2**32"
        )
    return numbers


def seconds(text: str) -> float:
    """``90s``, ``20m``, ``6h`` or ``1h30m`` in seconds."""
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    total = sum(float(n) * unit for n, unit in zip(parts.groups(), (3600, 60, 1), strict=True) if n) if parts else 0.0
    if not total > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid duration; write 90s, 20m, 6h or 1h30m")
    return total


def add_task_size(parser: argparse.ArgumentParser) -> None:
    """``--preset`` and ``--set``."""
    parser.add_argument("--preset", default="small", help="smoke, small (default), medium (ptb and cifar10) or paper")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=X", help="override a setting; repeatable")


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """``--data-dir``."""
    parser.add_argument(
        "--data-dir", metavar="DIR", help="folder of the data sets (default: $STN_TUNE_DATA, else the user's cache)"
    )
