"""The clock of a trial: what counts, and that nothing is lost or counted twice."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from types import SimpleNamespace

import pytest
import torch
from pyarrow.fs import LocalFileSystem
from torch import nn

import stn_tune as stn
from stn_tune.raytune import clock as module
from stn_tune.raytune.clock import COUNTED, Clock, cpu_seconds, start_seconds
from tests.digits_task import CONFIG, Digits


@pytest.fixture
def alone(monkeypatch):
    """Other tests may have left children in this process that work and end."""
    monkeypatch.setattr(module, "_running_descendants", lambda: 0.0)


def work(cpu_s: float) -> None:
    """Uses CPU time, however long it takes."""
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass


def work_and_wait(connection) -> None:
    work(0.3)
    connection.send("done")
    connection.recv()


def in_a_process_of_its_own(test):
    """Other tests may have left children in this process that work and are killed."""

    @functools.wraps(test)
    def forked():
        child = multiprocessing.get_context("fork").Process(target=test)
        child.start()
        child.join()
        assert child.exitcode == 0, "see the traceback above"

    return forked


@in_a_process_of_its_own
def test_a_childs_cpu_time_counts_while_it_runs_and_after():
    here, there = multiprocessing.Pipe()
    before = cpu_seconds()
    child = multiprocessing.get_context("fork").Process(target=work_and_wait, args=(there,))
    child.start()
    here.recv()
    running = cpu_seconds()
    assert running - before >= 0.25, "of a child that runs"
    here.send("end")
    child.join()
    ended = cpu_seconds()
    assert 0 <= ended - running < 0.25, "not counted again when it has ended"


@in_a_process_of_its_own
def test_a_grandchilds_cpu_time_counts():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]]); print(1, flush=True); input()"
    grandchild = "import time\nwhile time.process_time() < 0.5: pass"
    before = cpu_seconds()
    with subprocess.Popen(
        [sys.executable, "-c", code, grandchild], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        child.stdout.readline()
        assert cpu_seconds() - before >= 0.45
        child.communicate("\n")


@pytest.mark.usefixtures("alone")
def test_waiting_costs_no_compute():
    clock = Clock(None)
    time.sleep(0.3)
    now = clock.now()
    assert now["wall_s"] >= 0.3
    assert now["trial_compute_s"] < 0.2
    assert Clock(None, "device").kind == "device"


def test_a_device_is_held_while_its_trial_waits():
    clock = Clock(None, "device")
    mark = clock.mark()
    time.sleep(0.2)
    clock.count("train_s", mark)
    assert clock.now()["train_s"] >= 0.2
    assert clock.now()["clock"] == "device"


@pytest.mark.usefixtures("alone")
def test_readings_never_go_down_and_go_on_from_there(monkeypatch):
    """A descendant that ended with nobody waiting for it keeps what it has used."""
    high = cpu_seconds()
    monkeypatch.setattr(module.time, "process_time", lambda: 0.0)
    assert cpu_seconds() == pytest.approx(high)
    monkeypatch.setattr(module.time, "process_time", lambda: 0.5)
    assert cpu_seconds() == pytest.approx(high + 0.5)


def test_the_start_of_a_process_counts_once_and_only_if_it_was_started_for_the_trial():
    first = Clock(None, new_process=True)
    assert 0 < first.now()["start_s"] <= start_seconds()
    assert first.now()["trial_compute_s"] >= first.now()["start_s"]
    assert first.now()["wall_s"] >= first.now()["start_s"]
    assert Clock(None).now()["start_s"] == 0.0


def counted(clock: Clock) -> dict[str, float]:
    return {name: clock.now()[name] for name in COUNTED}


@pytest.mark.usefixtures("alone")
def test_a_restarted_trial_counts_on_from_its_file(tmp_path):
    file = tmp_path / "clock.json"
    first = Clock(file, new_process=True)
    mark = first.mark()
    work(0.05)
    first.count("train_s", mark)
    first.write()
    before = counted(first)
    second = Clock(file, new_process=True)
    after = counted(second)
    assert after["train_s"] == pytest.approx(before["train_s"], abs=1e-3)
    assert after["start_s"] > before["start_s"], "the second process had to be started, too"
    assert all(after[name] >= before[name] - 1e-3 for name in COUNTED)
    file.write_text("{")
    assert Clock(file).now()["train_s"] == 0.0


@pytest.mark.usefixtures("alone")
def test_a_checkpoint_counts_on_where_there_is_no_file_and_never_twice():
    first = Clock(None)
    work(0.05)
    state = json.loads(json.dumps(first.state_dict()))
    first.carry_on(state)
    assert first.now()["trial_compute_s"] < 2 * state["trial_compute_s"], "its own state is in it already"
    second = Clock(None)
    second.carry_on(state)
    second.carry_on(state)
    assert state["trial_compute_s"] <= second.now()["trial_compute_s"] < 2 * state["trial_compute_s"]


def as_trial(name: str) -> stn.FixedTrainable:
    """A trainable that believes it is a trial of Tune."""
    trainable = stn.FixedTrainable.of(Digits)(config=dict(CONFIG))
    trainable._trial_info = SimpleNamespace(trial_id=name, trial_resources=None)
    return trainable


@pytest.mark.usefixtures("alone")
def test_a_clone_keeps_its_own_count(tmp_path):
    """PBT: a trial goes on from another trial's checkpoint, with the compute that it has used itself."""
    old, young = as_trial("old"), as_trial("young")
    for _ in range(3):
        old.train()
    own = young.train()["train_s"]
    old.save_checkpoint(str(tmp_path))
    young.load_checkpoint(str(tmp_path))
    assert young._clock.now()["train_s"] == own
    same = as_trial("old")
    same.load_checkpoint(str(tmp_path))
    assert same._clock.now()["train_s"] == pytest.approx(old._clock.now()["train_s"])


@pytest.mark.usefixtures("alone")
def test_a_trial_that_takes_over_a_process_has_a_count_of_its_own(tmp_path):
    trainable = as_trial("first")
    for folder in ("first", "second", "first"):
        trainable._logdir = str(tmp_path / folder)
        (tmp_path / folder).mkdir(exist_ok=True)
        if folder == "second":
            known = json.loads((tmp_path / "first" / "clock.json").read_text())
        trainable.reset_config(dict(CONFIG))
        start = trainable._clock.now()
        assert start["start_s"] == 0.0
        if folder == "second":
            assert start["train_s"] == 0.0
        trainable.train()
    now = trainable._clock.now()
    assert start["train_s"] == known["train_s"], "the first trial again: it counts on"
    assert all(now[name] >= known[name] for name in COUNTED)


@pytest.mark.usefixtures("alone")
def test_a_trial_whose_own_file_is_gone_counts_on_from_the_last_row_that_it_reported(tmp_path):
    """On a full disk it is restarted again and again from one checkpoint, which does not know of that; its rows do."""
    trainable = as_trial("a")
    trainable._storage = SimpleNamespace(storage_filesystem=LocalFileSystem(), trial_fs_path=str(tmp_path / "stored"))
    for place in ("stored", "staged"):
        (tmp_path / place).mkdir()
    trainable.save_checkpoint(str(tmp_path))
    row = trainable.step() | dict.fromkeys(COUNTED, 100.0)
    (tmp_path / "stored" / "result.json").write_text(json.dumps({"val_loss": 1.0}) + "\n" + json.dumps(row) + '\n{"val')
    trainable._logdir = str(tmp_path / "staged")
    trainable.reset_config(dict(CONFIG))
    trainable.load_checkpoint(str(tmp_path))
    now = trainable.step()
    assert all(100.0 <= now[name] < 110.0 for name in COUNTED)


BUSY = "while True: pass"
ROUNDS = 3


class Counting(stn.Task):
    """A loop that needs nothing but registers.

    A real training does use more CPU time on a core that others use too, because each of its turns begins with cold
    caches (1.1 to 1.4 times as much, measured): that is no fault of the clock, and not what is tested here.
    """

    def model(self, config):
        return nn.Linear(1, 1)

    def optimizer(self, model, config):
        return torch.optim.SGD(model.parameters(), lr=0.01)

    def loaders(self, config):
        return stn.Loaders(train=[torch.zeros(1)] * 4, valid=[torch.zeros(1)])

    def loss(self, model, batch, hp):
        total = 0
        for k in range(600_000):
            total += k * k
        return model.weight.square().sum()


def measure() -> tuple[float, float]:
    """Compute-seconds and wall-clock of a trial."""
    trainable = stn.FixedTrainable.of(Counting)(config={"seed": 0})
    for _ in range(3):
        row = trainable.train()
    return row["trial_compute_s"], row["wall_s"]


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Busy processes on the same core that are not descendants of this one: their parent ends at once."""
    command = ["sh", "-c", f"{sys.executable} -c '{BUSY}' >/dev/null 2>&1 & echo $!"]
    pids = [int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(count)]
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="all processes have to be on one core")
def test_busy_neighbours_do_not_change_compute_seconds():
    """The same trial alone and beside two busy processes."""
    if os.getloadavg()[0] > 0.8:
        pytest.skip("needs a machine with nothing else to do")
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    alone, crowded = [], []
    try:
        measure()
        for _ in range(ROUNDS):
            alone.append(measure())
            with neighbours(2):
                crowded.append(measure())
    finally:
        os.sched_setaffinity(0, cores)
    compute = [median(c for c, _ in found) for found in (alone, crowded)]
    wall = [median(w for _, w in found) for found in (alone, crowded)]
    assert compute[1] == pytest.approx(compute[0], rel=0.15)
    assert wall[1] > 1.15 * wall[0]
