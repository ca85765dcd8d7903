"""One writer per folder: real processes, dead ones, and locks of other machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.errors import SettingsError
from benchmarks.runner import lock as module
from benchmarks.runner.lock import FILE_NAME, STALE_S, FolderLock

REPO = Path(__file__).parents[2]
HOLD = "import sys, time; from pathlib import Path; from benchmarks.runner.lock import FolderLock\n"
HOLD += "with FolderLock(Path(sys.argv[1])): print('held', flush=True); time.sleep(float(sys.argv[2]))"


def holder(folder: Path, seconds: float = 60) -> subprocess.Popen:
    command = [sys.executable, "-c", HOLD, str(folder), str(seconds)]
    process = subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == "held\n"
    return process


def test_a_second_command_is_refused_in_one_line_while_the_first_lives(tmp_path, capsys):
    first = holder(tmp_path / "out")
    try:
        began = time.monotonic()
        assert main(["run", "digits", "--out", str(tmp_path / "out")]) == 2
        assert time.monotonic() - began < 5, "before torch and Ray are imported"
        error = capsys.readouterr().err
        assert f"out is in use by process {first.pid} (since " in error
        assert "choose another --out" in error
        assert len(error.splitlines()) == 1
        assert first.poll() is None
        assert [path.name for path in (tmp_path / "out").iterdir()] == [FILE_NAME]
    finally:
        first.kill()
        first.wait()


@pytest.mark.parametrize("reaped", [True, False])
def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, reaped):
    first = holder(tmp_path / "out")
    first.kill()
    if reaped:
        first.wait()
    else:
        while Path(f"/proc/{first.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
    with FolderLock(tmp_path / "out"):
        assert json.loads((tmp_path / "out" / FILE_NAME).read_text())["pid"] == os.getpid()
    first.wait()


def test_the_number_of_a_dead_process_that_another_one_has_now_is_no_lock(tmp_path):
    with FolderLock(tmp_path):
        about = json.loads((tmp_path / FILE_NAME).read_text())
    (tmp_path / FILE_NAME).write_text(json.dumps({**about, "started": about["started"] - 1}))
    with FolderLock(tmp_path):
        pass


def test_nothing_is_left_behind(tmp_path):
    with FolderLock(tmp_path / "a" / "b") as outer:
        with FolderLock(tmp_path / "a" / "b") as inner:
            assert inner is outer
        assert outer.owned(), "leaving the inner one releases nothing"
    assert not (tmp_path / "a").exists()
    with FolderLock(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "result").touch()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["result"]


@pytest.mark.parametrize("text", [None, "", '{"host": "elsewhere", "pid": 1', "[]"])
def test_another_machines_lock_is_judged_by_when_it_was_renewed(tmp_path, text):
    """So is one that cannot be read: it may be half written, or its writer's disk was full."""
    path = tmp_path / FILE_NAME
    elsewhere = {"host": "elsewhere", "boot": "b", "pid": os.getpid(), "started": 1, "since": "12:00", "token": "t"}
    path.write_text(json.dumps(elsewhere) if text is None else text)
    who = rf"process {os.getpid()} on elsewhere" if text is None else "another command"
    with pytest.raises(SettingsError, match=f"is in use by {who}"), FolderLock(tmp_path):
        pass
    old = time.time() - STALE_S - 5
    os.utime(path, (old, old))
    with FolderLock(tmp_path):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_a_holder_renews_its_lock_and_notices_that_it_was_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BEAT_S", 0.05)
    with FolderLock(tmp_path) as lock:
        os.utime(lock.path, (0, 0))
        deadline = time.monotonic() + 10
        while lock.path.stat().st_mtime == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        lock.check()
        lock.path.write_text(json.dumps({"pid": 7, "host": "elsewhere", "since": "now", "token": "other"}))
        with pytest.raises(SettingsError, match=r"process 7 on elsewhere .* has taken the folder over"):
            lock.check()
    assert lock.path.exists(), "it is not ours to delete"


def test_of_many_that_find_a_stale_lock_one_gets_it(tmp_path):
    """Threads stand for processes: each has a lock of its own, and the registry of this process is bypassed."""
    for _ in range(20):
        (tmp_path / FILE_NAME).write_text("{}")
        os.utime(tmp_path / FILE_NAME, (0, 0))
        locks = [FolderLock(tmp_path) for _ in range(8)]

        def acquire(one: FolderLock) -> bool:
            try:
                one._acquire()
            except SettingsError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = [one for one, got in zip(locks, pool.map(acquire, locks), strict=True) if got]
        assert len(won) == 1
        assert won[0].owned()
        assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_folder_that_cannot_be_written_is_one_line():
    with (
        pytest.raises(SettingsError, match="--out /proc/nothing/here cannot be written"),
        FolderLock(Path("/proc/nothing/here")),
    ):
        pass
