"""Storage: local paths and URIs, read alike."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from pyarrow import ArrowInvalid, fs

from stn_tune.errors import AnalysisError

READERS = 16
WINDOW = 256
"""Files that are read ahead."""


class Storage:
    """A local or mounted path, or a URI that pyarrow or fsspec understands."""

    def __init__(self, place: str | os.PathLike[str]):
        self.name = os.fspath(place)
        self._fs, self.root = _resolve(self.name)
        if self.info.type == fs.FileType.NotFound:
            raise AnalysisError(f"{self.name}: no such file or folder")

    @property
    def info(self) -> fs.FileInfo:
        """Of the root."""
        try:
            return self._fs.get_file_info(self.root)
        except OSError as error:
            raise AnalysisError(f"{self.name} cannot be reached: {error}") from None

    def files(self) -> list[str]:
        """Every file at or below the root, sorted, as paths that :meth:`read` takes."""
        if self.info.type == fs.FileType.File:
            return [self.root]
        try:
            found = self._fs.get_file_info(fs.FileSelector(self.root, recursive=True))
        except OSError as error:
            raise AnalysisError(f"{self.name} cannot be read: {error}") from None
        return sorted(info.path for info in found if info.type == fs.FileType.File)

    def shown(self, path: str) -> str:
        """A path below the root, as it follows from the name that was given."""
        return self.name.rstrip("/") + path[len(self.root) :] if path.startswith(self.root) else path

    def read(self, path: str) -> bytes:
        """A file's contents."""
        with self._fs.open_input_stream(path, compression=None) as stream:
            return bytes(stream.read())

    def read_all(self, paths: Iterable[str]) -> Iterator[bytes | None]:
        """The contents in order, None where a file cannot be read; by several threads, a window of files at a time."""
        remaining = iter(paths)
        with ThreadPoolExecutor(READERS) as pool:
            while window := list(islice(remaining, WINDOW)):
                yield from pool.map(self._read_if_possible, window)

    def _read_if_possible(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except OSError:
            return None


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
