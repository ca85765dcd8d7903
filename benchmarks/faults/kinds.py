"""The kinds of faults, one function each: disturbs an experiment, resumes it where that is needed, and judges."""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

import ray
from rich.console import Console

from benchmarks.errors import SettingsError
from benchmarks.faults.bench import (
    OVERRIDES,
    PRESET,
    TASK,
    Bench,
    Outcome,
    busy_workers,
    copy_storage,
    kill,
    left_behind,
    only,
    snapshots,
    undisturbed,
)
from benchmarks.runner.runner import run_experiments
from benchmarks.runner.session import ROOT
from benchmarks.runner.store import Store
from stn_tune.raytune.internals import STATE_FILES

Kind = Callable[[Bench, random.Random], Outcome]
SESSION = "%Y-%m-%d_%H-%M-%S"
PAGE = os.sysconf("SC_PAGE_SIZE")
"""What a tmpfs gives to files."""
TMPFS_FREE = 150_000
"""Bytes that a disk has left at most: less than the files of a session and its first checkpoints take."""


def moment_of(bench: Bench, rng: random.Random) -> int:
    """After which row the fault comes: before the last few, so that something is left to do."""
    return rng.randint(1, max(1, len(undisturbed(bench.seed)) - 5))


def trial(bench: Bench, rng: random.Random) -> Outcome:
    """SIGKILL of the process that trains; Tune restarts the trial."""
    bench.once(moment_of(bench, rng), lambda rows: kill(rows[-1]["pid"]))
    return bench.judge(bench.run())


def driver(bench: Bench, rng: random.Random) -> Outcome:
    """SIGKILL of the process that runs Tune; the runner restarts the experiment."""

    def act(_: object) -> None:
        for pid, title in busy_workers(os.getpid()).items():
            if "run_experiment" in title:
                kill(pid)

    bench.once(moment_of(bench, rng), act)
    return through_the_runner(bench)


def through_the_runner(bench: Bench) -> Outcome:
    """The experiment, run as by ``python -m benchmarks run``; what the runner says where it gives it up."""
    said = io.StringIO()
    if not run_experiments(bench.options, [bench.experiment], Console(file=said, width=1000)):
        return Outcome(False, 0, said.getvalue().strip().splitlines()[-1])
    return bench.judge(Store(bench.options.out).read_log(bench.experiment.name))


def command(bench: Bench, rng: random.Random) -> Outcome:
    """SIGKILL of ``python -m benchmarks run``; its trials must end, and it is resumed by the same command."""
    address = ray.get_runtime_context().gcs_address
    changes = [part for change in OVERRIDES for part in ("--set", change)]
    words = ["-m", "benchmarks", "run", TASK, "--preset", PRESET, *changes, "--methods", "stn", "--resume"]
    words += ["--seeds", f"{bench.seed},", "--budget", "15m", "--address", address]
    words += ["--storage", str(bench.storage), "--out", str(bench.options.out)]
    first = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    bench.once(moment_of(bench, rng), lambda _: first.kill()).join(240)
    first.kill()
    first.wait()
    stale = left_behind(os.getpid())
    if stale:
        return Outcome(False, 0, f"left behind: {stale[0]}")
    second = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if second.returncode:
        return Outcome(False, 0, (second.stderr or second.stdout).strip().splitlines()[-1])
    return bench.judge(Store(bench.options.out).read_log(f"stn-{bench.seed}"))


def torn(bench: Bench, rng: random.Random) -> Outcome:
    """Everything is killed, and one file is cut short: Tune's state, a log, the clock, or the checkpoint itself."""
    _interrupted(bench, rng)
    state = [path for path in only(bench.storage, "*/*") if path.name.startswith(STATE_FILES)]
    state = [path for path in state if path.suffix in (".json", ".pkl")]
    chosen = rng.choice(
        [
            *state,
            *only(bench.storage, "*/tuner.pkl"),
            *only(bench.storage, "*/*/result.json"),
            *only(bench.storage, "*/*/clock.json"),
            *only(bench.storage, "*/*/checkpoint_*/state.pt"),
        ]
    )
    before = len(bench.rows())
    os.truncate(chosen, rng.randrange(max(1, chosen.stat().st_size)))
    cut = before - len(bench.rows())
    return bench.judge(bench.run(), spare_rows=cut)


def clock(bench: Bench, rng: random.Random) -> Outcome:
    """The clock was days off in the first session, and jumps in the second; all is killed in both."""
    _interrupted(bench, rng)
    shift = timedelta(hours=rng.choice([-1, 1]) * rng.randint(1, 24 * 30))
    for path in only(bench.storage, "*/*"):
        prefix = next((prefix for prefix in STATE_FILES if path.name.startswith(prefix)), None)
        if prefix is not None:
            when, dot, rest = path.name.removeprefix(prefix).partition(".")
            moved = (datetime.strptime(when, SESSION) + shift).strftime(SESSION)
            path.rename(path.with_name(f"{prefix}{moved}{dot}{rest}"))
    for path in bench.storage.rglob("*"):
        moment = path.stat().st_mtime + shift.total_seconds()
        os.utime(path, (moment, moment))
    _interrupted_again(bench, rng)
    return bench.judge(bench.run())


def _interrupted(bench: Bench, rng: random.Random) -> None:
    """Leaves in storage what is there at a moment of the training: what a machine that loses its power leaves."""
    copy_storage(rng.choice(snapshots(bench.folder.parent, bench.seed)), bench.storage)
    (folder,) = (path for path in bench.storage.iterdir() if path.is_dir())
    folder.rename(bench.storage / bench.experiment.name)


def _interrupted_again(bench: Bench, rng: random.Random) -> None:
    """Goes on, with a clock that jumps on the way, and leaves in storage what is there at a later moment."""
    left = bench.folder / "left"
    real, jump = time.time, rng.choice([-1, 1]) * rng.randint(60, 100 * 24 * 3600)

    def act(_: object) -> None:
        time.time = lambda: real() + jump
        copy_storage(bench.storage, left)

    watch = bench.once(len(bench.rows()) + rng.randint(1, 2), act)
    try:
        bench.run()
        watch.join(5)
    finally:
        time.time = real
    shutil.rmtree(bench.storage)
    left.rename(bench.storage)


def disk(bench: Bench, rng: random.Random) -> Outcome:
    """The disk is full half-way; the experiment fails, and is resumed when there is room again."""
    _interrupted(bench, rng)
    used = sum(-(-path.stat().st_size // PAGE) * PAGE for path in bench.storage.rglob("*") if path.is_file())
    with _Disk(bench, used + rng.randrange(TMPFS_FREE)) as mounted:
        failed = _fails(bench)
        mounted.resize(used + 200_000_000)
        outcome = bench.judge(bench.run())
    return outcome if failed else Outcome(outcome.survived, outcome.lost, outcome.reason or "the disk had room enough")


def readonly(bench: Bench, rng: random.Random) -> Outcome:
    """The storage becomes read-only while the training runs, and writable again before it is resumed."""
    moment = moment_of(bench, rng)
    with _Disk(bench, 200_000_000) as mounted:
        watch = bench.once(moment, lambda _: mounted.writable(False))
        _fails(bench)
        watch.join(5)
        mounted.writable(True)
        return bench.judge(bench.run())


def _fails(bench: Bench) -> bool:
    try:
        bench.run()
    except Exception:  # whatever Tune or the runner make of it
        return True
    return False


class _Disk:
    """A small file system of its own for the storage of a case: a tmpfs, which needs root."""

    def __init__(self, bench: Bench, size: int):
        self.place, self.size = bench.storage, size

    def __enter__(self) -> _Disk:
        kept = self.place.with_name("kept")
        if self.place.exists():
            self.place.rename(kept)
        self.place.mkdir(parents=True)
        self._mount("-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", str(self.place))
        if kept.exists():
            shutil.copytree(kept, self.place, dirs_exist_ok=True)
            shutil.rmtree(kept)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self.place)], check=False, capture_output=True)

    def resize(self, size: int) -> None:
        """Makes room."""
        self._mount("-o", f"remount,size={size}", str(self.place))

    def writable(self, yes: bool) -> None:
        """Lets files be written, or not."""
        for _ in range(200):
            with suppress(SettingsError):
                self._mount("-o", f"remount,{'rw' if yes else 'ro'}", str(self.place))
                return
            time.sleep(0.01)  # a file is open for writing

    def _mount(self, *words: str) -> None:
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SettingsError(f"cannot mount a small disk: {done.stderr.strip()}; full and read-only disks need root")


KINDS: dict[str, Kind] = {
    "trial": trial,
    "driver": driver,
    "command": command,
    "torn": torn,
    "clock": clock,
    "disk": disk,
    "readonly": readonly,
}
"""Every kind that shares one Ray, by name; nodes have a cluster of their own."""
