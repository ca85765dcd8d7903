"""headline: what came out, in one sentence with its uncertainty, and a few more that qualify it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from stn_tune.analysis import comparison, render
from stn_tune.analysis.comparison import Measured
from stn_tune.analysis.results import Results
from stn_tune.analysis.stats import FEWEST
from stn_tune.analysis.tables import Table, with_intervals

LEVEL = 0.95
SIGNIFICANT = 0.05
"""Of p-values after Holm's correction."""
FEW = 3
"""So many methods are named rather than called all others: a reader should see how many there are."""


@dataclass(frozen=True)
class Headline:
    """The result: ``claim`` is one sentence, ``details`` are more."""

    claim: str
    details: Sequence[str]


def headline(results: Results, table: Table) -> Headline | None:
    """The best method by its test value (else by the value that selects), and whether its lead is significant.

    Methods that build on another's results, and those with fewer seeds than the reference, do not compete. None where
    nothing is compared or nothing is finite.
    """
    if not results.frame["compared"].astype(bool).any():
        return None
    results = results.compared
    long = table.long[table.long["metric"] == table.long["metric"].iloc[0]]
    leading = comparison.leading(results)
    own = long[(long["split"] == leading.split) & np.isfinite(long["mean"])].set_index("label")
    own, left_out = _competitors(results, own)
    left_out += _diverged(results, long[long["split"] == "val"])
    if own.empty:
        return None
    own = own.sort_values("mean", ascending=results.mode == "min", kind="stable")
    race = _Race(results, own, leading)
    details = [*race.details(), *_first(results, table, race), *left_out]
    return Headline(race.claim(), details)


def _competitors(results: Results, own: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Labels that start from nothing on as many seeds as the reference; and who else there is."""
    building = own[[results.method(str(label)).builds_on is not None for label in own.index]]
    own = own.drop(building.index)
    wanted = own["n"].get(results.reference(), own["n"].max())
    few = own[own["n"] < wanted]
    words = []
    if len(few):
        counted = [f"{results.title(str(label))} (n = {n})" for label, n in few["n"].items()]
        words.append(f"Left out, because they have fewer than {wanted} seeds: {_and(counted)}.")
    own = own[own["n"] >= wanted]
    if better := _better(results, few, own):
        words.append(f"With the fewer seeds they have, better in the mean: {better}.")
    if len(building):
        titles = _and(map(results.title, building.index))
        words.append(f"Left out, because they build on another method's results: {titles}.")
    if better := _better(results, building, own):
        words.append(f"Of those, better in the mean: {better}.")
    return own, words


def _better(results: Results, others: pd.DataFrame, own: pd.DataFrame) -> str:
    """The others whose mean is better than the best of ``own``, with their values."""
    sign = 1.0 if results.mode == "min" else -1.0
    better = others[sign * others["mean"] < (sign * own["mean"]).min()]
    better = better.sort_values("mean", ascending=results.mode == "min", kind="stable")
    if better.empty:
        return ""
    values = with_intervals(better["mean"], better["low"], better["high"])
    return _and(f"{results.title(label)}, {value}" for label, value in zip(better.index, values, strict=True))


def _diverged(results: Results, long: pd.DataFrame) -> list[str]:
    """Methods with a seed that never had a finite value: they have no mean."""
    lost = [results.title(label) for label in long.loc[~np.isfinite(long["mean"]), "label"]]
    return [f"Left out, because not every seed had a finite value: {_and(lost)}."] if lost else []


class _Race:
    """Competitors, best first, and the paired differences of all others to the best."""

    def __init__(self, results: Results, own: pd.DataFrame, measured: Measured):
        self.results, self.own, self.measured = results, own, measured
        self.best = str(own.index[0])
        self.tied = [str(label) for label in own.index if own["mean"][label] == own["mean"].iloc[0]]
        ends = comparison.finals(results)
        ends = ends[ends["label"].isin(own.index)]
        found = comparison.differences(ends, [measured], self.best, LEVEL, results.mode).set_index("label")
        found = found.reindex(own.index[1:])
        self.p = found["holm_p"]
        self.shared = found["n"]
        self.ahead = [str(label) for label in found.index[self.p < SIGNIFICANT]]
        self.level = [str(label) for label in found.index[self.p >= SIGNIFICANT]]
        self.untested = [str(label) for label in found.index[self.p.isna()]]
        self.seeds = int(own["n"].iloc[0])
        self.tested = bool(self.p.notna().any())
        self.places = render.decimals(own["mean"], (own["high"] - own["low"]) / 2)

    @property
    def noun(self) -> str:
        """ "test loss", "validation accuracy" """
        name = self.measured.column
        return re.sub("^val_", "validation ", name).replace("_", " ")

    @property
    def place(self) -> str:
        record = self.results.record
        return "" if record is None else f" on {record.task.title}"

    @property
    def end(self) -> str:
        return "lowest" if self.results.mode == "min" else "highest"

    def value(self, label: str) -> str:
        """ "4.599 ± 0.019" """
        row: Any = self.own.loc[label]
        mean, low, high = (float(row[name]) for name in ("mean", "low", "high"))
        return render.with_interval(mean, low, high, self.places)

    def titles(self, labels: Sequence[str]) -> str:
        return _and(map(self.results.title, labels))

    def claim(self) -> str:
        """One sentence."""
        name, value = self.results.title(self.best), f"{self.value(self.best)} (n = {self.seeds})"
        if len(self.own) == 1:
            return f"{name} reaches a {self.noun} of {value}{self.place}."
        if len(self.tied) > 1:
            return f"{self.titles(self.tied)} tie for the {self.end} {self.noun}{self.place}: {value}."
        if not self.tested:
            why = ", too few seeds for a test" if self.seeds < FEWEST else "; its lead cannot be tested"
            return f"{name} has the {self.end} {self.noun}{self.place}: {value}{why}."
        if not self.level and not self.untested:
            which = f"{name} reaches the {self.end} {self.noun}{self.place}"
            others = self.titles(self.ahead) if len(self.ahead) <= FEW else "every other method"
            return f"{which}: {value}, significantly ahead of {others}."
        if not self.ahead:
            return f"No method is significantly ahead{self.place}: {name} has the {self.end} mean {self.noun}, {value}."
        says = {"is not significant": self.level, "cannot be tested": self.untested}
        rest = "; ".join(f"its lead over {self.titles(which)} {what}" for what, which in says.items() if which)
        ahead = f"{value}, significantly ahead of {self.titles(self.ahead)}"
        return f"{name} has the {self.end} mean {self.noun}{self.place}: {ahead}; {rest}."

    def details(self) -> list[str]:
        """Who comes next, and what was tested."""
        if len(self.own) == 1:
            return []
        others = [label for label in map(str, self.own.index) if label not in self.tied]
        words = []
        if others:
            words.append(f"Next: {self.results.title(others[0])}, {self.value(others[0])}.")
        if self.seeds == 1:
            return [*words, "One seed each: how much of this is chance is not known."]
        if self.seeds < FEWEST:
            return [*words, f"Tests and intervals need {FEWEST} seeds."]
        words += self._without_test()
        if not self.tested:
            return words
        if self.ahead:
            name = self.results.title(self.best)
            words.append(f"{name} is significantly ahead of {self.titles(self.ahead)}{self._worst(self.ahead)}.")
        level = [label for label in self.level if label not in self.tied]
        if level:
            words.append(f"Not significantly behind: {self.titles(level)}{self._worst(level, least=True)}.")
        tests = int(self.p.notna().sum())
        corrected = "" if tests == 1 else f", Holm-corrected for these {tests} comparisons"
        return [*words, f"Paired t-tests over seeds{corrected}, 5 % level; ±: half of the 95 % t-interval."]

    def _without_test(self) -> list[str]:
        """Who has no paired test with the best, and why."""
        name = self.results.title(self.best)
        apart = [label for label in self.untested if self.shared[label] < FEWEST]
        same = [label for label in self.untested if label not in apart]
        words = []
        if apart:
            words.append(f"Not tested, because fewer than {FEWEST} seeds are shared with {name}: {self.titles(apart)}.")
        if same:
            words.append(f"Not tested, because every seed gives the same difference to {name}: {self.titles(same)}.")
        return words

    def _worst(self, labels: Sequence[str], least: bool = False) -> str:
        """The p-value nearest to the level, in brackets."""
        known = self.p[list(labels)].dropna()
        if known.empty:
            return ""
        sign = "=" if len(known) == 1 else "≥" if least else "≤"
        value = render.probability(float(known.min() if least else known.max()))
        return f" (p {value})" if value.startswith("<") else f" (p {sign} {value})"


def _first(results: Results, table: Table, race: _Race) -> list[str]:
    """Whose final values the reference had before they had."""
    reference = results.reference()
    times = table.times[table.times["label"].isin(race.own.index)]
    if times.empty:
        return []
    sooner = times["reference_s"] < times["own_s"]
    first, later = times[sooner], times[~sooner]
    name, main = results.title(reference), re.sub("^val_", "validation ", results.metric).replace("_", " ")
    if first.empty:
        return [f"{name} is not first to the final {main} of any other method."]
    which = _and(map(results.title, first["label"])) if len(later) else "every other method"
    own, theirs = (_range(first[column]) for column in ("reference_s", "own_s"))
    rest = "the others" if len(first) > 1 else results.title(str(first["label"].iloc[0]))
    words = f"{name} is first to the final {main} of {which}: after {own} compute-seconds, {rest} after {theirs}."
    return [words, *_later(results, name, later)]


def _later(results: Results, name: str, times: pd.DataFrame) -> list[str]:
    """Whose final values the reference reached later than they did, or, at the median, never."""
    reached = np.isfinite(times["reference_s"])
    later, never = times[reached], times[~reached]
    words = []
    if len(later):
        own, theirs = (_range(later[column]) for column in ("reference_s", "own_s"))
        which = _and(map(results.title, later["label"]))
        words.append(f"Had theirs sooner: {which}, after {theirs}; {name} after {own}.")
    if len(never):
        most = " on most seeds" if never["n"].max() > 1 else ""
        titles = _and(map(results.title, never["label"]))
        words.append(f"{name} ended{most} without reaching that of {titles}.")
    return words


def _range(values: pd.Series) -> str:
    low, high = render.seconds(float(values.min())), render.seconds(float(values.max()))
    return low if low == high else f"{low} to {high}"


def _and(words: object) -> str:
    """ "a, b and c" """
    *most, last = [str(word) for word in words]  # type: ignore[attr-defined]
    return f"{', '.join(most)} and {last}" if most else last
