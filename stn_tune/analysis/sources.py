"""find: the experiments at a place, whichever of the two formats their logs have."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from posixpath import basename, dirname
from typing import Any

from stn_tune.analysis.reading import Lines, Row, Storage, Trial, gunzip

RUN_FORMAT = "stn_tune.run"
RUN_VERSION = 1
RUN_SUFFIX = ".jsonl.gz"
NAMED = 5
"""Up to so many trials with the same problem are named, more are counted."""

FAILED, EMPTY = "failed", "reported nothing"
TORN, BROKEN = "a torn last line (dropped)", "lines that cannot be read (dropped)"
REPEATED = "iterations reported again after a restore (the last is kept)"


@dataclass
class Experiment:
    """One method with one seed: its trials, and what is wrong with which of them."""

    method: str
    seed: int
    source: str
    trials: list[Trial]
    header: Mapping[str, Any] = field(default_factory=dict)
    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    name: str = ""

    def check(self) -> None:
        """Notes what its trials know of themselves."""
        for trial in self.trials:
            marks = {FAILED: trial.status == "ERROR", EMPTY: not trial.length, REPEATED: trial.repeated}
            for what, true in {**marks, TORN: trial.torn, BROKEN: trial.broken}.items():
                if true:
                    self.wrong[what].append(str(trial.number) if trial.length else trial.id)

    def problems(self) -> list[str]:
        return [f"{self.name}: {_which(trials)}: {what}" for what, trials in self.wrong.items()]


def _which(trials: list[str]) -> str:
    if len(trials) > NAMED:
        return f"{len(trials)} trials"
    return f"trial{'s' if len(trials) > 1 else ''} {', '.join(trials)}"


@dataclass
class Found:
    """Everything that lies at one place."""

    experiments: list[Experiment] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    configs: list[dict[str, Any]] = field(default_factory=list)


def find(storage: Storage, method: str | None = None) -> Found:
    """The experiments at or below a place, in the order of their paths.

    Below a folder of the benchmark runner (its ``config.json`` lists experiments) only the logs of finished experiments
    count; those on the list without a log are named as missing.
    """
    result = Found()
    files = storage.files()
    trials = {dirname(path) for path in files if basename(path) == "result.json"}
    runners = set()
    logs = [path for path in files if path.endswith(RUN_SUFFIX) and not basename(path).startswith(".")]
    for path in files:
        if basename(path) == "config.json" and not _within(path, trials):
            config = _json(storage.read(path))
            if isinstance(config, dict) and isinstance(config.get("experiments"), list) and "format" in config:
                runners.add(dirname(path))
                result.configs.append(config)
                missing = [n for n in config["experiments"] if f"{dirname(path)}/runs/{n}{RUN_SUFFIX}" not in logs]
                result.problems += [f"{name}: not finished, it has no log in runs/" for name in missing]
    for path, data in zip(logs, storage.read_all(logs), strict=True):
        try:
            if data is None:
                raise ValueError("the storage does not give it out")
            result.experiments.append(_run(storage.shown(path), data, method))
        except (ValueError, TypeError, KeyError) as error:
            result.problems.append(f"{basename(path)}: not read, {error}")
    result.experiments += _plain(storage, [p for p in files if not _within(p, runners)], method, result.problems)
    return result


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


def _run(path: str, data: bytes, method: str | None) -> Experiment:
    """The runner's compact log of one experiment: a header, then rows."""
    text, whole = gunzip(data)
    lines = Lines.parse(text)
    del text
    header = lines.rows[0] if lines.rows else {}
    if header.get("format") != RUN_FORMAT:
        raise ValueError(f'its first line is not the header of a run ("format": "{RUN_FORMAT}")')
    if header.get("version") != RUN_VERSION:
        raise ValueError(f"a run of version {header.get('version')}; this release reads {RUN_VERSION}")
    about = {int(known["trial"]): known for known in header.get("trials", ())}
    rows: dict[int, list[Row]] = {number: [] for number in about}
    for row in lines.rows[1:]:
        rows.setdefault(int(row.get("trial", 0)), []).append(row)
    last = str(lines.rows[-1].get("trial", "?"))
    lines.rows.clear()
    trials = []
    for number in sorted(rows):
        known = about.get(number, {})
        name, status = str(known.get("id", number)), str(known.get("status", ""))
        trials.append(Trial.of(number, name, status, rows.pop(number), known.get("config")))
        trials[-1].broken = bool(known.get("lost"))
    label = method or str(header.get("label") or header.get("method"))
    result = Experiment(label, int(header.get("seed", 0)), path, trials, header)
    result.check()
    if lines.torn or not whole:
        result.wrong[TORN].append(last)
    if lines.broken:
        result.wrong[BROKEN].append("?")
    return result


def _plain(storage: Storage, files: list[str], method: str | None, problems: list[str]) -> list[Experiment]:
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
        experiment = Experiment(method or basename(root), seed or 0, storage.shown(root), members)
        experiment.check()
        if status_of:
            experiment.wrong[EMPTY] += sorted(status_of)
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
