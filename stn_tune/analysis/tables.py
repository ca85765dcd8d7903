"""table: the comparison of methods over seeds, for people, papers and programs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from stn_tune.analysis import comparison, render
from stn_tune.analysis.curves import FLOAT_FORMAT, objective
from stn_tune.analysis.order import BUILT_ON, in_order, title
from stn_tune.analysis.render import Section
from stn_tune.analysis.stats import WILCOXON_FROM
from stn_tune.errors import AnalysisError


class Published(NamedTuple):
    """Values of one task in the paper, as printed: by method, on the validation and on the test set."""

    metric: str
    values: dict[str, tuple[str, str]]


PAPER = {
    "ptb": Published(
        "perplexity",
        {
            "stn": ("70.30", "67.68"),
            "grid": ("97.32", "94.58"),
            "random": ("84.81", "81.46"),
            "bayes": ("72.13", "69.29"),
        },
    ),
    "ptb schedules": Published(
        "perplexity",
        {
            "stn": ("82.58", "79.02"),
            "grid": ("85.83", "83.19"),
            "gaussian": ("85.87", "82.29"),
            "sinusoid": ("85.29", "82.15"),
            "final": ("89.65", "86.90"),
            "replay": ("82.87", "79.93"),
        },
    ),
    "cifar10": Published(
        "loss",
        {
            "stn": ("0.575", "0.576"),
            "grid": ("0.794", "0.809"),
            "random": ("0.921", "0.752"),
            "bayes": ("0.636", "0.651"),
        },
    ),
}
"""The paper's Tables 1 (schedules) and 2, at the paper's full size: to stand beside our numbers, never among them."""


@dataclass
class Table:
    """The comparison of methods, as frames and as text.

    ``long`` has a row per method, split and metric; ``differences`` the paired differences to the reference over common
    seeds; ``times`` how soon the reference was as good as each method ended (see
    :func:`~stn_tune.analysis.comparison.times`); ``ranks`` the mean rank over the seeds that all methods have;
    ``frame`` is the first table of the text.
    """

    long: pd.DataFrame
    differences: pd.DataFrame
    times: pd.DataFrame
    ranks: pd.DataFrame
    sections: list[Section]

    @property
    def frame(self) -> pd.DataFrame:
        """One row per method, as people read it."""
        main = self.sections[0]
        return pd.DataFrame(list(main.rows), columns=list(main.columns))

    def __str__(self) -> str:
        return render.text(self.sections)

    __repr__ = __str__

    def to_markdown(self) -> str:
        return render.markdown(self.sections)

    def to_latex(self) -> str:
        """Tables for LaTeX's booktabs package."""
        return render.latex(self.sections)

    def _repr_html_(self) -> str:
        return render.html(self.sections)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """``long`` as CSV: written to ``path``, or given back where there is none."""
        return as_csv(self.long, path)


def as_csv(frame: pd.DataFrame, path: str | os.PathLike[str] | None = None) -> str | None:
    """A data file that is the same, byte for byte, whenever the numbers are."""
    text: str | None = frame.to_csv(path, index=False, float_format=FLOAT_FORMAT, lineterminator="\n")
    return text


def table(
    frame: pd.DataFrame,
    reference: str = "stn",
    level: float = 0.95,
    *,
    metric: str | None = None,
    mode: str | None = None,
    paper: str | None = None,
) -> Table:
    """Compares methods over seeds.

    Every experiment is represented by its row with the best validation value; all its other metrics, those of the test
    set above all, are what that row reports. An experiment that never had a finite value counts as infinitely bad.

    Args:
        reference: the method that the others are compared with.
        level: of the t-intervals.
        paper: "ptb", "ptb schedules" or "cifar10": sets the paper's own values beside ours, in columns of their own.
    """
    metric, mode = objective(frame, metric, mode)
    if paper is not None and paper not in PAPER:
        raise AnalysisError(f"paper is {paper!r}; the paper has values of {', '.join(PAPER)}")
    columns = comparison.measured(frame, metric)
    ends = comparison.finals(frame, metric, mode)
    long = comparison.long(ends, columns, level)
    differences = comparison.differences(ends, columns, reference, level)
    times = comparison.times(comparison.time_to_target(frame, reference, metric, mode))
    ranks = comparison.ranks(ends, mode)
    sections = [_main(ends, long, ranks, metric, level, paper)]
    if len(differences):
        sections.append(_differences(differences, reference, mode, level))
    if len(times):
        sections.append(_times(times, reference))
    if reference not in set(ends["method"]):
        note = f"There is no {reference} to compare with: no differences, no times to target."
        sections[0] = sections[0]._replace(notes=[*sections[0].notes, note])
    return Table(long, differences, times, ranks, sections)


def _section(name: str, columns: dict[str, list[str]], notes: list[str]) -> Section:
    return Section(name, list(columns), list(zip(*columns.values(), strict=True)), notes)


def _main(
    ends: pd.DataFrame, long: pd.DataFrame, ranks: pd.DataFrame, metric: str, level: float, paper: str | None
) -> Section:
    methods = in_order(long["method"])
    first = long.drop_duplicates("method").set_index("method")
    rank = ranks.set_index("method")["rank"]
    columns = {
        "method": [title(method) for method in methods],
        "n": [str(first["n"][method]) for method in methods],
        "trials": [f"{first['trials'][method]:.4g}" for method in methods],
        "compute s": [render.seconds(first["compute_s"][method]) for method in methods],
    }
    for (split, name), part in long.groupby(["split", "metric"], sort=False):
        columns[f"{split} {name}"] = with_intervals(part["mean"], part["low"], part["high"])
    columns["rank"] = [render.number(rank[method], 2) for method in methods]
    notes = [
        f"Mean ± half of the {100 * level:g} % t-interval over n seeds; one seed has no interval. Trials and "
        f"compute-seconds are per seed. All values are those at the best {metric}, which alone selects.",
        f"Rank: by best {metric}, mean over the seeds that all methods have (there are {ranks['n'].iloc[0]}).",
    ]
    for method in methods:
        own = ends[ends["method"] == method]
        lost = int(own["own_s"].isna().sum())
        if lost:
            notes.append(f"{title(method)}: {lost} of {len(own)} seeds never had a finite {metric}.")
    if paper is not None and PAPER[paper].values.keys() & set(methods):
        published = PAPER[paper]
        for k, split in enumerate(("val", "test")):
            cells = [published.values[method][k] if method in published.values else render.NONE for method in methods]
            columns[f"paper (full size) {split} {published.metric}"] = cells
        notes.append("Paper (full size): the paper's own values, of larger models and budgets; not measured here.")
    return _section("Final results", columns, notes)


def with_intervals(means: pd.Series, lows: pd.Series, highs: pd.Series) -> list[str]:
    """A column of ``mean ± half``, all with the same decimals."""
    places = render.decimals(means, (highs - lows) / 2)
    return [render.with_interval(*values, places) for values in zip(means, lows, highs, strict=True)]


def _differences(differences: pd.DataFrame, reference: str, mode: str, level: float) -> Section:
    cells = [""] * len(differences)
    for _, part in differences.groupby(["split", "metric"], sort=False):
        for k, cell in zip(part.index, with_intervals(part["difference"], part["low"], part["high"]), strict=True):
            cells[k] = cell
    columns = {
        "method": [title(method) for method in differences["method"]],
        "metric": [f"{split} {name}" for split, name in zip(differences["split"], differences["metric"], strict=True)],
        "n": [str(n) for n in differences["n"]],
        "difference": cells,
        "p (paired t)": [render.probability(p) for p in differences["t_p"]],
        "p (Wilcoxon)": [render.probability(p) for p in differences["wilcoxon_p"]],
    }
    sign = "positive" if mode == "min" else "negative"
    note = (
        f"Method minus {title(reference)}, paired by seed, ± half of the {100 * level:g} % t-interval. In the metric "
        f"that selects, {sign} means that {title(reference)} is better. p: paired t-test, and Wilcoxon's signed-rank "
        f"test from {WILCOXON_FROM} pairs on; not corrected for the number of comparisons."
    )
    return _section(f"Differences to {title(reference)}", columns, [note])


def _times(times: pd.DataFrame, reference: str) -> Section:
    name = title(reference)
    quartiles = zip(times["speedup_low"], times["speedup_high"], strict=True)
    columns = {
        "method": [title(method) for method in times["method"]],
        "n": [str(n) for n in times["n"]],
        "method's time (s)": [render.seconds(s) for s in times["own_s"]],
        f"{name}'s time (s)": [render.seconds(s) for s in times["reference_s"]],
        "reached": [f"{reached} of {n}" for reached, n in zip(times["reached"], times["n"], strict=True)],
        "speed-up": [render.factor(s) for s in times["speedup"]],
        "quartiles": [render.NONE if low != low else f"{low:.3g} to {high:.3g}" for low, high in quartiles],
    }
    note = (
        f"Compute-seconds until {name} was as good as the method ended, beside the method's own time to get there, on "
        f"the same seed; medians over n seeds. A value that was not reached counts as infinitely late, a speed-up of 0."
    )
    notes = [note]
    if not BUILT_ON.isdisjoint(times["method"]):
        taken = ", ".join(title(method) for method in times["method"] if method in BUILT_ON)
        notes.append(
            f"{taken}: without the time that finding what they take over cost, so they are not in the report's curves."
        )
    return _section("Time to each method's final value", columns, notes)
