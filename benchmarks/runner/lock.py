"""One writer per folder of results: a lock file that also works on NFS. Standard library only."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.errors import SettingsError

FILE_NAME = ".lock"
BEAT_S = 10.0
"""How often a holder renews its lock."""
STALE_S = 60.0
"""A lock of another machine is stale if nobody has renewed it for this long."""
SETTLE_S = 0.2
"""After a stale lock was taken over."""

_held: dict[Path, FolderLock] = {}


class FolderLock:
    """The right to write to a folder, for the length of a ``with`` statement; entered twice in a process, it is one.

    The file is created with O_EXCL, which NFS has, too. A lock of this machine is stale once its process is gone. One
    of another machine, whose processes cannot be seen from here, is stale if it was not renewed for :data:`STALE_S`.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.path = folder / FILE_NAME
        self._token = uuid.uuid4().hex
        self._made: list[Path] = []
        self._ended = threading.Event()
        self._nested = False

    def __enter__(self) -> FolderLock:
        key = self.folder.absolute()
        if key in _held:
            self._nested = True
            return _held[key]
        self._create_folder()
        try:
            self._acquire()
        except BaseException:
            self._remove_folder()
            raise
        _held[key] = self
        threading.Thread(target=self._beat, daemon=True, name="folder-lock").start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._nested:
            return
        _held.pop(self.folder.absolute(), None)
        self._ended.set()
        if self.owned():
            self.path.unlink(missing_ok=True)
        self._remove_folder()

    def owned(self) -> bool:
        """Whether the lock is still this process's: after a long stop another machine may have taken it over."""
        return _read(self.path).get("token") == self._token

    def check(self) -> None:
        """Raises SettingsError if another command has taken the folder over."""
        if not self.owned():
            raise SettingsError(f"{self.folder}: {_holder(_read(self.path))} has taken the folder over")

    def _create_folder(self) -> None:
        folder = self.folder
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"--out {folder} cannot be written: {error.strerror}") from None
        self._made = missing

    def _remove_folder(self) -> None:
        """Removes the folders that entering has made, if nothing was written to them."""
        for path in self._made:
            with suppress(OSError):
                path.rmdir()

    def _acquire(self) -> None:
        for attempt in range(10):
            if self._created():
                if attempt:  # others may have judged the stale lock, too, and be about to put this one back
                    time.sleep(SETTLE_S)
                if self.owned():
                    return
                continue
            found = _read(self.path)
            if not self._stale(found):
                raise SettingsError(
                    f"{self.folder} is in use by {_holder(found)}; wait until it has ended, or choose another --out"
                )
            self._take_away(found)
        raise SettingsError(f"{self.folder}: {FILE_NAME} cannot be taken over; delete it if no command writes there")

    def _created(self) -> bool:
        about = {**_this_process(), "token": self._token, "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        try:
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        except OSError as error:
            raise SettingsError(f"--out {self.folder} cannot be written: {error.strerror}") from None
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(about, file)
        except OSError as error:
            self.path.unlink(missing_ok=True)
            raise SettingsError(f"--out {self.folder} cannot be written: {error.strerror}") from None
        return True

    def _stale(self, found: dict[str, Any]) -> bool:
        here = _this_process()
        if found and all(found.get(key) == here[key] for key in ("host", "boot")):
            return _started(found.get("pid")) != found.get("started")
        return self._age() > STALE_S

    def _age(self) -> float:
        """Seconds since the lock was renewed, by the clock of the file server: machines' own clocks may differ."""
        probe = self.folder / f"{FILE_NAME}.{self._token}"
        try:
            probe.touch()
            return probe.stat().st_mtime - self.path.stat().st_mtime
        except OSError:
            return 0.0
        finally:
            probe.unlink(missing_ok=True)

    def _take_away(self, stale: dict[str, Any]) -> None:
        """Renames a stale lock, which only one process can do, and puts back one that was not the stale one."""
        aside = self.folder / f"{FILE_NAME}.{self._token}"
        try:
            os.rename(self.path, aside)
        except OSError:
            return
        if _read(aside) != stale:
            with suppress(OSError):
                os.link(aside, self.path)
        aside.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            with suppress(OSError):
                if self.owned():
                    os.utime(self.path)


def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    return {"host": socket.gethostname(), "boot": _boot(), "pid": pid, "started": _started(pid)}


def _boot() -> str:
    """Where process numbers mean the same: this boot of this machine, and this container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: Any) -> int | None:
    """When a process started, in the system's own units, 0 where it does not say; None if the process is gone."""
    if not isinstance(pid, int) or pid <= 0:
        return None
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        return _signalled(pid)
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])


def _signalled(pid: int) -> int | None:
    """For systems without /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return 0
    return 0


def _read(path: Path) -> dict[str, Any]:
    """What a lock says; nothing if it is being written, or damaged."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _holder(found: dict[str, Any]) -> str:
    if "pid" not in found:
        return "another command"
    where = "" if found.get("host") == socket.gethostname() else f" on {found.get('host')}"
    return f"process {found['pid']}{where} (since {found.get('since')})"
