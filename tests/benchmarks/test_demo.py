"""The demo: its verdict is computed, and what has to be said about small budgets is said."""

from __future__ import annotations

import gzip
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from baselines import METHODS
from benchmarks.commands.demo import DEMO_METHODS, DEMO_TASKS, verdict
from benchmarks.runner.caveats import caveats
from benchmarks.runner.log import pack_log
from benchmarks.runner.progress import ProgressRow, ProgressTable
from benchmarks.runner.store import Store
from benchmarks.tasks import problem
from stn_tune.record import ExperimentInfo, LogHeader, RunRecord, TrialInfo

REPO = Path(__file__).parents[2]


def record(budget_s: float = 50.0) -> RunRecord:
    methods = tuple(METHODS[name].info for name in DEMO_METHODS)
    experiments = tuple(ExperimentInfo(name, 0) for name in DEMO_METHODS)
    return RunRecord("out", "run", problem("digits", "smoke").info, methods, experiments, budget_s=budget_s)


def experiment(method: str, ended: int = 1, trials: int = 4, startup_s: float = 3.0) -> ExperimentInfo:
    return ExperimentInfo(
        method,
        0,
        online=("fc1_dropout",) if method == "stn" else (),
        trials=tuple(TrialInfo(k, str(k), "TERMINATED") for k in range(trials)),
        searches=method != "stn",
        startup_s=startup_s,
        ended_trials=ended,
    )


def store(folder: Path, losses: dict[str, float], ended: dict[str, int]) -> Store:
    made = Store(folder)
    made.create()
    made.write_record(record())
    for method, loss in losses.items():
        about = {"task": "digits", "metric": "val_loss", "mode": "min"}
        head = gzip.decompress(pack_log(experiment(method, ended.get(method, 1)), about, []))
        # The row of the lowest validation loss counts, whatever the test loss of another one is.
        rows = [{"best_val_loss": 2.0, "test_loss": 0.01}, {"best_val_loss": 1.0, "test_loss": loss}]
        made.write_log(f"{method}-0", gzip.compress(head + "".join(json.dumps(r) + "\n" for r in rows).encode()))
    return made


NAMES = [f"{method}-0" for method in DEMO_METHODS]


@pytest.mark.parametrize(
    ("losses", "ended", "said"),
    [
        ((0.2, 0.3, 0.25, 0.4), {}, "Lowest test loss: STN, 0.200, 0.050 below the next, random search (one seed)"),
        (
            (0.3, 0.2, 0.25, 0.4),
            {},
            "Lowest test loss: grid search, 0.200; STN is number 3 of 4, 0.100 above (one seed)",
        ),
        (
            (0.5, 0.2, 0.25, 0.4),
            {"stn": 0, "grid": 0},
            "Lowest test loss: grid search (unfinished), 0.200; STN (unfinished) is number 4 of 4, 0.300 above "
            "(one seed)",
        ),
    ],
)
def test_the_verdict_is_computed_from_the_logs(tmp_path, losses, ended, said):
    made = store(tmp_path / "out", dict(zip(DEMO_METHODS, losses, strict=True)), ended)
    assert verdict(made, NAMES) == said


def heads(**changes: ExperimentInfo) -> dict[str, LogHeader]:
    found = {method: experiment(method) for method in DEMO_METHODS} | changes
    return {f"{name}-0": LogHeader(e, "digits", "val_loss", "min") for name, e in found.items()}


def test_budgets_that_are_too_small_are_said():
    assert caveats(record(), heads()) == []
    (startup,) = caveats(record(), heads(stn=experiment("stn", startup_s=20.0)))
    assert startup == "start-up took 20.0 of 50 compute-seconds (40%) of stn-0; give a larger --budget"
    single = {name: experiment(name, trials=1) for name in ("grid", "random", "bayes")}
    (few,) = caveats(record(), heads(**single))
    assert few == "no search tried a second configuration within 50 compute-seconds; give a larger --budget"
    assert caveats(record(), heads(**{**single, "grid": experiment("grid", trials=2)})) == []
    (cut,) = caveats(record(), heads(stn=experiment("stn", ended=0)))
    assert cut == "the budget ended before any training of stn-0 did: unfinished"
    unknown = replace(experiment("stn"), startup_s=None, ended_trials=None, searches=None)
    assert caveats(record(), heads(stn=unknown)) == [], "logs of an earlier version"


def test_the_progress_table_fits_into_80_columns():
    console = Console(width=80, file=io.StringIO())
    rows = {name: ProgressRow(experiment(name), 50.0) for name in DEMO_METHODS}
    rows["grid"].status, rows["grid"].started = "running", 0.0
    title = "digits, preset small: 4 experiments of 50 compute-seconds, 2 at a time"
    with ProgressTable(title, rows, console) as progress:
        console.print(progress._table())
    lines = console.file.getvalue().splitlines()
    assert title in [line.rstrip() for line in lines], "in one line"
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("grid") and "starting" in line for line in lines)


def test_every_problem_of_the_demo_has_valid_sizes():
    for name, task in DEMO_TASKS.items():
        assert problem(name, "small", task.overrides).settings


@pytest.mark.slow
def test_the_demo_speaks_within_two_seconds_of_its_process_and_ends_on_sigterm(tmp_path):
    """CPU time of the process, as other tests may keep the machine busy."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "demo", "--out", str(tmp_path / "demo")],
        cwd=REPO,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        select.select([process.stdout], [], [], 120)
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        assert process.stdout.readline().decode() == "starting Ray …\n"
        assert sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") < 2
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        assert process.returncode == 143
    finally:
        process.stdout.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
