"""Repairs what a crash may leave of Tune's files for an experiment, so that it can be resumed.

Tune overwrites its state files in place: a driver that is killed in that moment, or a disk that is full, leaves one
that is cut short. The state saved before is kept beside it (:class:`~stn_tune.raytune.internals.BoundedSaving`).
Checkpoints need nothing of the kind: they are written atomically.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path

from pyarrow.fs import FileSelector, FileType, LocalFileSystem

from stn_tune.plain_json import parse_json
from stn_tune.raytune.internals import PREVIOUS, STATE_FILES, filesystem_and_path, state_files

TUNER_FILE = "tuner.pkl"


def repair(place: str) -> bool:
    """Makes an experiment's folder one that Tune can resume; False if there is nothing to resume.

    Of storage that is not a local or mounted folder only the newest state is looked at.
    """
    files, path = filesystem_and_path(place)
    if not isinstance(files, LocalFileSystem):
        return _has_trials_remotely(files, path)
    folder = Path(path)
    if not folder.is_dir():
        return False
    _end_lines(folder)
    for file in state_files(folder):
        if not _readable(file):
            previous = file.with_name(file.name + PREVIOUS)
            if previous.exists() and _readable(previous):
                os.replace(previous, file)
            else:
                file.unlink()
    states = [file for file in state_files(folder) if file.name.startswith(STATE_FILES[0])]
    if not states:
        return False
    furthest = max(states, key=lambda file: (_progress(file.read_bytes()), file.name))
    for file in state_files(folder):
        if _session(file) > _session(furthest):
            file.unlink()
    return _has_trials(furthest.read_bytes())


def tuner_is_readable(place: str) -> bool:
    """Whether the file is whole that Tune keeps the settings of the experiment in."""
    files, path = filesystem_and_path(place)
    try:
        with files.open_input_stream(f"{path}/{TUNER_FILE}") as stream:
            return _unpickles(bytes(stream.read()))
    except OSError:
        return False


def _progress(state: bytes) -> float:
    """Compute-seconds used by the experiment when a state was saved; raises where it is none of Tune's.

    Tune takes the state with the latest time in its name, which is not the newest one after a clock was set back.
    """
    used = [0.0]
    for _, metadata in parse_json(state).get("trial_data", ()):
        last = parse_json(metadata).get("last_result") or {}
        used.append(float(last.get("compute_s") or 0.0))
    return max(used)


def _session(file: Path) -> str:
    """The time in the name of a state file."""
    prefix = next(prefix for prefix in STATE_FILES if file.name.startswith(prefix))
    return file.name.removeprefix(prefix).partition(".")[0]


def _end_lines(folder: Path) -> None:
    """Ends a log's last line where it was cut off: the next row would be appended to it, and be lost, too."""
    for log in folder.glob("*/result.json"):
        data = log.read_bytes()
        if data and not data.endswith(b"\n"):
            with log.open("ab") as file:
                file.write(b"\n")


def _readable(path: Path) -> bool:
    data = path.read_bytes()
    if path.name.startswith(STATE_FILES[0]):  # the others are pickles, whatever their names end in
        try:
            _progress(data)
        except (ValueError, TypeError, AttributeError):
            return False
        return True
    return _unpickles(data)


def _unpickles(data: bytes) -> bool:
    """Whether a file that Tune itself is about to unpickle is whole."""
    try:
        pickle.loads(data)
    except Exception:  # a pickle that was cut short can raise nearly anything
        return False
    return True


def _has_trials(state: bytes) -> bool:
    """Tune cannot continue an experiment before its saved state has a first trial."""
    try:
        return bool(parse_json(state)["trial_data"])
    except (ValueError, KeyError, TypeError):
        return False


def _has_trials_remotely(files: object, path: str) -> bool:
    found = files.get_file_info(FileSelector(path, allow_not_found=True))  # type: ignore[attr-defined]
    names = sorted(info.path for info in found if info.type == FileType.File and f"/{STATE_FILES[0]}" in info.path)
    names = [name for name in names if not name.endswith(PREVIOUS)]
    if not names:
        return False
    with files.open_input_stream(names[-1]) as stream:  # type: ignore[attr-defined]
        return _has_trials(bytes(stream.read()))
