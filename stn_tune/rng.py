"""Every random generator that a training run may touch, as plain data that ``torch.load`` trusts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def get_state() -> dict[str, Any]:
    """The state of Python's, NumPy's and torch's global generators, CUDA's included, to be saved."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": _cuda(),
    }


def set_state(data: Mapping[str, Any]) -> None:
    """Puts the generators back; CUDA's only where as many devices are present as were saved."""
    version, internal, gauss = data["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = data["numpy"]
    np.random.set_state((name, keys.cpu().numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(data["torch"].cpu())
    if data["cuda"] and torch.cuda.is_available() and len(data["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([state.cpu() for state in data["cuda"]])


def _cuda() -> list[torch.Tensor]:
    return torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]


def seed_all(seed: int) -> None:
    """Seeds all of them."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


def derived(seed: int, purpose: int) -> int:
    """A seed of its own for each purpose, that no other seed and purpose share."""
    return int(np.random.SeedSequence([seed % 2**32, purpose]).generate_state(1)[0])


class Private:
    """Generators of one's own, lent to a block of code in place of the global ones.

    Swapping costs some 40 µs: NumPy's bit generator is exchanged as a whole, as reading its state is slow.
    """

    def __init__(self, seed: int):
        outside = get_state()
        seed_all(seed)
        inside = get_state()
        set_state(outside)
        self._python, self._torch, self._cuda = inside["python"], inside["torch"], inside["cuda"]
        self._numpy: Any = np.random.MT19937(seed % 2**32)

    @contextmanager
    def lent(self) -> Iterator[None]:
        numpy: Any = np.random
        python, bits, cpu, cuda = random.getstate(), numpy.get_bit_generator(), torch.get_rng_state(), _cuda()
        random.setstate(self._python)
        numpy.set_bit_generator(self._numpy)
        torch.set_rng_state(self._torch)
        if cuda and len(self._cuda) == len(cuda):
            torch.cuda.set_rng_state_all(self._cuda)
        try:
            yield
        finally:
            self._python, self._torch = random.getstate(), torch.get_rng_state()
            self._cuda = _cuda() or self._cuda
            random.setstate(python)
            numpy.set_bit_generator(bits)
            torch.set_rng_state(cpu)
            if cuda:
                torch.cuda.set_rng_state_all(cuda)

    def state_dict(self) -> dict[str, Any]:
        state = self._numpy.state["state"]
        keys = torch.from_numpy(state["key"].astype(np.int64))
        return {"python": self._python, "numpy": (keys, state["pos"]), "torch": self._torch, "cuda": self._cuda}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        version, internal, gauss = data["python"]
        keys, position = data["numpy"]
        self._python, self._torch = (version, tuple(internal), gauss), data["torch"].cpu()
        self._cuda = [state.cpu() for state in data["cuda"]]
        key = keys.cpu().numpy().astype(np.uint32)
        self._numpy.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": position}}
