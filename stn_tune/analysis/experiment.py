"""ExperimentLog: one method at one seed, as its logs have it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from stn_tune.analysis.trials import Trial
from stn_tune.record import ExperimentInfo, LogHeader

NAMED = 5
"""Up to this many trials with the same problem are named; more are counted."""

FAILED, EMPTY = "failed", "reported nothing"
TORN, BROKEN = "an incomplete last line (dropped)", "lines that cannot be read (dropped)"
REPEATED = "iterations reported again after a restore (the last report is kept)"


@dataclass
class ExperimentLog:
    """One method at one seed: its trials, and what is wrong with which of them."""

    info: ExperimentInfo
    source: str
    trials: list[Trial]
    header: LogHeader | None = None
    """None: a folder of Ray Tune."""
    name: str = ""
    metric: str | None = None
    """The metric that the experiment says it optimised."""
    mode: str | None = None
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for trial in self.trials:
            marks = {FAILED: trial.status == "ERROR", EMPTY: not trial.length, REPEATED: trial.repeated}
            for fault, present in {**marks, TORN: trial.torn, BROKEN: trial.broken}.items():
                if present:
                    self.faults[fault].append(str(trial.number) if trial.length else trial.id)

    @property
    def counts_setup(self) -> bool:
        """Whether its compute-seconds include the set-up of its trials."""
        own = {"trial_compute_s", "start_s"}
        return self.header is not None or all(own & trial.columns.keys() for trial in self.trials if trial.length)

    @property
    def clocks(self) -> frozenset[str]:
        """What its compute-seconds count, as far as the logs say."""
        if self.header is not None:
            return frozenset({self.header.clock})
        return frozenset().union(*(trial.clocks for trial in self.trials))

    def problems(self) -> list[str]:
        """One line per fault."""
        return [f"{self.name}: {_which(trials)}: {fault}" for fault, trials in self.faults.items()]


def _which(trials: list[str]) -> str:
    if len(trials) > NAMED:
        return f"{len(trials)} trials"
    return f"trial{'s' if len(trials) > 1 else ''} {', '.join(trials)}"
