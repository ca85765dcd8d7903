"""What figures draw, chosen from results: trials, hyperparameters, series over seeds, and their titles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from stn_tune.analysis.results import Results
from stn_tune.analysis.stats import finite
from stn_tune.errors import MissingData
from stn_tune.record import HyperparameterInfo

LONGEST = 40
RECENT = 3
"""A trial was still improving if it improved within this many of its last iterations."""

EXCLUSIVE = ("randint", "lograndint")
"""Kinds of domains whose upper end is not a value."""


def literal(text: str, longest: int = LONGEST) -> str:
    """A name for a figure: cut if it is too long, and without formulas (a dollar sign is a dollar sign)."""
    return (text if len(text) <= longest else f"{text[: longest - 1]}…").replace("$", r"\$")


def title_of(results: Results, label: str) -> str:
    """A label's title, for a figure."""
    return literal(results.title(label))


def metric_title(results: Results, name: str | None = None) -> str:
    """The metric that selects, or another one, in words; with the task's unit if it is the task's metric."""
    name = results.metric if name is None else name
    words = literal(re.sub("^val_", "validation ", name).replace("_", " "))
    task = None if results.record is None else results.record.task
    same = task is not None and name.removeprefix("test_") in (task.metric, task.metric.removeprefix("val_"))
    return f"{words} ({task.unit})" if task and task.unit and same else words


def test_metric(results: Results) -> str | None:
    """The test set's column for the metric that selects, if any row has it."""
    name = f"test_{results.metric.removeprefix('val_')}"
    return name if finite(results.frame, name).notna().any() else None


def hyperparameter(results: Results, name: str) -> HyperparameterInfo | None:
    """What the record says about a hyperparameter."""
    return None if results.record is None else results.record.task.space.get(name)


def hyperparameter_title(results: Results, name: str, unit: bool = False) -> str:
    """As people read it, with its unit if asked for: "cutout length (pixels)"."""
    info = hyperparameter(results, name)
    title = literal(name.replace("_", " ") if info is None else info.title)
    return f"{title} ({info.unit})" if unit and info is not None and info.unit else title


def bounds(domain: Mapping[str, Any]) -> tuple[float, float] | None:
    """The lowest and the highest value of a domain, None where it has no bounds."""
    if "lower" not in domain or "upper" not in domain:
        return None
    return float(domain["lower"]), float(domain["upper"]) - (1.0 if domain.get("kind") in EXCLUSIVE else 0.0)


def reported(rows: pd.DataFrame, prefix: str = "hp/") -> list[str]:
    """Names that the rows hold numbers for, without the prefix."""
    columns = [column for column in rows.columns if column.startswith(prefix)]
    return [column.removeprefix(prefix) for column in columns if finite(rows, column).notna().any()]


def varied(rows: pd.DataFrame) -> list[str]:
    """Hyperparameters with more than one value in the rows."""
    return [name for name in reported(rows) if finite(rows, f"hp/{name}").nunique() > 1]


def kind_of(results: Results, name: str) -> str:
    """``count``, ``rate`` (within [0, 1]) or ``coefficient``: as the record says, else as the values look."""
    info = hyperparameter(results, name)
    if info is not None:
        return info.kind
    known = finite(results.frame, f"hp/{name}").dropna()
    if len(known) and known.max() > 1 and (known == known.round()).all():
        return "count"
    return "rate" if len(known) == 0 or (known.min() >= 0 and known.max() <= 1) else "coefficient"


@dataclass(frozen=True)
class Group:
    """Hyperparameters that share a panel."""

    title: str
    kind: str
    axis: str
    """What the axis says."""
    names: Sequence[str]


def groups(results: Results, names: Sequence[str]) -> list[Group]:
    """Dropout rates together, other rates together, coefficients together, every count by itself."""
    kinds = {name: kind_of(results, name) for name in names}
    dropouts = [n for n in names if kinds[n] == "rate" and "drop" in n]
    rates = [n for n in names if kinds[n] == "rate" and n not in dropouts]
    coefficients = [n for n in names if kinds[n] == "coefficient"]
    shared = [
        Group("dropout rates", "rate", "rate", dropouts),
        Group("other rates" if dropouts else "rates", "rate", "rate", rates),
        Group("coefficients", "coefficient", "coefficient", coefficients),
    ]
    counts = [n for n in names if kinds[n] == "count"]
    units = {n: info.unit for n in counts if (info := hyperparameter(results, n)) is not None}
    alone = [Group(hyperparameter_title(results, n), "count", units.get(n) or "count", [n]) for n in counts]
    return [group for group in shared if group.names] + alone


def of_method(results: Results, name: str, **variant: Any) -> Results:
    """The rows of one method in one variant."""
    rows = results.frame["method"] == name
    keys = [c for c in results.frame.columns if c.startswith("variant/")]
    for column in keys:
        key = column.removeprefix("variant/")
        rows &= results.frame[column] == variant[key] if key in variant else results.frame[column].isna()
    if not rows.any() or any(f"variant/{key}" not in keys for key in variant):
        words = " ".join([name, *(f"{key}={value}" for key, value in variant.items())])
        raise MissingData(f"no runs of {words}")
    return results.where(rows)


def variants(results: Results, *keys: str) -> pd.DataFrame:
    """The labels whose variant has exactly these keys: ``label``, ``method`` and the keys, in the order of values."""
    columns = [column for column in results.frame.columns if column.startswith("variant/")]
    wanted = [f"variant/{key}" for key in keys]
    if set(wanted) <= set(columns):
        found = results.frame[["label", "method", *columns]].drop_duplicates("label")
        rest = [column for column in columns if column not in wanted]
        found = found[found[wanted].notna().all(axis=1) & found[rest].isna().all(axis=1)]
        if len(found):
            found = found[["label", "method", *wanted]].rename(columns=dict(zip(wanted, keys, strict=True)))
            return found.sort_values(list(keys), kind="stable", ignore_index=True)
    raise MissingData(f"no variants of {' and '.join(keys)}")


def costs(results: Results) -> pd.Series:
    """The metric with the sign that makes the lowest the best, infinite where there is none."""
    return (finite(results.frame, results.metric) * (1.0 if results.mode == "min" else -1.0)).fillna(np.inf)


def best_trials(results: Results) -> Results:
    """The rows of each experiment's best trial."""
    rows = results.frame
    best = costs(results).groupby([rows["experiment"], rows["trial"]]).min().reset_index(name="_best")
    chosen = best.sort_values(["experiment", "_best", "trial"]).drop_duplicates("experiment")
    keys = set(zip(chosen["experiment"], chosen["trial"], strict=True))
    return results.where([pair in keys for pair in zip(rows["experiment"], rows["trial"], strict=True)])


def tuned_online(results: Results) -> Results:
    """The best trials of the label that tunes online: of the reference, if it does, else of the best such label.

    Without the rows of plain networks that were trained along a schedule after it was found.
    """
    results = results.where(results.frame["online"].map(bool).astype(bool))
    if results.frame.empty:
        raise MissingData("no trial tunes hyperparameters online")
    label = results.reference()
    if label not in results.labels:
        rows = results.frame
        ends = costs(results).groupby([rows["label"], rows["experiment"]]).min()
        label = str(ends.groupby("label").mean().idxmin())
    best = best_trials(results.where(results.frame["label"] == label))
    return best.where(best.frame["phase"] != "refining") if "phase" in best.frame else best


def online_names(results: Results, prefix: str) -> list[str]:
    """The hyperparameters tuned online that are reported under ``prefix``."""
    found = reported(results.frame, prefix)
    names = dict.fromkeys(name for online in results.frame["online"].drop_duplicates() for name in online)
    chosen = [name for name in names if name in found]
    if not chosen:
        raise MissingData(f"no trial reports {prefix}<name> for a hyperparameter tuned online")
    return chosen


def blackbox_trials(results: Results) -> pd.DataFrame:
    """Trials that tune nothing online, one row each: label, hp/*, and ``value``, the best metric (NaN if it diverged).

    ``stopped`` marks trials that say little about their configuration: they have less than half of the iterations of
    the longest trial, did not diverge, and were stopped by a method that does so, or while they still improved.
    """
    rows = results.frame[~results.frame["online"].map(bool).astype(bool)]
    columns = [f"hp/{n}" for n in reported(rows)]
    if rows.empty or not columns:
        raise MissingData("no black-box trials with hyperparameters")
    mode = results.mode
    rows = rows.assign(value=finite(rows, results.metric), **{c: finite(rows, c) for c in columns})
    best = rows["value"] == rows.groupby(["experiment", "trial"])["value"].transform("min" if mode == "min" else "max")
    rows = rows.assign(improved=rows["training_iteration"].where(best), finite=np.isfinite(rows["value"]))
    trials = rows.groupby(["experiment", "trial"], sort=False)
    constant = (trials[columns].nunique() <= 1).all(axis=1)
    table = trials[["label", *columns]].first().assign(value=trials["value"].agg(mode))
    lasted = trials["training_iteration"].max()
    stopped = table["label"].map(lambda label: results.method(label).stops_early).astype(bool)
    stopped |= lasted - trials["improved"].min() < RECENT
    table["stopped"] = (2 * lasted < lasted.max()) & trials["finite"].last() & stopped
    table = table[constant]
    if table.empty:
        raise MissingData("no black-box trials: every trial's hyperparameters change while it trains")
    return table.reset_index()


def series(rows: pd.DataFrame, x: str, y: str, **about: Any) -> pd.DataFrame:
    """``y`` over ``x`` of each experiment: columns experiment, x, y, and constants; the last of two reports counts."""
    data = pd.DataFrame({"experiment": rows["experiment"], "x": finite(rows, x), "y": finite(rows, y)})
    data = data.dropna().drop_duplicates(["experiment", "x"], keep="last")
    if data.empty:
        raise MissingData(f"no finite values of {y} over {x}")
    return data.assign(**about)
