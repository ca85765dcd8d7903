"""Autocast and hand-written gradients do not mix: in-place products bypass it, others would not."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Switches autocast off, where the device has it."""
    return torch.autocast(device.type, enabled=False) if device.type in ("cpu", "cuda") else nullcontext()
