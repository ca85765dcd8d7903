"""find: the experiments at a place, from logs of the benchmark runner and from folders of Ray Tune."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from posixpath import basename, dirname
from typing import Any

from stn_tune.analysis.storage import Storage
from stn_tune.analysis.trials import Lines, Row, Trial, gunzip
from stn_tune.errors import AnalysisError, RecordError
from stn_tune.record import FILE_NAME, LOG_FORMAT, LOG_SUFFIX, ExperimentInfo, LogHeader, RunRecord, TrialInfo

Upgrade = Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], RunRecord]
"""Reads version 1: a run's config.json and the first lines of its logs give its record, whose experiments are in the
order of the config's list."""

NAMED = 5
"""Up to this many trials with the same problem are named; more are counted."""

FAILED, EMPTY = "failed", "reported nothing"
TORN, BROKEN = "an incomplete last line (dropped)", "lines that cannot be read (dropped)"
REPEATED = "iterations reported again after a restore (the last report is kept)"


@dataclass
class ExperimentLog:
    """One method at one seed: its trials, and what is wrong with which of them."""

    info: ExperimentInfo
    source: str
    trials: list[Trial]
    header: LogHeader | None = None
    """None: a folder of Ray Tune."""
    name: str = ""
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for trial in self.trials:
            marks = {FAILED: trial.status == "ERROR", EMPTY: not trial.length, REPEATED: trial.repeated}
            for fault, present in {**marks, TORN: trial.torn, BROKEN: trial.broken}.items():
                if present:
                    self.faults[fault].append(str(trial.number) if trial.length else trial.id)

    @property
    def clocks(self) -> frozenset[str]:
        """What its compute-seconds count, as far as the logs say."""
        if self.header is not None:
            return frozenset({self.header.clock})
        return frozenset().union(*(trial.clocks for trial in self.trials))

    def problems(self) -> list[str]:
        """One line per fault."""
        return [f"{self.name}: {_which(trials)}: {fault}" for fault, trials in self.faults.items()]


def _which(trials: list[str]) -> str:
    if len(trials) > NAMED:
        return f"{len(trials)} trials"
    return f"trial{'s' if len(trials) > 1 else ''} {', '.join(trials)}"


@dataclass
class Logs:
    """Everything that was found at one place."""

    experiments: list[ExperimentLog] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    records: list[RunRecord] = field(default_factory=list)


def find(storage: Storage, method: str | None = None, upgrade: Upgrade | None = None) -> Logs:
    """The experiments at or below a place, in the order of their paths.

    Below a folder of the benchmark runner (it has a ``record.json``) only logs of finished experiments are read; the
    record's other experiments are named as missing.
    """
    result = Logs()
    files = storage.files()
    trial_folders = {dirname(path) for path in files if basename(path) == "result.json"}
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
        record = upgrade(config, [log.header for log in opened[folder].values()])
        result.records.append(record)
        for name, info in zip(config["experiments"], record.experiments, strict=True):
            runners[folder, info.name] = f"{folder}/runs/{name}{LOG_SUFFIX}"
            if name in opened[folder]:
                source = storage.shown(runners[folder, info.name])
                result.experiments.append(opened[folder][name].experiment(_header(record, info), source, method))
    unfinished = [name for (_, name), path in runners.items() if path not in logs]
    result.problems += [f"{name}: not finished, it has no log in runs/" for name in unfinished]
    folders = {folder for folder, _ in runners} | set(old)
    result.experiments += _tune(storage, [p for p in files if not _within(p, folders)], method, result.problems)
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
        return json.loads(data)
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


def _tune(storage: Storage, files: list[str], method: str | None, problems: list[str]) -> list[ExperimentLog]:
    """Ray Tune's own folders: ``<experiment>/<trial>/result.json``."""
    folders: dict[str, set[str]] = defaultdict(set)
    for path in files:
        folders[dirname(path)].add(basename(path))
    logs = {folder: f"{folder}/result.json" for folder, names in folders.items() if "result.json" in names}
    starts: dict[str, dict[str, float]] = {dirname(folder): {} for folder in logs}
    trials = {}
    for folder, data in zip(logs, storage.read_all(logs.values()), strict=True):
        lines = Lines.parse(data or b"")
        first = lines.rows[0] if lines.rows else {}
        starts[dirname(folder)][folder] = float(first.get("timestamp") or math.inf)
        status = "TERMINATED" if lines.rows and lines.rows[-1].get("done") else ""
        trial = Trial.of(0, str(first.get("trial_id", basename(folder))), status, lines.rows)
        trial.torn, trial.broken = lines.torn, lines.broken > 0 or data is None
        trials[folder] = trial
    for folder, names in folders.items():
        if folder not in trials and dirname(folder) in starts and names & {"params.json", "error.txt"}:
            starts[dirname(folder)][folder] = math.inf
            trials[folder] = Trial.of(0, basename(folder), "", [])
    result = []
    for root, own in starts.items():
        status_of = _states(storage, root, folders.get(root, set()), problems)
        for number, folder in enumerate(sorted(own, key=lambda f: (own[f], f))):
            trial = trials[folder]
            trial.number = number
            failed = "ERROR" if "error.txt" in folders[folder] else ""
            trial.status = status_of.pop(basename(folder), "") or trial.status or failed
        members = sorted((trials[folder] for folder in own), key=lambda trial: trial.number)
        seeds = {trial.seed for trial in members if trial.length}
        seed = seeds.pop() if len(seeds) == 1 else None
        experiment = ExperimentLog(ExperimentInfo(method or basename(root), seed or 0), storage.shown(root), members)
        if status_of:
            experiment.faults[EMPTY] += sorted(status_of)
        result.append(experiment)
    return result


def _states(storage: Storage, root: str, names: Collection[str], problems: list[str]) -> dict[str, str]:
    """Every trial that Tune knows of, by the name of its folder, with its status."""
    states = sorted(name for name in names if name.startswith("experiment_state-") and name.endswith(".json"))
    if not states:
        return {}
    try:
        known = json.loads(storage.read(f"{root}/{states[-1]}"))["trial_data"]
        trials = [json.loads(trial[0]) for trial in known]
        return {trial["relative_logdir"]: str(trial["status"]) for trial in trials if trial.get("relative_logdir")}
    except (ValueError, KeyError, TypeError, IndexError):
        problems.append(f"{basename(root)}: {states[-1]} cannot be read, so the status of its trials is a guess")
        return {}
