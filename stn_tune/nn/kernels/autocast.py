"""Autocast and hand-written gradients do not mix: in-place products bypass it, others would not."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Switches autocast off, where it is on."""
    on = device.type in ("cpu", "cuda") and torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if on else nullcontext()
