"""The fault suite: small, and its judgement of experiments that are not what they should be."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray.train._internal.storage import StorageContext
from ray.tune import Checkpoint
from ray.tune.execution import tune_controller
from ray.tune.experiment import Trial
from rich.console import Console

from benchmarks.commands.faults import KINDS as OFFERED
from benchmarks.faults import bench as module
from benchmarks.faults import suite as suite_module
from benchmarks.faults.bench import Bench, snapshots
from benchmarks.faults.kinds import KINDS
from benchmarks.faults.suite import TITLES, CaseResult, Suite, page
from benchmarks.faults.warm import warm_python
from benchmarks.runner import row_log
from benchmarks.runner.checkpoint_fallback import with_checkpoint_fallback
from benchmarks.runner.row_log import RowLogger, append
from benchmarks.tasks import problem
from stn_tune.analysis.trials import Lines
from stn_tune.checkpoint import STATE_FILE
from stn_tune.raytune.internals import LocalUpload, saved_result

LOSSES = [3.0, 2.0, 1.0]


@pytest.fixture(autouse=True)
def _no_trace_in_this_process(monkeypatch):
    """An experiment that is driven here sets what its process needs: other tests are not to see that."""
    monkeypatch.setattr(tune_controller, "_ExperimentCheckpointManager", tune_controller._ExperimentCheckpointManager)
    before = dict(os.environ)
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture
def bench(tmp_path, monkeypatch) -> Bench:
    monkeypatch.setattr(module, "undisturbed", lambda seed: LOSSES)
    return Bench(tmp_path, 0)


def log_of(bench: Bench, losses: list[tuple[int, float]], done: bool = True) -> bytes:
    rows = [{"training_iteration": k, "val_loss": loss} for k, loss in losses]
    folder = bench.storage / "stn" / "trial"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [{"trials": [{}]}, {**rows[-1], "done": done}]
    return gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode())


@pytest.mark.parametrize(
    ("losses", "done", "survived", "lost"),
    [
        ([(1, 3.0), (2, 2.0), (3, 1.0)], True, True, 0),
        ([(1, 3.0), (2, 2.0), (2, 2.0), (3, 1.0)], True, True, 1),
        ([(1, 3.0), (2, 2.0), (3, 1.0 + 1e-15)], True, False, 0),
        ([(1, 3.0), (2, 2.0), (2, 2.5), (3, 1.0)], True, False, 1),
        ([(1, 3.0), (3, 1.0)], True, False, 1),
        ([(1, 3.0), (2, 2.0), (3, 1.0)], False, False, 0),
    ],
)
def test_a_case_survives_if_every_loss_is_the_undisturbed_one(bench, losses, done, survived, lost):
    outcome = bench.judge(log_of(bench, losses, done))
    assert (outcome.survived, outcome.lost) == (survived, lost)
    assert bool(outcome.reason) == (not survived)


def test_a_row_may_be_missing_if_the_fault_cut_it_off(bench):
    assert bench.judge(log_of(bench, [(1, 3.0), (3, 1.0)]), spare_rows=1).survived


def test_a_training_is_recorded_row_by_row_but_for_the_last(tmp_path, monkeypatch):
    def training(bench):
        log = bench.storage / "stn" / "trial" / "result.json"
        log.parent.mkdir(parents=True)
        for k in range(1, 7):
            row_log.append(log, json.dumps({"training_iteration": k, "val_loss": 0.0}).encode() + b"\n")

    monkeypatch.setattr(module, "undisturbed", lambda seed: [0.0] * 6)
    monkeypatch.setattr(Bench, "run", training)
    found = snapshots(tmp_path, 0)
    assert [len(Lines.parse((path / "stn/trial/result.json").read_bytes()).rows) for path in found] == [1, 2, 3, 4]


def test_the_table_counts_what_is_in_the_cases():
    results = [CaseResult("trial", k, 0, k > 0, lost=k, seconds=1.0, reason="" if k else "it hung") for k in range(3)]
    text = page(results, seed=0)
    assert "| SIGKILL of a trial's process | 3 | 2 | 2, 3 |" in text
    assert "- trial 0: it hung" in text
    assert "worker node" not in text.partition("An experiment")[0], "no row without a case"


def test_every_kind_is_offered_and_has_a_title():
    assert set(OFFERED) == set(TITLES) == {*KINDS, "node"}


def test_cases_that_were_run_are_not_run_again(tmp_path, monkeypatch):
    suite = Suite(tmp_path, 0, Console(quiet=True))
    line = {"kind": "trial", "case": 0, "seed": 0, "survived": True, "lost": 0, "seconds": 1.0}
    (tmp_path / "cases.jsonl").write_text(json.dumps(line) + "\n")
    assert suite.run(["trial"], 1), "nothing to start Ray for"
    assert "| 1 | 1 | 0, 0 |" in (tmp_path / "README.md").read_text()
    other = Suite(tmp_path, 1, Console(quiet=True))
    assert not other.results(), "cases of another seed"


def test_a_case_that_hangs_says_so_whatever_ray_makes_of_the_error(tmp_path, monkeypatch):
    def hangs(bench, rng):
        try:
            time.sleep(60)
        except TimeoutError:
            raise SystemError("wait returned a result with an exception set") from None

    monkeypatch.setattr(suite_module, "CASE_S", 1)
    suite = Suite(tmp_path, 0, Console(quiet=True))
    suite._case("trial", hangs, 0, tmp_path)
    assert [(r.survived, r.reason) for r in suite.results()] == [(False, "not finished within 1 s")]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("ray_session")
def test_killed_trials_and_torn_files_cost_nothing_but_time(tmp_path: Path):
    suite = Suite(tmp_path, 7, Console(quiet=True))
    assert suite.run(["trial", "torn", "clock"], 1), suite.results()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_warm_process_and_its_client_end_together(tmp_path):
    python = sys.executable
    sleeping = ["-m", "timeit", "-n", "1", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"]
    clients: list[subprocess.Popen[str]] = []
    with warm_python(tmp_path):
        warm = sys.executable
        bad = subprocess.run([warm, "-m", "benchmarks", "run", "nope"], capture_output=True, text=True, check=False)
        assert (bad.returncode, len(bad.stderr.splitlines())) == (2, 1), bad.stderr
        words = [warm, "-c", "import sys; print(sys.executable)"]
        plain = subprocess.run(words, capture_output=True, text=True, check=True)
        assert plain.stdout.strip() == python, "anything else is Python's own"
        for killed in ("client", "fork", "server"):
            client = subprocess.Popen([warm, *sleeping], stdout=subprocess.PIPE, text=True)
            clients.append(client)
            assert client.stdout is not None
            fork = int(client.stdout.readline())
            if killed == "server":
                break
            os.kill(client.pid if killed == "client" else fork, 9)
            assert client.wait(60) == -9
            until_gone(fork)
    until_gone(fork)
    for client in clients:
        client.communicate()
    assert sys.executable == python


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_trial_whose_checkpoint_is_damaged_starts_over_and_counts_anew(tmp_path):
    p = problem("digits", "smoke")
    trainable = with_checkpoint_fallback(p.self_tuned())(config={**p.initial, "seed": 0})
    first = [trainable.train() for _ in range(2)]
    trainable.save_checkpoint(str(tmp_path))
    os.truncate(tmp_path / STATE_FILE, 100)
    trainable.restore(saved_result(Checkpoint.from_directory(tmp_path), first[-1]))
    again = [trainable.train() for _ in range(2)]
    for key in ("training_iteration", "epoch", "val_loss"):
        assert [row[key] for row in again] == [row[key] for row in first]

    trainable.save_checkpoint(str(tmp_path))
    trainable.restore(saved_result(Checkpoint.from_directory(tmp_path), {"training_iteration": 9}))
    assert trainable.train()["training_iteration"] == 3, "the checkpoint knows, not Tune's state"


def test_a_training_that_has_ended_does_not_go_on_where_tune_does_not_know_that_it_has(tmp_path):
    p = problem("digits", "smoke", ["patience=1"])

    def trial(name):
        made = p.self_tuned()(config={**p.initial, "seed": 0})
        made._trial_info = SimpleNamespace(trial_id=name, trial_resources=None)
        return made

    ended = trial("a")
    rows = [ended.train()]
    while not rows[-1]["done"]:
        rows.append(ended.train())
    ended.save_checkpoint(str(tmp_path))
    behind = saved_result(Checkpoint.from_directory(tmp_path), {"training_iteration": 1})
    resumed, other = trial("a"), trial("b")
    resumed.restore(behind)
    again = resumed.train()
    for key in ("training_iteration", "done", "epoch", "step", "val_loss", "best_val_loss", "test_loss"):
        assert again[key] == rows[-1][key]
    other.restore(behind)
    assert other.train()["training_iteration"] == len(rows) + 1, "a scheduler may let another trial go on from there"


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may grow beyond this: the system refuses the rest of a write, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_row_is_in_the_log_whole_or_not_at_all(tmp_path):
    path = tmp_path / "result.json"
    append(path, b'{"row": 1}\n')
    with largest_file(15), pytest.raises(OSError, match="too large"):
        append(path, b'{"row": 2}\n')
    assert path.read_bytes() == b'{"row": 1}\n'
    append(path, b'{"row": 2}\n')
    assert path.read_bytes() == b'{"row": 1}\n{"row": 2}\n'


@pytest.mark.usefixtures("ray_session")
def test_a_row_is_in_storage_as_soon_as_it_was_reported(tmp_path):
    """Before Tune saves anything: the checkpoint that follows it may be the last thing that the disk has room for."""
    trial = Trial("STNTrainable", stub=True, trial_id="a", storage=context(tmp_path / "storage"))
    logger = RowLogger()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, {"val_loss": 1.0})
    logs = list((tmp_path / "storage").rglob("result.json"))
    assert [json.loads(log.read_bytes()) for log in logs] == [{"val_loss": 1.0}]
    assert not list(Path(trial.local_path).glob("result.json")), "nothing that would be copied over it later"


def test_state_that_does_not_fit_on_the_disk_leaves_the_one_before(tmp_path):
    staged, stored = tmp_path / "staged", tmp_path / "stored"
    staged.mkdir()
    state = "experiment_state-2026-01-01_00-00-00.json"
    upload = LocalUpload()
    for text in ("first", "second"):
        (staged / state).write_text(text)
        upload.sync_up(str(staged), str(stored))
    (staged / state).write_text("the third is too long")
    with largest_file(10):
        upload.sync_up(str(staged), str(stored))
    assert {path.name: path.read_text() for path in stored.iterdir()} == {state: "second", f"{state}.previous": "first"}
    upload.sync_up(str(staged), str(stored))
    assert (stored / state).read_text() == "the third is too long", "there is room again"


def test_what_has_not_changed_is_not_copied_again(tmp_path):
    staged, stored = tmp_path / "staged", tmp_path / "stored"
    (staged / "trial").mkdir(parents=True)
    (staged / "trial" / "params.json").write_text("{}")
    upload = LocalUpload()
    upload.sync_up(str(staged), str(stored))
    (stored / "trial" / "params.json").unlink()
    upload.sync_up(str(staged), str(stored))
    assert not list((stored / "trial").iterdir())


def context(folder: Path) -> StorageContext:
    folder.mkdir(parents=True)
    return StorageContext(str(folder), "experiment", trial_dir_name="trial_a")
