"""Every random generator that a training run may touch, as plain data that ``torch.load`` trusts."""

from __future__ import annotations

import random
from typing import Any, cast

import numpy as np
import torch


def get_state() -> dict[str, Any]:
    """The state of Python's, NumPy's and torch's global generators, CUDA's included."""
    name, keys, position, has_gauss, gauss = cast(Any, np.random.get_state())  # noqa: NPY002
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, gauss),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_state(state: dict[str, Any]) -> None:
    """Puts the generators back; CUDA's only where as many devices are present as were saved."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] and torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([s.cpu() for s in state["cuda"]])


def seed_all(seed: int) -> None:
    """Seeds all of them."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)
