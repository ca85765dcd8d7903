"""The benchmark: its problems, its runner, its command line. Run from a checkout, never installed."""

from typing import Any


def __getattr__(name: str) -> Any:
    """``benchmarks.TASKS``, imported when it is asked for: the command line's help must not wait for torch."""
    if name == "TASKS":
        from benchmarks.tasks import TASKS

        return TASKS
    raise AttributeError(f"module 'benchmarks' has no attribute {name!r}")
