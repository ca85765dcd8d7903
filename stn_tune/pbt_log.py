"""The policy logs of Ray's PopulationBasedTraining: which values the winner's ancestors were trained with, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stn_tune.errors import ScheduleError
from stn_tune.nested import flatten
from stn_tune.numbers import is_finite
from stn_tune.plain_json import parse_json

GLOBAL = "pbt_global.txt"
"""One line per copy: the copying and the copied trial's tag and iteration, the copied config, the perturbed one."""


@dataclass(frozen=True)
class Lineage:
    """The configs that one member of the population, and the members it descends from, were trained with."""

    steps: Sequence[int]
    """When each came into force."""
    values: Sequence[Mapping[str, Any]]
    """Each config, flattened: ``{"a/b": 1}``."""
    total_steps: int
    """How long the member and its ancestors were trained."""
    changed: Sequence[str]
    """The names of all numbers that were perturbed in any member."""


def best_lineage(folder: Path, metric: str, mode: str) -> Lineage:
    """The lineage of the member whose last report is the best, from an experiment's folder."""
    policies = sorted(folder.glob("pbt_policy_*.txt"))
    if not policies:
        raise ScheduleError(
            f"{folder} has no pbt_policy_<trial>.txt: PopulationBasedTraining(log_config=True) writes them into the "
            f"experiment's folder when a trial copies another"
        )
    results = [_json_lines(path) for path in sorted(folder.glob("*/result.json"))]
    trials = [rows for lines in results if (rows := [row for row in lines if isinstance(row, dict)])]
    sign = 1.0 if mode == "min" else -1.0
    ends = {k: sign * end for k, rows in enumerate(trials) if is_finite(end := rows[-1].get(metric))}
    if not ends:
        raise ScheduleError(f"{folder}: no trial ended with a finite {metric} in its result.json; give another metric")
    winner = trials[min(ends, key=lambda k: ends[k])][-1]
    policy = folder / f"pbt_policy_{winner.get('trial_id')}.txt"
    copies = _chain(_copies(policy)) if policy in policies else []
    logged = [copy for path in (*policies, *folder.glob(GLOBAL)) for copy in _copies(path)]
    config = winner.get("config", {})
    if not isinstance(config, dict):
        raise ScheduleError(f"{folder}: the config of trial {winner.get('trial_id')!r} is not an object")
    configs = [copies[0][4] if copies else config, *(copy[5] for copy in copies)]
    ends_at = [*((copy[3], copy[4]) for copy in copies), (winner.get("training_iteration"), config)]
    steps = [_step([row for rows in trials for row in rows], *end) for end in ends_at]
    if None in steps:
        steps = [int(iteration) if is_finite(iteration) else 0 for iteration, _ in ends_at]
    *starts, total = [0, *(int(step or 0) for step in steps)]
    entries: dict[int, Mapping[str, Any]] = {}
    for start, config in zip(starts, configs, strict=True):
        entries = {step: values for step, values in entries.items() if step < start} | {start: flatten(config)}
    return Lineage(list(entries), list(entries.values()), max(total, *entries), _changed(logged))


def _step(rows: Sequence[Mapping[str, Any]], iteration: int, config: Mapping[str, Any]) -> int | None:
    """The weight steps after an iteration at ``config``, or, if nobody reported that, at any; None if not reported.

    The logs name a copied trial by a tag that its results do not have: its config tells it.
    """
    found = [row for row in rows if row.get("training_iteration") == iteration and is_finite(row.get("step"))]
    return next((int(row["step"]) for row in [*(r for r in found if r.get("config") == config), *found]), None)


def _chain(copies: Sequence[Any]) -> list[Any]:
    """The copies that led to the last one: a trial's log may start with copies that a later one has undone."""
    chain: list[Any] = []
    for copy in reversed(copies):
        if chain and copy[0] != chain[-1][1]:
            break
        chain.append(copy)
    return chain[::-1]


def _changed(copies: Sequence[Any]) -> list[str]:
    names: dict[str, None] = {}
    for *_, old, new in copies:
        before = flatten(old)
        names |= dict.fromkeys(name for name, v in flatten(new).items() if is_finite(v) and v != before.get(name))
    return list(names)


def _copies(path: Path) -> list[Any]:
    copies = _json_lines(path)
    for copy in copies:
        whole = isinstance(copy, list) and len(copy) == 6 and all(isinstance(config, dict) for config in copy[4:])
        if not whole or not is_finite(copy[3]):
            raise ScheduleError(f"{path} is not a policy log of PopulationBasedTraining")
    return copies


def _json_lines(path: Path) -> list[Any]:
    """What each line holds; an incomplete last line is left out."""
    lines = path.read_bytes().splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(parse_json(line))
        except ValueError:
            if number < len(lines):
                raise ScheduleError(f"{path}: line {number} is not JSON") from None
    return found
