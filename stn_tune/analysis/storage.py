"""Storage: local paths and URIs, read alike; what fails on a network is tried again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

from pyarrow import ArrowInvalid, fs

from stn_tune.errors import AnalysisError

READERS = 16
WINDOW = 256
"""Files that are read ahead."""
PAUSES = (0.2, 1.0, 5.0)
"""Seconds before a remote read is tried again."""
FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError)
"""Errors that another attempt does not cure."""

T = TypeVar("T")


class Storage:
    """A local or mounted path, or a URI that pyarrow or fsspec understands."""

    def __init__(self, place: str | os.PathLike[str]):
        self.name = os.fspath(place)
        self._fs, self.root = _resolve(self.name)
        self._pauses = PAUSES if "://" in self.name and not self.name.startswith("file://") else ()
        if self.info.type == fs.FileType.NotFound:
            raise AnalysisError(f"{self.name}: no such file or folder")

    @property
    def info(self) -> fs.FileInfo:
        """Of the root."""
        try:
            return self._retried(lambda: self._fs.get_file_info(self.root))
        except OSError as error:
            raise AnalysisError(f"{self.name} cannot be reached: {_line(error)}") from None

    def files(self) -> list[str]:
        """Every file at or below the root, sorted, as paths that :meth:`read` takes."""
        if self.info.type == fs.FileType.File:
            return [self.root]
        try:
            found = self._retried(lambda: self._fs.get_file_info(fs.FileSelector(self.root, recursive=True)))
        except OSError as error:
            raise AnalysisError(f"{self.name} cannot be read: {_line(error)}") from None
        return sorted(info.path for info in found if info.type == fs.FileType.File)

    def shown(self, path: str) -> str:
        """A path below the root, as it follows from the name that was given."""
        return self.name.rstrip("/") + path[len(self.root) :] if path.startswith(self.root) else path

    def read(self, path: str) -> bytes:
        """A file's contents."""
        return self._retried(lambda: self._read_once(path))

    def _read_once(self, path: str) -> bytes:
        with self._fs.open_input_stream(path, compression=None) as stream:
            return bytes(stream.read())

    def _retried(self, attempt: Callable[[], T]) -> T:
        """What ``attempt`` gives; on a network, after as many failures as there are pauses. Raises OSError."""
        for pause in (*self._pauses, None):
            try:
                return attempt()
            except FINAL:
                raise
            except Exception as error:  # clients of object stores have exceptions of their own
                if pause is None:
                    if isinstance(error, OSError) or not self._pauses:
                        raise
                    raise OSError(f"{type(error).__name__}: {error}") from error
                time.sleep(pause)
        raise AssertionError("unreachable")

    def read_all(self, paths: Iterable[str]) -> Iterator[bytes | None]:
        """The contents in order, None where a file cannot be read; by several threads, a window of files at a time."""
        remaining = iter(paths)
        with ThreadPoolExecutor(READERS) as pool:
            while window := list(islice(remaining, WINDOW)):
                yield from pool.map(self.read_if_possible, window)

    def read_if_possible(self, path: str) -> bytes | None:
        """A file's contents, None if it cannot be read."""
        try:
            return self.read(path)
        except OSError:
            return None


def check_folder(folder: Path, what: str) -> Path:
    """The folder; AnalysisError if it cannot be made or written to, before any work is done."""
    for place in (folder, *folder.absolute().parents):
        if place.is_dir():
            if not os.access(place, os.W_OK | os.X_OK):
                raise AnalysisError(f"{folder}: cannot write {what}: {place} is not writable")
            return folder
        if place.exists() or place.is_symlink():
            raise AnalysisError(f"{place} is a file; {what} needs a folder")
    return folder


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _resolve(name: str) -> tuple[fs.FileSystem, str]:
    if "://" not in name:
        return fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(name))
    try:
        found, path = fs.FileSystem.from_uri(name)
        return found, path.rstrip("/") or "/"
    except (ArrowInvalid, NotImplementedError):
        pass
    except OSError as error:
        raise AnalysisError(f"{name} cannot be reached: {error}") from None
    import fsspec

    try:
        other, path = fsspec.core.url_to_fs(name)
    except (ValueError, ImportError) as error:
        raise AnalysisError(f"{name}: neither pyarrow nor fsspec reads it: {error}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(other)), path.rstrip("/") or "/"
