"""Every exception of the library, and the words for names that do not exist."""

from __future__ import annotations

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
    """``"; did you mean 'dropout'?"``, or an empty string if no known name is near.

    Near is what one typing error makes of a short name, two of a longer one, or what leaves out a name's end, which
    counts as one error.

    >>> did_you_mean("grace", ["space", "grace_period"])
    "; did you mean 'grace_period'?"
    """
    name = str(name).lower()
    distances = {other: edit_distance(name, other.lower()) for other in map(str, known)}
    allowed = 1 if len(name) < 4 else max(2, len(name) // 4)
    begun = {other: 1 for other in distances if len(name) >= 3 and other.lower().startswith(name)}
    distances |= begun
    near = [other for other, distance in distances.items() if distance <= min(allowed, len(other) - 1)]
    return f"; did you mean {min(near, key=lambda other: distances[other])!r}?" if near else ""


def edit_distance(a: str, b: str) -> int:
    """The number of letters inserted, deleted, replaced or swapped with their neighbour that lead from a to b.

    >>> edit_distance("trian", "train"), edit_distance("droput", "dropout")
    (1, 1)
    """
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (x != y)))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[j] = min(row[j], before[j - 2] + 1)
        before, last = last, row
    return last[-1]


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
