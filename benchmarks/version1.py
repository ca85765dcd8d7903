"""The one reader of version 1: a run's config.json and the headers of its logs, as a record of today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from baselines import METHODS
from benchmarks.studies import STUDIES
from benchmarks.tasks import problem
from stn_tune.errors import RecordError
from stn_tune.record import ExperimentInfo, Invocation, RunRecord, TaskInfo, TrialInfo

RENAMED = {"train": "train_steps", "valid": "valid_steps"}
FLAGS = {"fixed": ("tune_scale", False), "tuned": ("tune_scale", True)}
KEPT = ("id", "schedule")
"""What only the runner reads."""


def upgrade(config: Mapping[str, Any], headers: Sequence[Mapping[str, Any]]) -> RunRecord:
    """The record of a run of version 1; its experiments are in the order of the config's list."""
    if config.get("format") != 1:
        raise RecordError(f"config.json: format is {config.get('format')!r}; version 1 has 1")
    known = {_name(header["label"], header["seed"]): header for header in headers}
    experiments = tuple(_experiment(name, known.get(name, {}), config) for name in config["experiments"])
    used = {info.method for info in experiments}
    task, tuned = _task(config), tuple(config.get("tuned", ()))
    study = STUDIES[config.get("command", "run")]
    return RunRecord(
        name=config["name"],
        study=study.name,
        task=task,
        methods=tuple(method.info for name, method in METHODS.items() if name in used),
        experiments=experiments,
        invocations=tuple(_invocation(go) for go in config.get("goes", ())),
        preset=config.get("preset", ""),
        overrides=tuple(config.get("set", ())),
        settings=config.get("settings", {}),
        tuned=tuned,
        budget_s=config.get("budget_s"),
        clock="worker",
        workers=config.get("workers", 1),
        cpus=float(config.get("cpus", 1)),
        gpus=float(config.get("gpus", 0)),
        published=study.published_for(task, tuned),
        extra={key: config[key] for key in KEPT if key in config},
    )


def _name(label: str, seed: int) -> str:
    """Of a log's file."""
    return f"{label.replace(' ', '_')}-{seed}"


def _task(config: Mapping[str, Any]) -> TaskInfo:
    """Today's titles with the domains that the run had: version 1 included the upper end of an integer range."""
    info = problem(config["task"], config["preset"]).info
    space = {}
    for name, own in config["settings"]["space"].items():
        if name not in info.space:
            raise RecordError(f"config.json: {config['task']} has no hyperparameter {name!r} any more")
        integer = own["kind"] == "randint"
        lower, upper = (int(own["lower"]), int(own["upper"]) + 1) if integer else (own["lower"], own["upper"])
        domain = {"kind": own["kind"], "lower": lower, "upper": upper}
        space[name] = replace(info.space[name], domain=domain, initial=float(own["init"]))
    return replace(info, metric=config["metric"], mode=config["mode"], space=space)


def _experiment(name: str, header: Mapping[str, Any], config: Mapping[str, Any]) -> ExperimentInfo:
    """An experiment by the name of its log; ``header`` is the first line of the log, empty if it never finished."""
    label, seed = name.rsplit("-", 1)
    method, variant, compared = _variant(header.get("label", label.replace("_", " ")))
    tuned = tuple(header.get("tuned", config.get("tuned", ())))
    return ExperimentInfo(
        method,
        int(seed),
        variant,
        compared,
        online=tuned if METHODS[method].online else (),
        tuned=tuned,
        overrides=tuple(header.get("changes", ())),
        trials=tuple(_trial(trial) for trial in header.get("trials", ())),
        machine=header.get("machine", {}),
        versions=header.get("versions", {}),
    )


def _variant(label: str) -> tuple[str, dict[str, str | float | bool], bool]:
    """Method, variant and whether it is compared: labels were words, ``"stn scale=0.5 fixed"``."""
    method, *words = label.split(" ")
    variant: dict[str, str | float | bool] = {}
    if method == "heatmap":
        return "grid", {"view": "heatmap"}, False
    if method not in METHODS:  # the theory study named the network first
        method, variant = "stn", {"network": method}
    theory = "network" in variant
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            number = float(value)
            variant[RENAMED.get(key, key)] = int(number) if key in RENAMED else number
        else:
            key, flag = FLAGS[word]
            variant[key] = flag
    return method, variant, not theory


def _trial(trial: Mapping[str, Any]) -> TrialInfo:
    return TrialInfo(trial["trial"], trial["id"], trial["status"], trial.get("config", {}), trial.get("lost", 0))


def _invocation(go: Mapping[str, Any]) -> Invocation:
    return Invocation(
        go["command"], go["started"], go.get("git"), go.get("dirty"), go.get("versions", {}), go.get("machine", {})
    )
