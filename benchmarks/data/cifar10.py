"""CIFAR-10 as memory-mapped uint8 images, read from the official Python-2 pickles without trusting them."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.data.cache import Arrays, cached
from benchmarks.data.download import require
from benchmarks.errors import DataError

CLASSES = 10
SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Images:
    """Images (n, 3, 32, 32) uint8 and their classes (n,) int64."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def load_cifar10(folder: str | os.PathLike[str]) -> Images:
    """CIFAR-10 from ``folder/cifar-10-batches-py``: 50,000 training and 10,000 test images in the files' order.

    The number of rows is what the files hold, the same in each of the training batches.
    """
    data = Path(folder).expanduser().absolute()
    paths = require("cifar10", data)
    names = ("train_x", "train_y", "test_x", "test_y")
    return Images(**cached(data, "cifar10", paths, {}, names, lambda: _build(paths)))


def _build(paths: list[Path]) -> Arrays:
    *train, test = paths
    images, labels = zip(*map(read_batch, train), strict=True)
    for path, batch in zip(train, labels, strict=True):
        if len(batch) != len(labels[0]):
            raise DataError(f"{path} has {len(batch)} rows, but {train[0].name} has {len(labels[0])}")
    test_x, test_y = read_batch(test)
    return {"train_x": np.concatenate(images), "train_y": np.concatenate(labels), "test_x": test_x, "test_y": test_y}


def read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images and labels of one batch file."""
    try:
        with path.open("rb") as file:
            batch = _Unpickler(file, encoding="bytes").load()
        if not isinstance(batch, dict):
            raise pickle.UnpicklingError("it is no dictionary")
        data, labels = (batch.get(key.encode(), batch.get(key)) for key in ("data", "labels"))
        x = _images(data)
        return x, _labels(labels, len(x))
    except Exception as error:  # a broken pickle can raise nearly anything
        raise DataError(f"{path} is not a CIFAR-10 batch ({type(error).__name__}: {error})") from error


class _Record:
    """Stands for a callable that the pickle names: keeps the arguments and the state, and does nothing."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Dtype(_Record):
    """``numpy.dtype("u1", ...)``"""


class _Array(_Record):
    """``numpy.core.multiarray._reconstruct(...)``; its state is (version, shape, dtype, is_fortran, bytes)."""


class _Latin1(_Record):
    """``_codecs.encode(text, "latin1")``: how Python 3 writes bytes for Python 2."""

    def __new__(cls, text: str, encoding: str) -> bytes:  # type: ignore[misc]
        return str.encode(text, "latin1")


class _Unpickler(pickle.Unpickler):
    """Admits the four names in the official files, and puts records in their place: no named code ever runs."""

    ADMITTED: ClassVar = {
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("numpy", "ndarray"): _Record,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): _Latin1,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {f'{module}.{name}'!r}, which no official file does") from None


def _images(array: Any) -> NDArray[np.uint8]:
    if not isinstance(array, _Array):
        raise pickle.UnpicklingError("data is not an array")
    _, shape, dtype, fortran, content = array.state
    if not isinstance(dtype, _Dtype) or dtype.arguments[0] not in ("u1", b"u1"):
        raise pickle.UnpicklingError("data is not of type uint8")
    if not isinstance(content, bytes) or shape != (max(len(content) // PIXELS, 1), PIXELS):
        raise pickle.UnpicklingError(f"data has shape {shape}, not (rows, {PIXELS}), or not as many bytes")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C").reshape(-1, *SHAPE)


def _labels(labels: Any, rows: int) -> NDArray[np.int64]:
    if not isinstance(labels, list) or len(labels) != rows:
        raise pickle.UnpicklingError(f"labels is not a list of {rows}, one per row")
    if not all(type(label) is int and 0 <= label < CLASSES for label in labels):
        raise pickle.UnpicklingError(f"labels are not all integers from 0 to {CLASSES - 1}")
    return np.array(labels, np.int64)
