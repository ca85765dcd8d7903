"""Optimizer settings that change under a running trial."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

OF_SCHEDULERS = ("initial_lr", "max_lr", "min_lr")
"""Learning rates that schedulers keep in an optimizer's groups."""


def group_settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    """What an optimizer was made with, per group of parameters: its learning rate, weight decay, momentum."""
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]


def apply_new_settings(
    optimizer: Optimizer, scheduler: LRScheduler | None, new: list[dict[str, Any]], old: list[dict[str, Any]]
) -> None:
    """Settings that are new in the config win over those of the checkpoint, as PBT needs it.

    A new learning rate keeps the decay so far: the current one, and what a scheduler starts from, are scaled.
    """
    ratios = [n["lr"] / o["lr"] if o["lr"] else 1.0 for n, o in zip(new, old, strict=True)]
    for group, n, o, ratio in zip(optimizer.param_groups, new, old, ratios, strict=True):
        for key in n:
            if key == "lr":
                group["lr"] = group["lr"] * ratio if o["lr"] else n["lr"]
            elif n[key] != o.get(key):
                group[key] = n[key]
        for key in OF_SCHEDULERS:
            if key in group and key not in n:
                group[key] *= ratio
    pending: list[Any] = [scheduler]
    while pending:
        one = pending.pop()
        for key in ("base_lrs", "max_lrs"):
            if hasattr(one, key):
                setattr(one, key, [lr * ratio for lr, ratio in zip(getattr(one, key), ratios, strict=True)])
        pending += getattr(one, "_schedulers", [])
