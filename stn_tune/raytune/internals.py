"""Every name of Ray that is not part of its public interface, in one place: what a new release of Ray may break."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

from pyarrow.fs import FileSelector, FileType, LocalFileSystem
from ray.train._internal.session import _TrainingResult
from ray.train._internal.storage import get_fs_and_path
from ray.train.constants import _get_ray_train_session_dir
from ray.tune import Checkpoint, ResultGrid, Stopper, Trainable, Tuner
from ray.tune.execution import tune_controller
from ray.tune.execution.experiment_state import _ExperimentCheckpointManager
from ray.tune.experiment import Trial
from ray.tune.search import Searcher, search_generator
from ray.tune.search.util import _set_search_properties_backwards_compatible

logger = logging.getLogger(__name__)


def filesystem_and_path(place: str) -> tuple[Any, str]:
    """The pyarrow file system of a storage path or URI, and the path on it."""
    filesystem, path = get_fs_and_path(place)
    return filesystem, path


def saved_result(checkpoint: Checkpoint, metrics: Mapping[str, Any]) -> Any:
    """What Tune hands to ``Trainable.restore``: a checkpoint with the metrics of its iteration."""
    return _TrainingResult(checkpoint, dict(metrics))


def enter_runtime_env(words: list[str]) -> list[str]:
    """What ``setup_worker.py`` does with its arguments: sets a worker's variables, and gives its own command line."""
    from ray._private.runtime_env.context import RuntimeEnvContext
    from ray._private.utils import update_envs
    from ray._private.workers.setup_worker import parser

    known, rest = parser.parse_known_args(words[1:])
    update_envs(RuntimeEnvContext.deserialize(known.serialized_runtime_env_context or "{}").env_vars)
    return list(rest)


def count_from(trainable: Trainable, iteration: int) -> None:
    """Lets a trainable count its iterations on from that one, whatever Tune has told it that it restores."""
    trainable._iteration = iteration


def stopper_of(tuner: Tuner) -> Stopper:
    """The ``stop`` of a tuner's run config: after ``Tuner.restore`` the restored one."""
    return tuner._local_tuner.get_run_config().stop


def trials_of(results: ResultGrid) -> list[Trial]:
    """All trials of an experiment, those without a result included."""
    return list(results._experiment_analysis.trials)


def trial_log(trial: Trial) -> bytes:
    """What a trial has reported: its ``result.json`` in storage; empty if it has none.

    A trial that started after Tune last saved its state begins in a new folder when the experiment is resumed, so all
    folders with its id are read, the present one last.
    """
    storage = trial.storage
    files, own = storage.storage_filesystem, storage.trial_fs_path
    found = files.get_file_info(FileSelector(storage.experiment_fs_path))
    folders = sorted(
        (info.path for info in found if info.type == FileType.Directory and trial.trial_id in info.base_name),
        key=lambda path: (path == own, path),
    )
    return b"".join(read_log(files, folder) for folder in folders)


def storage_folder(trial: Trial) -> Path | None:
    """The folder of a trial in storage; None if storage is not a local or mounted folder."""
    storage = trial.storage
    return Path(storage.trial_fs_path) if isinstance(storage.storage_filesystem, LocalFileSystem) else None


def staging_folders(experiment: str) -> list[Path]:
    """Where Tune keeps an experiment's files until it has copied them to storage: temporary folders of this node."""
    return sorted(Path(_get_ray_train_session_dir()).glob(f"*/{experiment}"))


def read_log(files: Any, folder: str) -> bytes:
    """The ``result.json`` in a trial's folder, its last line ended; empty if there is none."""
    path = f"{folder}/result.json"
    if not files.get_file_info(path).is_file:
        return b""
    with files.open_input_stream(path) as stream:
        data = bytes(stream.read())
    return data if not data or data.endswith(b"\n") else data + b"\n"


def last_row(storage: Any) -> dict[str, Any]:
    """What a trial has reported last, from the log in its storage; empty if that has no row."""
    for line in reversed(read_log(storage.storage_filesystem, storage.trial_fs_path).splitlines()):
        with suppress(ValueError):  # cut short by a crash
            row = json.loads(line)
            if isinstance(row, dict):
                return row
    return {}


SAVING_SHARE = 0.05
"""The largest share of its time that the driver of an experiment spends on saving its state."""

PREVIOUS = ".previous"
"""Ends the name of a state file that a newer one has replaced."""

LARGE_STATE = 1_000_000
"""Bytes of state, that of about fifty trials, from which on saving is bounded: below, every checkpoint is followed by
a save, so that nothing is lost with the driver."""

STATE_FILES = (
    *("experiment_state-", "searcher-state-", "search_gen_state-", "basic-variant-state-"),
    "callback-states-",
)
"""How the names begin of the files that Tune saves the state of an experiment to."""


class BoundedSaving(_ExperimentCheckpointManager):  # type: ignore[misc]
    """Saves the state of an experiment in a bounded share of the time, and keeps what it had saved before.

    Tune writes the state of all trials, those that ended long ago included, whenever one of them has saved a
    checkpoint: the more trials there are, the longer each takes. Here a save of a large state waits until the last one
    has paid off. Tune does not replace files in one step either: a driver that is killed while it saves, or a disk that
    is full, leaves one that is cut short. Where storage is a local or mounted folder, files are replaced in one step
    (:class:`LocalUpload`); elsewhere the one before is kept for that.
    """

    _taken = 0.0
    _size = 0

    def __init__(self, *, storage: Any, **options: Any):
        super().__init__(storage=storage, **options)
        self._local = isinstance(storage.storage_filesystem, LocalFileSystem)
        if self._local:
            self._storage = copy(storage)  # trials have a syncer of their own
            self._storage.syncer = LocalUpload()

    def sync_up_experiment_state(self, save_fn: Callable[[], None], force: bool = False, wait: bool = False) -> None:
        """Saves, unless the last save was too recent for what it took; a forced one at once."""
        start = time.monotonic()
        pause = self._taken * (1 / SAVING_SHARE - 1) if self._size > LARGE_STATE else 0.0
        if not force and start - self._last_save_time < pause:
            return
        before = self._last_save_time
        super().sync_up_experiment_state(partial(self._save, save_fn), force, wait)
        if self._last_save_time != before:
            self._taken = time.monotonic() - start

    def _save(self, save_fn: Callable[[], None]) -> None:
        folder = Path(self._storage.experiment_driver_staging_path)
        if not self._local:
            for path in state_files(folder):
                shutil.copyfile(path, path.with_name(path.name + PREVIOUS))
        save_fn()
        self._size = sum(path.stat().st_size for path in state_files(folder))


class LocalUpload:
    """Copies what has changed in a folder to another, at once, each file in one step; in place of Tune's syncer."""

    def __init__(self) -> None:
        self._copied: dict[str, tuple[int, int]] = {}

    def sync_up(self, local_dir: str, remote_dir: str, exclude: list[str] | None = None) -> bool:
        """Copies; a file that cannot be written stays what it was, and is tried again the next time."""
        for folder, _, names in os.walk(local_dir):
            target = Path(remote_dir, os.path.relpath(folder, local_dir))
            for name in names:
                source = Path(folder, name)
                about = source.stat()
                version = (about.st_size, about.st_mtime_ns)
                if self._copied.get(str(source)) == version:
                    continue
                try:
                    target.mkdir(parents=True, exist_ok=True)
                    _replace(source, target / name)
                except OSError as error:
                    logger.error("%s could not be saved to storage: %s", name, error.strerror)
                else:
                    self._copied[str(source)] = version
        return True

    def wait(self, timeout: float | None = None) -> None:
        """Nothing is under way."""


def _replace(source: Path, target: Path) -> None:
    """Replaces a file by a copy of another in one step; of a state file, keeps the one before."""
    partial_copy = target.with_name(f".{target.name}.new")
    try:
        shutil.copyfile(source, partial_copy)
        if target.name.startswith(STATE_FILES) and target.exists():
            before = target.with_name(f".{target.name}.before")
            before.unlink(missing_ok=True)
            with suppress(OSError):  # a file system without links
                os.link(target, before)
                os.replace(before, target.with_name(target.name + PREVIOUS))
        os.replace(partial_copy, target)
    except OSError:
        with suppress(OSError):
            partial_copy.unlink(missing_ok=True)
        raise


def state_files(folder: Path) -> list[Path]:
    """The present state of an experiment: Tune's files, without those that newer ones have replaced."""
    found = [path for path in folder.glob("*-*") if path.name.startswith(STATE_FILES)]
    return sorted(path for path in found if not path.name.endswith(PREVIOUS))


def bound_saving(bounded: bool = True) -> None:
    """Lets every experiment that this process drives save its state as :class:`BoundedSaving` does; or as Tune does."""
    tune_controller._ExperimentCheckpointManager = BoundedSaving if bounded else _ExperimentCheckpointManager


def set_search_properties(
    method: Callable[..., bool], metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
) -> bool:
    """Calls a searcher's ``set_search_properties``, also one that does not take ``spec``."""
    return bool(_set_search_properties_backwards_compatible(method, metric, mode, config, **spec))


def leave_out_of_trial_names(key: str) -> None:
    """Leaves a key of the config out of what Tune makes of it: names of trials and folders, and columns of its tables.

    Tune has no setting for that. A release that makes names in another way has long names again, and nothing worse.
    """
    if getattr(search_generator, "_left_out", None) == key or not hasattr(search_generator, "format_vars"):
        return
    format_vars, flatten_dict = search_generator.format_vars, search_generator.flatten_dict

    def short_vars(values: dict[tuple[Any, ...], Any]) -> str:
        return str(format_vars({path: value for path, value in values.items() if path[0] != key}))

    def short_dict(config: dict[str, Any], *arguments: Any, **options: Any) -> dict[str, Any]:
        kept = {name: value for name, value in config.items() if name != key}
        return dict(flatten_dict(kept, *arguments, **options))

    search_generator.format_vars, search_generator.flatten_dict = short_vars, short_dict
    search_generator._left_out = key


def initial_points(searcher: Searcher) -> list[Mapping[str, Any]]:
    """The ``points_to_evaluate`` that a searcher was made with, if it takes them."""
    return list(getattr(searcher, _points_attribute(searcher), None) or [])


def replace_initial_points(searcher: Searcher, points: list[dict[str, Any]]) -> None:
    """Gives a searcher that has no space yet other ``points_to_evaluate``."""
    setattr(searcher, _points_attribute(searcher), points)


def _points_attribute(searcher: Searcher) -> str:
    return "points_to_evaluate" if hasattr(searcher, "points_to_evaluate") else "_points_to_evaluate"


def stage_paused_trial(controller: Any, trial: Trial) -> None:
    """Lets a paused trial take over the process of the trial that is about to pause or end."""
    controller._set_trial_status(trial, Trial.PENDING)
    controller._staged_trials.add(trial)
    controller._actor_cache.increase_max(trial.placement_group_factory)


def unstage_trials(controller: Any) -> None:
    """Takes back :meth:`stage_paused_trial`: Tune starts a process for each trial."""
    for trial in list(controller._staged_trials):
        controller._unstage_trial_with_resources(trial)


def count_processes(controller: Any) -> int:
    """Trial processes that exist or are being started."""
    return int(controller._actor_manager.num_total_actors)


def iterations_since_perturbation(scheduler: Any, trial: Trial, result: Mapping[str, Any]) -> float:
    """How far a member of PBT or PB2 is past its last perturbation."""
    return float(result[scheduler._time_attr] - scheduler._trial_state[trial].last_perturbation_time)


def perturbation_interval(scheduler: Any) -> float:
    """The interval that PBT or PB2 was made with."""
    return float(scheduler._perturbation_interval)


def trained_for(scheduler: Any, trial: Trial) -> float:
    """How far a member of PBT or PB2 has trained."""
    return float(scheduler._trial_state[trial].last_train_time)
