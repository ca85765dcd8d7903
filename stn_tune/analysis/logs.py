"""find: the experiments at a place, from logs of the benchmark runner and from folders of Ray Tune."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from posixpath import basename, dirname
from typing import Any

from stn_tune.analysis.experiment import BROKEN, TORN, ExperimentLog
from stn_tune.analysis.storage import Storage
from stn_tune.analysis.trials import Lines, Row, Trial, gunzip
from stn_tune.analysis.tune_folders import SeedRule, read_tune_folders
from stn_tune.errors import AnalysisError, RecordError
from stn_tune.plain_json import parse_json
from stn_tune.record import FILE_NAME, LOG_FORMAT, LOG_SUFFIX, ExperimentInfo, LogHeader, RunRecord, TrialInfo

Upgrade = Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], RunRecord]
"""Reads version 1: a run's config.json and the first lines of its logs give its record, whose experiments are in the
order of the config's list."""


@dataclass
class Logs:
    """Everything that was found at one place."""

    experiments: list[ExperimentLog] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    records: list[RunRecord] = field(default_factory=list)


def find(
    storage: Storage, method: str | None = None, upgrade: Upgrade | None = None, seed: SeedRule | None = None
) -> Logs:
    """The experiments at or below a place, in the order of their paths.

    Below a folder of the benchmark runner (it has a ``record.json``) only logs of finished experiments are read; the
    record's other experiments are named as missing.
    """
    result = Logs()
    files = storage.files()
    trial_folders = {dirname(path) for path in files if basename(path) in ("result.json", "progress.csv")}
    logs = [path for path in files if path.endswith(LOG_SUFFIX) and not basename(path).startswith(".")]
    runners = _records(storage, files, result.records)
    old = _version_1(storage, [path for path in files if not _within(path, trial_folders)], runners, upgrade)
    opened: dict[str, dict[str, _Log]] = defaultdict(dict)
    for path, data in zip(logs, storage.read_all(logs), strict=True):
        try:
            if data is None:
                raise RecordError("the storage cannot read it")
            log = _Log.parse(data)
            if (folder := dirname(dirname(path))) in old:
                opened[folder][basename(path).removesuffix(LOG_SUFFIX)] = log
            else:
                header = LogHeader.from_json(log.header, "its first line")
                result.experiments.append(log.experiment(header, storage.shown(path), method))
        except (ValueError, TypeError, KeyError) as error:
            result.problems.append(f"{basename(path)}: not read, {error}")
    for folder, config in old.items():
        assert upgrade is not None
        where = storage.shown(f"{folder}/config.json")
        try:
            found = upgrade(config, [log.header for log in opened[folder].values()])
            record = RunRecord.from_json(found.to_json(), where)  # which checks every type
        except RecordError as error:
            raise AnalysisError(str(error)) from None
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise AnalysisError(f"{where} is not that of a run of version 1: {error!r:.200}") from None
        result.records.append(record)
        for name, info in zip(config["experiments"], record.experiments, strict=True):
            runners[folder, info.name] = f"{folder}/runs/{name}{LOG_SUFFIX}"
            if name in opened[folder]:
                source = storage.shown(runners[folder, info.name])
                result.experiments.append(opened[folder][name].experiment(_header(record, info), source, method))
    unfinished = [name for (_, name), path in runners.items() if path not in logs]
    result.problems += [f"{name}: not finished, it has no log in runs/" for name in unfinished]
    folders = {folder for folder, _ in runners} | set(old)
    plain = [path for path in files if not _within(path, folders)]
    result.experiments += read_tune_folders(storage, plain, result.problems, method, seed)
    return result


def _records(storage: Storage, files: list[str], records: list[RunRecord]) -> dict[tuple[str, str], str]:
    """Reads every record; (folder, experiment) -> the path its log has when it is finished."""
    expected = {}
    for path in files:
        if basename(path) == FILE_NAME:
            try:
                records.append(RunRecord.parse(storage.read(path), storage.shown(path)))
            except RecordError as error:
                raise AnalysisError(str(error)) from None
            for info in records[-1].experiments:
                expected[dirname(path), info.name] = f"{dirname(path)}/runs/{info.name}{LOG_SUFFIX}"
    return expected


def _version_1(
    storage: Storage, files: list[str], runners: Mapping[tuple[str, str], str], upgrade: Upgrade | None
) -> dict[str, dict[str, Any]]:
    """The config.json of every folder that a runner of version 1 wrote."""
    known = {folder for folder, _ in runners}
    found = {}
    for path in files:
        if basename(path) == "config.json" and dirname(path) not in known:
            config = _json(storage.read(path))
            if isinstance(config, dict) and isinstance(config.get("experiments"), list) and config.get("format") == 1:
                if upgrade is None:
                    place = storage.shown(dirname(path))
                    raise AnalysisError(f"{place}: a run of version 1; `python -m benchmarks report` reads it")
                found[dirname(path)] = config
    return found


def _within(path: str, folders: Collection[str]) -> bool:
    parent = dirname(path)
    while parent not in folders:
        if parent == dirname(parent):
            return False
        parent = dirname(parent)
    return True


def _json(data: bytes) -> Any:
    try:
        return parse_json(data)
    except ValueError:
        return None


@dataclass
class _Log:
    """The runner's log of one experiment: a header, then rows."""

    header: Row
    lines: Lines
    complete: bool

    @classmethod
    def parse(cls, data: bytes) -> _Log:
        text, complete = gunzip(data)
        lines = Lines.parse(text)
        header = lines.rows.pop(0) if lines.rows else {}
        if header.get("format") != LOG_FORMAT:
            raise RecordError(f'its first line is not the header of a log ("format": "{LOG_FORMAT}")')
        return cls(header, lines, complete)

    def experiment(self, header: LogHeader, source: str, method: str | None) -> ExperimentLog:
        info = header.experiment
        known = {trial.number: trial for trial in info.trials}
        rows: dict[int, list[Row]] = {number: [] for number in known}
        for row in self.lines.rows:
            rows.setdefault(int(row.get("trial", 0)), []).append(row)
        last = str(self.lines.rows[-1].get("trial", "?")) if self.lines.rows else "?"
        self.lines.rows.clear()
        trials = []
        for number in sorted(rows):
            about = known.get(number, TrialInfo(number, str(number), ""))
            trials.append(Trial.of(number, about.id, about.status, rows.pop(number), about.config, info.online))
            trials[-1].broken = bool(about.lost)
        if method is not None:
            info = replace(info, method=method, variant={})
        result = ExperimentLog(info, source, trials, header)
        if self.lines.torn or not self.complete:
            result.faults[TORN].append(last)
        if self.lines.broken:
            result.faults[BROKEN].append("?")
        return result


def _header(record: RunRecord, info: ExperimentInfo) -> LogHeader:
    task = record.task
    return LogHeader(info, task.name, task.metric, task.mode, record.preset, record.budget_s, record.clock)
