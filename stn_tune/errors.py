"""Every exception of the library, and the words for names that do not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SpaceError(ValueError):
    """A search space or a value that cannot be used; the message begins with the hyperparameter's name."""


class ConversionError(TypeError):
    """Raised when a layer cannot be converted, or an option of ``self_tune`` matches nothing."""


class LayoutError(ValueError):
    """Raised when the rows of a layer's input cannot be assigned to the examples of the batch."""


class ScheduleError(ValueError):
    """A schedule that is invalid, or does not fit the task it is used for."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read, or was not written by this library."""


class UnusedError(ValueError):
    """A hyperparameter is tuned or scheduled, but neither the model nor the loss reads it."""


class NonFiniteError(FloatingPointError):
    """A loss or gradient was infinite or NaN. The step was not applied: everything is as it was before it."""


class RecordError(ValueError):
    """A run record that cannot be read; the message names the file and the field."""


class AnalysisError(ValueError):
    """Logs that do not exist, or do not contain what was asked for."""


class MissingData(AnalysisError):
    """The logs lack what a figure needs; the message says what is missing."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'dropout'?"``, or an empty string if no known name is close."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist.

    >>> unknown("hyperparameter", "dropot", ["dropout", "lr"])
    "unknown hyperparameter 'dropot'; known: dropout, lr; did you mean 'dropout'?"
    """
    names = list(known)
    return f"unknown {what} {name!r}; known: {', '.join(names) or 'none'}{did_you_mean(name, names)}"


def unknown_hyperparameter(name: str, known: Iterable[str]) -> str:
    """:func:`unknown` for the most frequent case."""
    return unknown("hyperparameter", name, known)
