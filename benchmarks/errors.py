"""Errors that a command shows as one line, with exit code 2."""

from __future__ import annotations


class SettingsError(ValueError):
    """A setting or an argument that is unknown, or has a value that cannot be used."""


class DataError(RuntimeError):
    """Data that is missing, damaged or out of reach; the message is one line that says what to do."""
