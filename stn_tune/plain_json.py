"""JSON that nobody vouches for."""

from __future__ import annotations

import json
from typing import Any


def parse_json(data: bytes | str) -> Any:
    """What a JSON text holds; ValueError for anything else, also for one that nests too deeply.

    >>> parse_json('{"a": [1]}')
    {'a': [1]}
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
