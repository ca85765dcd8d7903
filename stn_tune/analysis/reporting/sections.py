"""The tables of the page: the first one with test values first, the others folded."""

from __future__ import annotations

import numpy as np
import pandas as pd

from stn_tune.analysis import comparison, render
from stn_tune.analysis.render import Section
from stn_tune.analysis.results import Results
from stn_tune.analysis.stats import FEWEST, floats
from stn_tune.analysis.tables import Table, heading, with_intervals

SIGNIFICANT = 0.05


def sections(results: Results, table: Table) -> list[Section]:
    """The tables in the order of the page: results, differences, published values, and the others as they are."""
    first, *rest = table.sections
    ranked = bool(results.frame["compared"].astype(bool).any())
    repeated = _repeated(results.compared, table)
    found = [_first(results, first, repeated), *_differences(results, table, repeated)]
    found += _published(results, table)
    found += [without_empty(section) for section in rest if not section.title.startswith("Differences")]
    return found if ranked else found[:1]


def without_empty(section: Section) -> Section:
    """Without columns that say nothing in any row."""
    keep = [k for k, cells in enumerate(zip(*section.rows, strict=True)) if k == 0 or set(cells) - {render.NONE, ""}]
    return _chosen(section, keep)


def _chosen(section: Section, keep: list[int]) -> Section:
    """Some columns, in that order."""
    bold = frozenset((row, keep.index(k)) for row, k in section.bold if k in keep)
    rows = [[row[k] for k in keep] for row in section.rows]
    return Section(section.title, [section.columns[k] for k in keep], rows, section.notes, bold)


def _first(results: Results, section: Section, repeated: set[str]) -> Section:
    """Method, test values, other values, then what they cost."""
    published = results.record.published if results.record else None
    aside = [] if published is None else [name for name in section.columns if name.startswith(published.source)]
    aside += [f"{split} {name}" for name in repeated for split in ("val", "test")]
    cost = ["n", "trials", "compute s", "rank"]
    names = list(section.columns)
    test = [name for name in names[1:] if name.startswith("test ")]
    other = [name for name in names[1:] if name not in [*test, *cost]]
    order = [name for name in [names[0], *test, *other, *(n for n in cost if n in names)] if name not in aside]
    notes = list(section.notes)
    if published is not None and published.note in notes:
        notes.remove(published.note)
    chosen = _chosen(section, [names.index(name) for name in order])
    return without_empty(chosen._replace(notes=[note.replace(" (in plain text: an asterisk)", "") for note in notes]))


def _repeated(results: Results, table: Table) -> set[str]:
    """Metrics that say the same as the one that selects: its exponential, such as perplexity beside loss."""
    ends = comparison.finals(results)
    main = str(table.long["metric"].iloc[0])
    found = set()
    for name in table.long["metric"].unique():
        pairs = [(f"{split}_{name}", f"{split}_{main}") for split in ("val", "test") if f"{split}_{name}" in ends]
        if name != main and pairs and all(_exponential(floats(ends, a), floats(ends, b)) for a, b in pairs):
            found.add(str(name))
    return found


def _exponential(values: pd.Series, of: pd.Series) -> bool:
    both = np.isfinite(values) & np.isfinite(of)
    return bool(both.any() and np.allclose(values[both], np.exp(of[both].clip(upper=700.0)), rtol=1e-3))


def _differences(results: Results, table: Table, repeated: set[str]) -> list[Section]:
    """A row per method, and per metric the difference to the reference with its corrected p-value."""
    found = table.differences[~table.differences["metric"].isin(repeated)]
    if found.empty:
        return []
    labels = [label for label in _order(results, table) if label in set(found["label"])]
    columns = {
        "method": [results.title(label) for label in labels],
        "n": [str(n) for n in found.drop_duplicates("label").set_index("label")["n"].reindex(labels)],
    }
    bold = set()
    splits = found[["split", "metric"]].drop_duplicates()
    for split, metric in sorted(splits.itertuples(index=False), key=lambda pair: pair[0] != "test"):
        part = found[(found["split"] == split) & (found["metric"] == metric)].set_index("label").reindex(labels)
        cells = with_intervals(part["difference"], part["low"], part["high"])
        texts = zip(cells, part["holm_p"].map(render.probability), strict=True)
        title = heading(split, metric, results.metric)
        columns[title] = [
            cell if p == render.NONE else f"{cell} (p {p if p[0] == '<' else f'= {p}'})" for cell, p in texts
        ]
        bold |= {(row, list(columns).index(title)) for row, p in enumerate(part["holm_p"]) if p < SIGNIFICANT}
    name = results.title(results.reference())
    sign = "positive" if results.mode == "min" else "negative"
    note = f"Method minus {name}, paired by seed; {sign}: {name} is better in the metric that selects. "
    if found["holm_p"].notna().any():
        note += (
            "±: half of the 95 % t-interval. p: paired t-test, Holm-corrected for the methods in this table. Bold: "
            "significant at 5 %. Uncorrected p-values, Wilcoxon's test and all metrics: differences.csv."
        )
    else:
        note += f"Intervals and tests need {FEWEST} seeds. All metrics: differences.csv."
    rows = list(zip(*columns.values(), strict=True))
    return [without_empty(Section(f"Differences to {name}", list(columns), rows, [note], frozenset(bold)))]


def _order(results: Results, table: Table) -> list[str]:
    """Labels as the first table has them."""
    titles = {results.title(label): label for label in results.compared.labels}
    return [titles[row[0]] for row in table.sections[0].rows]


def _published(results: Results, table: Table) -> list[Section]:
    """Published values beside ours, in the metric they are published in."""
    published = results.record.published if results.record else None
    labels = _order(results, table)
    if published is None or not set(labels) & set(published.values):
        return []
    labels = [label for label in labels if label in published.values]
    columns = {"method": [results.title(label) for label in labels]}
    ours = table.long[table.long["metric"] == published.metric]
    for split in ("test", "val"):
        part = ours[ours["split"] == split].set_index("label").reindex(labels)
        columns[f"{split} {published.metric}"] = with_intervals(part["mean"], part["low"], part["high"])
        columns[f"{split} {published.metric}, {published.source}"] = [
            published.values[label].get(split, render.NONE) for label in labels
        ]
    rows = list(zip(*columns.values(), strict=True))
    notes = [published.note] if published.note else []
    return [without_empty(Section("Published values", list(columns), rows, notes))]
