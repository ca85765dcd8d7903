"""Runs the cases of the fault suite, keeps what became of each, and makes the table."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.durations import count
from benchmarks.errors import SettingsError
from benchmarks.faults.bench import Bench, Outcome, left_behind
from benchmarks.faults.kinds import KINDS, Kind
from benchmarks.faults.nodes import Cluster, node
from benchmarks.faults.warm import warm_python
from benchmarks.runner.machine import machine, versions
from benchmarks.runner.session import Session
from stn_tune.atomic import write_atomic
from stn_tune.checkpoint import one_line
from stn_tune.plain_json import parse_json

FIRST_SEED = 1000
"""Trainings of the suite use seeds that no comparison does."""
TRAININGS = 4
"""Different trainings, in turn: their undisturbed losses are computed once."""
CASE_S = 1800
"""A case that takes longer has not survived."""

TITLES = {
    "trial": "SIGKILL of a trial's process",
    "driver": "SIGKILL of an experiment's driver",
    "command": "SIGKILL of the command, then --resume",
    "node": "loss of a worker node with all its processes",
    "torn": "all killed, and a state file, log or checkpoint cut short",
    "clock": "all killed twice, the clock up to 30 days ahead or behind",
    "disk": "full disk, then --resume with room",
    "readonly": "storage read-only for a while, then --resume",
}
"""The kinds in the order of the table."""


@dataclass(frozen=True)
class CaseResult:
    """A line of ``cases.jsonl``."""

    kind: str
    case: int
    seed: int
    survived: bool
    lost: int
    seconds: float
    reason: str = ""


class Suite:
    """Cases by kind and number; those that are in ``out`` already are not run again."""

    def __init__(self, out: Path, seed: int, console: Console):
        self.out, self.seed, self.console = out, seed, console
        self.path = out / "cases.jsonl"

    def results(self) -> list[CaseResult]:
        """Of all cases that were run with this seed."""
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        found = []
        for line in lines:
            try:
                found.append(CaseResult(**parse_json(line)))
            except ValueError:  # cut short: the suite was killed
                continue
            except TypeError as error:
                raise SettingsError(f"{self.path}: a line is not a case: {one_line(str(error))}") from None
        return [result for result in found if result.seed == self.seed]

    def run(self, kinds: Sequence[str], cases: int) -> bool:
        """Runs what is missing; True if all cases survived."""
        done = {(result.kind, result.case) for result in self.results()}
        missing = [(kind, case) for case in range(cases) for kind in kinds if (kind, case) not in done]
        self.out.mkdir(parents=True, exist_ok=True)
        logging.getLogger("ray").setLevel(logging.CRITICAL)  # what dies here is meant to
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stn_tune_faults_")))
            if missing:
                stack.enter_context(warm_python(folder))
            shared = [(kind, case) for kind, case in missing if kind in KINDS]
            if shared:
                with Session(Bench(folder, 0).options):
                    for kind, case in shared:
                        self._case(kind, KINDS[kind], case, folder)
            lost_nodes = [case for kind, case in missing if kind == "node"]
            if lost_nodes:
                self._nodes(lost_nodes, folder)
        self.write_table()
        return all(result.survived for result in self.results() if result.kind in kinds and result.case < cases)

    def _nodes(self, cases: Sequence[int], folder: Path) -> None:
        with ExitStack() as stack:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray_", ignore_cleanup_errors=True))
            cluster = stack.enter_context(Cluster(Path(place)))
            stack.enter_context(Session(Bench(folder, 0, address=cluster.address).options))
            for case in cases:
                self._case("node", partial(node, cluster=cluster), case, folder, cluster.address)

    def _case(self, kind: str, disturb: Kind, case: int, folder: Path, address: str | None = None) -> None:
        rng = random.Random(f"{self.seed} {kind} {case}")
        training = FIRST_SEED + rng.randrange(TRAININGS)
        bench = Bench(folder / f"{kind}-{case}", training, case, address)
        began = time.monotonic()
        limit = _TimeLimit(CASE_S)
        try:
            with limit:
                outcome = disturb(bench, rng)
        except Exception as error:  # the case has failed, the suite goes on
            lines = str(error).strip().splitlines() or [type(error).__name__]
            reason = str(limit) if limit.passed else f"{type(error).__name__}: {lines[-1]}"
            outcome = Outcome(False, 0, reason[:300])
        finally:
            bench.close()
        if outcome.survived and (stale := left_behind(os.getpid())):
            outcome = Outcome(False, outcome.lost, f"left behind: {stale[0]}")
        shutil.rmtree(bench.folder, ignore_errors=True)
        seconds = round(time.monotonic() - began, 1)
        result = CaseResult(kind, case, self.seed, outcome.survived, outcome.lost, seconds, outcome.reason)
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")
        state = "survived" if result.survived else "LOST"
        self.console.print(
            f"{kind} {case}: {state}, {count(result.lost, 'iteration')} again, {seconds:.0f} s {result.reason}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    def write_table(self) -> None:
        """Writes ``README.md`` from the cases in ``cases.jsonl``."""
        write_atomic(self.out / "README.md", page(self.results(), self.seed).encode())


def page(results: Sequence[CaseResult], seed: int) -> str:
    """The table, and how it was made."""
    rows = ["| fault | cases | survived | iterations lost: most in a case, all |", "|---|---:|---:|---:|"]
    for kind, title in TITLES.items():
        own = [result for result in results if result.kind == kind]
        if own:
            lost = [result.lost for result in own]
            rows.append(f"| {title} | {len(own)} | {sum(r.survived for r in own)} | {max(lost)}, {sum(lost)} |")
    failures = [f"- {r.kind} {r.case}: {r.reason}" for r in results if not r.survived]
    about, cases = machine(), max((result.case for result in results), default=0) + 1
    text = f"""# Faults

`python -m benchmarks faults --cases {cases} --seed {seed}` disturbs experiments and resumes them; every case
is in `cases.jsonl`.

{chr(10).join(rows)}

An experiment is one self-tuned training of a tiny network (digits, preset smoke). It has survived if it is complete in
the end, every loss that it reported is bit for bit that of an undisturbed training, and no process is left behind.
Iterations lost were computed again, or their row in the log is gone. A checkpoint is written after every iteration;
only where the checkpoint itself is cut short, a training starts over. Trials, drivers and commands are processes of
their own, forked from one that has imported torch and Ray.

{about["cpu"]}, {about["cores"]} cores, torch {versions()["torch"]}, ray {versions()["ray"]}.
"""
    return text + ("\nNot survived:\n\n" + "\n".join(failures) + "\n" if failures else "")


class _TimeLimit:
    """Raises an error in the main thread after so many seconds: TimeoutError, or what Ray's own code makes of it."""

    def __init__(self, seconds: int):
        self.seconds, self.passed = seconds, False

    def __str__(self) -> str:
        return f"not finished within {self.seconds} s"

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._late)
        signal.alarm(self.seconds)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, self._before)

    def _late(self, *_: Any) -> None:
        self.passed = True
        raise TimeoutError(str(self))
