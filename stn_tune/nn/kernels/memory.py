"""Memory that is used again from step to step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LARGE = 1 << 20
"""Bytes from which on memory is kept: what is smaller, the C library keeps by itself."""

_holders: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
"""How many tensors and others hold a storage; a release of torch without it allocates every time."""


class Memory:
    """Large tensors on the CPU, one per use, each made over the memory of the last as soon as nobody holds that.

    The C library gives the memory of large tensors back to the system when they are freed, and the system clears it
    page by page when it is asked for again, which takes longer than computing what is in it. GPUs keep it by
    themselves.
    """

    def __init__(self) -> None:
        self._kept: dict[str, torch.UntypedStorage] = {}

    def empty_like(self, like: Tensor, use: str) -> Tensor:
        """A new contiguous tensor, shaped like ``like``."""
        size = like.numel() * like.element_size()
        if not like.is_cpu or size < LARGE or _holders is None:
            return torch.empty_like(like, memory_format=torch.contiguous_format)
        storage = self._kept.get(use)
        if storage is None or storage.nbytes() != size or _holders(storage._cdata) != 1:
            storage = self._kept[use] = torch.UntypedStorage(size)  # type: ignore[no-untyped-call]
        strides = torch.empty(like.shape, device="meta").stride()
        return torch.empty(0, dtype=like.dtype).set_(storage, 0, like.shape, strides)

    def __reduce__(self) -> tuple[Any, ...]:
        return Memory, ()
