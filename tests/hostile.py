"""Bad files by the dozen: valid ones, mutated byte by byte or value by value, each from a seed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

STRANGE: list[Any] = [
    None,
    True,
    -1,
    0,
    1e308,
    float("nan"),
    float("inf"),
    10**30,
    10**400,
    "",
    "a",
    "\n\x1b[31m",
    "../x",
    [],
    [[]],
    {},
]
STRANGE += [{"a": {}}, ["a"], [1, 2, 3], [None], "9" * 5000]
"""Values of every JSON type, where none of that kind belongs."""


def mutated_bytes(data: bytes, seed: int) -> bytes:
    """``data`` cut short, with bytes changed, moved, repeated or left out."""
    rng = random.Random(seed)
    changed = bytearray(data)
    match seed % 5:
        case 0:
            return bytes(changed[: rng.randrange(len(changed))])
        case 1:
            for _ in range(rng.randint(1, 20)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
        case 2:
            begin = rng.randrange(len(changed))
            del changed[begin : begin + rng.randint(1, 200)]
        case 3:
            begin = rng.randrange(len(changed))
            changed[begin:begin] = rng.randbytes(rng.randint(1, 200))
        case 4:
            begin, length = rng.randrange(len(changed)), rng.randint(1, 100)
            changed[begin:begin] = changed[begin : begin + length] * 3
    return bytes(changed)


def mutated_value(data: Any, seed: int) -> Any:
    """Plain data with one or two of its values replaced by strange ones, dropped, or renamed."""
    rng = random.Random(seed)
    changed = copy.deepcopy(data)
    for _ in range(rng.randint(1, 2)):
        container, key = rng.choice(list(_places(changed)))
        match rng.randrange(4):
            case 0 if isinstance(container, dict):
                del container[key]
            case 1 if isinstance(container, dict):
                container[f"{key}x"] = container.pop(key)
            case _:
                container[key] = copy.deepcopy(rng.choice(STRANGE))
        if not list(_places(changed)):
            break
    return changed


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(items):
        yield data, key
        yield from _places(value)


def mutated_json(data: Any, seed: int) -> bytes:
    """The file of plain data: every other one damaged as bytes, every other one as values; some nest without end."""
    if seed % 25 == 24:
        return b"[" * 100_000
    if seed % 2:
        return mutated_bytes(json.dumps(data).encode(), seed // 2)
    return json.dumps(mutated_value(data, seed)).encode()
