"""Checkpoint files: written atomically, and read without trusting them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stn_tune.errors import CheckpointError

STATE_FILE = "state.pt"
VERSION = 1


def save_state(folder: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Writes tensors and plain Python values to a file that appears under its name only when it is complete."""
    partial = Path(folder, f"{STATE_FILE}.part")
    with partial.open("wb") as file:
        torch.save(plain({"version": VERSION, **state}), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, Path(folder, STATE_FILE))


def plain(value: Any) -> Any:
    """NumPy scalars as Python's own, all the way down: ``torch.load`` trusts nothing else."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:
        return {key: plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(item) for item in value)
    return value


def load_state(folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> dict[str, Any]:
    """The state in a checkpoint folder; raises :class:`CheckpointError` where it is missing, torn or foreign."""
    path = Path(folder, STATE_FILE)
    return check_version(read(path, device), path)


def check_version(state: Any, path: Path) -> dict[str, Any]:
    """``state``, if :func:`save_state` of this version wrote it."""
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise CheckpointError(f"{path} was not written by this version of stn_tune")
    return state


def read(path: Path, device: torch.device | str = "cpu") -> Any:
    """What ``torch.save`` wrote, as long as it is tensors and plain Python values."""
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist: the checkpoint is incomplete, or of another trainable") from None
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} is damaged, or holds more than tensors and plain Python values ({_reason(error)}); restore from "
            f"an earlier checkpoint, and let Task.state_dict give plain values"
        ) from error
    except Exception as error:  # of damaged bytes torch may say anything
        raise CheckpointError(f"{path} is damaged ({_reason(error)}); restore from an earlier checkpoint") from error


def one_line(text: str) -> str:
    """What a damaged file has put into an error, in one line that a terminal can show."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())[:300]


def _reason(error: Exception) -> str:
    """The first sentence of what torch says, which can be a page, in colours."""
    lines = str(error).splitlines() or [type(error).__name__]
    return one_line(lines[0].partition(". ")[0])
