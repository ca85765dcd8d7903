"""Session: Ray for the length of a run, on this machine or a cluster."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from benchmarks.errors import SettingsError
from benchmarks.runner.experiment import QUIET
from benchmarks.runner.options import Options

ROOT = Path(__file__).parents[2]
PACKAGES = ("stn_tune", "baselines", "benchmarks")
ATTEMPTS = 3
"""To start Ray: it gives itself 30 seconds, which is too short on a busy machine."""


@dataclass
class Session:
    """Ray, on this machine or at ``--address``, for as long as the run takes; or the session this process already has.

    ``parallel`` is the number of experiments that fit at a time.
    """

    options: Options
    parallel: int = 1
    _own: bool = True

    def __enter__(self) -> Session:
        self._own = not ray.is_initialized()
        if self._own:
            self._connect()
        total = ray.cluster_resources()
        self.parallel = min(
            int(total.get(kind, 0) // (self.options.workers * amount))
            for kind, amount in (("CPU", self.options.cpus), ("GPU", self.options.gpus))
            if amount > 0
        )
        if self.parallel < 1:
            self.__exit__()
            raise SettingsError(
                f"--workers {self.options.workers}: trials of --cpus {self.options.cpus:g} and --gpus "
                f"{self.options.gpus:g} do not fit: Ray has CPUs: {total.get('CPU', 0):g}, "
                f"GPUs: {total.get('GPU', 0):g}"
            )
        return self

    def _connect(self) -> None:
        runtime: dict[str, Any] | None = None
        if self.options.address is not None:
            runtime = {"env_vars": QUIET, "py_modules": [str(ROOT / name) for name in PACKAGES]}
            _check_reachable(self.options.address)
        handler = signal.getsignal(signal.SIGTERM)
        try:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    self._init(runtime)
                    return
                except Exception as error:  # on a busy machine Ray raises no more specific one
                    ray.shutdown()
                    reason = str(error).strip().splitlines()[0]
                    if self.options.address is not None:
                        message = f"--address {self.options.address}: no Ray cluster there: {reason}"
                        raise SettingsError(message) from None
                    if attempt == ATTEMPTS:
                        raise SettingsError(f"Ray could not be started, try again later: {reason}") from None
        finally:
            _keep_handler(handler)

    def _init(self, runtime: dict[str, Any] | None) -> None:
        with nullcontext() if self.options.address else _environment(QUIET | {"PYTHONPATH": str(ROOT)}):
            ray.init(
                self.options.address or "local",
                runtime_env=runtime,
                include_dashboard=None if self.options.address else False,
                log_to_driver=False,
                logging_level="ERROR",
            )

    def __exit__(self, *_: object) -> None:
        if self._own:
            ray.shutdown()

    def check_storage(self, storage: str) -> None:
        """Every node must see the same folder: when a node is lost, its trials continue on another."""
        if "://" in storage or self.options.address is None:
            return
        nodes = [node for node in ray.nodes() if node["Alive"]]
        probe = ray.remote(num_cpus=0)(os.path.exists)
        for node in nodes:
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            if not ray.get(probe.options(scheduling_strategy=strategy).remote(f"{storage}/.writable")):
                raise SettingsError(
                    f"--storage {storage} is not shared: node {node['NodeManagerAddress']} does not see it; use a "
                    f"folder that all nodes mount, or a URI such as s3://bucket/path"
                )


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """What Ray's processes inherit when it is started here.

    With a runtime environment in its place, Ray would not use the workers that it starts in advance.
    """
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _keep_handler(handler: Any) -> None:
    """``ray.init`` replaces the handler of SIGTERM by one that exits on the spot, without saving checkpoints."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _check_reachable(address: str) -> None:
    """Raises at once if nothing listens there: Ray itself would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"--address {address}: no Ray cluster there: {reason}; `ray start --head` prints the address"
        ) from None
