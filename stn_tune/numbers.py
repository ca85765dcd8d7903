"""What counts as a number."""

from __future__ import annotations

import sys
from typing import TypeGuard

Number = int | float
"""An int or a float."""


def is_number(x: object) -> TypeGuard[Number]:
    """Whether x is an int or a float, and no bool."""
    return isinstance(x, int | float) and not isinstance(x, bool)


def is_finite(x: object) -> TypeGuard[Number]:
    """Whether x is a number that a float can hold, and neither NaN nor infinite."""
    return is_number(x) and abs(x) <= sys.float_info.max
