"""What has to be said about a run before anybody reads its results: budgets that are too small to compare methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarks.runner.log import unpack_log
from benchmarks.runner.store import Store
from stn_tune.record import LogHeader, RunRecord

if TYPE_CHECKING:
    from rich.console import Console

STARTUP_SHARE = 0.25
"""Start-up that takes more than this share of the budget is worth a warning."""


def print_caveats(record: RunRecord, store: Store, console: Console) -> None:
    """One line each, in yellow."""
    heads = {}
    for e in record.experiments:
        if store.finished(e.name):
            head, _ = unpack_log(store.read_log(e.name))
            heads[e.name] = LogHeader.from_json(head, e.name)
    for line in caveats(record, heads):
        console.print(f"warning: {line}", style="yellow", highlight=False, markup=False, soft_wrap=True)


def caveats(record: RunRecord, heads: Mapping[str, LogHeader]) -> list[str]:
    """Sentences about the experiments that have finished, by the headers of their logs."""
    found = []
    budget = record.budget_s or float("inf")
    starts = {name: head.experiment.startup_s or 0.0 for name, head in heads.items()}
    slow = [name for name, seconds in starts.items() if seconds > STARTUP_SHARE * budget]
    if slow:
        most = max(slow, key=lambda name: starts[name])
        others = f" and over {STARTUP_SHARE:.0%} of {len(slow) - 1} more" if len(slow) > 1 else ""
        found.append(
            f"start-up took {starts[most]:.1f} of {budget:g} compute-seconds ({starts[most] / budget:.0%}) of {most}"
            f"{others}; give a larger --budget"
        )
    searches = [head.experiment for head in heads.values() if head.experiment.searches]
    if searches and all(len(e.trials) < 2 for e in searches):
        found.append(
            f"no search tried a second configuration within {budget:g} compute-seconds; give a larger --budget"
        )
    unfinished = [name for name, head in heads.items() if is_unfinished(head)]
    if unfinished:
        found.append(f"the budget ended before any training of {', '.join(unfinished)} did: unfinished")
    return found


def is_unfinished(head: LogHeader) -> bool:
    """Whether the budget ended the experiment before one training had ended by itself."""
    return head.experiment.ended_trials == 0
