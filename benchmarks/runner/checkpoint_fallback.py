"""Trials that find a checkpoint to go on from where Tune's own books are a step behind."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from pyarrow.fs import FileSelector, FileType
from ray.train._internal.session import _TrainingResult
from ray.tune import Checkpoint


def lasting(trainable: type) -> type:
    """A trainable that restores the next checkpoint if the one it is told to restore is gone.

    Tune deletes a trial's old checkpoint as soon as there is a new one, and a moment later says so in the books that it
    keeps in storage. An experiment whose driver is lost in that moment is carried on from books that name a deleted
    checkpoint.
    """

    class Lasting(trainable):
        def restore(self, checkpoint_path: Any) -> None:
            super().restore(present(checkpoint_path))

    Lasting.__name__ = Lasting.__qualname__ = trainable.__name__
    return Lasting


def present(saved: Any) -> Any:
    """``saved``, or, if it is gone, the oldest of the trial's later checkpoints.

    That one is complete, for Tune deletes a checkpoint only once the next is; a still later one may be half written.
    With one checkpoint an iteration, the numbers in their names tell the iteration.
    """
    checkpoint = getattr(saved, "checkpoint", None)
    if checkpoint is None:
        return saved
    files, path = checkpoint.filesystem, PurePosixPath(checkpoint.path)
    if files.get_file_info(str(path)).type == FileType.Directory:
        return saved
    others = files.get_file_info(FileSelector(str(path.parent), allow_not_found=True))
    later = sorted(o.path for o in others if o.base_name.startswith("checkpoint_") and o.base_name > path.name)
    if not later:
        return saved
    ahead = _number(later[0]) - _number(path.name)
    metrics = {**saved.metrics, "training_iteration": saved.metrics.get("training_iteration", 0) + ahead}
    return _TrainingResult(Checkpoint(later[0], files), metrics)


def _number(path: str) -> int:
    return int(path.rpartition("_")[2])
