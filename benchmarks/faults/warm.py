"""Warm processes: Ray's agents and workers as forks of a process that has imported what they need.

A new interpreter spends some three CPU-seconds on importing Ray, Tune and torch, ten times what its part of a case
takes. A fork is a process like any other: it has its own number, memory and connections, and is killed like any other.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

MODULES = (
    "benchmarks.commands.report",
    "benchmarks.runner.runner",
    "benchmarks.tasks.images",
    "ray._private.log_monitor",
    "ray._private.runtime_env.agent.runtime_env_agent",
    "ray._private.workers.default_worker",
    "ray.autoscaler._private.monitor",
    "ray.dashboard.agent",
    "ray.dashboard.dashboard",
    "ray.dashboard.http_server_agent",
    "ray.scripts.scripts",
    "ray.tune.search.basic_variant",
    "torch._dynamo",
)
"""Whatever Ray's processes and the commands of the suite import."""

PR_SET_PDEATHSIG = 1
NO_JOB = "ffffffff"

CLIENT = """#!{python} -SE
import array, json, os, socket, sys
words = sys.argv[2:] if sys.argv[1:2] == ["-u"] else sys.argv[1:]
if not (words[:1] == ["-m"] or words[0].endswith(".py")):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = json.dumps([words, dict(os.environ), os.getcwd()]).encode()
files = array.array("i", [0, 1, 2])
server.sendmsg([len(request).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
server.sendall(request)
answer = server.recv(4)
code = int.from_bytes(answer, "big", signed=True) if len(answer) == 4 else 1
if code < 0:
    os.kill(os.getpid(), -code)
os._exit(code)
"""
"""Stands in for the interpreter: has the server fork, lives as long as the fork does, and ends as it ends."""


@contextmanager
def warm_python(folder: Path) -> Iterator[None]:
    """Puts an executable that gives warm forks in the place of ``sys.executable``, which Ray starts its processes with.

    It is one for modules (``-m``) and scripts; with any other words it is Python itself.
    """
    python, executable, address = sys.executable, folder / "python", str(folder / "warm.socket")
    executable.write_text(CLIENT.format(python=python, address=address))
    executable.chmod(0o755)
    words = [python, "-c", f"from {__name__} import serve; serve({address!r}, {str(executable)!r})"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            if server.stdout.readline() != b"ready\n":
                raise RuntimeError("the process that workers are forked from did not start")
            sys.executable = str(executable)
            yield
        finally:
            sys.executable = python
            server.kill()


def serve(address: str, executable: str) -> None:
    """Forks for every client, until standard input ends; a fork and its client end together."""
    # What Ray reads once, when it is imported: workers belong to no job yet, and their parent is this process.
    os.environ |= {"RAY_JOB_ID": NO_JOB, "RAY_RAYLET_PID": str(os.getpid())}
    for name in MODULES:
        import_module(name)
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    ready = selectors.DefaultSelector()
    ready.register(sys.stdin.fileno(), selectors.EVENT_READ)
    ready.register(listening, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in ready.select():
            if key.fileobj == sys.stdin.fileno():
                return
            if key.fileobj is listening:
                client, _ = listening.accept()
                with suppress(ConnectionError):
                    _fork(client, executable, ready, listening)
            elif isinstance(key.fileobj, socket.socket):
                ready.unregister(key.fileobj)  # the client was killed
                with suppress(ProcessLookupError):
                    os.kill(key.data, signal.SIGKILL)
            else:
                _ended(key, ready)


def _ended(key: selectors.SelectorKey, ready: selectors.BaseSelector) -> None:
    pid, client = key.data
    _, status = os.waitpid(pid, 0)
    ready.unregister(key.fileobj)
    os.close(key.fd)
    with suppress(KeyError, ValueError):
        ready.unregister(client)
    with suppress(OSError):
        client.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
    client.close()


def _fork(client: socket.socket, executable: str, ready: selectors.BaseSelector, listening: socket.socket) -> None:
    head, files, _, _ = socket.recv_fds(client, 4, 3)
    with client.makefile("rb") as stream:
        words, environment, folder = json.loads(stream.read(int.from_bytes(head, "big")))
    pid = os.fork()
    if pid:
        for file in files:
            os.close(file)
        ready.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, client))
        ready.register(client, selectors.EVENT_READ, pid)
        return
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        ready.close()
        listening.close()
        client.close()
        for file, number in zip(files, (0, 1, 2), strict=True):
            os.dup2(file, number)
            os.close(file)
        os.chdir(folder)
        environment |= {name: os.environ[name] for name in ("RAY_JOB_ID", "RAY_RAYLET_PID")}
        os.environ.clear()
        os.environ.update(environment)
        sys.executable = executable
        code = _run(words)
    except BaseException:  # the rest of the server's code must not run twice
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run(words: list[str]) -> int:
    """A module or a script; what ``setup_worker.py`` is asked for runs here, in its runtime environment."""
    try:
        if words[0].endswith("setup_worker.py"):
            from stn_tune.raytune.internals import enter_runtime_env

            words = enter_runtime_env(words)
        import_module("ray._raylet").Config.initialize("")  # which had read the server's variables
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
