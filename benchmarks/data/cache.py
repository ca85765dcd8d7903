"""Arrays that are computed once per data folder and memory-mapped by every process that needs them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.data.download import locked
from benchmarks.errors import DataError

VERSION = 1
"""Part of every cache's name; increase it when the same sources and options give other arrays."""

Arrays = Mapping[str, NDArray[np.generic]]


def cached(
    folder: Path,
    name: str,
    sources: Sequence[Path],
    options: Mapping[str, object],
    arrays: Sequence[str],
    build: Callable[[], Arrays],
) -> dict[str, Tensor]:
    """The arrays named in ``arrays`` as tensors over files in ``folder/cache``, which ``build()`` fills at first.

    A cache belongs to the sizes and times of its source files and to ``options``; changed sources are noticed, and
    caches of theirs that went before are removed. The tensors share one copy in memory with all other processes; what a
    process writes into them stays its own.
    """
    root = folder / "cache"
    for _ in range(3):
        stamp = _stamp(sources)
        place = root / f"{name}-{stamp}-{_digest([VERSION, dict(options)])}"
        if tensors := _open(place, arrays):
            return tensors
        with locked(root / f".{name}.lock"):
            if tensors := _open(place, arrays):
                return tensors
            contents = build()
            if stamp != _stamp(sources):
                continue
            _write(place, {array: contents[array] for array in arrays})
            _remove_outdated(root, name, stamp)
            if tensors := _open(place, arrays):
                return tensors
    raise DataError(f"{sources[0].parent} keeps changing while it is read: try again when its files are all there")


def _open(place: Path, arrays: Sequence[str]) -> dict[str, Tensor] | None:
    """Maps a cache's arrays; None where it is absent or damaged.

    A copy-on-write map, since torch warns of memory that it may not write to.
    """
    try:
        return {array: torch.from_numpy(np.load(place / f"{array}.npy", mmap_mode="c")) for array in arrays}
    except Exception:  # of a damaged header NumPy may say anything
        return None


def _write(place: Path, contents: Arrays) -> None:
    """Writes a cache that appears under its name only when it is complete; the lock is held."""
    part = place.with_name(f"{place.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        for array, values in contents.items():
            with (part / f"{array}.npy").open("wb") as file:
                np.save(file, values)
                file.flush()
                os.fsync(file.fileno())
        shutil.rmtree(place, ignore_errors=True)
        os.rename(part, place)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise DataError(f"cannot write the cache {place}: {error}") from error


def _remove_outdated(root: Path, name: str, stamp: str) -> None:
    for path in root.glob(f"{name}-*"):
        if not path.name.startswith(f"{name}-{stamp}-"):
            shutil.rmtree(path, ignore_errors=True)


def _stamp(sources: Sequence[Path]) -> str:
    try:
        stats = [(path.name, path.stat()) for path in sources]
    except OSError as error:
        raise DataError(f"cannot read {error.filename}: {error.strerror}") from error
    return _digest([(file, stat.st_size, stat.st_mtime_ns) for file, stat in stats])


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
