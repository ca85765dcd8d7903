"""Durations and counts as people write them."""

from __future__ import annotations


def count(number: int, what: str) -> str:
    """``1, "trial"`` -> ``1 trial``; of any other number there are ``trials``."""
    return f"{number} {what}{'s' * (number != 1)}"


def duration(seconds: float) -> str:
    """``75`` -> ``1m15s``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
