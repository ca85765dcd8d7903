"""table: the comparison of methods over seeds, for people, papers and programs."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pandas as pd

from stn_tune.analysis import comparison, render
from stn_tune.analysis.curves import FLOAT_FORMAT
from stn_tune.analysis.render import Section
from stn_tune.analysis.results import Results, objective
from stn_tune.analysis.stats import WILCOXON_FROM


@dataclass
class Table:
    """The comparison of methods, as frames and as text.

    ``long`` has a row per label, split and metric; ``differences`` the paired differences to the reference over shared
    seeds; ``times`` how long the reference takes to reach each label's final value (see
    :func:`~stn_tune.analysis.comparison.times`); ``ranks`` the mean rank over the seeds that all labels share;
    ``sections`` are the tables of the text, and ``frame`` is the first of them.
    """

    long: pd.DataFrame
    differences: pd.DataFrame
    times: pd.DataFrame
    ranks: pd.DataFrame
    sections: list[Section]

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
    source: pd.DataFrame | Results,
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
        source: what :func:`~stn_tune.analysis.load` returned.
        reference: the label that the others are compared with; by default the one that tunes online.
        level: of the t-intervals.
        metric: the metric that selects; by default the frame's.
        mode: "min" or "max"; by default the frame's.
    """
    results = Results.of(source).compared
    metric, mode = objective(results, metric, mode)
    reference = results.reference(reference)
    columns = comparison.measured(results.frame, metric)
    ends = comparison.finals(results, metric, mode)
    long = comparison.long(ends, columns, level)
    differences = comparison.differences(ends, columns, reference, level)
    times = comparison.times(comparison.time_to_target(results, reference, metric, mode))
    ranks = comparison.ranks(ends, mode)
    sections = [_main(results, ends, long, ranks, metric, level)]
    if len(differences):
        sections.append(_differences(results, differences, reference, mode, level))
    if len(times):
        sections.append(_times(results, times, reference))
    if reference not in results.labels:
        note = f"No {results.title(reference)} to compare with: no differences and no times to target."
        sections[0] = sections[0]._replace(notes=[*sections[0].notes, note])
    return Table(long, differences, times, ranks, sections)


def _section(name: str, columns: dict[str, list[str]], notes: list[str]) -> Section:
    return Section(name, list(columns), list(zip(*columns.values(), strict=True)), notes)


def _main(
    results: Results, ends: pd.DataFrame, long: pd.DataFrame, ranks: pd.DataFrame, metric: str, level: float
) -> Section:
    labels = results.labels
    first = long.drop_duplicates("label").set_index("label")
    rank = ranks.set_index("label")["rank"]
    columns = {
        "method": [results.title(label) for label in labels],
        "n": [str(first["n"][label]) for label in labels],
        "trials": [f"{first['trials'][label]:.4g}" for label in labels],
        "compute s": [render.seconds(first["compute_s"][label]) for label in labels],
    }
    for (split, name), part in long.groupby(["split", "metric"], sort=False):
        columns[f"{split} {name}"] = with_intervals(part["mean"], part["low"], part["high"])
    columns["rank"] = [render.number(rank[label], 2) for label in labels]
    shared = int(ranks["n"].iloc[0])
    notes = [
        f"Mean ± half of the {100 * level:g} % t-interval over n seeds; one seed has no interval. Trials and "
        f"compute-seconds are per seed. All values are taken at the best {metric}; nothing else selects.",
        f"Rank: by best {metric}, averaged over the {shared} seed{'' if shared == 1 else 's'} all methods share.",
    ]
    for label in labels:
        own = ends[ends["label"] == label]
        lost = int(own["own_s"].isna().sum())
        if lost:
            notes.append(f"{results.title(label)}: {lost} of {len(own)} seeds never had a finite {metric}.")
    published = None if results.record is None else results.record.published
    if published is not None and published.values.keys() & set(labels):
        for split in ("val", "test"):
            cells = [published.values.get(label, {}).get(split, render.NONE) for label in labels]
            columns[f"{published.source} {split} {published.metric}"] = cells
        notes += [published.note] if published.note else []
    return _section("Final results", columns, notes)


def with_intervals(means: pd.Series, lows: pd.Series, highs: pd.Series) -> list[str]:
    """A column of ``mean ± half``, all with the same decimals."""
    places = render.decimals(means, (highs - lows) / 2)
    return [render.with_interval(*values, places) for values in zip(means, lows, highs, strict=True)]


def _differences(results: Results, differences: pd.DataFrame, reference: str, mode: str, level: float) -> Section:
    cells = [""] * len(differences)
    for _, part in differences.groupby(["split", "metric"], sort=False):
        for k, cell in zip(part.index, with_intervals(part["difference"], part["low"], part["high"]), strict=True):
            cells[k] = cell
    columns = {
        "method": [results.title(label) for label in differences["label"]],
        "metric": [f"{split} {name}" for split, name in zip(differences["split"], differences["metric"], strict=True)],
        "n": [str(n) for n in differences["n"]],
        "difference": cells,
        "p (paired t)": [render.probability(p) for p in differences["t_p"]],
        "p (Wilcoxon)": [render.probability(p) for p in differences["wilcoxon_p"]],
    }
    name, sign = results.title(reference), "positive" if mode == "min" else "negative"
    note = (
        f"Method minus {name}, paired by seed, ± half of the {100 * level:g} % t-interval. In the metric that selects, "
        f"{sign} means that {name} is better. p: paired t-test, and Wilcoxon's signed-rank test from {WILCOXON_FROM} "
        f"pairs on; not corrected for the number of comparisons."
    )
    return _section(f"Differences to {name}", columns, [note])


def _times(results: Results, times: pd.DataFrame, reference: str) -> Section:
    name = results.title(reference)
    quartiles = zip(times["speedup_low"], times["speedup_high"], strict=True)
    columns = {
        "method": [results.title(label) for label in times["label"]],
        "n": [str(n) for n in times["n"]],
        "method's time (s)": [render.seconds(s) for s in times["own_s"]],
        f"{name}'s time (s)": [render.seconds(s) for s in times["reference_s"]],
        "reached": [f"{reached} of {n}" for reached, n in zip(times["reached"], times["n"], strict=True)],
        "speed-up": [render.factor(s) for s in times["speedup"]],
        "quartiles": [render.NONE if low != low else f"{low:.3g} to {high:.3g}" for low, high in quartiles],
    }
    notes = [
        f"Compute-seconds for {name} to reach the method's final value, and for the method itself, on the same seed; "
        f"medians over n seeds. A value that {name} does not reach counts as infinitely late: a speed-up of 0."
    ]
    building = [results.title(label) for label in times["label"] if results.method(label).builds_on is not None]
    if building:
        notes.append(
            f"{', '.join(building)}: these build on another method's results. Their times leave out what those cost, "
            "so the report's curves leave them out."
        )
    return _section("Time to each method's final value", columns, notes)
