"""Every name of Ray that is not part of its public interface, in one place: what a new release of Ray may break."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyarrow.fs import FileSelector, FileType
from ray.train._internal.session import _TrainingResult
from ray.train._internal.storage import get_fs_and_path
from ray.tune import Checkpoint, ResultGrid, Stopper, Tuner
from ray.tune.experiment import Trial
from ray.tune.search.util import _set_search_properties_backwards_compatible


def filesystem_and_path(place: str) -> tuple[Any, str]:
    """The pyarrow file system of a storage path or URI, and the path on it."""
    filesystem, path = get_fs_and_path(place)
    return filesystem, path


def saved_result(checkpoint: Checkpoint, metrics: Mapping[str, Any]) -> Any:
    """What Tune hands to ``Trainable.restore``: a checkpoint with the metrics of its iteration."""
    return _TrainingResult(checkpoint, dict(metrics))


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
    return b"".join(_read(files, f"{folder}/result.json") for folder in folders)


def _read(files: Any, path: str) -> bytes:
    if not files.get_file_info(path).is_file:
        return b""
    with files.open_input_stream(path) as stream:
        data = bytes(stream.read())
    return data if not data or data.endswith(b"\n") else data + b"\n"


def set_search_properties(
    method: Callable[..., bool], metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
) -> bool:
    """Calls a searcher's ``set_search_properties``, also one that does not take ``spec``."""
    return bool(_set_search_properties_backwards_compatible(method, metric, mode, config, **spec))


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
