"""Nodes that are lost: a Ray cluster of real ``ray start`` processes on this machine, one of which is killed."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.errors import SettingsError
from benchmarks.faults.bench import Bench, Outcome, family, kill
from benchmarks.faults.kinds import moment_of, through_the_runner
from benchmarks.runner.session import ATTEMPTS

START_S = 120.0


class Cluster:
    """A head without CPUs, and one worker node with two, which can be replaced."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.port = _free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._nodes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        self._start("--head", f"--port={self.port}", "--include-dashboard=false", "--num-cpus=0")
        self.add_worker()
        return self

    def __exit__(self, *_: object) -> None:
        for node in reversed(self._nodes):
            self._kill(node)

    def add_worker(self) -> None:
        """Starts a worker node."""
        self._start(f"--address={self.address}", "--num-cpus=2")

    def lose_worker(self) -> None:
        """Kills all processes of the worker node, as a machine that loses its power does."""
        self._kill(self._nodes[-1])

    def _start(self, *words: str) -> None:
        ray = f"import sys; sys.executable = {sys.executable!r}; from ray.scripts.scripts import main; main()"
        command = [
            str(Path(sys.prefix, "bin", "python")),
            "-c",
            ray,
            "start",
            *words,
            "--block",
            "--node-ip-address=127.0.0.1",
            "--disable-usage-stats",
        ]
        command += [f"--temp-dir={self.folder}", "--object-store-memory=100000000"]
        command += ["--min-worker-port=0", "--max-worker-port=0", f"--dashboard-agent-listen-port={_free_port()}"]
        environment = {**os.environ, "PYTHONWARNINGS": "ignore", "RAY_health_check_period_ms": "1000"}
        for _ in range(ATTEMPTS):
            log = self.folder / f"node-{len(self._nodes)}.log"
            with log.open("wb") as output:
                node = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=output, stderr=output)
            self._nodes.append(node)
            deadline = time.monotonic() + START_S
            while node.poll() is None and time.monotonic() < deadline:
                if b"Ray runtime started" in log.read_bytes():
                    return
                time.sleep(0.2)
            self._kill(node)
        raise SettingsError(f"no Ray node could be started: {log.read_text()[-300:].strip()!r}")

    @staticmethod
    def _kill(node: subprocess.Popen[bytes]) -> None:
        for pid in family(node.pid):
            kill(pid)
        node.wait()


def node(bench: Bench, rng: random.Random, cluster: Cluster) -> Outcome:
    """A node is lost with its trial, and perhaps the driver; another node joins, and the run goes on by itself."""
    replaced = threading.Event()

    def act(_: object) -> None:
        cluster.lose_worker()
        cluster.add_worker()
        replaced.set()

    bench.once(moment_of(bench, rng), act)
    outcome = through_the_runner(bench)
    replaced.wait(START_S)
    return outcome


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
