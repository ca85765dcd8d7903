"""Restoring a trial whose checkpoint is gone, because Tune's saved state is a step behind."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from pyarrow.fs import FileSelector, FileType
from ray.tune import Checkpoint

from stn_tune.errors import CheckpointError
from stn_tune.raytune.internals import count_from, saved_result


def with_checkpoint_fallback(trainable: type) -> type:
    """A trainable that restores the next checkpoint if the one it is told to restore is gone.

    Tune deletes a trial's old checkpoint as soon as there is a new one, and updates its saved state a moment later. If
    the driver is lost in that moment, the experiment is resumed from a state that names a deleted checkpoint. A trial
    whose only checkpoint is damaged starts over.
    """

    class WithFallback(trainable):  # type: ignore[misc]
        def restore(self, checkpoint_path: Any) -> None:
            saved = existing_checkpoint(checkpoint_path)
            try:
                super().restore(saved)
            except CheckpointError:
                if getattr(saved, "checkpoint", None) is None:
                    raise
                self.reset_config(self.config)  # nothing else is left: the trial starts over
                count_from(self, 0)

    WithFallback.__name__ = WithFallback.__qualname__ = trainable.__name__
    return WithFallback


def existing_checkpoint(saved: Any) -> Any:
    """``saved``, or, if it is gone, the oldest of the trial's later checkpoints.

    That one is complete, because Tune deletes a checkpoint only after the next one is; a still later one may be half
    written. There is one checkpoint per iteration, so the numbers in their names tell the iteration.
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
    return saved_result(Checkpoint(later[0], files), metrics)


def _number(path: str) -> int:
    return int(path.rpartition("_")[2])
