"""Ray Tune's own folders, of Ray 2.0 to 2.60: ``<experiment>/<trial>/result.json``, and what Tune keeps beside them.

Nothing that Tune pickled is imported or run: see :mod:`~stn_tune.analysis.tuner_state`.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from posixpath import basename, dirname
from typing import Any

from stn_tune.analysis.experiment import EMPTY, ExperimentLog
from stn_tune.analysis.storage import Storage
from stn_tune.analysis.trials import Lines, Row, Trial
from stn_tune.analysis.tuner_state import recorded_objective
from stn_tune.errors import AnalysisError
from stn_tune.nested import flatten
from stn_tune.plain_json import parse_json
from stn_tune.record import ExperimentInfo

ROWS = ("result.json", "progress.csv")
"""Where a trial's rows are; the first that has any counts."""
TRACES = {"params.json", "error.txt", "error.pkl"}
"""Files of a trial that reported nothing."""


@dataclass(frozen=True)
class SeedRule:
    """Where seeds are: in a config entry or a reported column, else in the experiment's name.

    ``text`` is first looked up as a name ("seed", "hp/rng"); where no trial has it, it is a regular expression with
    one group, a number: ``"_s(\\d+)"`` finds seed 3 in ``asha_s3``, and leaves ``asha`` as the method's name.
    """

    text: str
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        try:
            pattern = re.compile(self.text)
        except re.error as error:
            raise AnalysisError(f"seed is {self.text!r}; it is not a regular expression: {error}") from None
        object.__setattr__(self, "pattern", pattern)

    def column(self, trials: Iterable[Trial]) -> int | None:
        """The seed that all trials have under that name; None if none has it, or they differ."""
        found = {value for trial in trials for value in _named(trial, self.text.removeprefix("hp/"))}
        return found.pop() if len(found) == 1 else None

    def split(self, name: str) -> tuple[str, int]:
        """The name without its seed, and the seed."""
        match = self.pattern.search(name) if self.pattern.groups == 1 else None
        if match is None or not (match.group(1) or "").isdecimal():
            raise AnalysisError(
                f"{name}: no seed by {self.text!r}; seed names a config entry or a column, or is a regular expression "
                r"with one group, a number, such as '_s(\d+)'"
            )
        rest = (name[: match.start()] + name[match.end() :]).strip(" _-.")
        return rest or name, int(match.group(1))


def numbered_names(names: Iterable[str]) -> list[str]:
    """A line if experiments look like several methods on the same seeds, named ``random_s0``, ``asha_s0``, …"""
    stems: dict[str, list[str]] = defaultdict(list)
    for name in names:
        if found := re.fullmatch(r"(.*\D)(\d{1,4})", name):
            stems[found[1]].append(found[2])
    if not stems:
        return []
    stem, numbers = max(stems.items(), key=lambda pair: len(pair[1]))
    alike = [other for other, own in stems.items() if sorted(own) == sorted(numbers)]
    if len(numbers) < 2 or len(alike) < 2:
        return []
    before = re.search(r"[_.-][A-Za-z]*$", stem)
    pattern = (before[0].replace(".", r"\.") if before else "") + r"(\d+)$"
    return [
        f"{stem}{numbers[0]}, {stem}{numbers[1]} and so on count as methods of their own, with one run each: if the "
        f"number in their names is the seed, give --seed='{pattern}' (in Python: seed=)"
    ]


def _named(trial: Trial, name: str) -> set[int]:
    """The whole numbers that a trial has under a name: in its config, else in what it reported."""
    value = flatten(trial.config).get(name)
    values = [value] if value is not None else list(trial.columns.get(name, trial.columns.get(f"hp/{name}", ())))
    return {int(v) for v in values if isinstance(v, (int, float)) or hasattr(v, "dtype") if v == v and int(v) == v}


def read_tune_folders(
    storage: Storage,
    files: Collection[str],
    problems: list[str],
    method: str | None = None,
    seed: SeedRule | None = None,
) -> list[ExperimentLog]:
    """The experiments among the files, each with its trials in the order in which they began."""
    folders: dict[str, set[str]] = defaultdict(set)
    for path in files:
        folders[dirname(path)].add(basename(path))
    trials = _read_trials(storage, folders)
    roots: dict[str, list[str]] = defaultdict(list)
    for folder in trials:
        roots[dirname(folder)].append(folder)
    for folder, names in folders.items():
        if folder not in trials and dirname(folder) in roots and names & TRACES:
            roots[dirname(folder)].append(folder)
            trials[folder] = math.inf, Trial.of(0, basename(folder), "", [])
    return [
        _experiment(
            storage, root, sorted(own, key=lambda f: (trials[f][0], f)), trials, folders, problems, method, seed
        )
        for root, own in roots.items()
    ]


def _read_trials(storage: Storage, folders: Mapping[str, set[str]]) -> dict[str, tuple[float, Trial]]:
    """Folder -> when the trial first reported, and the trial."""
    logs = {folder: name for folder, names in folders.items() for name in ROWS if name in names}
    logs = {folder: next(name for name in ROWS if name in folders[folder]) for folder in logs}
    found = {}
    paths = [f"{folder}/{name}" for folder, name in logs.items()]
    for (folder, name), data in zip(logs.items(), storage.read_all(paths), strict=True):
        lines = Lines.parse(data or b"") if name == "result.json" else _csv(data or b"")
        if not lines.rows and name == "result.json" and "progress.csv" in folders[folder]:
            lines = _csv(storage.read_if_possible(f"{folder}/progress.csv") or b"")
        found[folder] = _trial(storage, folder, folders[folder], lines, data is None)
    return found


def _trial(storage: Storage, folder: str, names: set[str], lines: Lines, lost: bool) -> tuple[float, Trial]:
    first = lines.rows[0] if lines.rows else {}
    config = None
    if lines.rows and "config" not in first and "params.json" in names:
        config = _json(storage.read_if_possible(f"{folder}/params.json"))
    status = "TERMINATED" if lines.rows and lines.rows[-1].get("done") else ""
    began = float(first.get("timestamp") or math.inf)
    torn, broken = lines.torn, lines.broken > 0 or lost
    id = str(first.get("trial_id", basename(folder)))
    trial = Trial.of(0, id, status, lines.rows, config if isinstance(config, dict) else None)
    trial.torn, trial.broken = torn, broken
    return began, trial


def _csv(data: bytes) -> Lines:
    """The rows of a ``progress.csv``: numbers where they are numbers, ``config/<name>`` as the config."""
    text = data.decode("utf-8", "replace").replace("\0", "")
    rows: list[Row] = []
    for cells in csv.DictReader(io.StringIO(text)):
        row: Row = {key: _cell(value) for key, value in cells.items() if key and value not in (None, "")}
        config = {k.removeprefix("config/"): row.pop(k) for k in list(row) if k.startswith("config/")}
        rows.append(row | ({"config": config} if config else {}))
    return Lines(rows)


def _cell(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if text.lstrip("+-").isdecimal() else number


def _experiment(
    storage: Storage,
    root: str,
    own: list[str],
    trials: Mapping[str, tuple[float, Trial]],
    folders: Mapping[str, set[str]],
    problems: list[str],
    method: str | None,
    rule: SeedRule | None,
) -> ExperimentLog:
    names = folders.get(root, set())
    state = _state(storage, root, names, problems)
    status_of = _statuses(state)
    for number, folder in enumerate(own):
        trial = trials[folder][1]
        trial.number = number
        failed = "ERROR" if names_error(folders[folder]) else ""
        trial.status = status_of.pop(basename(folder), "") or trial.status or failed
    members = [trials[folder][1] for folder in own]
    name, seed = basename(root), _seed(members)
    if rule is not None and (found := rule.column(members)) is not None:
        seed = found
    elif rule is not None:
        name, seed = rule.split(name)
    metric, mode = recorded_objective(storage, root, names, state)
    result = ExperimentLog(ExperimentInfo(method or name, seed), storage.shown(root), members, metric=metric, mode=mode)
    if status_of:
        result.faults[EMPTY] += sorted(status_of)
    return result


def names_error(names: Collection[str]) -> bool:
    """Whether a trial's folder says that it failed."""
    return "error.txt" in names or "error.pkl" in names


def _seed(members: Iterable[Trial]) -> int:
    """The seed in the config of all trials; 0 if they have none, or different ones."""
    seeds = {trial.seed for trial in members if trial.length}
    return (seeds.pop() or 0) if len(seeds) == 1 else 0


def _state(storage: Storage, root: str, names: Collection[str], problems: list[str]) -> Mapping[str, Any]:
    """Tune's last ``experiment_state-<time>.json``, empty if there is none."""
    states = sorted(name for name in names if name.startswith("experiment_state-") and name.endswith(".json"))
    if not states:
        return {}
    found = _json(storage.read_if_possible(f"{root}/{states[-1]}"))
    if not isinstance(found, dict) or not isinstance(found.get("trial_data", found.get("checkpoints")), list):
        problems.append(f"{basename(root)}: {states[-1]} cannot be read, so the status of its trials is a guess")
        return {}
    return found


def _statuses(state: Mapping[str, Any]) -> dict[str, str]:
    """Every trial that Tune knows of, by the name of its folder, with its status.

    Ray 2.7 and later have ``trial_data``, pairs of JSON strings; before, ``checkpoints`` were one string each.
    """
    result = {}
    for entry in state.get("trial_data", state.get("checkpoints", [])):
        text = entry[0] if isinstance(entry, list) and entry else entry
        trial = _json(text.encode()) if isinstance(text, str) else text
        if isinstance(trial, dict):
            folder = trial.get("relative_logdir") or trial.get("logdir") or trial.get("_logdir")
            if isinstance(folder, str) and folder:
                result[basename(folder.rstrip("/"))] = str(trial.get("status", ""))
    return result


def _json(data: bytes | None) -> Any:
    try:
        return None if data is None else parse_json(data)
    except ValueError:
        return None
