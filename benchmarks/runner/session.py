"""Session: Ray for the length of a run, on this machine or a cluster, with room for so many experiments at a time."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from benchmarks.experiment import QUIET
from benchmarks.options import Options
from benchmarks.settings import SettingsError

ROOT = Path(__file__).parents[1]
PACKAGES = ("stn_tune", "baselines", "benchmarks")


@dataclass
class Session:
    """Ray, on this machine or at ``--address``, for as long as the run takes; or the one this process has already."""

    options: Options
    lanes: int = 1
    _own: bool = True

    def __enter__(self) -> Session:
        self._own = not ray.is_initialized()
        if self._own:
            self._connect()
        total = ray.cluster_resources()
        self.lanes = min(
            int(total.get(kind, 0) // (self.options.workers * amount))
            for kind, amount in (("CPU", self.options.cpus), ("GPU", self.options.gpus))
            if amount > 0
        )
        if self.lanes < 1:
            self.__exit__()
            raise SettingsError(
                f"--workers {self.options.workers} with {self.options.cpus:g} CPUs and {self.options.gpus:g} GPUs each "
                f"do not fit: the cluster has {total.get('CPU', 0):g} CPUs and {total.get('GPU', 0):g} GPUs"
            )
        return self

    def _connect(self) -> None:
        if self.options.address is None:
            runtime: dict[str, Any] = {"env_vars": {**QUIET, "PYTHONPATH": str(ROOT)}}
        else:
            runtime = {"env_vars": QUIET, "py_modules": [str(ROOT / name) for name in PACKAGES]}
            _knock(self.options.address)
        try:
            ray.init(
                self.options.address or "local",
                runtime_env=runtime,
                include_dashboard=None if self.options.address else False,
                log_to_driver=False,
                logging_level="ERROR",
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise SettingsError(f"--address {self.options.address}: no Ray cluster there: {reason}") from None

    def __exit__(self, *_: object) -> None:
        if self._own:
            ray.shutdown()

    def check_storage(self, storage: str) -> None:
        """Every node has to see the same folder: a trial goes on elsewhere when its node is lost."""
        if "://" in storage or self.options.address is None:
            return
        nodes = [node for node in ray.nodes() if node["Alive"]]
        probe = ray.remote(num_cpus=0)(os.path.exists)
        for node in nodes:
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            if not ray.get(probe.options(scheduling_strategy=strategy).remote(f"{storage}/.writable")):
                raise SettingsError(
                    f"--storage {storage} is not shared: node {node['NodeManagerAddress']} does not see it; give a "
                    f"folder that all nodes mount, or a URI such as s3://bucket/path"
                )


def _knock(address: str) -> None:
    """Raises at once where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"--address {address}: no Ray cluster there: {reason}; the head's `ray start --head` prints its address"
        ) from None
