"""SIGTERM ends a command as Ctrl-C does: checkpoints are saved, and the command says how to resume."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


@contextmanager
def sigterm_like_ctrl_c() -> Iterator[list[int]]:
    """Raises KeyboardInterrupt on SIGTERM, and lists the signals received; does nothing off the main thread.

    The list and not an exception of its own tells them apart: Ray raises KeyboardInterrupt for whatever a handler does.
    """
    received: list[int] = []

    def terminate(number: int, frame: Any) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)
