"""Checkpoint files: there whole or not at all, and read without trusting them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

STATE_FILE = "state.pt"
VERSION = 1


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read, or does not belong to this library."""


def save_state(folder: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Writes tensors and plain Python values to a file that appears under its name only when it is complete."""
    partial = Path(folder, f"{STATE_FILE}.part")
    with partial.open("wb") as file:
        torch.save({"version": VERSION, **state}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, Path(folder, STATE_FILE))


def load_state(folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> dict[str, Any]:
    """The state in a checkpoint folder; raises :class:`CheckpointError` where it is missing, torn or foreign."""
    path = Path(folder, STATE_FILE)
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist: the checkpoint is incomplete, or of another trainable") from None
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, ValueError, KeyError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is damaged ({first}); restore from an earlier checkpoint") from error
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise CheckpointError(f"{path} was not written by this version of stn_tune")
    return state
