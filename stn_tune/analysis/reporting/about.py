"""What was run, for the page: facts, commands, settings, and what a reader should know before trusting the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stn_tune.analysis.results import Results
from stn_tune.analysis.stats import floats
from stn_tune.record import Invocation, RunRecord

LONGEST_START = 0.25
"""Of the budget: a run that spends more on starting its trials is worth a warning."""


def warnings(results: Results) -> list[str]:
    """What is missing, broken, slow to start, or cannot be traced."""
    found = [*results.frame.attrs.get("problems", []), *slow_starts(results)]
    record = results.record
    if record is None and results.frame.attrs.get("foreign"):  # nobody expects one beside Tune's own folders
        return list(dict.fromkeys(found))
    if record is None:
        return [*found, "no record.json of a benchmark run: command, machine, versions and settings are unknown"]
    for invocation in record.invocations:
        if invocation.dirty:
            commit = (invocation.commit or "?")[:12]
            found.append(f"run on uncommitted changes to {commit}: {invocation.command}")
    return list(dict.fromkeys(found))


def slow_starts(results: Results) -> list[str]:
    """Methods with runs that spent more than a quarter of the budget on starting and setting up their trials."""
    budget = None if results.record is None else results.record.budget_s
    if not budget:
        return []
    frame = results.compared.frame
    started = floats(frame, "start_s").fillna(0.0) + floats(frame, "setup_s").fillna(0.0)
    trials = started.groupby([frame["label"], frame["experiment"], frame["trial"]]).max()
    shares = trials.groupby(["label", "experiment"]).sum() / budget
    lines = []
    for label in results.in_order(shares.index.get_level_values("label")):
        own = shares[label]
        slow = own[own > LONGEST_START]
        if len(slow):
            share = " to ".join(dict.fromkeys(f"{100 * value:.0f}" for value in (slow.min(), slow.max())))
            which = f"{len(slow)} of {len(own)} runs" if len(own) > 1 else "the run"
            lines.append(
                f"{results.title(label)}: {which} spent more than a quarter of the budget on starting and setting up "
                f"trials ({share} %)"
            )
    return lines


def commands(record: RunRecord) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The distinct commands, each with when, with what code and where it was run; and what holds for all of several."""
    groups: dict[str, list[Invocation]] = {}
    for invocation in record.invocations:
        groups.setdefault(invocation.command, []).append(invocation)
    found = {command: _about(calls) for command, calls in groups.items()}
    first = next(iter(found.values()), {})
    shared = {k: v for k, v in first.items() if len(found) > 1 and all(about[k] == v for about in found.values())}
    own = {command: {k: v for k, v in about.items() if k not in shared} for command, about in found.items()}
    return [{"command": command, "about": about} for command, about in own.items()], shared


def _about(calls: list[Invocation]) -> dict[str, str]:
    started = sorted(call.started for call in calls)
    times = f"{started[0]} to {started[-1]}, {len(calls)} times" if len(calls) > 1 else started[0]
    code = [(call.commit or "unknown") + (", with uncommitted changes" if call.dirty else "") for call in calls]
    return {
        "started": times,
        "code": _distinct(code),
        "machine": _distinct(_pairs(call.machine) for call in calls),
        "versions": _distinct(_pairs(call.versions) for call in calls),
    }


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def counts(results: Results) -> str:
    """``STN (5), grid search (5)``: labels with their numbers of experiments."""
    numbers = results.frame.groupby("label")["experiment"].nunique()
    return ", ".join(f"{results.title(label)} ({numbers[label]})" for label in results.labels)


def run_facts(record: RunRecord) -> dict[str, str]:
    """What was asked for, in a few words."""
    clocks = {"cpu": "CPU time", "device": "time on a GPU", "worker": "wall-clock time on a worker"}
    facts = {
        "task": record.task.title,
        "preset": record.preset,
        "changed settings": record.overrides,
        "budget per method and seed (compute-seconds)": record.budget_s,
        "compute-seconds count": clocks[record.clock],
        "workers": record.workers,
        "selected by": record.task.metric,
    }
    return {words: _text(value) for words, value in facts.items() if value not in (None, "", ())}


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {_text(value)}" for key, value in values.items()) or "unknown"


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value) or "none"
    if isinstance(value, Mapping):
        return _pairs(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting_lines(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """``stn.warmup`` -> its value; deeper values, such as a domain of the space, are one line."""
    result: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and not prefix:
            result |= setting_lines(value, f"{key}.")
        else:
            result[f"{prefix}{key}"] = _text(value)
    return result
