"""Dual numbers of forward-mode derivatives: a value and its change."""

from __future__ import annotations

import warnings
from typing import cast

from torch import Tensor
from torch.autograd import forward_ad


def dual(value: Tensor, tangent: Tensor) -> Tensor:
    """A dual number; within ``forward_ad.dual_level()``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, of what it imports here for the first time
        return cast(Tensor, forward_ad.make_dual(value, tangent))  # type: ignore[no-untyped-call]


def is_dual(tensor: Tensor) -> bool:
    """Whether a tensor carries a tangent."""
    return _unpack(tensor)[1] is not None


def first_order(tensor: Tensor) -> Tensor:
    """Value plus tangent of a dual number; any other tensor as it is."""
    value, tangent = _unpack(tensor)
    return tensor if tangent is None else value + tangent


def _unpack(tensor: Tensor) -> tuple[Tensor, Tensor | None]:
    return cast("tuple[Tensor, Tensor | None]", forward_ad.unpack_dual(tensor))  # type: ignore[no-untyped-call]
