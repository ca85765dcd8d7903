"""Where logs lie and what their lines say: any storage, both formats, one parser of rows."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyarrow import ArrowInvalid, fs  # type: ignore[import-untyped]

from stn_tune.errors import AnalysisError
from stn_tune.nested import flatten

Row = dict[str, Any]
Columns = dict[str, NDArray[Any]]

HOUSEKEEPING = {
    "checkpoint_dir_name", "config", "date", "experiment_id", "experiment_tag", "hostname", "hp/seed",
    "iterations_since_restore", "node_ip", "pid", "should_checkpoint", "time_since_restore", "timesteps_since_restore",
    "trial", "trial_id", "warmup_time",
}  # fmt: skip
"""What Tune adds to every row and no analysis asks for, or what the frame holds under its own name."""

READERS = 16
WINDOW = 256
CHUNK = 2**22


class Storage:
    """A place of logs: a local or mounted path, or a URI that pyarrow or fsspec understands."""

    def __init__(self, place: str | os.PathLike[str]):
        self.name = os.fspath(place)
        self._fs, self.root = _resolve(self.name)
        if self.info.type == fs.FileType.NotFound:
            raise AnalysisError(f"{self.name}: there is no such file or folder")

    @property
    def info(self) -> fs.FileInfo:
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
    import fsspec  # type: ignore[import-untyped]

    try:
        other, path = fsspec.core.url_to_fs(name)
    except (ValueError, ImportError) as error:
        raise AnalysisError(f"{name}: neither pyarrow nor fsspec reads it: {error}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(other)), path.rstrip("/") or "/"


@dataclass
class Lines:
    """The rows of a log, and the lines that were none."""

    rows: list[Row] = field(default_factory=list)
    torn: bool = False
    broken: int = 0

    @classmethod
    def parse(cls, data: bytes) -> Lines:
        """JSON lines. A last line that does not end is torn; any other that cannot be read is broken."""
        result = cls()
        start, last = 0, True
        while start < len(data):
            end = data.find(b"\n", start + CHUNK) + 1 or len(data)
            found = _objects(data[start:end])
            rows = [row for row in found if isinstance(row, dict)]
            result.rows += rows
            result.broken += len(found) - len(rows)
            last = isinstance(found[-1], dict) if found else last
            start = end
        result.torn = not last and not data.endswith(b"\n")
        result.broken -= result.torn
        return result


def _objects(data: bytes) -> list[Any]:
    """What each line holds; None where it cannot be read. All at once, which is faster, unless one cannot."""
    lines = [line for line in data.split(b"\n") if line and not line.isspace()]
    try:
        rows: list[Any] = json.loads(b"[" + b",".join(lines) + b"]")
    except ValueError:
        rows = []
    return rows if len(rows) == len(lines) else [_object(line) for line in lines]


def _object(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def gunzip(data: bytes) -> tuple[bytes, bool]:
    """What can be unpacked, and whether that is all of it."""
    parts, whole = [], bool(data)
    while data:
        machine = zlib.decompressobj(wbits=31)
        try:
            parts.append(machine.decompress(data))
        except zlib.error:
            return b"".join(parts), False
        whole, data = machine.eof, machine.unused_data
    return b"".join(parts), whole


@dataclass
class Trial:
    """One trial's rows by column."""

    number: int
    id: str
    status: str
    columns: Columns
    length: int
    config: Mapping[str, Any]
    repeated: bool = False
    torn: bool = False
    broken: bool = False

    @classmethod
    def of(cls, number: int, id: str, status: str, rows: list[Row], config: Mapping[str, Any] | None = None) -> Trial:
        """Of an iteration that was reported again after a restore the last row is kept.

        What PBT does is no such restore: a trial that takes over another's checkpoint goes on with other values.
        """
        last: dict[Any, int] = {row.get("training_iteration", -k): k for k, row in enumerate(rows)}
        if len(last) < len(rows):
            last = {(row.get("training_iteration", -k), _values(row)): k for k, row in enumerate(rows)}
        kept = [rows[k] for k in sorted(last.values())] if len(last) < len(rows) else rows
        configs = [row["config"] if isinstance(row.get("config"), dict) else config or {} for row in kept]
        names = dict.fromkeys(chain.from_iterable(kept))
        columns: Columns = {}
        for name in names:
            if name not in HOUSEKEEPING:
                columns |= _flat(name, [row.get(name) for row in kept])
        columns |= {name: values for name, values in _config_columns(configs).items() if name not in columns}
        columns.setdefault("training_iteration", np.arange(1, len(kept) + 1))
        first = configs[0] if configs else config or {}
        return cls(number, id, status, columns, len(kept), first, repeated=len(kept) < len(rows))

    @property
    def seed(self) -> int | None:
        seed = self.config.get("seed", (self.config.get("stn") or {}).get("seed"))
        return int(seed) if isinstance(seed, (int, float)) else None


def _values(row: Row) -> str:
    """What the trial was to be trained with: its config, or the values it reports if they are not tuned online."""
    if isinstance(row.get("config"), dict):
        return json.dumps(row["config"], sort_keys=True)
    online = any(name.startswith("scale/") for name in row)
    return "" if online else json.dumps([value for name, value in row.items() if name.startswith("hp/")])


def _flat(name: str, values: list[Any]) -> Columns:
    """One column, or one per path where the values are nested: ``{"a": {"b": 1}}`` is ``a/b``."""
    whole = column(values)
    if whole.dtype != object or not any(isinstance(value, dict) for value in values):
        return {name: whole}
    inner = [value if isinstance(value, dict) else {} for value in values]
    result: Columns = {}
    for key in dict.fromkeys(chain.from_iterable(inner)):
        result |= _flat(f"{name}/{key}", [value.get(key) for value in inner])
    return result


def _config_columns(configs: list[Mapping[str, Any]]) -> Columns:
    """``hp/<name>`` of every number in the config, which PBT may change on the way."""
    if not configs:
        return {}
    if all(config == configs[0] for config in configs):
        return {name: np.full(len(configs), value) for name, value in _numbers(configs[0]).items()}
    each = [_numbers(config) for config in configs]
    names = dict.fromkeys(name for numbers in each for name in numbers)
    return {name: column([numbers.get(name) for numbers in each]) for name in names}


def _numbers(config: Mapping[str, Any]) -> dict[str, float]:
    return {
        f"hp/{name}": v
        for name, v in flatten({k: v for k, v in config.items() if k != "stn"}).items()
        if isinstance(v, (int, float)) and name != "seed"
    }


def column(values: list[Any]) -> NDArray[Any]:
    """The values as numbers where they are numbers; None, and what Tune writes for NaN, as NaN."""
    try:
        result = np.array(values)
        if result.ndim == 1 and result.dtype.kind in "bif":
            return result
        if any(isinstance(value, (int, float)) for value in values):
            return np.array([None if value in ("null", "nan") else value for value in values], dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        pass
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    return objects
