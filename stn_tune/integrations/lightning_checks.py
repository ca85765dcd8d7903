"""Mistakes of those who give a Lightning Trainer a SelfTuning callback, told in one line."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any


def check_arguments(valid_dataloader: Any, options: Mapping[str, Any]) -> None:
    """There must be batches to tune on; gradients are clipped by the Trainer."""
    if valid_dataloader is None or (isinstance(valid_dataloader, str) and valid_dataloader != "val"):
        raise ValueError(
            f"valid_dataloader is {valid_dataloader!r}; hyperparameters are tuned on its batches: give a loader, a "
            f"function that returns one, or 'val' for the Trainer's own validation loader"
        )
    if "clip" in options:
        raise TypeError("clip is no option of SelfTuning: use Trainer(gradient_clip_val=...)")
    if options.get("paired"):
        raise ValueError(
            "paired is True, but in Lightning's hooks a response pass comes after the weight pass, where there are no "
            "pairs: leave it out, or use a loop of your own"
        )


def check_strategy(strategy: Any) -> None:
    """One device, or DistributedDataParallel."""
    kinds = {kind.__name__ for kind in type(strategy).__mro__}
    if "DeepSpeedStrategy" in kinds or not kinds & {"SingleDeviceStrategy", "DDPStrategy"}:
        raise ValueError(
            f"{type(strategy).__name__} exchanges or shards weights, so that their responses would be lost: use "
            f"strategy='ddp', or one device"
        )


def check_module(module: Any, *, has_loss: bool) -> None:
    """``training_step`` must take batches; where it cannot give the loss of a hyperparameter step, the user must."""
    name = type(module).__name__
    if not has_loss and not module.automatic_optimization:
        raise ValueError(f"{name} optimises manually: give SelfTuning(loss=...), a function (module, batch, hp)")
    if "dataloader_iter" in inspect.signature(module.training_step).parameters:
        raise ValueError(f"training_step of {name} takes dataloader_iter; it must take a batch to be self-tuned")


def only(loaders: Any) -> Any:
    """The one validation loader of a Trainer."""
    found = [] if loaders is None else loaders if isinstance(loaders, list) else [loaders]
    if len(found) != 1:
        raise ValueError(
            f"valid_dataloader is 'val', but the Trainer has {len(found)} validation loaders: give SelfTuning a loader"
        )
    return found[0]
