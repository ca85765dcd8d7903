"""What labels and columns say: variants of a method, hyperparameters and their kinds, the trials to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from stn_tune.analysis import order
from stn_tune.analysis.style import NotThere

LONGEST = 40
STILL = 3
"""A trial still improved if it did within so many of its last iterations."""
GREEK = {"alpha": "α", "beta": "β"}


@dataclass(frozen=True)
class Label:
    """``stn scale=0.5 fixed`` is the method stn, with the setting scale=0.5 and the flag fixed."""

    method: str
    settings: Mapping[str, float] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


def parse(label: str) -> Label:
    """Reads ``method [key=number …] [flag …]``; a label of any other shape is a method of that name."""
    method, *words = label.split(" ")
    settings, flags = {}, []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            flags.append(word)
            continue
        try:
            settings[key] = float(value)
        except ValueError:
            return Label(label)
    return Label(method, settings, tuple(flags)) if settings else Label(label)


def space_of(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The search space in a run's config.json; empty where there is none."""
    return ((config or {}).get("settings") or {}).get("space") or {}


def variants(frame: pd.DataFrame, *keys: str) -> dict[str, Label]:
    """The labels in the frame that set exactly these keys, in the order of their values."""
    found = {name: parse(name) for name in frame["method"].unique()}
    chosen = {name: label for name, label in found.items() if set(label.settings) == set(keys)}
    if not chosen:
        example = " ".join(f"{key}=…" for key in keys)
        raise NotThere(f'no label such as "stn {example}"')
    return dict(sorted(chosen.items(), key=lambda item: ([item[1].settings[key] for key in keys], item[1].flags)))


def of_label(frame: pd.DataFrame, label: str) -> pd.DataFrame:
    """The rows of one label."""
    rows = frame[frame["method"] == label]
    if rows.empty:
        raise NotThere(f'no runs with the label "{label}"')
    return rows


def metric(frame: pd.DataFrame) -> tuple[str, str]:
    """The metric and its mode."""
    return frame.attrs.get("metric", "val_loss"), frame.attrs.get("mode", "min")


def metric_title(frame: pd.DataFrame, config: Mapping[str, Any] | None) -> str:
    """The metric in words, with its unit where the rows tell it."""
    name = metric(frame)[0]
    if name != "val_loss":
        return literal(name.replace("val_", "validation ").replace("_", " "))
    if "val_perplexity" in frame:
        pairs = frame[["val_loss", "val_perplexity"]].astype(float).replace([np.inf, -np.inf], np.nan).dropna()
        pairs = pairs[pairs["val_loss"] < 100]
        if len(pairs) and np.allclose(np.exp(pairs["val_loss"]), pairs["val_perplexity"], rtol=1e-3):
            return "validation loss (nats per token)"
    return "validation loss (nats)" if config and "val_accuracy" in frame else "validation loss"


def literal(text: str, longest: int = LONGEST) -> str:
    """A name as it is, if not too long: a dollar sign starts no formula."""
    return (text if len(text) <= longest else f"{text[: longest - 1]}…").replace("$", r"\$")


def title(hyperparameter: str) -> str:
    return GREEK.get(hyperparameter, literal(hyperparameter.replace("_", " ")))


def method_title(label: str) -> str:
    return literal(order.title(label))


def hyperparameters(rows: pd.DataFrame, prefix: str = "hp/") -> list[str]:
    """Names that the rows hold numbers for, without the prefix."""
    columns = [c for c in rows.columns if c.startswith(prefix)]
    return [c.removeprefix(prefix) for c in columns if numeric(rows[c]).notna().any()]


def numeric(column: pd.Series) -> pd.Series:
    """As floats; what is no finite number becomes NaN."""
    return pd.to_numeric(column, errors="coerce").astype(float).replace([np.inf, -np.inf], np.nan)


def varied(rows: pd.DataFrame) -> list[str]:
    """Hyperparameters with more than one value in the rows."""
    return [name for name in hyperparameters(rows) if numeric(rows[f"hp/{name}"]).nunique() > 1]


def kind(name: str, values: pd.Series, config: Mapping[str, Any] | None) -> str:
    """``count``, ``rate`` (within [0, 1]) or ``coefficient``: as the run's space has it, else as the values look."""
    domain = space_of(config).get(name)
    if isinstance(domain, Mapping) and "kind" in domain:
        if "randint" in str(domain["kind"]):
            return "count"
        return "rate" if domain.get("lower", -1) >= 0 and domain.get("upper", 2) <= 1 else "coefficient"
    known = numeric(values).dropna()
    if len(known) and known.max() > 1 and (known == known.round()).all():
        return "count"
    return "rate" if len(known) == 0 or (known.min() >= 0 and known.max() <= 1) else "coefficient"


@dataclass(frozen=True)
class Group:
    """Hyperparameters that share an axis."""

    title: str
    axis: str
    names: Sequence[str]


def groups(rows: pd.DataFrame, names: Sequence[str], config: Mapping[str, Any] | None) -> list[Group]:
    """Dropout rates together, other rates together, coefficients together, every count by itself."""
    kinds = {name: kind(name, rows[f"hp/{name}"], config) for name in names}
    dropouts = [n for n in names if kinds[n] == "rate" and "drop" in n]
    rates = [n for n in names if kinds[n] == "rate" and n not in dropouts]
    coefficients = [n for n in names if kinds[n] == "coefficient"]
    shared = [
        Group("dropout rates", "rate", dropouts),
        Group("other rates" if dropouts else "rates", "rate", rates),
        Group("coefficients", "coefficient", coefficients),
    ]
    counts = [Group(title(n), "count", [n]) for n in names if kinds[n] == "count"]
    return [group for group in shared if group.names] + counts


def self_tuned(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the self-tuning network: label ``stn`` if there is one, else the best label that reports scales."""
    scales = [f"scale/{name}" for name in hyperparameters(frame, "scale/")]
    rows = frame[frame[scales].notna().any(axis=1)] if scales else frame.iloc[:0]
    if rows.empty:
        raise NotThere("no self-tuned runs: no trial reports scale/<name>")
    return best_trials(rows[rows["method"] == ("stn" if "stn" in set(rows["method"]) else _best_label(rows))])


def _best_label(rows: pd.DataFrame) -> str:
    """The label whose experiments end best in the mean."""
    ends = _costs(rows).groupby([rows["method"], rows["experiment"]]).min()
    return str(ends.groupby("method").mean().idxmin())


def _costs(rows: pd.DataFrame) -> pd.Series:
    """The metric with the sign that makes the lowest the best, infinite where there is none."""
    name, mode = metric(rows)
    return (numeric(rows[name]) * (1.0 if mode == "min" else -1.0)).fillna(np.inf)


def best_trials(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each experiment's best trial."""
    best = _costs(rows).groupby([rows["experiment"], rows["trial"]]).min().reset_index(name="_best")
    chosen = best.sort_values(["experiment", "_best", "trial"]).drop_duplicates("experiment")
    keys = set(zip(chosen["experiment"], chosen["trial"], strict=True))
    return rows[[pair in keys for pair in zip(rows["experiment"], rows["trial"], strict=True)]]


def tried(frame: pd.DataFrame) -> pd.DataFrame:
    """Black-box trials, one row each: method, hp/*, and ``value``, the trial's best metric (NaN if it diverged).

    ``cut`` marks those that say little of their configuration: they have less than half of the iterations of the
    longest trial, did not diverge, and were stopped by a method that does so, or while they still improved.
    """
    name, mode = metric(frame)
    scales = [f"scale/{n}" for n in hyperparameters(frame, "scale/")]
    rows = frame[frame[scales].isna().all(axis=1)] if scales else frame
    columns = [f"hp/{n}" for n in hyperparameters(rows)]
    if rows.empty or not columns:
        raise NotThere("no black-box trials with hyperparameters")
    rows = rows.assign(value=numeric(rows[name]), **{c: numeric(rows[c]) for c in columns})
    best = rows["value"] == rows.groupby(["experiment", "trial"])["value"].transform(mode)
    rows = rows.assign(improved=rows["training_iteration"].where(best), finite=np.isfinite(rows["value"]))
    trials = rows.groupby(["experiment", "trial"], sort=False)
    constant = (trials[columns].nunique() <= 1).all(axis=1)
    table = trials[["method", *columns]].first().assign(value=trials["value"].agg(mode))
    lasted = trials["training_iteration"].max()
    stopped = table["method"].map(lambda label: parse(label).method in order.EARLY_STOPPERS)
    stopped |= lasted - trials["improved"].min() < STILL
    table["cut"] = (2 * lasted < lasted.max()) & trials["finite"].last() & stopped
    table = table[constant]
    if table.empty:
        raise NotThere("no black-box trials: every trial's hyperparameters change while it trains")
    return table.reset_index()


def across_seeds(rows: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """One column per experiment over ``x``, the last report winning where two share a place."""
    data = pd.DataFrame({"x": numeric(rows[x]), "y": numeric(rows[y]), "experiment": rows["experiment"]})
    data = data.dropna().drop_duplicates(["experiment", "x"], keep="last")
    if data.empty:
        raise NotThere(f"no finite values of {y} over {x}")
    return data.pivot(index="x", columns="experiment", values="y")
