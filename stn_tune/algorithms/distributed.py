"""Several processes that train one model: λ and σ move alike on all of them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel


class Processes:
    """The processes that DistributedDataParallel joins; without it, this one alone."""

    def __init__(self, model: nn.Module):
        _refuse_sharded(model)
        wrapped = [m for m in model.modules() if isinstance(m, DistributedDataParallel)]
        self._ddp = wrapped[0] if wrapped else None

    @property
    def several(self) -> bool:
        """Whether there are others."""
        return self._ddp is not None and self._ddp.process_group.size() > 1

    def unsynchronised(self) -> AbstractContextManager[object]:
        """For a pass whose gradients DistributedDataParallel must not wait for."""
        return nullcontext() if self._ddp is None else self._ddp.no_sync()

    @torch.no_grad()
    def share(self, tensors: Iterable[Tensor]) -> None:
        """The first process's values for all."""
        if self.several:
            assert self._ddp is not None
            for tensor in tensors:
                distributed.broadcast(tensor, group=self._ddp.process_group, group_src=0)

    @torch.no_grad()
    def average(self, tensors: Iterable[Tensor]) -> None:
        """The mean over all processes, in one message."""
        if not self.several:
            return
        assert self._ddp is not None
        group, tensors = self._ddp.process_group, list(tensors)
        flat = torch.cat([t.flatten() for t in tensors])
        distributed.all_reduce(flat, group=group)
        flat /= group.size()
        for tensor, mean in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(mean.view_as(tensor))


def _refuse_sharded(model: nn.Module) -> None:
    """FSDP puts whole weights in place of shards in each module's forward, and so would lose their responses."""
    for name, module in model.named_modules():
        kinds = {kind.__name__ for kind in type(module).__mro__}
        if kinds & {"FSDPModule", "FullyShardedDataParallel"}:
            raise ValueError(
                f"{name or type(model).__name__} is sharded by FSDP, which exchanges weights in forward, so that their "
                f"responses would be lost: use DistributedDataParallel, or tune a smaller model and replay its schedule"
            )
