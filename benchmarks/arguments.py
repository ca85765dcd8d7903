"""Types of command line arguments: each reads a string, or says in one line what is wrong with it."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

SEEDS = 2**32
"""torch and numpy both take seeds below this."""


def positive(text: str) -> int:
    """A whole number from 1 on."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentTypeError(f"{text!r} is not a positive whole number")
    return number


def not_negative(text: str) -> int:
    """A whole number from 0 on."""
    if not text.strip().isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a non-negative whole number")
    return int(text)


def seed(text: str) -> int:
    """A seed."""
    number = not_negative(text)
    if number >= SEEDS:
        raise ArgumentTypeError(f"{text!r} is not below 2**32")
    return number


def amount(text: str) -> float:
    """A finite number from 0 on."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a non-negative number")
    return number


def step_ratio(text: str) -> tuple[int, int]:
    """``2:1``: two training steps, then one validation step."""
    train, colon, valid = text.partition(":")
    if not colon:
        raise ArgumentTypeError(f"{text!r} is not of the form T:V, such as 2:1")
    return positive(train), positive(valid)


def seed_list(text: str) -> list[int]:
    """``5`` is a count: 0 to 4; ``0,3,7`` is a list; ``7,`` a list of one."""
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if "," not in text and numbers and numbers[0] < SEEDS:
        numbers = list(range(numbers[0]))
    if not numbers or min(numbers) < 0 or max(numbers) >= SEEDS or len(set(numbers)) < len(numbers):
        raise ArgumentTypeError(
            f"{text!r} is neither a count (5) nor a list of different seeds (0,3,7), all below 2**32"
        )
    return numbers


def seconds(text: str) -> float:
    """``90s``, ``20m``, ``6h`` or ``1h30m`` in seconds."""
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    total = sum(float(n) * unit for n, unit in zip(parts.groups(), (3600, 60, 1), strict=True) if n) if parts else 0.0
    if not total > 0:
        raise ArgumentTypeError(f"{text!r} is not a valid duration; write 90s, 20m, 6h or 1h30m")
    return total
