"""table: the comparison of methods over seeds, for people, papers and programs."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stn_tune.analysis import comparison, render
from stn_tune.analysis.comparison import Measured
from stn_tune.analysis.curves import FLOAT_FORMAT
from stn_tune.analysis.render import Section
from stn_tune.analysis.results import Results, Source, objective
from stn_tune.analysis.stats import BOOTSTRAP_FROM, FEWEST, WILCOXON_FROM


@dataclass
class Table:
    """The comparison of methods, as frames and as text."""

    long: pd.DataFrame
    """A row per label, split and metric."""
    differences: pd.DataFrame
    """The paired differences to the reference over shared seeds."""
    times: pd.DataFrame
    """How long the reference takes to reach each label's final value."""
    ranks: pd.DataFrame
    """The mean rank over the seeds that all labels share."""
    regrets: pd.DataFrame
    """The mean regret over the whole run."""
    sections: list[Section]
    """The tables of the text; ``frame`` is the first of them."""

    @property
    def frame(self) -> pd.DataFrame:
        """One row per label, as people read it."""
        main = self.sections[0]
        return pd.DataFrame(list(main.rows), columns=list(main.columns))

    def __str__(self) -> str:
        return render.text(self.sections)

    __repr__ = __str__

    def to_markdown(self) -> str:
        """Tables for Markdown."""
        return render.markdown(self.sections)

    def to_latex(self) -> str:
        """Tables for LaTeX's booktabs package."""
        return render.latex(self.sections)

    def _repr_html_(self) -> str:
        return render.html(self.sections)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """``long`` as CSV: written to ``path``, or returned if there is none."""
        return as_csv(self.long, path)


def as_csv(frame: pd.DataFrame, path: str | os.PathLike[str] | None = None) -> str | None:
    """CSV: the same bytes for the same numbers."""
    text: str | None = frame.to_csv(path, index=False, float_format=FLOAT_FORMAT, lineterminator="\n")
    return text


def table(
    source: Source,
    reference: str | None = None,
    level: float = 0.95,
    *,
    metric: str | None = None,
    mode: str | None = None,
) -> Table:
    """Compares methods over seeds.

    Every experiment is represented by its row with the best validation value; its other metrics, those of the test set
    included, are taken from that row. An experiment that never had a finite value counts as infinitely bad.

    Args:
        source: what :func:`~stn_tune.analysis.load` returned, or paths that it reads.
        reference: the label that the others are compared with, or its title; by default the one that tunes online.
        level: of the t-intervals.
        metric: the metric that selects; by default the frame's.
        mode: "min" or "max"; by default the frame's.
    """
    results = Results.of(source, metric, mode, reference).compared
    metric, mode = objective(results)
    reference = results.reference()
    columns = comparison.measured(results.frame, metric)
    ends = comparison.finals(results, metric, mode)
    long = comparison.long(ends, columns, level)
    differences = comparison.differences(ends, columns, reference, level, mode)
    times = comparison.times(comparison.time_to_target(results))
    leading = comparison.leading(results)
    ranks = comparison.ranks(_starting(results, ends), leading.column, mode)
    regrets = comparison.regrets(results, metric, mode, level)
    order = _by_result(long, leading, mode)
    sections = [_main(results, ends, long, ranks, leading, order, metric, mode, level)]
    if not results.frame["compared"].astype(bool).any():  # data for figures: no ranks, no winner
        return Table(long, differences, times, ranks, regrets, [_unranked(sections[0])])
    if len(differences):
        sections.append(_differences(results, differences, order, reference, mode, level))
    robust = _robust(results, long, differences, regrets, leading, order, reference, metric, level)
    if len(robust.columns) > 2:  # beside method and n
        sections.append(robust)
    if len(times):
        sections.append(_times(results, times, order, reference))
    if reference not in results.labels:
        note = f"No plain {results.title(reference)} to compare with: no differences and no times to target."
        sections[0] = sections[0]._replace(notes=[*sections[0].notes, note])
    return Table(long, differences, times, ranks, regrets, sections)


def _starting(results: Results, ends: pd.DataFrame) -> pd.DataFrame:
    """Without methods that build on another's results, unless all do."""
    own = ends[[results.method(str(label)).builds_on is None for label in ends["label"]]]
    return ends if own.empty else own


def _by_result(long: pd.DataFrame, leading: Measured, mode: str) -> list[str]:
    """The labels, best mean first."""
    main = long[(long["metric"] == leading.name) & (long["split"] == leading.split)]
    values = main.sort_values("mean", ascending=mode == "min", kind="stable")
    return [str(label) for label in values["label"]]


def _ordered(frame: pd.DataFrame, order: list[str]) -> pd.DataFrame:
    place = {label: k for k, label in enumerate(order)}
    return frame.sort_values("label", key=lambda labels: labels.map(place), kind="stable", ignore_index=True)


def _section(
    name: str, columns: dict[str, list[str]], notes: list[str], bold: Collection[tuple[int, str]] = ()
) -> Section:
    """``bold`` holds rows and names of columns."""
    places = {column: k for k, column in enumerate(columns)}
    marks = frozenset((row, places[column]) for row, column in bold)
    return Section(name, list(columns), list(zip(*columns.values(), strict=True)), notes, marks)


def _main(
    results: Results,
    ends: pd.DataFrame,
    long: pd.DataFrame,
    ranks: pd.DataFrame,
    leading: Measured,
    order: list[str],
    metric: str,
    mode: str,
    level: float,
) -> Section:
    long = _ordered(long, order)
    first = long.drop_duplicates("label").set_index("label")
    rank = ranks.set_index("label")["rank"].reindex(order)
    columns = {
        "method": [results.title(label) for label in order],
        "n": [str(first["n"][label]) for label in order],
        "trials": [f"{first['trials'][label]:.4g}" for label in order],
        "compute s": [render.seconds(first["compute_s"][label]) for label in order],
    }
    main, bold = long["metric"].iloc[0], []
    for (split, name), part in long.groupby(["split", "metric"], sort=False):
        title = heading(str(split), str(name), metric)
        columns[title] = with_intervals(part["mean"], part["low"], part["high"])
        if name == main:
            bold += [(row, title) for row in _best(results, part, mode)]
    columns["rank"] = [render.number(rank[label], 2) for label in order]
    shared = int(ranks["n"].iloc[0])
    notes = [
        f"Mean ± half of the {100 * level:g} % t-interval over n seeds, from n = {FEWEST} on. Sorted by "
        f"{leading.column}. Trials and compute-seconds are per seed. All values are taken at the best {metric}; "
        "nothing else selects.",
    ]
    if len(ranks) == 1:
        del columns["rank"]
    elif shared:
        seeds = "one seed" if shared == 1 else f"{shared} seeds"
        rest = "" if rank.notna().all() else "; methods that build on another's results are not ranked"
        notes.append(f"Rank: by {leading.column}, averaged over the {seeds} all methods share{rest}.")
    else:
        del columns["rank"]
        notes.append("No seed is shared by all methods, so there are no ranks.")
    if bold:
        aside = any(results.method(label).builds_on is not None for label in order)
        few = int(first["n"].min()) < int(first["n"].get(results.reference(), first["n"].max()))
        which = ["build on another's results"] * aside + ["have fewer seeds than the reference"] * few
        rest = f", apart from methods that {' or '.join(which)}" if which else ""
        notes.append(f"Bold (in plain text: an asterisk): the best mean{rest}.")
    for label in order:
        own = ends[ends["label"] == label]
        lost = int(own["own_s"].isna().sum())
        if lost:
            notes.append(f"{results.title(label)}: {lost} of {len(own)} seeds never had a finite {metric}.")
    published = None if results.record is None else results.record.published
    if published is not None and published.values.keys() & set(order):
        for split in ("val", "test"):
            cells = [published.values.get(label, {}).get(split, render.NONE) for label in order]
            columns[f"{published.source} {split} {published.metric}"] = cells
        notes += [published.note] if published.note else []
    return _section("Final results", columns, notes, bold)


def _unranked(section: Section) -> Section:
    """Without the last column, the best in bold, and what is said about them."""
    keep = [k for k, name in enumerate(section.columns) if name != "rank"]
    rows = [[row[k] for k in keep] for row in section.rows]
    notes = [note for note in section.notes if not note.startswith(("Rank:", "Bold"))]
    notes.append("These runs are data for figures; they are not compared.")
    return Section(section.title, [section.columns[k] for k in keep], rows, notes)


def heading(split: str, name: str, metric: str) -> str:
    """A metric as a heading: "val loss", and just "acc" for a metric that names no split."""
    return metric if split == "val" and name == metric else f"{split} {name}"


def _best(results: Results, part: pd.DataFrame, mode: str) -> list[int]:
    """The rows with the best mean, of methods that start from nothing and have as many seeds as the reference.

    None where there is nothing to choose from.
    """
    means = part["mean"].reset_index(drop=True)
    enough = part["n"] >= part.set_index("label")["n"].get(results.reference(), part["n"].max())
    alone = np.array([results.method(label).builds_on is None for label in part["label"]]) & enough.to_numpy()
    means = means[np.isfinite(means) & alone]
    if len(means) < 2:
        return []
    return [int(row) for row in means.index[means == (means.min() if mode == "min" else means.max())]]


def with_intervals(means: pd.Series, lows: pd.Series, highs: pd.Series) -> list[str]:
    """A column of ``mean ± half``, all with the same decimals."""
    places = render.decimals(means, (highs - lows) / 2)
    return [render.with_interval(*values, places) for values in zip(means, lows, highs, strict=True)]


def _within(centers: pd.Series, lows: pd.Series, highs: pd.Series) -> list[str]:
    """A column of ``center [low, high]``, all with the same decimals."""
    places = render.decimals(centers, (highs - lows) / 2)
    return [render.within(*values, places) for values in zip(centers, lows, highs, strict=True)]


def _differences(
    results: Results, differences: pd.DataFrame, order: list[str], reference: str, mode: str, level: float
) -> Section:
    main = differences["metric"] == differences["metric"].iloc[0]
    others = not main.all()
    differences = _ordered(differences[main], order)
    cells = [""] * len(differences)
    for _, part in differences.groupby(["split", "metric"], sort=False):
        for k, cell in zip(part.index, with_intervals(part["difference"], part["low"], part["high"]), strict=True):
            cells[k] = cell
    metric = results.metric
    columns = {
        "method": [results.title(label) for label in differences["label"]],
        "metric": [heading(*pair, metric) for pair in zip(differences["split"], differences["metric"], strict=True)],
        "n": [str(n) for n in differences["n"]],
        "difference": cells,
        "p": [render.probability(p) for p in differences["t_p"]],
        "p (Holm)": [render.probability(p) for p in differences["holm_p"]],
        "p (Wilcoxon)": [render.probability(p) for p in differences["wilcoxon_p"]],
    }
    if differences["wilcoxon_p"].isna().all():
        del columns["p (Wilcoxon)"]
    name, sign = results.title(reference), "positive" if mode == "min" else "negative"
    note = (
        f"Method minus {name}, paired by the n seeds both have, ± half of the {100 * level:g} % t-interval, from n = "
        f"{FEWEST} on. In the metric that selects, {sign} means that {name} is better. p: paired t-test; p (Holm): "
        "the same, corrected for the number of methods compared."
    )
    if "p (Wilcoxon)" in columns:
        note += f" Wilcoxon's signed-rank test, from {WILCOXON_FROM} pairs on, is not corrected."
    rest = ["Those of the other metrics: differences.csv."] if others else []
    return _section(f"Differences to {name}", columns, [note, *rest])


def _robust(
    results: Results,
    long: pd.DataFrame,
    differences: pd.DataFrame,
    regrets: pd.DataFrame,
    leading: Measured,
    order: list[str],
    reference: str,
    metric: str,
    level: float,
) -> Section:
    """What does not hang on single seeds or on the end alone."""
    own = _ordered(long[(long["metric"] == leading.name) & (long["split"] == leading.split)], order)
    title, name = heading(leading.split, leading.name, metric), results.title(reference)
    columns = {"method": [results.title(label) for label in order], "n": [str(n) for n in own["n"]]}
    notes = []
    if own["n"].max() >= FEWEST:  # of fewer they are the mean
        columns[f"{title}, IQM"] = _within(own["iqm"], own["iqm_low"], own["iqm_high"])
        columns[f"{title}, median"] = _within(own["median"], own["median_low"], own["median_high"])
        notes.append(
            f"IQM: mean of the middle half of the seeds. Brackets: {100 * level:g} % bootstrap intervals, from n = "
            f"{BOOTSTRAP_FROM} on."
        )
    if differences["better_low"].notna().any():
        better = differences[(differences["metric"] == leading.name) & (differences["split"] == leading.split)]
        by_label = better.set_index("label").reindex(order)
        columns_of = (by_label[name].where(by_label["better_low"].notna()) for name in comparison.BETTER)
        cells = [render.within(center, low, high, 2) for center, low, high in zip(*columns_of, strict=True)]
        columns[f"P(better than {name})"] = cells
        notes.append(
            f"P: the probability that a run has a better {title} than one of {name}, ties counting half, with "
            f"Newcombe's score interval, from n = {FEWEST} on."
        )
    if len(regrets) and regrets["regret"].notna().any():
        areas = regrets.set_index("label").reindex(order)
        columns["mean regret"] = with_intervals(areas["regret"], areas["low"], areas["high"])
        notes.append(
            f"Mean regret: distance of the best {metric} so far to the best that any method found, averaged over "
            "compute-seconds from when all methods had a value until the longest ended."
        )
    return _section("Robust and anytime results", columns, notes)


def _times(results: Results, times: pd.DataFrame, order: list[str], reference: str) -> Section:
    name = results.title(reference)
    times = _ordered(times, order)
    quartiles = zip(times["speedup_low"], times["speedup_high"], strict=True)
    taken = zip(times["reference_s"], times["watched_s"], strict=True)
    columns = {
        "method": [results.title(label) for label in times["label"]],
        "n": [str(n) for n in times["n"]],
        "method's time (s)": [render.seconds(s) for s in times["own_s"]],
        f"{name}'s time (s)": [render.at_least(s, watched) for s, watched in taken],
        "reached": [f"{reached} of {n}" for reached, n in zip(times["reached"], times["n"], strict=True)],
        "speed-up": [render.factor(s) for s in times["speedup"]],
        "quartiles": [_quartiles(low, high) for low, high in quartiles],
    }
    notes = [
        f"Compute-seconds for {name} to reach the method's final value, and for the method itself, on the same seed; "
        f"medians over n seeds. Where {name} ended before it reached the value, its time is censored (Kaplan-Meier); "
        f'">" is how long it ran at most, where more than half of the seeds did not reach it.'
    ]
    building = [results.title(label) for label in times["label"] if results.method(label).builds_on is not None]
    if building:
        notes.append(
            f"{', '.join(building)}: these build on another method's results. Their times leave out what those cost, "
            "so the report's curves leave them out."
        )
    return _section("Time to each method's final value", columns, notes)


def _quartiles(low: float, high: float) -> str:
    """``2.7 to 6.84``; where seeds are censored the lower end may be unknown: ``up to 6.84``."""
    if high != high:
        return render.NONE
    return f"{low:.3g} to {high:.3g}" if low == low else f"up to {high:.3g}"
