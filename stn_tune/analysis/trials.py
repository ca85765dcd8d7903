"""A trial's reported rows, from the lines of a log to columns."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stn_tune.nested import flatten
from stn_tune.plain_json import parse_json
from stn_tune.record import REPEAT, RESERVED

Row = dict[str, Any]
Columns = dict[str, NDArray[Any]]

HOUSEKEEPING = {
    "checkpoint_dir_name", "clock", "config", "date", "experiment_id", "experiment_tag", "hostname", "hp/seed",
    "iterations_since_restore", "node_ip", "pid", "should_checkpoint", "time_since_restore", "timesteps_since_restore",
    "trial", "trial_id", "warmup_time",
}  # fmt: skip
"""Keys that Tune adds to every row and no analysis needs, or that the frame holds under another name."""

CHUNK = 2**22
"""Bytes that are parsed at once."""


@dataclass
class Lines:
    """The rows of a log, and how many lines could not be read."""

    rows: list[Row] = field(default_factory=list)
    torn: bool = False
    """Whether the last line is incomplete."""
    broken: int = 0
    """Other lines that are not JSON objects."""

    @classmethod
    def parse(cls, data: bytes) -> Lines:
        """Reads JSON lines."""
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
    """What each line holds, None where it cannot be read. Parses all lines at once, which is faster, if possible."""
    lines = [line for line in data.split(b"\n") if line and not line.isspace()]
    try:
        rows: list[Any] = parse_json(b"[" + b",".join(lines) + b"]")
    except ValueError:
        rows = []
    return rows if len(rows) == len(lines) else [_object(line) for line in lines]


def _object(line: bytes) -> Any:
    try:
        return parse_json(line)
    except ValueError:
        return None


def gunzip(data: bytes) -> tuple[bytes, bool]:
    """What can be unpacked, and whether that is everything."""
    parts, complete = [], bool(data)
    while data:
        machine = zlib.decompressobj(wbits=31)
        try:
            parts.append(machine.decompress(data))
        except zlib.error:
            return b"".join(parts), False
        complete, data = machine.eof, machine.unused_data
    return b"".join(parts), complete


@dataclass
class Trial:
    """One trial's rows by column."""

    number: int
    id: str
    status: str
    columns: Columns
    length: int
    config: Mapping[str, Any]
    online: tuple[str, ...] = ()
    """The hyperparameters that it tuned online."""
    clocks: frozenset[str] = frozenset()
    """The clocks that its rows name."""
    repeated: bool = False
    torn: bool = False
    broken: bool = False

    @classmethod
    def of(
        cls,
        number: int,
        id: str,
        status: str,
        rows: list[Row],
        config: Mapping[str, Any] | None = None,
        online: tuple[str, ...] | None = None,
    ) -> Trial:
        """A trial from its rows; ``online`` is what the runner says about it, None if no runner wrote the log.

        The last row of an iteration that was reported again after a restore is kept. A trial that PBT made continue
        from another's checkpoint has other values there: both rows are kept.
        """
        reported = _columns(rows)
        if online is None:
            online = tuned_online(rows[0].get("config") if rows else None, reported)
        kept = _last_reports(rows, reported, online)
        repeated = len(kept) < len(rows)
        if repeated:
            reported = _columns(kept)
        configs = [found if isinstance(found, dict) else config or {} for found in reported.get("config", ())]
        configs = configs or [config or {}] * len(kept)
        columns: Columns = {}
        for name, values in reported.items():
            if name not in HOUSEKEEPING:
                columns |= _flattened(name, values)
        columns |= {name: values for name, values in _config_columns(configs).items() if name not in columns}
        columns.setdefault("training_iteration", np.arange(1, len(kept) + 1))
        clocks = frozenset(str(clock) for clock in reported.get("clock", ()) if clock)
        first = configs[0] if configs else config or {}
        return cls(number, id, status, columns, len(kept), first, online, clocks, repeated=repeated)

    @property
    def seed(self) -> int | None:
        """The seed in its config."""
        seed = self.config.get("seed", _reserved(self.config).get("seed"))
        return int(seed) + int(self.config.get(REPEAT, 0)) if isinstance(seed, (int, float)) else None


def _columns(rows: list[Row]) -> dict[str, list[Any]]:
    """Name -> the value of each row, None where a row lacks it. Most logs have the same names in every row."""
    names = tuple(rows[0]) if rows else ()
    if all(tuple(row) == names for row in rows):
        return dict(zip(names, map(list, zip(*(row.values() for row in rows), strict=True)), strict=True))
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}


def _last_reports(rows: list[Row], reported: Mapping[str, list[Any]], online: tuple[str, ...]) -> list[Row]:
    """The rows without iterations that were reported again."""
    iterations = reported.get("training_iteration")
    if iterations is None or (None not in iterations and len(set(iterations)) == len(rows)):
        return rows
    last: dict[Any, int] = {row.get("training_iteration", -k): k for k, row in enumerate(rows)}
    if len(last) < len(rows):
        last = {(row.get("training_iteration", -k), _values(row, online)): k for k, row in enumerate(rows)}
    return [rows[k] for k in sorted(last.values())] if len(last) < len(rows) else rows


def tuned_online(config: Any, reported: Iterable[str]) -> tuple[str, ...]:
    """The hyperparameters that a trial of Tune tuned online: the space in its config, else those with a scale."""
    space = _reserved(config).get("space")
    if isinstance(space, Mapping) and space:
        return tuple(space)
    return tuple(name.removeprefix("scale/") for name in reported if name.startswith("scale/"))


def _reserved(config: Any) -> Mapping[str, Any]:
    found = config.get(RESERVED) if isinstance(config, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _values(row: Row, online: tuple[str, ...]) -> str:
    """The values the trial was started with: its config, or the values it reports if they are not tuned online."""
    if isinstance(row.get("config"), dict):
        return json.dumps(row["config"], sort_keys=True)
    return "" if online else json.dumps([value for name, value in row.items() if name.startswith("hp/")])


def _flattened(name: str, values: list[Any]) -> Columns:
    """One column, or one per path where the values are nested: ``{"a": {"b": 1}}`` is ``a/b``."""
    whole = column(values)
    if whole.dtype != object or not any(isinstance(value, dict) for value in values):
        return {name: whole}
    inner = [value if isinstance(value, dict) else {} for value in values]
    result: Columns = {}
    for key in dict.fromkeys(chain.from_iterable(inner)):
        result |= _flattened(f"{name}/{key}", [value.get(key) for value in inner])
    return result


def _config_columns(configs: list[Mapping[str, Any]]) -> Columns:
    """``hp/<name>`` of every number in the config, which PBT may change while the trial runs."""
    if not configs:
        return {}
    if configs.count(configs[0]) == len(configs):
        return {name: np.full(len(configs), value) for name, value in _numbers(configs[0]).items()}
    each = [_numbers(config) for config in configs]
    names = dict.fromkeys(name for numbers in each for name in numbers)
    return {name: column([numbers.get(name) for numbers in each]) for name in names}


def _numbers(config: Mapping[str, Any]) -> dict[str, float]:
    return {
        f"hp/{name}": v
        for name, v in flatten({k: v for k, v in config.items() if k not in (RESERVED, REPEAT)}).items()
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
